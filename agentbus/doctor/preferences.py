"""The settings file and the variables that say where the bus is. Changes nothing."""

from __future__ import annotations

import difflib
import os
import shlex
from typing import TYPE_CHECKING, Final

from agentbus import config
from agentbus.config import SettingsError
from agentbus.doctor.findings import fault, note, ok
from agentbus.doctor.visit import CONFIG_VARIABLE, DATA_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbus.doctor.findings import Finding
    from agentbus.doctor.visit import Visit

ABOUT: Final = "settings"
_KNOWN: Final = (CONFIG_VARIABLE, DATA_VARIABLE)
_PREFIX: Final = "AGENTBUS"
_REFUSED: Final = "No server and no command starts with settings that may not be."


def file(visit: Visit) -> Iterator[Finding]:
    """Whether what it says may be."""
    try:
        loaded = config.trace(visit.config_path, visit.environ)
    except SettingsError as error:
        yield from _faults(visit, error)
        return
    there = f"{loaded.file} is right" if loaded.is_there else f"there is no {loaded.file}, so the defaults hold"
    yield ok(ABOUT, there)
    named = loaded.named_by
    if named == CONFIG_VARIABLE and not os.path.isabs(os.path.expanduser(visit.environ[CONFIG_VARIABLE])):
        yield note(
            ABOUT,
            f"{CONFIG_VARIABLE} is a relative path: {visit.environ[CONFIG_VARIABLE]}",
            "In another working directory it names another file, or none, and then the server does not start.",
            f"export {CONFIG_VARIABLE}={shlex.quote(os.path.abspath(loaded.file))}",
        )


def _faults(visit: Visit, error: SettingsError) -> Iterator[Finding]:
    named = visit.config_path or visit.environ.get(CONFIG_VARIABLE)
    _, faults = config.check(named or config.FILE, visit.environ)
    if not any(each.render() in error.message for each in faults):  # a variable is at fault, not the file
        yield fault(
            ABOUT, error.message, _REFUSED, "Mend it where it is set, in your shell's start-up file or a client."
        )
        return
    for each in faults:
        do = f"Mend it; agentbus config --check {shlex.quote(each.file)} says whether it is right."
        yield fault(ABOUT, each.render(), _REFUSED, do)


def variables(visit: Visit) -> Iterator[Finding]:
    """Whether each variable that looks like one of ours is one."""
    unknown = sorted(name for name in visit.environ if name.startswith(_PREFIX) and name not in _KNOWN)
    for name in unknown:
        known = {each.removeprefix(_PREFIX): each for each in _KNOWN}
        near = difflib.get_close_matches(name.removeprefix(_PREFIX), known, n=1)
        meant = f": did you mean {known[near[0]]}?" if near else ""
        yield note(
            ABOUT,
            f"{name} is set, and is no variable of agentbus{meant}",
            f"It does nothing; {' and '.join(_KNOWN)} are all there are.",
            f"unset {name}",
        )
    if not unknown:
        told = [f"{name}={visit.environ[name]}" for name in _KNOWN if name in visit.environ]
        yield ok(ABOUT, f"set in the environment: {', '.join(told) or 'nothing'}")
