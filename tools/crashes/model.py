"""What the bus means, one call after another, written as plainly as can be: lists, and no code of the product.

As much of it as tools/crashes/history.py calls: names are sound, texts short and nothing is old, so no bound is met.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Result = dict[str, Any]
Arguments = dict[str, Any]

_SHOWN = ("seq", "channel", "from", "content", "memory_id", "revision")
_TOLD = (
    "as", "resumed", "already", "pending", "channel", "kind", "created", "subscribed", "seq", "subscribers", "live",
    "addressed", "memory_id", "repeated", "token", "redelivered", "ack_ignored", "more", "channels", "truncated",
    "code",
)  # fmt: skip


def essence(result: Result) -> Result:
    """A result of the bus without what the model does not say: times, ages, contexts and advice."""
    told = {name: result[name] for name in _TOLD if name in result}
    if "messages" in result:
        told["messages"] = [{name: each[name] for name in _SHOWN if name in each} for each in result["messages"]]
    return told


@dataclass(slots=True)
class Message:
    """One post. The payload is what must be the same when its key comes again."""

    seq: int
    channel: str
    author: str
    content: str
    key: str | None

    def shown(self, kind: str) -> Result:
        """As receive and history show it."""
        memory = {"memory_id": self.seq, "revision": 1} if kind == "memory" else {}
        shown = {"seq": self.seq, "channel": self.channel, "from": self.author, "content": self.content}
        return memory | shown


@dataclass(slots=True)
class Batch:
    """What was handed out and not acked; ``ends`` is where the cursors go when it is."""

    token: str
    messages: list[Message]
    ends: dict[str, int]


@dataclass(slots=True)
class Model:
    """The bus after some calls."""

    channels: dict[str, str] = field(default_factory=lambda: {"general": "ordinary", "memory": "memory"})
    messages: list[Message] = field(default_factory=list)
    identities: list[str] = field(default_factory=list)
    cursors: dict[str, dict[str, int]] = field(default_factory=dict)
    batches: dict[str, Batch] = field(default_factory=dict)

    def call(self, tool: str, given: Arguments, seq: int | None, token: str | None) -> Result | None:
        """The result of a call here and now.

        Args:
            tool: in the tool table.
            given: its arguments.
            seq: of the line it writes; None to ask what it would answer if it wrote nothing: nothing changes then.
            token: of the batch it makes, if it makes one.

        Returns:
            None if it would write and may not, or writes and would not.
        """
        if tool != "register" and given["as"] not in self.cursors:
            return {"code": "not_registered"} if seq is None else None
        if tool == "receive":
            return self._receive(given, seq, token)
        if tool in ("history", "list_channels"):
            look = self._history if tool == "history" else self._list_channels
            return look(given) if seq is None else None
        rules = {
            "register": self._register,
            "create_channel": self._create_channel,
            "subscribe": self._subscribe,
            "post": self._post,
        }
        return rules[tool](given, seq)

    def _register(self, given: Arguments, seq: int | None) -> Result | None:
        if seq is None:
            return None
        self.identities.append(given["name"])
        # Without a file in the repository the persistent list is the two default channels.
        self.cursors[given["name"]] = {"general": seq - 1, "memory": seq - 1}
        return {"as": given["name"], "resumed": False, "pending": [], "subscribed": ["general", "memory"]}

    def _create_channel(self, given: Arguments, seq: int | None) -> Result | None:
        name, kind = given["name"], given["kind"]
        there = [each for each in self.channels if each.lower() == name.lower()]
        if there:
            same = there == [name] and self.channels[name] == kind
            answer = {"channel": name, "kind": kind, "created": False} if same else {"code": "conflict"}
            return answer if seq is None else None
        if seq is None:
            return None
        self.channels[name] = kind
        return {"channel": name, "kind": kind, "created": True}

    def _subscribe(self, given: Arguments, seq: int | None) -> Result | None:
        mine, channel = self.cursors[given["as"]], given["channel"]
        if channel not in self.channels or channel in mine:
            known = {"subscribed": channel, "already": True}
            answer = known if channel in mine else {"code": "not_found"}
            return answer if seq is None else None
        if seq is None:
            return None
        mine[channel] = 0 if given["from"] == "oldest" else seq - 1
        return {"subscribed": channel}

    def _post(self, given: Arguments, seq: int | None) -> Result | None:
        me, channel, key = given["as"], given["channel"], given.get("idempotency_key")
        earlier = [each for each in self.messages if key is not None and (each.author, each.key) == (me, key)]
        if earlier:
            if (earlier[0].channel, earlier[0].content) != (channel, given["content"]):
                return {"code": "conflict"} if seq is None else None
            return self._posted(earlier[0]) | {"repeated": True} if seq is None else None
        if channel not in self.channels:
            return {"code": "not_found"} if seq is None else None
        if seq is None:
            return None
        self.messages.append(Message(seq, channel, me, given["content"], key))
        return self._posted(self.messages[-1])

    def _posted(self, message: Message) -> Result:
        others = [each for each in self.identities if each != message.author and message.channel in self.cursors[each]]
        answer: Result = {"seq": message.seq, "subscribers": len(others), "live": len(others), "addressed": []}
        return answer | ({"memory_id": message.seq} if self.channels[message.channel] == "memory" else {})

    def _receive(self, given: Arguments, seq: int | None, token: str | None) -> Result | None:
        me, count, ack = given["as"], given["count"], given.get("ack")
        batch = self.batches.get(me)
        acked = batch is not None and ack == batch.token
        flags = {"ack_ignored": True} if ack is not None and not acked else {}
        if batch is not None and not acked:
            return None if seq is not None else self._again(me, given, batch) | flags
        cursors = dict(self.cursors[me])
        if batch is not None:
            cursors |= {name: max(cursors[name], end) for name, end in batch.ends.items()}
        waiting = self._waiting(me, cursors, own=given["include_own"])
        handed = waiting[:count]
        if bool(acked or handed) != (seq is not None):
            return None
        answer = {"messages": self._shown(handed), "more": len(waiting) - len(handed), **flags}
        if seq is not None:
            self.cursors[me] = cursors
            self.batches.pop(me, None)
        if seq is not None and handed:
            end = handed[-1].seq if len(waiting) > len(handed) else seq - 1
            self.batches[me] = Batch(token or "", handed, dict.fromkeys(cursors, end))
            answer["token"] = token
        return answer

    def _again(self, me: str, given: Arguments, batch: Batch) -> Result:
        cursors = {name: max(cursor, batch.ends.get(name, 0)) for name, cursor in self.cursors[me].items()}
        waiting = len(self._waiting(me, cursors, own=given["include_own"]))
        if given["count"] == 0:
            return {"messages": [], "more": waiting + len(batch.messages)}
        again = {"messages": self._shown(batch.messages), "more": waiting}
        return again | {"token": batch.token, "redelivered": True}

    def _waiting(self, me: str, cursors: dict[str, int], *, own: bool) -> list[Message]:
        return [
            each
            for each in self.messages
            if each.channel in cursors and each.seq > cursors[each.channel] and (own or each.author != me)
        ]

    def _shown(self, messages: list[Message]) -> list[Result]:
        return [each.shown(self.channels[each.channel]) for each in messages]

    def _history(self, given: Arguments) -> Result:
        if given["channel"] not in self.channels:
            return {"code": "not_found"}
        after, before, count = given.get("after", 0), given.get("before", 1 << 53), given["count"]
        page = [each for each in self.messages if each.channel == given["channel"] and after < each.seq < before]
        kept = page[:count] if "after" in given else page[-count:]
        return {"messages": self._shown(kept), "truncated": len(kept) < len(page)}

    def _list_channels(self, given: Arguments) -> Result:
        rows = []
        for name in sorted(self.channels):
            seqs = [each.seq for each in self.messages if each.channel == name]
            row = {
                "channel": name,
                "kind": self.channels[name],
                "messages": len(seqs),
                "last_seq": max(seqs, default=0),
            }
            rows.append(row | {"subscribed": name in self.cursors[given["as"]]})
        return {"channels": rows, "truncated": False}
