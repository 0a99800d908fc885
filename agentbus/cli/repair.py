"""``agentbus repair``: take damage out of the journal, once a person has said so. Destroys nothing.

What is damage and what becomes of it is the journal's to say; here it is put into words. Beyond what the journal can
see, a line that verifies is damaged if no bus can have written it.
"""

from __future__ import annotations

import shutil
import sys
from collections import defaultdict
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from agentbus import __version__, wire
from agentbus import replay as auditor
from agentbus.bus import FIRST_EVENTS
from agentbus.cli import bus
from agentbus.cli.output import print_json
from agentbus.columns import render_count
from agentbus.events import Ended, Registered, Reset
from agentbus.fold import FoldError, fold
from agentbus.host import open_journal, open_snapshots
from agentbus.limits import COMMAND_DEADLINE_S
from agentbus.log import open_log
from agentbus.owners import Owners
from agentbus.state import State
from agentbus.visible import render_visible
from journal import ChangedError, JournalError, Repair, UnreadableError, UnsyncedError, UnwritableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.config import Settings
    from agentbus.log import Log
    from journal import Commit, Damage, LostRange, Mended, Plan

    Say = Callable[[str], None]


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as one JSON object; all else on stderr.")
@bus.settings_option
def repair(*, yes: bool, as_json: bool, settings: Settings) -> None:
    """Take damage out of the journal, and say so in its place.

    First: if you have a good copy, or know what changed the journal (an editor, line ends), put that back instead:
    repair loses the damaged lines for good.

    Shows what it will do, and asks. Every sound line stays as it is; the damaged bytes are kept in journal/set-aside.
    Refused while a session is alive.
    """

    def say(text: str) -> None:
        click.echo(render_visible(text), err=as_json)

    if not open_journal(settings, read_only=True).exists:
        bus.say_no_journal(settings.data_directory, err=as_json)
        return
    with closing(open_log(settings.data_directory, settings.log_level)) as log:
        judges, torn = _Judges(), list[str]()
        work = _open_repair(settings, judges, log, torn)
        try:
            plan = work.plan()
        except UnreadableError as error:
            raise click.ClickException(f"not repaired: {error.cause}; nothing was changed") from error
        if plan.damages or plan.unnamed:
            _tell_plan(plan, settings, say)
            _refuse_while_alive(settings, judges.identities)
            if not yes:
                _ask(plan, say)
            try:
                work.perform(plan, lambda: _prepare(settings, judges.identities), wait_s=COMMAND_DEADLINE_S)
            except JournalError as error:
                raise _tell_failed(error, work.mended, torn, settings, say) from error
            finally:
                _log(work.mended, log)
            _tell_done(plan, work.mended, torn, settings, say)
        else:
            say(f"Agentbus: nothing to repair: {render_count(plan.commits, 'line')}, all sound.")
    if as_json:
        print_json(_render_json(plan, work.mended, torn, settings))


def _open_repair(settings: Settings, judges: _Judges, log: Log, torn: list[str]) -> Repair:
    def tell(piece: str) -> None:
        log.warning("set a torn tail aside: it was never acknowledged", piece=piece)
        torn.append(piece)

    return Repair(
        settings.data_directory / "journal",
        open_snapshots(settings),
        first_events=FIRST_EVENTS,
        by=f"agentbus {__version__}",
        segment_bytes_max=settings.segment_mib << 20,
        on_set_aside=tell,
        new_check=judges.new,
        allow_network_filesystem=settings.allow_network_filesystem,
    )


class _Judges:
    """Judges of lines that verify, for one look at the journal each; and who registered in what was seen."""

    def __init__(self) -> None:
        self.identities: dict[str, set[str]] = defaultdict(set)
        self._state = State()
        self._folds = True

    def new(self) -> Callable[[Commit, bool], str | None]:
        self._state, self._folds = State(), True
        return self._judge

    def _judge(self, commit: Commit, damaged: bool) -> str | None:  # noqa: FBT001  # as the journal calls it
        # After damage nothing that is missing is a fault: it may have been lost.
        self._folds = self._folds and not damaged
        try:
            events = auditor.parse_events(commit)
            if self._folds:
                fold(self._state, commit, events)
        except (wire.MalformedError, FoldError) as error:
            return error.cause
        for event in events:
            if isinstance(event, Registered):
                self.identities[event.owner].add(event.as_)
            elif isinstance(event, Ended):
                self.identities[event.owner].discard(event.as_)
            elif isinstance(event, Reset):
                self.identities.clear()
        return None


def _refuse_while_alive(settings: Settings, identities: dict[str, set[str]]) -> None:
    """Whoever lives may be in the middle of something; raise ClickException, naming them."""
    living = Owners(settings.data_directory / "owners").living()
    if not living:
        return
    names = []
    for each in living:
        who = ", ".join(sorted(identities.get(str(each["owner"]), ())))
        names.append(f"process {each.get('pid')}" + (f" ({who})" if who else ""))
    raise click.ClickException(
        f"not repaired while sessions are alive: {'; '.join(names)}. End them, then run it again; nothing was changed"
    )


def _prepare(settings: Settings, identities: dict[str, set[str]]) -> None:
    """Under the writer lock: nobody can register any more. The search index is of a journal that will be another."""
    _refuse_while_alive(settings, identities)
    index = settings.data_directory / "search"
    try:
        if index.exists():
            shutil.rmtree(index)
    except OSError as error:
        raise click.ClickException(f"not repaired: {index}: cannot delete it: {error.strerror}") from error


def _ask(plan: Plan, say: Say) -> None:
    if any(damage.last >= damage.first for damage in plan.damages):
        say(
            "First: if you have a good copy, or know what changed the journal (an editor, line ends), put that back"
            " instead: repair loses the damaged lines for good."
        )
    say("Type yes to go on.")
    if sys.stdin is None or sys.stdin.readline().strip() != "yes":
        raise click.ClickException("not repaired: the answer was not yes; nothing was changed")


# --- in words


def _tell_plan(plan: Plan, settings: Settings, say: Say) -> None:
    place = settings.data_directory / "journal"
    damages = f"{render_count(len(plan.damages), 'damage')} in {place}"
    stopped = f"a repair of {place} was stopped before its last line"
    say(f"Agentbus: {damages if plan.damages else stopped}; {_render_rest(plan.commits)}.")
    for number, damage in enumerate(plan.damages, 1):
        where = "" if damage.action in ("make", "take") else f" line {damage.line} (byte {damage.offset})"
        say(f"{number:>3}. {damage.file}{where}: {auditor.shorten_hashes(damage.cause)}")
        say(f"     {_render_outcome(damage)}")
    if plan.unnamed:
        say(f"LOST: {_render_stopped(plan)}. That is still to be said in the journal's last line.")


def _render_rest(lines: int) -> str:
    if not lines:
        return "there is no other line"
    if lines == 1:
        return "the other line is sound and stays as it is"
    return f"the other {lines} lines are sound and stay as they are"


def _render_stopped(plan: Plan) -> str:
    seqs = ", ".join(auditor.render_seqs(each.seq, each.last) for each in plan.unnamed)
    return f"{seqs} (taken out by a repair that was stopped)"


def _render_outcome(damage: Damage) -> str:
    size = render_count(damage.bytes, "byte")
    if damage.action == "end":
        return "Nothing is lost: the line is whole, and gets its line feed."
    if damage.action == "take":
        return f"Nothing is lost: the file has no place in this journal. All of it ({size}) is set aside."
    if damage.last < damage.first and not damage.bytes:
        return "Nothing is lost: every line can be unpacked. The archive is set aside, and its segment is there again."
    if damage.last < damage.first:
        return f"Nothing is lost: what stands there ({size}) is no line of this journal. It is set aside."
    what = "it" if damage.last == damage.first else "them"
    aside = f"What is left of {what} ({size}) is set aside." if damage.bytes else f"Nothing is left of {what}."
    blind = "" if damage.next_prev else " The hash that the next line continues is gone: that line is taken on trust."
    seqs = auditor.render_seqs(damage.first, damage.last)
    if damage.guessed:
        seqs = f"at least {seqs}, counted by line feeds: nobody knows how many lines stood here"
    return f"LOST: {seqs}. {aside}{blind}"


def _tell_done(plan: Plan, done: list[Mended], torn: list[str], settings: Settings, say: Say) -> None:
    lost = [text for text in (_render_lost(done), _render_stopped(plan) if plan.unnamed else "") if text]
    say(f"Agentbus: repaired. {'LOST: ' + '; '.join(lost) if lost else 'Nothing was lost'}.")
    if lost:
        say(
            'Agents whose own registration or subscription was lost begin at "now" when they register again (messages'
            " before that stay in the history); agents that had not come so far are told of a gap."
        )
    _tell_pieces(done, torn, settings, say)
    after = "names what was lost, and exits 1 for it" if lost else "checks every line"
    say(f"Next: `agentbus replay --verify` {after}; `agentbus status` shows what there is.")


def _tell_failed(
    error: JournalError, done: list[Mended], torn: list[str], settings: Settings, say: Say
) -> JournalError | click.ClickException:
    """Say what stands of a repair that failed in the middle; what is to be raised for it."""
    if isinstance(error, ChangedError):
        return error
    cause = error.cause if isinstance(error, UnwritableError | UnsyncedError | UnreadableError) else str(error)
    if not done:
        return click.ClickException(f"not repaired: {cause}; no line was changed: mend that and run it again")
    say(f"Agentbus: done before it failed: {_render_lost(done) or 'nothing that was lost'}.")
    _tell_pieces(done, torn, settings, say)
    return click.ClickException(f"not repaired: {cause}; what was done stands: mend that and run it again for the rest")


def _render_lost(done: list[Mended]) -> str:
    return ", ".join(
        f"at least {seqs} (counted by line feeds: nobody knows how many lines stood there)" if guessed else seqs
        for seqs, guessed in (
            (auditor.render_seqs(each.lost.seq, each.lost.last), each.damage.guessed)
            for each in done
            if each.lost is not None
        )
    )


def _tell_pieces(done: list[Mended], torn: list[str], settings: Settings, say: Say) -> None:
    taken = [name for each in done for name in (each.piece, each.archive) if name is not None]
    pieces = [*taken, *torn]
    if pieces:
        say(f"What was taken out is in {settings.data_directory / 'journal' / 'set-aside'}:")
    for piece in pieces:
        say(f"  {piece}" + (" (a torn tail: it was never acknowledged)" if piece in torn else ""))


# --- for programs


def _log(done: list[Mended], log: Log) -> None:
    for each in done:
        seqs = None if each.lost is None else auditor.render_seqs(each.lost.seq, each.lost.last)
        log.warning("repaired", file=each.damage.file, offset=each.damage.offset, piece=each.piece, lost=seqs)


def _render_json(plan: Plan, done: list[Mended], torn: list[str], settings: Settings) -> dict[str, Any]:
    aside = settings.data_directory / "journal" / "set-aside"
    rows = []
    for each in done:
        damage = each.damage
        row: dict[str, Any] = {"file": damage.file, "line": damage.line, "offset": damage.offset, "bytes": damage.bytes}
        row |= {"cause": damage.cause}
        if each.lost is not None:
            row |= {"lost": _render_range(each.lost)}
            row |= {"lost_is_guessed": damage.guessed, "next_checked": damage.next_prev is not None}
        if each.piece is not None:
            row |= {"set_aside": str(aside / each.piece)}
        if each.archive is not None:
            row |= {"archive_set_aside": str(aside / each.archive)}
        rows.append(row)
    return {
        "sound_lines": plan.commits,
        "repaired": rows,
        "lost_by_stopped_repair": list(map(_render_range, plan.unnamed)),
        "torn_tails": [str(aside / piece) for piece in torn],
    }


def _render_range(lost: LostRange) -> dict[str, Any]:
    return {"first": lost.seq, "last": lost.last, "hash": lost.hash}
