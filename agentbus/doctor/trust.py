"""Whether Codex trusts our hooks, read from its own notes in config.toml. Pure: parsed files in.

Codex runs a hook only once its user has trusted it, and notes that by the hook's place and a hash of its definition.
The form of that hash was found by asking Codex 0.171.0, and may change: a hash that differs is no proof of anything, a
missing one is.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Trust: TypeAlias = Literal["trusted", "changed", "untrusted", "off"]
_OURS = re.compile(r"agentbus['\"]? (hook|identity)\b")
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def read_trust(config: dict[str, Any], hooks: dict[str, Any], paths: tuple[str, ...]) -> Iterator[tuple[str, Trust]]:
    """(event, how it stands) of each hook of ours.

    Args:
        config: config.toml.
        hooks: hooks.json.
        paths: of hooks.json, as Codex may spell it.
    """
    states = _dict(_dict(config.get("hooks")).get("state"))
    for event, groups in _dict(hooks.get("hooks")).items():
        for group_index, group in enumerate(_list(groups)):
            for index, handler in enumerate(_list(_dict(group).get("hooks"))):
                if _OURS.search(str(_dict(handler).get("command"))):
                    label = _CAPITAL.sub("_", event).lower()
                    noted = [_dict(states.get(f"{path}:{label}:{group_index}:{index}")) for path in paths]
                    yield event, _judge(next(filter(None, noted), {}), _hash(label, group, handler))


def are_off(config: dict[str, Any]) -> bool:
    """Whether Codex runs no hook at all."""
    return _dict(config.get("features")).get("hooks") is False


def _judge(noted: dict[str, Any], digest: str) -> Trust:
    if noted.get("enabled") is False:
        return "off"
    if "trusted_hash" not in noted:
        return "untrusted"
    return "trusted" if noted["trusted_hash"] == digest else "changed"


def _hash(label: str, group: dict[str, Any], handler: dict[str, Any]) -> str:
    wanted = {"async": False, "timeout": 600} | {key: value for key, value in handler.items() if value is not None}
    identity = {"event_name": label, "hooks": [wanted]}
    if group.get("matcher") is not None:
        identity["matcher"] = group["matcher"]
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
