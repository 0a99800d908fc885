"""What the `search` tool does, from checked arguments and the host to a result object. Finding is hits.py's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from agentbus import names, results
from agentbus.asking import identity_of, now_ms, or_none, require, require_count, room
from agentbus.decide.sessions import require_session
from agentbus.errors import render_value
from agentbus.limits import QUERY_CHARS_MAX
from agentbus.search import matching
from agentbus.search.adding import label_of
from agentbus.search.hits import Finder, Query
from agentbus.search.pages import Page
from agentbus.search.scope import Scope, key

if TYPE_CHECKING:
    from agentbus import arguments as args
    from agentbus.control import Control
    from agentbus.host import Host
    from agentbus.state import State

_NOT_ASKED = ("as_", "count", "cursor")
"""Arguments that are not of the question: a next page may have another size."""


def search(given: args.SearchArguments, host: Host, control: Control) -> dict[str, Any]:
    """Texts that hold every word, the best first."""
    require_count(given.count)
    require(
        len(given.query) <= QUERY_CHARS_MAX,
        f'"query" has {len(given.query)} characters, more than {QUERY_CHARS_MAX}: search for fewer words',
    )
    identity = identity_of(given)

    def permit(state: State) -> None:
        require_session(state, identity, host.bus.owners.token)

    asked = {name: value for name, value in structs.asdict(given).items() if name not in _NOT_ASKED}
    before = None if given.cursor is UNSET else host.pages.find(given.cursor, asked)
    query = _query(given) if before is None else Query(before.words, before.scope, before.upto, before.all_shown())
    found = Finder(host.bus, host.search_index, permit, control).find(query, given.count + 1)
    hits = [
        results.hit(
            hit.body, matching.snippet(query.words, hit.body.event.content, label_of(hit.body)), hit.weight, now_ms()
        )
        for hit in found.hits[: given.count]
    ]
    kept, cut = results.fit(hits, room(host))
    record: dict[str, Any] = {"hits": kept}
    if cut or len(found.hits) > given.count:
        shown = tuple(key(hit.body.at) for hit in found.hits[: len(kept)])
        record["next"] = host.pages.keep(Page(asked, query.words, query.scope, found.upto, shown, before))
    record["searched"] = results.searched(found.channels, query.scope)
    if found.trouble:
        record["note"] = f"the search index cannot be kept ({found.trouble}): every text was read instead"
    if found.nearest:
        record = results.fit_lists(record, {"nearest": found.nearest}, host.bus.policy.result_bytes_max)
    return record


def _query(given: args.SearchArguments) -> Query:
    return Query(matching.parse_query(given.query), _scope(given))


def _scope(given: args.SearchArguments) -> Scope:
    now = now_ms()
    scope = Scope(
        channel=None if given.channel is UNSET else names.parse_channel_name(given.channel),
        kind=or_none(given.kind),
        sender=None if given.sender is UNSET else names.parse_display_name(given.sender, "sender"),
        since_ms=None if given.since is UNSET else matching.parse_when(given.since, "since", now),
        until_ms=None if given.until is UNSET else matching.parse_when(given.until, "until", now),
        thread=or_none(given.thread),
    )
    if scope.since_ms is not None and scope.until_ms is not None:
        since, until = render_value(given.since), render_value(given.until)
        require(scope.since_ms <= scope.until_ms, f'"since" {since} comes after "until" {until}: nothing lies between')
    return scope
