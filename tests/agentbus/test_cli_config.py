"""`agentbus config`: the settings in force, where each comes from, and what is wrong in a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from agentbus.cli import main
from agentbus.config import Settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without settings; nothing of the user's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AGENTBUS_CONFIG", "AGENTBUS_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def config(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["config", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def written(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def row(out: str, key: str) -> list[str]:
    (line,) = (line for line in out.splitlines() if line.startswith(f"{key} "))
    return [cell.strip() for cell in line.split("  ") if cell]


def test_without_a_file_everything_is_a_default_and_it_says_where_a_file_would_be(home: Path) -> None:
    status, out, err = config()
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"Agentbus: settings file {home}/.config/agentbus/config.json (not there)"
    assert lines[1].split() == ["setting", "value", "from", "allowed"]
    assert [line.split()[0] for line in lines[2:]] == list(Settings.__struct_fields__)
    assert all("  default" in line for line in lines[2:])
    assert row(out, "message_retention_hours") == ["message_retention_hours", "168", "default", "1 to 8760"]


def test_each_value_is_told_with_its_origin(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(home / "own.json", '{"segment_mib": 3, "allow_network_filesystem": true, "data_directory": "~/x"}')
    _, out, _ = config("--config", file)
    assert out.splitlines()[0] == f"Agentbus: settings file {file}, named by --config"
    assert row(out, "segment_mib") == ["segment_mib", "3", file, "1 to 1024"]
    assert row(out, "allow_network_filesystem")[1:3] == ["true", file]
    assert row(out, "data_directory")[1:3] == [f"{home}/x", file]
    monkeypatch.setenv("AGENTBUS_DATA_DIR", "/elsewhere")
    monkeypatch.setenv("AGENTBUS_CONFIG", file)
    _, out, _ = config()
    assert out.splitlines()[0].endswith(", named by AGENTBUS_CONFIG")
    assert row(out, "data_directory")[1:3] == ["/elsewhere", "AGENTBUS_DATA_DIR"]


def test_programs_get_the_same_as_json(home: Path) -> None:
    assert json.loads(config("--json")[1])["file"] is None
    file = written(home / ".config/agentbus/config.json", '{"log_level": "debug"}')
    found = json.loads(config("--json")[1])
    assert (found["file"], found["named_by"]) == (file, None)
    assert list(found["settings"]) == list(Settings.__struct_fields__)
    assert found["settings"]["log_level"] == {
        "value": "debug",
        "from": file,
        "allowed": "one of debug, info, warn, error",
    }
    assert found["settings"]["data_directory"]["value"] == f"{home}/.local/share/agentbus"


def test_settings_that_cannot_be_used_are_one_line_and_exit_1(home: Path) -> None:
    file = written(home / ".config/agentbus/config.json", '{"log_level": "loud", "segment_mib": -1}')
    status, out, err = config()
    assert (status, out) == (1, "")
    assert err == (
        f"agentbus: {file}, line 1, column 15: log_level must be one of debug, info, warn, error,"
        ' not "loud" (and 1 more: `agentbus config --check FILE` names them all)\n'
    )


def test_a_sound_file_is_ok(home: Path) -> None:
    file = written(home / "c.json", '{"segment_mib": 3}')
    assert config("--check", file) == (0, f"ok: {file} (1 setting)\n", "")
    assert json.loads(config("--check", file, "--json")[1]) == {"file": file, "ok": True, "faults": []}


def test_every_fault_of_a_checked_file_is_named_whatever_the_settings_in_force_are(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTBUS_CONFIG", "/nowhere")
    file = written(home / "c.json", '{\n  "segment_mib": 0,\n  "log_levle": "info"\n}')
    status, out, err = config("--check", file)
    assert (status, err) == (1, "")
    assert out.splitlines() == [
        f"fault: {file}, line 2, column 18: segment_mib must be a whole number from 1 to 1024, not 0",
        f'fault: {file}, line 3, column 16: unknown key "log_levle": did you mean "log_level"?',
        f"failed: 2 faults in {file}",
    ]
    status, out, _ = config("--check", file, "--json")
    found = json.loads(out)
    assert (status, found["ok"]) == (1, False)
    assert found["faults"][0] == {
        "file": file,
        "cause": "segment_mib must be a whole number from 1 to 1024, not 0",
        "line": 2,
        "column": 18,
        "key": "segment_mib",
        "value": "0",
        "allowed": "a whole number from 1 to 1024",
        "message": f"{file}, line 2, column 18: segment_mib must be a whole number from 1 to 1024, not 0",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{,}", "line 1, column 2: "),
        ('{"log_level": "info"', "line 1, column 21: "),
        ("[]", "line 1, column 1: the file must hold one JSON object"),
        ('{"segment_mib": "\\u001b[31m"}', '"\\x1b[31m"'),
    ],
)
def test_what_does_not_parse_is_named_with_line_and_column_and_nothing_reaches_the_terminal(
    home: Path, text: str, says: str
) -> None:
    status, out, _ = config("--check", written(home / "c.json", text))
    assert status == 1
    assert says in out
    assert "\x1b" not in out


def test_a_file_that_is_not_there_is_a_fault(home: Path) -> None:
    status, out, _ = config("--check", f"{home}/no.json")
    assert (status, out.splitlines()[0]) == (
        1,
        f"fault: {home}/no.json: cannot read it: No such file or directory",
    )


def test_only_one_file_may_be_named(home: Path) -> None:
    status, out, err = config("--check", f"{home}/a", "--config", f"{home}/b")
    assert (status, out) == (2, "")
    assert err.startswith("agentbus: --check and --config exclude each other: name one file.")
