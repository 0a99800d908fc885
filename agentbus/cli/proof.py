"""``agentbus replay --verify``: every fault of a journal named, or its anchor; kept anchors checked. Reads only."""

from __future__ import annotations

from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from agentbus import replay as auditor
from agentbus import wire
from agentbus.audit.anchors import Anchor, NoAnchorError, find_anchors, parse_anchor
from agentbus.audit.evidence import Evidence, Judged, render_change
from agentbus.cli.output import escape_json
from agentbus.cli.sources import MANGLED, NEXT_STEP, parse_line, render_lost, render_tail
from agentbus.columns import render_count
from agentbus.visible import render_visible
from journal import Commit, Fault, LostRange, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agentbus.cli.sources import Sources

_STRETCHES_SHOWN_MAX = 20
_ANCHOR_FILE_BYTES_MAX = 64 << 20  # four full logs


def verify(sources: Sources, anchors: Sequence[str], accepted: Sequence[str], *, as_json: bool) -> Verdict:
    """Walk through everything and say what was found; ends the command with exit status 1 if something is wrong.

    Args:
        sources: what to read.
        anchors: as they were given: ``SEQ:HASH``, or files that hold such.
        accepted: `lost` lines that are no failure, by their own ``SEQ:HASH``.
        as_json: one object instead of lines.

    Raises:
        click.UsageError: an anchor is none.
    """
    proof = _Proof(_read_anchors(anchors), _parse_accepted(accepted))
    for fault in proof.walk(sources):
        if not as_json:
            _say(f"fault: {fault.file} line {fault.line} (byte {fault.offset}, seq {fault.seq}): {fault.cause}")
    if as_json:
        click.echo(escape_json(msgspec.json.encode(proof.record())).decode())
    else:
        for line in proof.lines():
            _say(line)
        step = proof.next_step(own=sources.own)
        if step:
            _say(f"Next: {step}")
    if not proof.is_sound:
        click.get_current_context().exit(1)
    return proof.verdict


class _Proof:
    """One verification: what was asked, and what was found.

    Attributes:
        faults: what the chain shows, and lines that verify and that no bus can have written.
    """

    def __init__(self, anchors: Sequence[Anchor], accepted: Sequence[Anchor]) -> None:
        self.verdict = Verdict()
        self.faults: list[Fault] = []
        self._evidence = Evidence(anchors, accepted)
        self._accepted = accepted
        self._judged: list[Judged] = []

    def walk(self, sources: Sources) -> Iterator[Fault]:
        """Read everything, once; each fault when it is met."""
        take = self._evidence.take
        for found in sources.walk():
            if isinstance(found, Commit):
                try:
                    take(found, parse_line(found))
                    continue
                except wire.MalformedError as error:
                    take(found, ())
                    fault = sources.fault_at(found, error.cause)
            elif isinstance(found, Fault):
                fault = found
                self._evidence.fault()
            else:
                self.verdict = found
                continue
            self.faults.append(fault)
            yield fault
        self._judged = self._evidence.judge(self.verdict.unchecked)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong but what was accepted by name."""
        return not (self.faults or self._refused or self._failing)

    @property
    def _refused(self) -> list[LostRange]:
        return [lost for lost in self.verdict.lost if not self._is_accepted(lost)]

    @property
    def _failing(self) -> list[Judged]:
        return [judged for judged in self._judged if judged.fails]

    def _is_accepted(self, lost: LostRange) -> bool:
        """Whether it was given by its name, and has that hash, and does not only say so."""
        return Anchor(lost.seq, lost.hash) in self._accepted and lost.seq not in self._evidence.unchecked

    def _accepting(self, lost: LostRange) -> str:
        if self._is_accepted(lost):
            return "; accepted"
        if lost.seq in self._evidence.unchecked:
            return f"; cannot be accepted: only an anchor at seq {lost.seq - 1} shows that its hash is true"
        return ""

    @property
    def _anchor(self) -> str | None:
        """Of the last line; None where there is none, or its hash was not computed."""
        verdict = self.verdict
        is_computed = verdict.commits and verdict.last_seq not in self._evidence.unchecked
        return f"{verdict.last_seq}:{verdict.hash}" if is_computed else None

    @property
    def _stray(self) -> list[Anchor]:
        """What was accepted and is not there."""
        there = {Anchor(lost.seq, lost.hash) for lost in self.verdict.lost}
        return [each for each in self._accepted if each not in there]

    def lines(self) -> Iterator[str]:
        """All of it but the faults, for people; none of an empty journal."""
        verdict, judged = self.verdict, self._judged
        for lost in verdict.lost:
            yield render_lost(lost) + self._accepting(lost)
        yield from self._notes()
        for each in judged:
            yield f"anchor {each.anchor}: {each.text}"
        change = render_change(judged)
        if change:
            yield change
        if not self.is_sound:
            yield from self._sound_stretches()
            rest = f"the rest verifies: {self._extent()}" if self.verdict.commits else "no line verifies"
            yield f"failed: {self._wrongs()}; {rest}"
        elif verdict.commits:
            yield f"ok: {self._extent()}, {f'anchor {self._anchor}' if self._anchor else 'no anchor'}"

    def next_step(self, *, own: bool) -> str:
        """What to do about it, where that is plain; else empty."""
        if self.faults:
            return NEXT_STEP if own else "" if self.verdict.commits else MANGLED
        if self._failing or all(lost.seq in self._evidence.unchecked for lost in self._refused):
            return ""
        return "accept a loss that you know of, by the name its line has here: --accept-lost SEQ:HASH"

    def _notes(self) -> Iterator[str]:
        verdict = self.verdict
        for each in self._stray:
            yield f"note: --accept-lost {each}: no such lost line is here"
        unchecked = self._evidence.unchecked
        if unchecked:
            seqs = ", ".join(map(str, unchecked))
            gone = "the hash before it is gone; an anchor of that line would check it"
            yield f"note: seq {seqs}: taken on trust, {gone}"
        if verdict.first_seq > 1 and not self._lacks_beginning:
            yield f"note: the history begins with seq {verdict.first_seq}: nothing before that is here"
        if verdict.tail is not None:
            yield f"note: {render_tail(verdict.tail)}"

    @property
    def _lacks_beginning(self) -> bool:
        """Whether a fault has said already why the first line is not seq 1."""
        return bool(self.faults) and self.faults[0].seq < self.verdict.first_seq

    def _sound_stretches(self) -> Iterator[str]:
        stretches = self._evidence.stretches
        for each in stretches[:_STRETCHES_SHOWN_MAX]:
            yield f"sound: {auditor.render_seqs(each.first, each.last)}, anchor {each.anchor}"
        if len(stretches) > _STRETCHES_SHOWN_MAX:
            yield f"sound: and {render_count(len(stretches) - _STRETCHES_SHOWN_MAX, 'more stretch', 'more stretches')}"

    def _wrongs(self) -> str:
        wrongs = [render_count(len(self.faults), "fault")]
        ranges = render_count(len(self._refused), "lost range")
        wrongs.append(ranges + " not accepted" if self._accepted else ranges)
        if self._failing:
            wrongs.append(render_count(len(self._failing), "anchor") + " without a match")
        return f"{', '.join(wrongs[:-1])} and {wrongs[-1]}"

    def _extent(self) -> str:
        verdict = self.verdict
        what = f"{render_count(verdict.commits, 'commit')} in {render_count(verdict.segments, 'segment')}"
        return f"{what}, {auditor.render_seqs(verdict.first_seq, verdict.last_seq)}" if verdict.commits else what

    def record(self) -> dict[str, Any]:
        """All of it, for programs."""
        verdict = self.verdict
        return {
            "ok": self.is_sound,
            "commits": verdict.commits,
            "segments": verdict.segments,
            "first_seq": verdict.first_seq,
            "last_seq": verdict.last_seq,
            "anchor": self._anchor,
            "faults": self.faults,
            "lost": [
                {"first": lost.seq, "last": lost.last, "reason": lost.reason, "lost": f"{lost.seq}:{lost.hash}"}
                | {"accepted": self._is_accepted(lost)}
                for lost in verdict.lost
            ],
            "not_lost": [str(each) for each in self._stray],
            "unchecked": self._evidence.unchecked,
            "tail": verdict.tail,
            "anchors": [
                {"anchor": str(each.anchor), "holds": each.holds, "result": each.result, "text": each.text}
                for each in self._judged
            ],
            "sound": [
                {"first": each.first, "last": each.last, "anchor": str(each.anchor)}
                for each in self._evidence.stretches
            ],
        }


def _read_anchors(given: Iterable[str]) -> list[Anchor]:
    return [anchor for text in given for anchor in _read_anchor(text)]


def _read_anchor(text: str) -> list[Anchor]:
    """The anchor that a text is, or those in the file that it names."""
    anchor = parse_anchor(text)
    if anchor is not None:
        return [anchor]
    try:
        with Path(text).open("rb") as file:
            data = file.read(_ANCHOR_FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:  # a text may be no path either
        cause = getattr(error, "strerror", None) or str(error)
        raise click.UsageError(f'--anchor "{text}" is neither SEQ:HASH nor a file of such: {cause}.') from error
    if len(data) > _ANCHOR_FILE_BYTES_MAX:
        raise click.UsageError(f"--anchor {text}: no more than {_ANCHOR_FILE_BYTES_MAX} bytes are read of a file.")
    try:
        return find_anchors(_decode(data))
    except NoAnchorError as error:
        raise click.UsageError(f"--anchor {text}: {error}.") from error


def _decode(data: bytes) -> str:
    """A file of text as people keep it: some shells write UTF-16 where others write UTF-8."""
    return data.decode("utf-16" if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig", "replace")


def _parse_accepted(given: Iterable[str]) -> list[Anchor]:
    parsed = []
    for text in given:
        anchor = parse_anchor(text)
        if anchor is None:
            raise click.UsageError(
                f'--accept-lost "{text}" is no SEQ:HASH: give what --verify prints after LOST, "stands SEQ:HASH".'
            )
        parsed.append(anchor)
    return parsed


def _say(text: str) -> None:
    click.echo(render_visible(text))
