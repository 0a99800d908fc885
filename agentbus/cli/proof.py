"""``agentbus replay --verify``: every fault of a journal named, or its anchor. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentbus import replay as auditor
from agentbus import wire
from agentbus.cli.sources import NEXT_STEP, render_lost, render_tail
from agentbus.columns import render_count
from agentbus.visible import render_visible
from journal import Commit, Verdict

if TYPE_CHECKING:
    from agentbus.cli.sources import Sources
    from journal import Fault


def verify(sources: Sources) -> Verdict:
    """Walk through everything and say what was found; ends the command with exit status 1 if something is wrong."""
    verdict, faults = Verdict(), 0
    for found in sources.walk():
        if isinstance(found, Verdict):
            verdict = found
            continue
        fault = _check(sources, found) if isinstance(found, Commit) else found
        if fault is not None:
            faults += 1
            _say(f"fault: {fault.file} line {fault.line} (byte {fault.offset}, seq {fault.seq}): {fault.cause}")
    for lost in verdict.lost:
        _say(render_lost(lost))
    if verdict.unchecked:
        _say(f"note: seq {', '.join(map(str, verdict.unchecked))}: taken on trust, the hash before it is gone")
    if verdict.tail is not None:
        _say(f"note: {render_tail(verdict.tail)}")
    what = f"{render_count(verdict.commits, 'commit')} in {render_count(verdict.segments, 'segment')}"
    extent = f"{what}, {auditor.render_seqs(verdict.first_seq, verdict.last_seq)}"
    if faults or verdict.lost:
        wrong = f"{render_count(faults, 'fault')} and {render_count(len(verdict.lost), 'lost range')}"
        _say(f"failed: {wrong}; the rest verifies: {extent}")
        if faults and sources.own:
            _say(f"Next: {NEXT_STEP}")
        click.get_current_context().exit(1)
    if verdict.commits:
        _say(f"ok: {extent}, anchor {verdict.last_seq}:{verdict.hash}")
    return verdict


def _check(sources: Sources, commit: Commit) -> Fault | None:
    """What the chain cannot see in a line that verifies: whether a bus can have written it."""
    try:
        auditor.parse_events(commit)
    except wire.MalformedError as error:
        return sources.fault_at(commit, error.cause)
    return None


def _say(text: str) -> None:
    click.echo(render_visible(text))
