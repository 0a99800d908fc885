"""What changed between two States, each as auditors see it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from agentbus.audit.selection import Selection

    Record = dict[str, Any]

KEYS: Final = {
    "channels": ("channel",),
    "sessions": ("as",),
    "subscriptions": ("as", "channel"),
    "batches": ("as",),
    "memories": ("id",),
}
"""What each list of a canonical State is sorted by, and what makes one of its rows the same as before."""


def changes(before: Record, after: Record, selection: Selection) -> Record:
    """Rows that came, went and changed, in each list of two canonical States; of the wanted channels and identities."""
    found: Record = {"from": before["last_seq"], "to": after["last_seq"]}
    for part, keys in KEYS.items():
        old, new = (
            {tuple(row[key] for key in keys): row for row in state[part] if _is_wanted(row, selection)}
            for state in (before, after)
        )
        found[part] = {
            "added": [row for key, row in new.items() if key not in old],
            "removed": [row for key, row in old.items() if key not in new],
            "changed": [
                {"before": old[key], "after": row} for key, row in new.items() if key in old and old[key] != row
            ],
        }
    return found


def _is_wanted(row: Record, selection: Selection) -> bool:
    """Whether a row is of a wanted channel, and of a wanted identity, if some are named."""
    channels = {row["channel"]} if "channel" in row else set(row.get("ends", ()))
    identity = row.get("as", row.get("from"))
    here = not selection.channels or not selection.channels.isdisjoint(channels)
    return here and (not selection.identities or (identity is not None and selection.is_of(identity)))
