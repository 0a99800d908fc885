"""No result of any tool is longer than ``result_kib`` allows, whatever is in it, but for a first record."""

from __future__ import annotations

import tempfile
import time
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agentbus import jsonrpc
from agentbus.names import parse_channel_name
from agentbus.results import encoded_bytes, fit_lists
from tests.agentbus.hosts import Result, call, crash, open_at
from tools.crashes.watched import MEMORY

if TYPE_CHECKING:
    from agentbus.host import Host

HOUR_NS = 3600 * 10**9
# One character for each length in UTF-8 and in JSON, and some that readers take for something else.
HEAVY = '"\\/\x00\x01\x1f\x7f\x85\n\t\u2028\u2029\ufeff\u202eé߿漢ก한ا\U0001f600\U000e0041\U0010ffff'

characters = st.characters(codec="utf-8")
scripts = st.sampled_from(["latin ", "кириллица ", "漢字かな", "한국어 ", "العربية ", "ไทย ", "हिन्दी ", "👩‍👩‍👧 "])
runs = st.builds(lambda unit, times: unit * times, st.sampled_from(HEAVY) | scripts, st.integers(1, 40))
# Pieces, each with how often it stands there: as one text they would be too long to be told.
contents = st.lists(
    st.tuples(st.text(characters, min_size=1, max_size=60) | runs, st.just(1) | st.integers(1, 40)),
    min_size=1,
    max_size=3,
)


def _as_name(text: str) -> str:
    """What of a text may stand in a name, 40 characters of it at most."""
    kept = "".join(char for char in text if char != "/" and unicodedata.category(char) not in ("Cc", "Zl", "Zp", "Cf"))
    cut = unicodedata.normalize("NFC", kept)[:30].strip()
    return cut or "x"


names = st.builds(_as_name, st.text(characters | st.sampled_from(HEAVY), min_size=1, max_size=40) | runs)
tags = st.dictionaries(st.text(characters, max_size=20), st.text(characters, max_size=60) | runs, max_size=3)
posts = st.lists(st.tuples(contents, st.none() | names, st.none() | tags, st.integers(0, 5)), min_size=3, max_size=12)
channels = st.lists(names, max_size=20, unique_by=str.casefold)


class Watched:
    """Hosts whose every result is measured."""

    def __init__(self, root: Path, kib: int) -> None:
        self.root = root
        self.kib = kib
        self.tokens: dict[str, str] = {}

    def open(self, listed: list[str]) -> Host:
        """A process in a repository with this persistent list."""
        where = Path(tempfile.mkdtemp(dir=self.root))
        (where / ".git").mkdir()
        (where / ".local").mkdir()
        (where / ".local" / "agentbus.json").write_bytes(msgspec.json.encode({"channels": listed}))
        return open_at(self.root / "data", where, result_kib=self.kib, max_message_kib=1024, cursor_idle_hours=1)

    def call(self, host: Host, tool: str, **arguments: Any) -> Result:  # noqa: ANN401  # JSON
        """A call whose result is as long as was counted, and within its budget."""
        result = call(host, tool, **arguments)
        size = len(jsonrpc.render_json(result).encode())
        assert size == encoded_bytes(result)
        single = tool == "get_memory" or sum(len(rows) for rows in result.values() if _is_records(rows)) == 1
        assert size <= self.kib << 10 or (single and tool != "register"), (tool, size, result)
        return result

    def drain(self, host: Host, as_: str, *, ack: bool) -> None:
        """Receive until nothing comes, or once without an ack."""
        while True:
            token = {"ack": self.tokens.pop(as_)} if ack and as_ in self.tokens else {}
            batch = self.call(host, "receive", as_=as_, **token)
            if "token" not in batch:
                return
            self.tokens[as_] = batch["token"]
            if not ack:
                return


def _whole(pieces: list[tuple[str, int]]) -> str:
    return "".join(text * times for text, times in pieces)


def _is_records(rows: object) -> bool:
    return isinstance(rows, list) and all(isinstance(row, dict) for row in rows)


def _fill(watched: Watched, host: Host, made: list[str], texts: list[Any]) -> list[int]:
    """Channels of both kinds, and posts on all of them; the ids of the memories."""
    for number, name in enumerate(made):
        watched.call(host, "create_channel", as_="sam", name=name, kind="memory" if number % 2 else "ordinary")
    memories = []
    everywhere = [*made, "general", "memory"]
    for number, (content, label, metadata, mentions) in enumerate(texts):
        given = {"label": label} if label else {}
        given |= {"metadata": metadata} if metadata else {}
        text = f"needle {_whole(content)} " + " ".join(f"@{name} @{name}x" for name in made[: mentions * 5])
        channel = everywhere[number % len(everywhere)]
        posted = watched.call(host, "post", as_="sam", channel=channel, content=text, **given)
        memories += [posted["memory_id"]] if "memory_id" in posted else []
    return memories


def _look(watched: Watched, host: Host, as_: str, made: list[str], memories: list[int]) -> None:
    for tool in ("list_channels", "discover"):
        watched.call(host, tool, as_=as_)
    for channel in ("general", "memory", *made[:3]):
        watched.call(host, "history", as_=as_, channel=channel)
    for query in ("needle", "nedle", "l*"):
        watched.call(host, "search", as_=as_, query=query)
    for number in memories:
        watched.call(host, "get_memory", as_=as_, id=number)


@settings(
    max_examples=15,
    phases=[Phase.generate],  # what is too long says so itself; shrinking it takes minutes
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.sampled_from([1, 2, 10]), channels.map(lambda found: [parse_channel_name(name) for name in found]), posts)
def test_no_result_is_longer_than_its_budget(kib: int, made: list[str], texts: list[Any]) -> None:
    made = [name for name in made if name.casefold() not in ("general", "memory")]
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory, pytest.MonkeyPatch.context() as patch:
        watched = Watched(Path(directory), kib)
        sam, tom = watched.open([]), watched.open(["general", "memory", *made, *(f"none {n}" for n in range(40))])
        watched.call(sam, "register", name="sam")
        for name in made:
            watched.call(sam, "register", name=name, context=name)
        _fill(watched, sam, made, [])
        watched.call(tom, "register", name="tom")
        memories = _fill(watched, sam, [], texts) + _fill(watched, sam, made, texts)
        watched.drain(tom, "tom", ack=False)
        for number, memory in enumerate(memories):
            if number % 3:
                watched.call(sam, "edit_memory", as_="sam", id=memory, content=_whole(texts[number % len(texts)][0]))
            else:
                watched.call(sam, "delete_memory", as_="sam", id=memory)
        watched.drain(tom, "tom", ack=False)
        _look(watched, tom, "tom", made, [memory for number, memory in enumerate(memories) if number % 3])
        watched.drain(tom, "tom", ack=True)
        crash(tom)
        now = time.time_ns()
        patch.setattr(time, "time_ns", lambda: now + 2 * HOUR_NS)
        tom = watched.open(made)
        watched.call(tom, "register", name="tom")
        now += 2 * HOUR_NS
        watched.drain(tom, "tom", ack=True)
        for host in (sam, tom):
            crash(host)


lists = st.lists(names, max_size=8)
objects = st.dictionaries(names, names, max_size=8)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    st.dictionaries(st.sampled_from(["as", "seq"]), names),
    st.dictionaries(st.sampled_from(["pending", "subscribed", "expired"]), lists | objects, min_size=1),
    st.integers(0, 900),
)
def test_lists_share_the_room_and_what_is_cut_is_counted(
    record: dict[str, str], given_: dict[str, list[str] | dict[str, str]], room: int
) -> None:
    made = fit_lists(dict(record), given_, room)
    least = encoded_bytes(record) + sum(2 * len(name) + 32 for name in given_) + 2 * len(given_)
    assert encoded_bytes(made) <= max(room, least)
    for name, rows in given_.items():
        assert list(made[name]) == list(rows)[: len(made[name])]
        assert made.get(f"more_{name}", 0) == len(rows) - len(made[name])
    assert set(made) - set(record) - set(given_) == {f"more_{name}" for name in given_ if f"more_{name}" in made}
    if encoded_bytes(record | given_) <= room:
        assert made == record | given_


def test_a_short_list_stays_whole_beside_a_long_one() -> None:
    long, short = [f"channel {number}" for number in range(1000)], ["general", "memory"]
    made = fit_lists({"as": "sam"}, {"long": long, "short": short}, 1000)
    assert made["short"] == short
    assert made["more_long"] == 1000 - len(made["long"])
    assert 850 < encoded_bytes(made) <= 1000
