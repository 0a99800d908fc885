"""`agentbus replay --verify` with anchors and accepted losses, as an auditor runs it; and what it tells apart."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agentbus.audit.anchors import Anchor, NoAnchorError, find_anchors, parse_anchor
from agentbus.cli import main
from agentbus.cli.sources import MANGLED
from tests.agentbus.shell import Writer, environ, posted

GOLDEN = Path(__file__).parent.parent / "golden"
V1, MORE = GOLDEN / "journal-v1", GOLDEN / "journal-v1-more"
FIRST, SECOND = "00000000000000000001.jsonl", "00000000000000000009.jsonl"
LOST = "14:25c2587431a9ae423851afd41d91e2b2d52d53dd7c4c10605b41aad6cbc82ecf"
END = "24:374a42c08e59f46f3a51288c3c759cb08e66e5753b2c03bac53bc27b0d1216cd"
OK = f"ok: 22 commits in 2 segments, seq 1 to 24, anchor {END}"
NONE = "0" * 64
BUT = "matches, but 2 earlier commits were replaced"


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environ(tmp_path / "data").items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A journal of two segments with a lost range, that may be written to."""
    made = tmp_path / "copy"
    shutil.copytree(MORE, made)
    for path in made.iterdir():
        path.chmod(0o600)
    return made


def verify(*arguments: str | Path, stdin: bytes = b"") -> tuple[int, list[str], str]:
    result = CliRunner().invoke(main, ["replay", "--verify", *map(str, arguments)], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout.splitlines(), result.stderr


def known(*arguments: str | Path) -> tuple[int, list[str], str]:
    """With the loss accepted, and its line left out of what is returned."""
    status, out, err = verify("--accept-lost", LOST, *arguments)
    return status, [line for line in out if not line.startswith("LOST")], err


def anchors_of(journal: Path) -> dict[int, str]:
    lines = [json.loads(line) for path in sorted(journal.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return {line["seq"]: f"{line['seq']}:{line['hash']}" for line in lines}


def edit(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


# anchors


def test_an_anchor_of_any_line_matches(copy: Path) -> None:
    for seq, anchor in anchors_of(copy).items():
        status, out, _ = known(copy, "--anchor", anchor)
        assert (status, out[-1]) == (0, OK)
        but = ", but 3 earlier commits were replaced" if seq >= 14 else ""
        assert out[:-1] == [f"anchor {anchor}: matches{but}"]


def test_an_anchor_of_the_last_line_that_was_replaced_matches_and_says_what_it_cannot_show(copy: Path) -> None:
    (event,) = next(
        line["events"] for line in map(json.loads, (copy / SECOND).read_text().splitlines()) if line["seq"] == 14
    )
    anchor = f"16:{event['next_prev']}"
    status, out, _ = known(copy, "--anchor", anchor)
    assert (status, out[0]) == (0, f"anchor {anchor}: matches, but 3 earlier commits were replaced")


def test_one_replaced_commit_is_counted_as_one(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "j")
    prev = "e" * 64
    lost = writer.write({"type": "lost", "first": 3, "last": 3, "bytes": 9, "next_prev": prev, "reason": "redacted"})
    writer.prev = prev
    end = writer.write(posted("after"))
    status, out, _ = verify(tmp_path / "j", "--accept-lost", f"3:{lost}", "--anchor", f"4:{end}")
    assert (status, out[1]) == (0, f"anchor 4:{end}: matches, but 1 earlier commit was replaced")
    status, out, _ = verify(tmp_path / "j", "--accept-lost", f"3:{lost}", "--anchor", f"3:{NONE}")
    assert (status, out[1]) == (1, f"anchor 3:{NONE}: cannot be checked: seq 3 was replaced by a lost line")


def test_an_anchor_inside_a_lost_range_cannot_be_checked(copy: Path) -> None:
    for seq in (14, 15, 16):
        status, out, _ = known(copy, "--anchor", f"{seq}:{NONE}")
        text = f"anchor {seq}:{NONE}: cannot be checked: seq 14 to 16 were replaced by a lost line"
        assert (status, out[0]) == (1, text)


def test_a_history_that_was_written_anew_differs_from_the_first_changed_anchor_on(tmp_path: Path) -> None:
    true, forged = Writer(tmp_path / "true"), Writer(tmp_path / "forged")
    for number in range(3, 7):
        true.write(posted(f"text {number}"))
        forged.write(posted("doctored" if number == 5 else f"text {number}"))
    kept, now = anchors_of(tmp_path / "true"), anchors_of(tmp_path / "forged")
    arguments = [option for seq in (3, 4, 6) for option in ("--anchor", kept[seq])]
    assert verify(tmp_path / "true", *arguments)[0] == 0
    extent = "6 commits in 1 segment, seq 1 to 6"
    status, out, _ = verify(tmp_path / "forged", *arguments)
    assert status == 1
    assert out == [
        f"anchor {kept[3]}: matches",
        f"anchor {kept[4]}: matches",
        f"anchor {kept[6]}: differs: seq 6 has the hash {now[6][2:]} now",
        "the first change lies in seq 5 to 6: the anchor at seq 4 still holds",
        f"sound: seq 1 to 6, anchor {now[6]}",
        f"failed: 0 faults, 0 lost ranges and 1 anchor without a match; the rest verifies: {extent}",
    ]
    out = verify(tmp_path / "forged", "--anchor", kept[6])[1]
    narrow = "a line at or before seq 6 was changed, or this is another journal: try an earlier anchor"
    assert out[1] == narrow


def test_an_anchor_of_a_damaged_line_cannot_be_checked(copy: Path) -> None:
    anchors = anchors_of(copy)
    edit(copy / FIRST, b'{"seq":5,', b'{"seq":50,')
    status, out, _ = known(copy, "--anchor", anchors[5], "--anchor", anchors[4], "--anchor", anchors[6])
    assert status == 1
    assert out[0].startswith(f"fault: {copy / FIRST} line 5 (byte ")
    assert out[1:4] == [
        f"anchor {anchors[5]}: cannot be checked: seq 5 is damaged or missing",
        f"anchor {anchors[4]}: matches",
        f"anchor {anchors[6]}: matches; of what stood before seq 6 it tells nothing",
    ]
    assert out[4:6] == [f"sound: seq 1 to 4, anchor {anchors[4]}", f"sound: seq 6 to 14, anchor {anchors[14]}"]
    assert out[-1].startswith("failed: 1 fault, 0 lost ranges not accepted and 1 anchor without a match; ")


def test_a_missing_end_is_shown_by_an_anchor_alone(copy: Path) -> None:
    lines = (copy / SECOND).read_bytes().splitlines(keepends=True)
    (copy / SECOND).write_bytes(b"".join(lines[:-1]))
    assert known(copy)[0] == 0
    status, out, _ = known(copy, "--anchor", END)
    text = f"anchor {END}: cannot be checked: the end is missing, the last line here has seq 23"
    assert (status, out[0]) == (1, text)


def test_where_there_is_no_line_no_anchor_holds(tmp_path: Path) -> None:
    text = f"anchor {END}: cannot be checked: there is no line at all"
    failed = "failed: 0 faults, 0 lost ranges and 1 anchor without a match; no line verifies"
    (tmp_path / "empty").mkdir()
    for where in ((), (tmp_path / "empty",)):
        assert verify(*where, "--anchor", END) == (1, [text, failed], "")
    assert verify()[0] == 0


def test_an_anchor_before_the_beginning_cannot_be_checked(copy: Path) -> None:
    anchors = anchors_of(copy)
    note = "note: the history begins with seq 9: nothing before that is here"
    (copy / FIRST).rename(copy / "moved away")
    for what in (copy, copy / SECOND):
        status, out, _ = known(what, "--anchor", anchors[20])
        assert (status, out[0]) == (0, note)
        status, out, _ = known(what, "--anchor", anchors[3])
        late = "cannot be checked: the history begins later, with seq 9"
        assert (status, out[1]) == (1, f"anchor {anchors[3]}: {late}")
        goes_on = ", which continues this very line; verify what came before on its own"
        assert known(what, "--anchor", anchors[8])[1][1] == f"anchor {anchors[8]}: {late}{goes_on}"
        differs = f"differs: seq 9 continues the hash {anchors[8][2:]}"
        assert known(what, "--anchor", f"8:{NONE}")[1][1] == f"anchor 8:{NONE}: {differs}"
    assert known(copy / "moved away", "--anchor", anchors[8])[0] == 0


def test_a_history_that_begins_with_a_lost_line_is_not_taken_at_its_word(copy: Path) -> None:
    anchor = anchors_of(copy)[13]
    lines = (copy / SECOND).read_bytes().splitlines(keepends=True)
    begins = next(number for number, line in enumerate(lines) if line.startswith(b'{"seq":14,'))
    part = copy / f"{14:020d}.jsonl"
    part.write_bytes(b"".join(lines[begins:]))
    behind = f"anchor {END}: matches, but 3 earlier commits were replaced; of what stood before seq 14 it tells nothing"
    no = "; cannot be accepted: only an anchor at seq 13 shows that its hash is true"
    status, out, _ = verify(part, "--accept-lost", LOST, "--anchor", END)
    assert (status, out[0][-len(no) :], behind in out) == (1, no, True)
    assert not any(line.startswith("Next") for line in out)
    later = "cannot be checked: the history begins later, with seq 14"
    status, out, _ = verify(part, "--accept-lost", LOST, "--anchor", anchor, "--anchor", END)
    goes_on = ", which continues this very line; verify what came before on its own"
    assert (status, out[0].endswith("; accepted"), behind in out) == (1, True, True)
    assert f"anchor {anchor}: {later}{goes_on}" in out
    status, out, _ = verify(part, "--accept-lost", LOST, "--anchor", f"13:{NONE}")
    assert (status, out[0].endswith(no)) == (1, True)
    assert f"anchor 13:{NONE}: differs: seq 14 continues another line, or was changed" in out
    edit(
        part, b'"reason":"damage"', b'"reason":"redacted"'
    )  # its hash is not computed: nothing but the anchor shows it
    assert (
        f"anchor {anchor}: differs: seq 14 continues another line, or was changed" in known(part, "--anchor", anchor)[1]
    )


@pytest.mark.parametrize("form", ["alone", "status", "log", "json", "verify"])
def test_anchors_are_read_from_whatever_prints_them(copy: Path, tmp_path: Path, form: str) -> None:
    text = {
        "alone": f"# kept by hand\n\n {END}\n{anchors_of(copy)[3].upper()}\n",
        "status": f"journal   22 lines\nanchor    {END}\n",
        "log": f'{{"time":"x","level":"INFO","msg":"server ended","client":"5:{NONE}","anchor":"{END}"}}\n{{"x":1}}\n',
        "json": json.dumps({"ok": True, "anchor": END}),
        "verify": OK,
    }[form]
    (tmp_path / "anchors").write_text(text)
    status, out, _ = known(copy, "--anchor", tmp_path / "anchors")
    assert (status, out[-1]) == (0, OK)
    assert f"anchor {END}: matches, but 3 earlier commits were replaced" in out


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_anchors_are_read_however_a_shell_wrote_them(copy: Path, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "anchors").write_text(json.dumps({"client": f"5:{NONE}", "anchor": END}), encoding=encoding)
    assert known(copy, "--anchor", tmp_path / "anchors")[::2] == (0, "")


def test_a_line_that_is_almost_json_is_still_read() -> None:
    assert find_anchors(f'{{"anchor":"{END}"') == [parse_anchor(END)]
    with pytest.raises(NoAnchorError):
        find_anchors('{"anchor":null}')


def test_what_is_no_anchor_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none").write_text("nothing\n")
    (tmp_path / "short").write_text(f"{END}\n9:dbfd9ec65e\n")
    (tmp_path / "long").write_bytes(b"\n" * ((64 << 20) + 1))
    for given, says in (
        ("9:dbfd9ec6", '"9:dbfd9ec6" is neither SEQ:HASH nor a file of such: No such file or directory'),
        (f"0:{NONE}", f'"0:{NONE}" is neither SEQ:HASH nor a file of such: No such file or directory'),
        (str(tmp_path), f'"{tmp_path}" is neither SEQ:HASH nor a file of such: Is a directory'),
        ("\0", "is neither SEQ:HASH nor a file of such"),
        (str(tmp_path / "none"), "it holds no anchor: those are SEQ:HASH, with a hash of 64 hex digits"),
        (str(tmp_path / "short"), "line 2 is no whole anchor: after the colon come 64 hex digits"),
        (str(tmp_path / "long"), "no more than 67108864 bytes are read of a file"),
    ):
        status, out, err = verify(V1, "--anchor", given)
        assert (status, out, err.startswith("agentbus: --anchor ")) == (2, [], True)
        assert says in err
    status, _, err = verify(V1, "--accept-lost", "14")
    assert (status, 'give what --verify prints after LOST, "stands SEQ:HASH"' in err) == (2, True)


def test_anchors_without_verify_are_refused(copy: Path) -> None:
    result = CliRunner().invoke(main, ["replay", str(copy), "--anchor", END])
    assert result.exit_code == 2
    assert "--anchor is for --verify" in result.stderr


def test_an_anchor_is_a_value(copy: Path) -> None:
    assert parse_anchor(f" {END}\n") == Anchor(24, END[3:])
    assert str(Anchor(24, END[3:])) == END
    told = f"anchor {END}: matches, but 3 earlier commits were replaced"
    assert known(copy, "--anchor", END, "--anchor", END)[1].count(told) == 1


# lost lines


def test_a_lost_line_fails_unless_it_is_accepted_by_its_own_hash(copy: Path) -> None:
    assert verify(copy)[0] == 1
    status, out, _ = verify(copy, "--accept-lost", LOST)
    assert (status, out[0].endswith(f"stands {LOST}; accepted"), out[1:]) == (0, True, [OK])
    status, out, _ = verify(copy, "--accept-lost", f"14:{NONE}")
    assert status == 1
    assert out[1] == f"note: --accept-lost 14:{NONE}: no such lost line is here"
    assert "failed: 0 faults and 1 lost range not accepted; " in out[-2]
    assert "--accept-lost SEQ:HASH" in out[-1]
    assert verify(V1, "--accept-lost", LOST)[0] == 0


def on_trust(place: Path, text: str = "five") -> tuple[str, str, dict[int, str]]:
    """A journal in which the line behind a lost one cannot be checked; the loss, the line before, other anchors."""
    writer, gone = Writer(place), "b" * 64
    lost = writer.write({"type": "lost", "first": 3, "last": 4, "bytes": 9, "next_prev": None, "reason": "damage"})
    writer.seq, writer.prev = 5, gone
    anchors = {5: f"5:{writer.write(posted('five'))}"}
    anchors |= {seq: f"{seq}:{writer.write(posted(str(seq)))}" for seq in (6, 7)}
    edit(writer.path, b"five", text.encode())
    return f"3:{lost}", f"4:{gone}", anchors


def test_a_line_on_trust_matches_no_anchor_by_the_hash_it_only_states(tmp_path: Path) -> None:
    lost, _, anchors = on_trust(tmp_path / "j")
    doctored, _, _ = on_trust(tmp_path / "k", "FIVE")
    assert doctored == lost
    for place in (tmp_path / "j", tmp_path / "k"):
        status, out, _ = verify(place, "--accept-lost", lost, "--anchor", anchors[7])
        assert status == 0
        assert out[1:3] == [
            "note: seq 5: taken on trust, the hash before it is gone; an anchor of that line would check it",
            f"anchor {anchors[7]}: {BUT}, and 1 line behind them is taken on trust",
        ]
        status, out, _ = verify(place, "--accept-lost", lost, "--anchor", anchors[5])
        assert status == 1
        assert out[2] == f"anchor {anchors[5]}: cannot be checked: seq 5 is taken on trust, its hash is only stated"
        assert out[3:5] == [f"sound: seq 1 to 3, anchor {lost}", f"sound: seq 6 to 7, anchor {anchors[7]}"]


def test_an_anchor_of_the_line_that_is_gone_checks_the_line_on_trust(tmp_path: Path) -> None:
    lost, gone, anchors = on_trust(tmp_path / "j")
    arguments = (
        "--accept-lost",
        lost,
        *(option for each in (gone, *anchors.values()) for option in ("--anchor", each)),
    )
    status, out, _ = verify(tmp_path / "j", *arguments)
    assert (status, out[1:-1]) == (0, [f"anchor {each}: {BUT}" for each in (gone, *anchors.values())])
    on_trust(tmp_path / "k", "FIVE")
    status, out, _ = verify(tmp_path / "k", *arguments)
    assert (status, out[2]) == (1, f"anchor {gone}: differs: seq 5 continues another line, or was changed")


def test_a_last_line_on_trust_gives_no_anchor(tmp_path: Path) -> None:
    lost, _, _ = on_trust(tmp_path / "j")
    path = tmp_path / "j" / FIRST
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    extent = "4 commits in 1 segment, seq 1 to 5"
    assert verify(tmp_path / "j", "--accept-lost", lost)[1][-1] == f"ok: {extent}, no anchor"
    assert record(tmp_path / "j")[1]["anchor"] is None


def test_behind_a_fault_or_a_loss_that_nobody_accepted_an_anchor_tells_nothing_of_what_stood_before(copy: Path) -> None:
    """Whoever can write the file can put such a thing between lines that he wrote anew and the true ones."""
    anchors = anchors_of(copy)
    blind = "it tells nothing"
    behind = f"anchor {END}: matches, but 3 earlier commits were replaced; of what stood before seq"
    assert f"{behind} 14 {blind}" in verify(copy, "--anchor", END)[1]
    assert f"{behind} 14 {blind}" not in verify(copy, "--anchor", END, "--anchor", LOST)[1]  # that knows it, too
    edit(copy / FIRST, b'{"seq":5,', b'{"seq":50,')
    status, found = record(copy, "--accept-lost", LOST, "--anchor", END, "--anchor", anchors[6])
    assert (status, [(each["result"], each["holds"]) for each in found["anchors"]]) == (1, [("partly", False)] * 2)
    assert f"{behind} 6 {blind}" in known(copy, "--anchor", END)[1]


def test_a_lost_line_that_no_repair_wrote_ends_what_a_hash_proves(tmp_path: Path) -> None:
    writer, prev = Writer(tmp_path / "j"), "e" * 64
    writer.write({"type": "lost", "first": 3, "last": 3, "next_prev": prev, "reason": "damage"})
    writer.prev = prev
    end = f"4:{writer.write(posted('after'))}"
    status, out, _ = verify(tmp_path / "j", "--anchor", end)
    assert (status, out[0].endswith("missing required field `bytes` - at `$[0]`")) == (1, True)
    assert f"anchor {end}: matches; of what stood before seq 4 it tells nothing" in out


@pytest.mark.parametrize(
    "raw",
    [
        b'[{"first":3,"type":"lost","last":3,"bytes":9,"next_prev":null,"reason":"damage"}]',
        b'[{"type":"lo\\u0073t","first":3,"last":3,"bytes":9,"next_prev":null,"reason":"damage"}]',
        b'[{"type":"active","as":"alice"},{"type":"lost","first":3,"last":3,"bytes":9,"next_prev":null,"reason":"damage"}]',
    ],
)
def test_a_loss_that_the_chain_does_not_know_of_is_a_fault(tmp_path: Path, raw: bytes) -> None:
    writer = Writer(tmp_path / "j")
    writer.write(raw=raw)
    writer.write(posted("after"))
    status, out, _ = verify(tmp_path / "j")
    assert (status, out[0].endswith(": lost must stand alone in its line, its type first")) == (1, True)
    assert CliRunner().invoke(main, ["replay", str(tmp_path / "j")]).exit_code == 1


# what is told apart


def test_archives_are_verified_like_segments(copy: Path) -> None:
    (copy / "archive").mkdir()
    (copy / "archive" / f"{FIRST}.gz").write_bytes(gzip.compress((copy / FIRST).read_bytes()))
    (copy / FIRST).unlink()
    assert known(copy, "--anchor", END)[::2] == (0, "")
    assert known(copy / "archive" / f"{FIRST}.gz", copy / SECOND)[1] == [OK]
    (copy / SECOND).rename(copy / "archive" / SECOND)
    assert known(copy / "archive")[1] == [OK]
    assert known((copy / "archive").rename(copy / "mailed"))[1] == [OK]
    (copy / "mailed").rename(copy / "archive")
    (copy / "archive" / SECOND).rename(copy / SECOND)
    (copy / "archive" / f"{FIRST}.gz").write_bytes(gzip.compress(b"x" + (copy / SECOND).read_bytes()))
    status, out, _ = known(copy)
    assert (status, out[0].startswith(f"fault: {copy / 'archive' / FIRST}.gz line 1 (byte 0, seq 1)")) == (1, True)


def test_a_journal_is_sound_however_its_parts_are_named(copy: Path) -> None:
    """As a shell names them, twice, and with what lies beside them."""
    (copy / "archive").mkdir()
    (copy / "archive" / f"{FIRST}.gz").write_bytes(gzip.compress((copy / FIRST).read_bytes()))
    (copy / "set-aside").mkdir()
    (copy / "set-aside" / "piece.torn").write_bytes(b"torn")
    (copy / "writer.lock").touch()
    for paths in (copy.iterdir(), (copy, copy / SECOND), (copy / FIRST, copy / SECOND, copy / SECOND)):
        assert known(*paths)[::2] == (0, "")
    (copy / FIRST).unlink()
    assert known(*sorted(copy.iterdir()))[:2] == (0, [OK])
    assert known(copy / "archive" / f"{FIRST}.gz", copy)[:2] == (0, [OK])


def test_a_directory_whose_last_segment_is_packed_lacks_its_end(copy: Path) -> None:
    (copy / "archive").mkdir()
    for name in (FIRST, SECOND):
        (copy / "archive" / f"{name}.gz").write_bytes(gzip.compress((copy / name).read_bytes()))
        (copy / name).unlink()
    status, out, _ = known(copy)
    assert status == 1
    assert (out[0].startswith("fault: "), "seq 25" in out[0]) == (True, True)


def test_a_stray_archive_beside_the_segments_changes_nothing(copy: Path) -> None:
    (copy / "archive").mkdir()
    for name in (FIRST, SECOND):
        (copy / "archive" / f"{name}.gz").write_bytes(gzip.compress((copy / name).read_bytes()))
        (copy / name).unlink()
    lacking, backward = known(copy), CliRunner().invoke(main, ["replay", "--reverse", str(copy)]).output
    for name in ("notes.jsonl.gz", f"{FIRST}.gz"):
        (copy / name).write_bytes(gzip.compress(b"doctored\n"))
        assert known(copy) == lacking
        assert CliRunner().invoke(main, ["replay", "--reverse", str(copy)]).output == backward


def test_what_a_fault_says_of_the_beginning_is_not_said_twice(copy: Path) -> None:
    edit(copy / FIRST, b'{"seq":1,', b'{"seq":3,')
    out = known(copy)[1]
    assert out[0].startswith(f"fault: {copy / FIRST} line 1 (byte 0, seq 1)")
    assert not any("begins" in line for line in out)


def test_a_segment_missing_between_others_is_a_fault(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "j")
    for number in range(3, 6):
        writer.write(posted(str(number)))
    data = writer.path.read_bytes().splitlines(keepends=True)
    writer.path.write_bytes(b"".join(data[:2]))
    (tmp_path / "j" / f"{4:020d}.jsonl").write_bytes(b"".join(data[3:]))
    status, out, _ = verify(tmp_path / "j")
    assert (status, out[0].endswith("the segment that begins with it is missing")) == (1, True)
    assert out[0].startswith(f"fault: {tmp_path / 'j' / f'{3:020d}.jsonl'} line 1 (byte 0, seq 3)")


def test_many_stretches_are_counted_and_not_all_listed(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "j")
    for number in range(100):
        writer.write(posted(str(number)))
    lines = writer.path.read_bytes().splitlines(keepends=True)
    for at in range(2, 100, 4):
        lines[at] = lines[at].replace(b"alice", b"malory")
    writer.path.write_bytes(b"".join(lines))
    status, out, _ = verify(tmp_path / "j")
    stretches = [line for line in out if line.startswith("sound: ")]
    assert (status, len(stretches), stretches[-1]) == (1, 21, "sound: and 6 more stretches")


@pytest.mark.parametrize("how", ["crlf", "base64", "text"])
def test_of_a_file_in_which_no_line_verifies_it_is_said_what_may_have_become_of_it(tmp_path: Path, how: str) -> None:
    data = (V1 / FIRST).read_bytes()
    mangled = {"crlf": data.replace(b"\n", b"\r\n"), "base64": base64.encodebytes(data), "text": b"hello\n"}[how]
    (tmp_path / "mailed.jsonl").write_bytes(mangled)
    for status, out, _ in (verify(tmp_path / "mailed.jsonl"), verify("-", stdin=mangled)):
        assert (status, out[-2].endswith("; no line verifies"), out[-1]) == (1, True, f"Next: {MANGLED}")
    ended = CliRunner().invoke(main, ["replay", str(tmp_path / "mailed.jsonl")])
    assert (ended.exit_code, ended.stderr.endswith(f". If {MANGLED}\n")) == (1, True)


def test_a_copy_that_lost_its_last_line_feed_is_named_as_that(copy: Path) -> None:
    (copy / SECOND).write_bytes((copy / SECOND).read_bytes()[:-1])
    status, out, _ = known(copy)
    assert (status, out[0].startswith("note: a whole line without its line feed: ")) == (0, True)
    assert out[0].endswith("; not counted: a crash can leave that, and so can a copy")


# for programs


def record(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    status, (line,), err = verify("--json", *arguments)
    assert err == ""
    return status, json.loads(line)


def test_json_holds_all_of_it(copy: Path) -> None:
    status, found = record(copy, "--anchor", END, "--accept-lost", LOST, "--accept-lost", f"3:{NONE}")
    assert status == 0
    assert found == {
        "ok": True,
        "commits": 22,
        "segments": 2,
        "first_seq": 1,
        "last_seq": 24,
        "anchor": END,
        "faults": [],
        "lost": [{"first": 14, "last": 16, "reason": "damage", "lost": LOST, "accepted": True}],
        "not_lost": [f"3:{NONE}"],
        "unchecked": [],
        "tail": None,
        "anchors": [
            {
                "anchor": END,
                "holds": True,
                "result": "replaced",
                "text": "matches, but 3 earlier commits were replaced",
            }
        ],
        "sound": [{"first": 1, "last": 14, "anchor": LOST}, {"first": 17, "last": 24, "anchor": END}],
    }


def test_json_of_damage_names_its_place(copy: Path) -> None:
    edit(copy / FIRST, b'{"seq":5,', b'{"seq":50,')
    with (copy / SECOND).open("ab") as file:
        file.write(b"torn")
    status, found = record(copy)
    assert (status, found["ok"], [fault["seq"] for fault in found["faults"]]) == (1, False, [5])
    assert found["faults"][0].keys() == {"file", "line", "offset", "seq", "cause"}
    assert (found["tail"]["bytes"], found["tail"]["unfinished_line"]) == (4, False)


def test_json_of_nothing_has_no_anchor(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    status, (line,), err = verify("--json", tmp_path / "empty")
    assert (status, json.loads(line)["anchor"], json.loads(line)["ok"]) == (1, None, True)
    assert "there is no commit in" in err
