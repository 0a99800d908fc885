"""The coding agents of this user: which are there, what of ours each has, and whether it leads to this bus.

Reads their files with the set-up's own entries, so that doctor and set-up cannot disagree on what is wanted.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import TYPE_CHECKING, Final, Literal

from agentbus.doctor.findings import fault, note, ok
from agentbus.doctor.runs import find_in_plugin, find_runs, parse_file
from agentbus.doctor.started import Owner, judge_run
from agentbus.doctor.trust import are_off, read_trust
from agentbus.doctor.versions import installed_version
from agentbus.harness.entries import ForeignServerError, UnusableTextError
from agentbus.harness.every import HARNESSES
from agentbus.harness.setup import FILE_BYTES_MAX
from agentbus.repository import is_present, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbus.doctor.findings import Finding
    from agentbus.doctor.runs import Run
    from agentbus.doctor.visit import Visit
    from agentbus.harness.entries import Entry
    from agentbus.harness.setup import Harness

ABOUT: Final = "clients"
_PASSES_NOTHING_ON: Final = frozenset({"codex"})
_WHY: Final = (
    ("server", "Its agents have no tools of agentbus."),
    ("plugin", "Its sessions are not told of the bus, not held for new messages, and not woken."),
    ("skill", "Its agents find no word of the bus among their skills."),
    ("start", "Its sessions are not told of the bus when they begin."),
    ("", "Its turns end although messages wait, and an idle session is not woken."),
)

Standing = Literal["there", "missing", "differs"]


def any_connected(visit: Visit) -> Iterator[Finding]:
    """Whether there is a client at all, and one that is connected."""
    found = [each for each in _harnesses(visit) if each.is_found(visit.told)]
    if not found:
        titles = ", ".join(each.title for each in _harnesses(visit))
        why = "A bus is for agents: install one, then run agentbus init --global."
        yield note(ABOUT, f"found none of {titles}", why)
    elif not any(_Client(visit, each).is_connected() for each in found):
        titles = ", ".join(each.title for each in found)
        yield fault(ABOUT, f"none is connected: {titles}", "No agent can reach the bus.", "agentbus init --global")


def one(visit: Visit, name: str) -> Iterator[Finding]:
    """One client, if it is on this machine."""
    harness = HARNESSES[name](visit.setup)
    if harness.is_found(visit.told):
        yield from _Client(visit, harness).look()


def _harnesses(visit: Visit) -> list[Harness]:
    return [make(visit.setup) for make in HARNESSES.values()]


class _Client:
    """One client and its files."""

    def __init__(self, visit: Visit, harness: Harness) -> None:
        self._visit = visit
        self._harness = harness
        told = "" if visit.config_path is None else f" --config {shlex.quote(visit.config_path)}"
        self._set_up = f"agentbus init --global --harness {harness.name}{told}"
        self._owner = Owner(harness.title, self._set_up, passes_on=harness.name not in _PASSES_NOTHING_ON)
        command = harness.by_command
        self._entries = harness.entries if command is None else (command.entry, *harness.entries)

    def is_connected(self) -> bool:
        """Whether it has anything of ours."""
        for entry in self._entries:
            try:
                if self._standing(entry) != "missing":
                    return True
            except (OSError, ValueError):
                return True  # who looks at the client itself says what is wrong with its files
        return any(map(is_present, (made.file for made in self._harness.made)))

    def look(self) -> Iterator[Finding]:
        """Everything about it."""
        title, path = self._harness.title, self._harness.path(self._visit.told)
        version = installed_version(path, self._harness.program, self._visit.environ) if path else ""
        where = f" at {path}" if path else ", without a command on the PATH"
        if not self.is_connected():
            why = "Its agents cannot reach the bus."
            yield note(title, f"is installed{where}, and not connected", why, self._set_up)
            return
        yield ok(title, f"version {version or 'unknown'}{where}")
        bad = [finding for run in self._runs() for finding in judge_run(self._visit, self._owner, run)]
        yield from bad
        for entry in self._entries:
            yield from self._judge_entry(entry, quiet=bool(bad))
        for made in self._harness.made:
            yield self._judge_piece(made.what, made.file, self._made_standing(made.file, made.text), quiet=bool(bad))
        match self._harness.name:
            case "claude":
                yield from self._look_at_switch()
            case "codex":
                yield from self._look_at_trust()

    # --- what is there

    def _standing(self, entry: Entry) -> Standing:
        """How an entry stands. Raises OSError, ValueError."""
        text = _read(entry.file).removeprefix("\ufeff")
        if entry.put(text) == text:
            return "there"
        return "missing" if entry.take(text) == text else "differs"

    def _made_standing(self, file: str, text: str) -> Standing:
        if not is_present(file):
            return "missing"
        return "there" if _read(file) == text else "differs"

    def _judge_entry(self, entry: Entry, *, quiet: bool) -> Iterator[Finding]:
        title = self._harness.title
        try:
            yield self._judge_piece(entry.what, entry.file, self._standing(entry), quiet=quiet)
        except ForeignServerError as error:
            yield fault(title, f"{entry.file}: {error}", "Its agents reach that one, and not the bus.", self._set_up)
        except UnusableTextError as error:
            why = "agentbus cannot see what stands there, and its client may not read it either."
            yield fault(title, f"{entry.file} cannot be used: {error}", why, f"Mend it by hand, then {self._set_up}")
        except UnicodeDecodeError as error:
            why = "agentbus cannot see what stands there, and its client may not read it either."
            what = f"{entry.file} cannot be used: byte {error.start + 1} is not UTF-8"
            yield fault(title, what, why, f"Mend it by hand, then {self._set_up}")

    def _judge_piece(self, what: str, file: str, standing: Standing, *, quiet: bool) -> Finding:
        """``quiet``: what is run from there has been judged, so that it is another does not need to be said again."""
        title = self._harness.title
        if standing == "there" or (standing == "differs" and quiet):
            return ok(title, f"{what} in {file}")
        if standing == "differs":
            why = "It works as it is, if that is meant; a new set-up replaces it."
            return note(title, f"{what} in {file} is not as this agentbus writes it", why, self._set_up)
        why = next(why for word, why in _WHY if word in what.lower())
        make = note if what.startswith("skill") else fault
        return make(title, f"{what} is missing in {file}", why, self._set_up)

    # --- what it runs

    def _runs(self) -> Iterator[Run]:
        """What its files start, each program once, as the server's if it is that too."""
        listed: list[Run] = []
        for file in dict.fromkeys(entry.file for entry in self._entries):
            with contextlib.suppress(OSError, ValueError):  # the entries that stand there say so
                listed += find_runs(parse_file(file, _read(file)))
        for made in self._harness.made:
            with contextlib.suppress(OSError, ValueError):  # as above
                listed += find_in_plugin(_read(made.file))
        found: dict[tuple[object, ...], Run] = {}
        for each in sorted(listed, key=lambda run: not run.is_server):
            found.setdefault((each.program, *sorted(each.environ.items())), each)
        yield from found.values()

    # --- what a client does with hooks

    def _look_at_switch(self) -> Iterator[Finding]:
        """Whether Claude Code runs hooks at all."""
        file = self._harness.entries[0].file
        try:
            off = parse_file(file, _read(file)).get("disableAllHooks") is True
        except (OSError, ValueError):
            return  # the entries that stand there say so
        if off:
            what = f"hooks are switched off in {file}: disableAllHooks is true"
            yield fault(self._harness.title, what, "Claude Code runs none of ours.", "Take that line out.")

    def _look_at_trust(self) -> Iterator[Finding]:
        """Whether its user has trusted our hooks, by what Codex notes itself."""
        title, files = self._harness.title, {os.path.basename(entry.file): entry.file for entry in self._entries}
        try:
            config_toml, hooks_json = (
                parse_file(files[name], _read(files[name])) for name in ("config.toml", "hooks.json")
            )
        except (OSError, ValueError):
            return  # the entries that stand there say so
        if are_off(config_toml):
            what = f"hooks are switched off in {files['config.toml']}: features.hooks is false"
            yield fault(title, what, "Codex runs none of ours.", "Take that line out.")
            return
        paths = (files["hooks.json"], os.path.realpath(files["hooks.json"]))
        stands: dict[str, list[str]] = {}
        for event, how in read_trust(config_toml, hooks_json, paths):
            stands.setdefault(how, []).append(event)
        if "untrusted" in stands or "off" in stands:
            events = ", ".join(dict.fromkeys(stands.get("untrusted", []) + stands.get("off", [])))
            why = "Codex passes over a hook, without a word, until its user has trusted it."
            yield fault(
                title, f"its user has not trusted these hooks: {events}", why, "Trust them with /hooks in Codex."
            )
        elif "changed" in stands:
            events = ", ".join(dict.fromkeys(stands["changed"]))
            why = "It may pass over them; whether it does cannot be read for certain from its files."
            yield note(title, f"these hooks are not as Codex noted them as trusted: {events}", why, "/hooks in Codex")
        elif "trusted" in stands:
            yield ok(title, "its user has trusted the hooks")


def _read(file: str) -> str:
    """A file's text; "" if there is none. Raises OSError, UnicodeDecodeError."""
    return read_regular(file, FILE_BYTES_MAX).decode() if is_present(file) else ""
