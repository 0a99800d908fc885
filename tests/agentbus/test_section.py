"""The protocol in a file of rules: put in once, renewed in its place, taken out without a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentbus.harness import section
from agentbus.protocol import render_protocol
from tests.agentbus.shell import run

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

TEXTS = ["", "# Rules\n\nBe kind.\n", "# Rules", "# Rules\r\n\r\nBe kind.\r\n", "\n\n", "é\n"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_section_comes_and_goes(text: str) -> None:
    edited = section.put(text, "shop")
    assert edited.startswith(text)
    assert render_protocol("shop") in edited.replace("\r\n", "\n")
    assert section.put(edited, "shop") == edited
    assert section.drop(edited) in (text, f"{text}\n")
    assert section.drop(text) == text


def test_a_section_is_renewed_where_it_stands() -> None:
    text = section.put("# Rules\n", "shop") + "\n# More\n"
    renewed = section.put(text, "bank")
    assert renewed == text.replace('"shop"', '"bank"')
    assert section.drop(renewed) == "# Rules\n\n# More\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{section.BEGIN}\n",
        f"{section.END}\n",
        f"{section.END}\n{section.BEGIN}\n",
        f"{section.BEGIN}\n{section.BEGIN}\n{section.END}\n",
    ],
)
def test_marks_that_are_no_pair_are_refused(text: str) -> None:
    for edit in (section.drop, lambda text: section.put(text, "shop")):
        with pytest.raises(section.BrokenSectionError):
            edit(text)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop")
    return tmp_path / "shop"


def _init(shop: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return run(shop.parent / "data", "init", *arguments)


def test_init_puts_it_into_the_repository_s_agents_md_on_request_only(shop: Path) -> None:
    agents = shop / "AGENTS.md"
    _init(shop)
    assert not agents.exists()
    assert f"wrote the protocol into {agents}.".encode() in _init(shop, "--agents-md").stdout
    assert agents.read_text() == section.put("", "shop")
    assert f"nothing to do in {agents}.".encode() in _init(shop, "--agents-md").stdout
    assert f"took the protocol out of {agents}.".encode() in _init(shop, "--no-agents-md").stdout
    assert not agents.exists()


def test_an_agents_md_that_cannot_be_edited_is_named_and_left(shop: Path) -> None:
    agents = shop / "AGENTS.md"
    for data, says in [
        (b"\xff", b"byte 1 is not UTF-8; left as it is"),
        (f"{section.BEGIN}\n".encode(), b"mend it by hand"),
    ]:
        agents.write_bytes(data)
        done = _init(shop, "--agents-md")
        assert done.returncode == 1
        assert says in done.stderr
        assert agents.read_bytes() == data
    agents.unlink()
    agents.mkdir()
    assert b"Is a directory; left as it is" in _init(shop, "--agents-md").stderr
