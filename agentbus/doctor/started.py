"""What a client starts for agentbus: whether it can be started, is this agentbus, and leads to this bus."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

import msgspec

from agentbus import config
from agentbus.config import SettingsError
from agentbus.doctor.command import judge_other, version_of
from agentbus.doctor.findings import fault, note
from agentbus.doctor.visit import CONFIG_VARIABLE, DATA_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbus.doctor.findings import Finding
    from agentbus.doctor.runs import Run
    from agentbus.doctor.visit import Visit

_MOVING: Final = (CONFIG_VARIABLE, DATA_VARIABLE)


class Owner(msgspec.Struct, frozen=True):
    """Where it stands: for people, what sets it right, and whether its client passes its environment on."""

    title: str
    mend: str
    passes_on: bool


def judge_run(visit: Visit, owner: Owner, run: Run) -> Iterator[Finding]:
    """What is wrong with one; nothing if it starts this agentbus on this bus."""
    if run.off:
        do = 'Take "disabled", or "enabled", out of it, and restart the client.'
        yield fault(owner.title, f"{run.what} is switched off", "Its agents have no tools of agentbus.", do)
    program = shutil.which(run.program, path=visit.environ.get("PATH"))
    if program is None:
        why = "The client cannot start it, and says so in its own log at most."
        yield fault(owner.title, f"{run.what} runs {run.program}, which is not there", why, owner.mend)
    elif os.path.basename(program) != "agentbus":
        why = "Which agentbus that starts is not looked at."
        yield note(owner.title, f"{run.what} runs agentbus through {run.program}", why)
    elif os.path.realpath(program) != os.path.realpath(visit.setup.command):
        yield judge_other(owner.title, f"{run.what} runs {program}", version_of(program, visit.environ))
    if not visit.refused:
        yield from _judge_bus(visit, owner, run)


def _judge_bus(visit: Visit, owner: Owner, run: Run) -> Iterator[Finding]:
    told = {key: run.environ[key] for key in _MOVING if key in run.environ}
    try:
        there = os.fspath(config.load(None, {"HOME": visit.home} | told).data_directory)
    except SettingsError as error:
        what = f"{run.what} has settings that cannot be used: {error.message}"
        yield fault(owner.title, what, "It does not start.", owner.mend)
        return
    if os.path.realpath(there) == os.path.realpath(visit.data):
        return
    why = f"Two buses: this command sees {visit.data}, and what is posted there is not seen here."
    do = f"{owner.mend}, with AGENTBUS_DATA_DIR set as it shall be for all of them"
    if told or not owner.passes_on:
        yield fault(owner.title, f"{run.what} leads to {there}", why, do)
    else:
        what = f"{run.what} leads to {there} unless its client is started with the variables that are set here"
        yield note(owner.title, what, why, do)
