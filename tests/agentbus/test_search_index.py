"""The search index on disk: one for all, brought up to date by whoever searches, and never believed."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentbus.config import Settings
from agentbus.host import Host, open_host
from agentbus.search import index as index_room
from agentbus.search.files import FORM, IndexFiles
from agentbus.search.hits import Finder
from agentbus.search.index import SearchIndex
from journal import Files
from tests.agentbus.hosts import WAIT_S, Background, call, crash, open_at, refusal
from tests.agentbus.searches import fill, found, index_files, naive, write

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 100  # more texts than a search reads without an index
WORKER = Path(__file__).parent / "search_worker.py"


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(name="sam")
def _sam(data: Path) -> Host:
    host = open_at(data)
    call(host, "register", name="sam")
    return host


def texts(many: int, begin: int = 0) -> list[str]:
    """Each with a word of its own, and one that all have."""
    return [f"common text w{number} x{number % 7}" for number in range(begin, begin + many)]


def covered(data: Path) -> int:
    (name,) = index_files(data)
    return int(name[:20])


def other(data: Path) -> Host:
    """Another process."""
    host = open_at(data)
    call(host, "register", name="other")
    return host


def same(host: Host, data: Path, *queries: str, as_: str = "sam") -> None:
    """A host finds what the naive search finds."""
    for query in queries or ("common", "w5", "x3", "w1*", "absent"):
        hits = found(host, as_, query, count=50)
        assert len(hits) == len(set(hits))
        assert set(hits) == naive(data, query), query


# --- when it is made, and by whom


def test_few_texts_are_read_and_no_index_is_made(sam: Host, data: Path) -> None:
    fill(sam, texts(60))
    same(sam, data)
    assert index_files(data) == []


def test_the_first_search_of_many_texts_makes_it_in_private_and_leaves_nothing_else(sam: Host, data: Path) -> None:
    fill(sam, texts(MANY))
    same(sam, data)
    (name,) = index_files(data)
    assert sorted(os.listdir(data / "search")) == sorted([name, "lock"])
    assert (data / "search").stat().st_mode & 0o777 == 0o700
    assert {(data / "search" / each).stat().st_mode & 0o777 for each in (name, "lock")} == {0o600}
    assert sam.search_index is not None
    assert IndexFiles(data / "search").size() == (covered(data), (data / "search" / name).stat().st_size)


def test_it_keeps_no_text(sam: Host, data: Path) -> None:
    fill(sam, [*texts(MANY), "the launch code is swordfish twelve"])
    assert found(sam, "sam", "swordfish")
    (name,) = index_files(data)
    assert b"code is swordfish" not in (data / "search" / name).read_bytes()


def test_whoever_searches_adds_what_others_wrote_once_it_is_worth_it(sam: Host, data: Path) -> None:
    fill(sam, texts(MANY))
    same(sam, data)
    (before,) = index_files(data)
    fill(sam, texts(10, MANY))
    tom = other(data)
    same(tom, data, "w105", "common", as_="other")
    assert index_files(data) == [before]
    fill(sam, texts(MANY, 200))
    same(tom, data, "w105", "w250", "common", as_="other")
    assert covered(data) > int(before[:20])
    same(sam, data, "w105", "w250", "common")


def test_nobody_but_who_searches_pays_for_it(data: Path) -> None:
    script = (
        "import sys; from tests.agentbus.hosts import *; from pathlib import Path\n"
        f"host = open_at(Path({str(data)!r})); call(host, 'register', name='a')\n"
        "call(host, 'post', as_='a', channel='general', content='x')\n"
        "call(host, 'history', as_='a', channel='general')\n"
        "assert 'sqlite3' not in sys.modules\n"
    )
    plain = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE")}  # it uses sqlite3
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2], env=plain)
    assert not (data / "search").exists()


# --- what may happen to it


def _garbage(path: Path, dice: random.Random) -> None:
    with path.open("r+b") as file:
        for _ in range(dice.randint(1, 30)):
            file.seek(dice.randrange(path.stat().st_size))
            file.write(dice.randbytes(dice.randint(1, 40)))


DAMAGES: list[Callable[[Path, random.Random], object]] = [
    _garbage,
    lambda path, dice: os.truncate(path, dice.randrange(path.stat().st_size)),
    lambda path, _: path.write_bytes(b""),
    lambda path, _: path.write_bytes(b"no database at all"),
    lambda path, _: path.write_bytes(path.read_bytes() + b"\0" * 4096),
    lambda path, _: path.unlink(),
    lambda path, _: shutil.rmtree(path.parent),
    lambda path, _: path.rename(path.with_name("9" * 20 + path.name[20:])),
    lambda path, _: path.chmod(0),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_happens_to_the_file_searches_stay_right_and_it_is_made_anew(
    sam: Host, data: Path, damage: Callable[[Path, random.Random], object]
) -> None:
    dice = random.Random(7)  # noqa: S311  # repeatable, not secret
    fill(sam, texts(MANY))
    for process in (sam, sam, other(data)):
        as_ = "sam" if process is sam else "other"
        same(process, data, "w5", as_=as_)
        (name,) = index_files(data)
        damage(data / "search" / name, dice)
        same(process, data, as_=as_)
        same(process, data, as_=as_)
        assert len(index_files(data)) == 1


def test_processes_of_two_versions_each_keep_a_file_until_one_is_not_used_any_more(sam: Host, data: Path) -> None:
    tom = other(data)
    tom.search_index = SearchIndex(IndexFiles(data / "search", form="0.1"), tom.bus._journal)
    fill(sam, texts(MANY))
    for begin in (200, 500):
        same(sam, data, "w5", "common")
        same(tom, data, "w5", "common", as_="other")
        assert [name[30:] for name in index_files(data)] in (["0.1", FORM], [FORM, "0.1"])
        fill(sam, texts(MANY, begin))
    (unused,) = (name for name in index_files(data) if name.endswith("-0.1"))
    week_ago = time.time() - 8 * 24 * 3600
    os.utime(data / "search" / unused, (week_ago, week_ago))
    same(sam, data, "w5", "common")
    assert [name[30:] for name in index_files(data)] == [FORM]


def test_the_index_of_another_journal_is_not_believed(sam: Host, data: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    mine = open_at(foreign)
    call(mine, "register", name="sam")
    fill(mine, [f"alien w{number}" for number in range(MANY)])
    fill(sam, texts(MANY))
    same(mine, foreign, "alien")
    shutil.copytree(foreign / "search", data / "search")
    same(sam, data, "alien", "w5", "common")
    same(sam, data, "w5", "common")


def test_a_journal_put_back_from_a_copy_makes_it_worthless(sam: Host, data: Path, tmp_path: Path) -> None:
    fill(sam, texts(MANY))
    crash(sam)
    shutil.copytree(data / "journal", tmp_path / "copy")
    first = other(data)
    fill(first, ["later w5 text"])
    fill(first, texts(MANY, 300))
    same(first, data, "later", "w5", as_="other")
    crash(first)
    shutil.rmtree(data / "journal")
    shutil.copytree(tmp_path / "copy", data / "journal")
    second = other(data)  # its first lines take the seqs that the lost ones had
    fill(second, ["instead w5 text"])
    same(second, data, "later", "instead", "w5", "w305", "common", as_="other")
    fill(second, texts(2 * MANY, 600))
    same(second, data, "later", "instead", "w5", "w305", "w605", "common", as_="other")


def test_a_memory_that_is_edited_at_every_look_is_found_once(
    sam: Host, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fact = call(sam, "post", as_="sam", channel="memory", content="common fact")["seq"]
    fill(sam, texts(MANY))
    same(sam, data)
    look = Finder._look

    def edit_and_look(finder: Finder, *arguments: Any) -> Any:  # noqa: ANN401  # passed on
        call(sam, "edit_memory", as_="sam", id=fact, content="common fact, once more")
        return look(finder, *arguments)

    monkeypatch.setattr(Finder, "_look", edit_and_look)
    monkeypatch.setattr("agentbus.search.hits._enough", lambda *_: 1)
    monkeypatch.setattr("agentbus.search.hits._BATCH", 40)
    hits = call(sam, "search", as_="sam", query="common", count=200)["hits"]
    keys = [hit.get("memory_id", hit["seq"]) for hit in hits]
    assert keys.count(fact) == 1
    (live,) = (hit for hit in hits if "memory_id" in hit)
    assert live["revision"] > 3


def test_a_reset_leaves_nothing_to_be_found(sam: Host, data: Path) -> None:
    fill(sam, texts(MANY))
    same(sam, data, "w5")
    write(sam, b'[{"type":"reset","by":"sam"}]')
    call(sam, "register", name="sam")
    assert found(sam, "sam", "common") == []
    fill(sam, ["common again"])
    assert len(found(sam, "sam", "common")) == 1


def test_texts_that_are_gone_are_taken_out_once_they_are_most(
    sam: Host, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_room, "SEARCH_DEAD_MIN", 10)
    fill(sam, texts(MANY))
    same(sam, data, "w5")
    last_seq = sam.bus.ask(lambda state: state.last_seq)
    write(sam, b'[{"type":"evicted","channel":"general","before":%d}]' % (last_seq - 4))
    same(sam, data, "common", "w5", "w99")
    _settled(sam)
    assert sam.search_index is not None
    reading = sam.search_index.open(lambda: None)
    assert reading is not None
    assert (reading.covers.texts, reading.covers.seq) == (5, last_seq + 1)
    index_room.close(reading)
    same(sam, data, "common", "w5", "w99")


def _settled(host: Host) -> None:
    """Wait for what the index does in a thread of its own."""
    assert host.search_index is not None
    worker = host.search_index._worker
    if worker is not None:
        worker.join(WAIT_S)
        assert not worker.is_alive()


# --- what it does not have the time, the right or the room for


def test_what_a_search_has_no_time_for_is_added_after_it(
    sam: Host, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_room, "SEARCH_TURN_S", 0.0)
    fill(sam, texts(MANY))
    same(sam, data, "w5")
    _settled(sam)
    last_seq = sam.bus.ask(lambda state: state.last_seq)
    assert covered(data) == last_seq
    same(sam, data)


def test_texts_are_added_part_by_part(sam: Host, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentbus.search.adding.SEARCH_PART_TEXTS", 7)
    call(sam, "create_channel", as_="sam", name="more")
    for number in range(5):
        fill(sam, texts(20, 40 * number))
        fill(sam, texts(20, 40 * number + 20), "more")
    same(sam, data)
    assert covered(data) == sam.bus.ask(lambda state: state.last_seq)
    (name,) = index_files(data)
    fill(sam, texts(MANY, 500), "more")
    same(sam, data)
    assert index_files(data) != [name]


class _Refusing(Files):
    """A disk on which some calls fail."""

    def __init__(self, *calls: str) -> None:
        self.calls = set(calls)

    def _meet(self, call_: str) -> None:
        if call_ in self.calls:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def mkdir(self, path: str) -> None:
        self._meet("mkdir")
        super().mkdir(path)

    def rename(self, old: str, new: str) -> None:
        self._meet("rename")
        super().rename(old, new)

    def write(self, fd: int, data: bytes) -> int:
        self._meet("write")
        return super().write(fd, data)

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._meet("open")
        return super().open(path, flags)

    def listdir(self, path: str) -> list[str]:
        self._meet("listdir")
        return super().listdir(path)

    def stat(self, path: str) -> os.stat_result:
        self._meet("stat")
        return super().stat(path)


def _on(files: Files, data: Path, told: list[str]) -> Host:
    """A process whose index lies on such a disk."""
    host = open_at(data)
    host.search_index = SearchIndex(IndexFiles(data / "search", files), host.bus._journal, told.append)
    call(host, "register", name="other")
    return host


@pytest.mark.parametrize("fails", ["mkdir", "rename", "open"])
def test_who_cannot_write_the_index_finds_the_same_and_says_so(sam: Host, data: Path, fails: str) -> None:
    told: list[str] = []
    files = _Refusing(fails)
    tom = _on(files, data, told)
    fill(sam, texts(MANY))
    for _ in range(2):
        same(tom, data, as_="other")
    note = call(tom, "search", as_="other", query="w5")["note"]
    assert note == "the search index cannot be kept (Read-only file system): every text was read instead"
    assert told == ["Read-only file system"]
    assert index_files(data) == []
    files.calls.clear()
    assert "note" not in call(tom, "search", as_="other", query="w5")
    assert len(index_files(data)) == 1
    files.calls.add(fails)
    same(tom, data, as_="other")  # what is there is read
    assert "note" not in call(tom, "search", as_="other", query="w5")
    fill(sam, texts(MANY, 500))
    same(tom, data, "w5", "w505", "common", as_="other")
    assert "note" in call(tom, "search", as_="other", query="w5")


def test_a_disk_that_fails_while_it_is_copied_or_looked_at_only_costs_time(sam: Host, data: Path) -> None:
    told: list[str] = []
    files = _Refusing()
    tom = _on(files, data, told)
    fill(sam, texts(MANY))
    same(tom, data, as_="other")
    fill(sam, texts(MANY, 500))
    for fails in ("write", "stat", "listdir"):
        files.calls = {fails}
        same(tom, data, as_="other")
    assert told
    files.calls.clear()
    fill(sam, texts(MANY, 900))
    same(tom, data, as_="other")
    assert len(index_files(data)) == 1
    assert not (data / "search" / "new").exists()


def test_the_last_room_on_the_disk_is_left_to_the_journal(
    sam: Host, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentbus.search.files.SEARCH_DISK_BYTES_MIN", 1 << 60)
    fill(sam, texts(MANY))
    same(sam, data, "w5")
    assert "would be left on the disk" in call(sam, "search", as_="sam", query="w5")["note"]
    assert index_files(data) == []


def test_without_sqlite_every_text_is_read(sam: Host, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    fill(sam, texts(MANY))
    same(sam, data, "w5", "common")
    assert "this Python has no SQLite" in call(sam, "search", as_="sam", query="w5")["note"]


def test_what_keeps_the_index_back_is_logged(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[tuple[str, str]] = []

    class _Log:
        def warning(self, message: str, *, cause: str) -> None:
            warned.append((message, cause))

    monkeypatch.setattr("agentbus.search.files.SEARCH_DISK_BYTES_MIN", 1 << 60)
    host = open_host(Settings(data_directory=data), str(tmp_path), "test", _Log())  # type: ignore[arg-type]  # as much of it as is used
    call(host, "register", name="sam")
    fill(host, texts(MANY))
    found(host, "sam", "w5")
    assert warned == [("the search index could not be kept: searches take longer", warned[0][1])]


# --- several at once, and some that die


def test_many_searches_at_once_in_two_processes_all_find_the_same(sam: Host, data: Path) -> None:
    fill(sam, texts(3 * MANY))
    tom = other(data)
    before = naive(data, "x3")
    calls = [_searching(host, as_) for host, as_ in [(sam, "sam"), (tom, "other")] * 4]
    fill(sam, texts(2 * MANY, 1000))
    after = naive(data, "x3")
    for each in calls:
        assert before <= set(each.outcome()["found"]) <= after
    same(sam, data, "x3", "w5", "w1005")
    same(tom, data, "x3", "w5", "w1005", as_="other")
    assert len(index_files(data)) == 1


def _searching(host: Host, as_: str) -> Background:
    return Background(lambda: {"found": found(host, as_, "x3", count=50)})


def test_a_process_killed_at_any_moment_of_adding_leaves_searches_right(sam: Host, data: Path) -> None:
    dice = random.Random(11)  # noqa: S311  # repeatable, not secret
    fill(sam, texts(MANY))
    for round_ in range(6):
        victim = subprocess.Popen(
            [sys.executable, WORKER, str(data), f"victim{round_}"], stdout=subprocess.PIPE, stdin=subprocess.PIPE
        )
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"ready\n"
        for _ in range(dice.randint(0, 12)):
            victim.stdout.readline()
        victim.kill()
        victim.communicate()
        fill(sam, texts(MANY, 10_000 * (round_ + 1)))
        same(sam, data, "common", "w5", f"w{10_000 * (round_ + 1) + 3}")
        assert len(index_files(data)) == 1
        assert not (data / "search" / "new").exists()


def test_while_another_process_adds_a_search_waits_or_says_what_is_missing(
    sam: Host, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_room, "SEARCH_SCANNED_MAX", 10)
    monkeypatch.setattr(index_room, "SEARCH_WAIT_S", 0.1)
    fill(sam, texts(MANY))
    with IndexFiles(data / "search").alone() as alone:
        assert alone
        same(sam, data, "w5")
        monkeypatch.setattr("agentbus.search.hits._HOPELESS_MIN", 20)
        monkeypatch.setattr("agentbus.search.hits.SEARCH_SCANNED_MAX", 10)
        answer = refusal(sam, "search", as_="sam", query="w5")
        assert (answer["code"], answer["retryable"]) == ("busy", True)
        assert answer["message"].startswith(
            f"{MANY} texts are not in the search index yet, which is being made: search"
        )
    monkeypatch.setattr(index_room, "SEARCH_WAIT_S", WAIT_S)
    same(sam, data)


def test_a_process_that_ends_gives_up_what_it_does_for_later_searches(
    sam: Host, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_room, "SEARCH_TURN_S", 0.0)
    fill(sam, texts(MANY))
    index = sam.search_index
    assert index is not None
    index._closing = True
    found(sam, "sam", "w5")
    assert index._worker is None
    index._work(sam.bus, anew=False)
    assert index_files(data) == []
    sam.close(time.monotonic() + 5)
