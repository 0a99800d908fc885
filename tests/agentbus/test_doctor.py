"""The doctor's pure rooms, and how its checks are run: all at once, and never for longer than they may."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentbus import doctor
from agentbus.doctor import Check, runs, trust
from agentbus.doctor.findings import (
    Finding,
    fault,
    note,
    of_journal_error,
    ok,
    ordered,
    record,
    render_verdict,
)
from agentbus.doctor.runs import Run
from agentbus.doctor.visit import Visit
from journal import BusyError, CorruptError, UnreadableError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

F = fault("disk", "full", "No.", "Buy one.")
N = note("disk", "small")
O = ok("journal", "sound")  # noqa: E741  # the third of three letters


# --- findings


def test_faults_come_first_then_notes_and_each_thing_is_told_once() -> None:
    twice = Finding("fault", "disk", "full", "Other words.", "Other words.")
    assert ordered([O, N, F, twice]) == [F, N, O]


@pytest.mark.parametrize(
    ("findings", "says"),
    [([O], "all is well"), ([N, O], "no fault, 1 note"), ([F], "1 fault, 0 notes"), ([F, F, N], "2 faults, 1 note")],
)
def test_how_it_stands_is_one_sentence(findings: list[Finding], says: str) -> None:
    assert render_verdict(findings) == says


def test_programs_get_all_of_it_and_whether_there_is_a_fault() -> None:
    assert record([N, O], version="1") == {"ok": True, "version": "1", "faults": 0, "notes": 1, "findings": [N, O]}
    assert record([F])["ok"] is False


@pytest.mark.parametrize(
    ("error", "do"),
    [
        (CorruptError("f", 1, 0, 1, "cut " + "a" * 64), "agentbus repair"),
        (UnsupportedError("format", "2", "1"), "Install the agentbus that wrote it"),
        (BusyError("the writer lock"), "a stopped process"),
        (UnreadableError("/x", "Permission denied"), "Mend what it names"),
    ],
)
def test_what_keeps_the_bus_from_its_journal_is_told_with_the_way_out(error: Any, do: str) -> None:  # noqa: ANN401  # errors
    found = of_journal_error(error)
    assert (found.level, found.about) == ("fault", "journal")
    assert do in found.do
    assert "a" * 64 not in found.what


# --- what a client's files say is run


def found(text: str, file: str = "x.json") -> list[Run]:
    return list(runs.find_runs(runs.parse_file(file, text)))


@pytest.mark.parametrize(
    ("text", "words", "environ"),
    [
        ('{"mcpServers": {"agentbus": {"command": "/x", "args": ["mcp"]}}}', ("/x", "mcp"), {}),
        ('\ufeff{"servers": {"agentbus": {"command": "/x", "env": {"A": "b", "C": 1}}}} // us', ("/x",), {"A": "b"}),
        (
            '{"mcp": {"agentbus": {"command": ["/x", "mcp"], "environment": {"A": "b"}}}}',
            ("/x", "mcp"),
            {"A": "b"},
        ),
    ],
)
def test_a_server_is_found_in_each_client_s_form(text: str, words: tuple[str, ...], environ: dict[str, str]) -> None:
    assert found(text) == [Run("server entry", words, environ)]


def test_a_server_is_found_in_toml() -> None:
    text = '[mcp_servers.agentbus]\ncommand = "/x"\nargs = ["mcp"]\n[mcp_servers.agentbus.env]\nA = "b"\n'
    assert found(text, "config.toml") == [Run("server entry", ("/x", "mcp"), {"A": "b"})]


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"mcpServers": []}',
        '{"mcpServers": {"other": {"command": "x"}}}',
        '{"mcpServers": {"agentbus": 1}}',
        '{"mcpServers": {"agentbus": {"command": []}}}',
        '{"mcpServers": {"agentbus": {"command": 3}}}',
        '{"hooks": {"Stop": [{"command": "other agentbus-like"}, {"command": 7}]}}',
        """{"hooks": {"Stop": [{"command": "agentbus hook stop --for 'x"}]}}""",
        '{"hooks": {"Stop": [{"command": "env A=agentbus identity= x=agentbus hook=1"}]}}',
    ],
)
def test_what_is_not_ours_or_no_command_is_passed_over(text: str) -> None:
    assert found(text) == []


def test_hooks_are_found_wherever_they_stand_with_what_they_are_told() -> None:
    text = """{"hooks": {"Stop": [{"hooks": [
        {"command": "env AGENTBUS_DATA_DIR='/a b' /x/agentbus hook stop --for claude"},
        {"command": "agentbus identity"}]}]}}"""
    assert found(text) == [
        Run("hook stop", ("/x/agentbus", "hook", "stop", "--for", "claude"), {"AGENTBUS_DATA_DIR": "/a b"}),
        Run("hook session-start", ("agentbus", "identity"), {}),
    ]
    assert found(text)[0].program == "/x/agentbus"


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ('const ENVIRONMENT = {"A": "b"}\nconst COMMAND = "/x"\n', [Run("plugin", ("/x", "hook"), {"A": "b"})]),
        ('const COMMAND = "/x"\n', [Run("plugin", ("/x", "hook"), {})]),
        ("const COMMAND = nonsense\n", []),
        ("const COMMAND = 3\n", []),
        ("", []),
    ],
)
def test_a_plugin_says_what_it_starts(text: str, listed: list[Run]) -> None:
    assert list(runs.find_in_plugin(text)) == listed


# --- Codex's trust

COMMAND = "/usr/bin/agentbus hook session-start --for codex"
MEASURED = "sha256:a9a6b5dc50d221dd3f4b8c8b611edfc61d6a69c7b6b203ba177258389294ede1"


def stands(config: Any, **group: Any) -> list[tuple[str, str]]:  # noqa: ANN401  # parsed TOML
    handler = {"type": "command", "command": COMMAND, "timeout": 10}
    hooks = {"hooks": {"SessionStart": [{}, {"hooks": [handler, {"command": "x"}], **group}], "Stop": 3, "Other": [4]}}
    return list(trust.read_trust(config, hooks, ("/elsewhere/hooks.json", "/home/hooks.json")))


@pytest.mark.parametrize(
    ("event", "matcher", "handler", "digest"),
    [
        (
            "session_start",
            "startup",
            {"command": "agentbus identity --format json"},
            "af220186414386cc7444239ecbb186781f74341c68d9fcbba1ad5b15060f9aef",
        ),
        (
            "session_start",
            "startup",
            {"command": "agentbus identity --format json", "timeout": 5, "statusMessage": "é ok"},
            "e7f9aa7076a44dcae98374c05f3b0542f756e65333fcc2564bc0adaf996c2897",
        ),
        (
            "user_prompt_submit",
            None,
            {"command": "agentbus hook stop --for codex", "async": False},
            "c36eff7527b60b5bac97d95d8fe92ed016c0492cf29dd204e5e24781fb44e501",
        ),
    ],
)
def test_hashes_are_those_that_codex_0_171_0_told_of_the_same_hooks(
    event: str, matcher: str | None, handler: dict[str, Any], digest: str
) -> None:
    assert trust._hash(event, {"matcher": matcher}, {"type": "command"} | handler) == f"sha256:{digest}"


def noted(**more: Any) -> dict[str, Any]:  # noqa: ANN401  # parsed TOML
    return {"hooks": {"state": {"/home/hooks.json:session_start:1:0": more}}}


def test_a_hook_is_trusted_by_the_hash_that_codex_itself_computes() -> None:
    assert stands(noted(trusted_hash=MEASURED)) == [("SessionStart", "trusted")]
    assert stands(noted(trusted_hash=MEASURED), matcher=None) == [("SessionStart", "trusted")]


def test_a_hook_that_is_not_what_was_trusted_is_told_from_one_that_never_was() -> None:
    assert stands(noted(trusted_hash="sha256:0")) == [("SessionStart", "changed")]
    assert stands(noted(trusted_hash=MEASURED), matcher="startup") == [("SessionStart", "changed")]
    never: list[Any] = [{}, {"hooks": 3}, {"hooks": {"state": []}}, noted(), noted(enabled=True)]
    for config in never:
        assert stands(config) == [("SessionStart", "untrusted")]
    assert stands(noted(trusted_hash=MEASURED, enabled=False)) == [("SessionStart", "off")]


def test_hooks_may_be_off_altogether() -> None:
    assert trust.are_off({"features": {"hooks": False}})
    on: list[Any] = [{}, {"features": 3}, {"features": {"hooks": True}}]
    assert not any(map(trust.are_off, on))


# --- how checks are run


@pytest.fixture
def visit(tmp_path: Path) -> Visit:
    return Visit(None, {"HOME": str(tmp_path)}, None)


def test_a_check_that_hangs_is_left_behind_and_told(visit: Visit) -> None:
    forever = threading.Event()

    def hang(_: Visit) -> Iterator[Finding]:
        yield N
        forever.wait()

    first, second = doctor.examine(
        visit, [Check("hangs", "disk", hang), Check("sees", "disk", lambda _: iter([O]))], 2
    )[:2]
    (_, long) = doctor.examine(visit, [Check("reads", "disk", hang, folds=True)], 1)
    forever.set()
    assert (long.level, long.what) == ("note", 'the check "reads" did not end within 1 s')
    assert (first.check, first.level, first.what) == ("hangs", "fault", 'the check "hangs" did not end within 2 s')
    assert (second.what, second.check) == ("small", "hangs")


def test_what_the_system_or_the_journal_refuses_is_a_finding_and_a_bug_is_not_hidden(visit: Visit) -> None:
    def refused(_: Visit) -> Iterator[Finding]:
        os.listdir("/no such directory")
        yield O

    def corrupt(_: Visit) -> Iterator[Finding]:
        raise CorruptError("f", 1, 0, 1, "cut")
        yield O

    def wrong(_: Visit) -> Iterator[Finding]:
        raise KeyError("wrong")
        yield O

    (seen,) = doctor.examine(visit, [Check("a", "disk", refused)])
    assert (seen.level, seen.what) == ("fault", "could not be looked at: /no such directory: No such file or directory")
    (seen,) = doctor.examine(visit, [Check("b", "disk", corrupt)])
    assert seen.what == "corrupt: f line 1 (byte 0, seq 1): cut"
    with pytest.raises(KeyError, match="wrong"):
        doctor.examine(visit, [Check("c", "disk", wrong)])


def test_what_needs_settings_is_left_out_without(tmp_path: Path) -> None:
    visit = Visit(None, {"HOME": str(tmp_path), "AGENTBUS_DATA_DIR": "relative"}, None)
    assert "AGENTBUS_DATA_DIR must be an absolute path" in visit.refused
    look = lambda _: iter([O])  # noqa: E731  # one line, used twice
    assert doctor.examine(visit, [Check("a", "x", look), Check("b", "x", look, settled=False)])[0].check == "b"


def test_each_check_has_a_name_of_its_own() -> None:
    names = [check.name for check in doctor.CHECKS]
    assert len(names) == len(set(names))


def test_the_reference_lists_every_check_in_this_order() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
    listed = text.split("checks stay: ")[1].split(".\n")[0]
    assert re.findall(r"`(.+?)`", listed) == [check.name for check in doctor.CHECKS]
