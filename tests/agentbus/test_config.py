"""The user's settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agentbus.config import Settings, SettingsError, load

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def _write(path: Path, text: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_without_a_file_there_are_the_defaults(tmp_path: Path, environ: dict[str, str]) -> None:
    settings = load(None, environ | {"XDG_DATA_HOME": "/elsewhere", "XDG_CONFIG_HOME": "/elsewhere"})
    assert settings == Settings(data_directory=tmp_path / ".local/share/agentbus")
    assert msgspec.structs.asdict(settings) == {
        "data_directory": tmp_path / ".local/share/agentbus",
        "allow_network_filesystem": False,
        "segment_mib": 16,
        "cursor_idle_hours": 72,
        "receipt_retention_minutes": 60,
        "max_message_kib": 32,
        "receive_default_count": 100,
        "receive_max_count": 1000,
        "receive_max_wait_seconds": 50,
        "result_kib": 10,
        "log_level": "info",
    }


def test_the_option_comes_before_the_variable_and_that_before_the_home(tmp_path: Path, environ: dict[str, str]) -> None:
    _write(tmp_path / ".config/agentbus/config.json", '{"segment_mib": 1}')
    assert load(None, environ).segment_mib == 1
    environ["AGENTBUS_CONFIG"] = _write(tmp_path / "variable.json", '{"segment_mib": 2}')
    assert load(None, environ).segment_mib == 2
    assert load(_write(tmp_path / "option.json", '{"segment_mib": 3}'), environ).segment_mib == 3


def test_a_byte_order_mark_and_crlf_are_read(tmp_path: Path, environ: dict[str, str]) -> None:
    file = _write(tmp_path / "c.json", b'\xef\xbb\xbf{\r\n"log_level": "debug"}\r\n')
    assert load(file, environ).log_level == "debug"


def test_tilde_stands_for_home_in_every_path(tmp_path: Path, environ: dict[str, str]) -> None:
    _write(tmp_path / "c.json", '{"data_directory": "~/bus"}')
    assert load("~/c.json", environ).data_directory == tmp_path / "bus"
    assert load(None, environ | {"AGENTBUS_CONFIG": "~/c.json"}).data_directory == tmp_path / "bus"
    assert load(None, environ | {"AGENTBUS_DATA_DIR": "~"}).data_directory == tmp_path


def test_the_data_directory_variable_overrides_the_file(tmp_path: Path, environ: dict[str, str]) -> None:
    file = _write(tmp_path / "c.json", '{"data_directory": "/from/file"}')
    assert str(load(file, environ | {"AGENTBUS_DATA_DIR": "/from/variable"}).data_directory) == "/from/variable"


@pytest.mark.parametrize("value", ["", "relative", "./x", "~nobody-of-that-name/x", "/a\0b", "/half\ud83d"])
def test_a_data_directory_that_depends_on_where_one_stands_is_refused(environ: dict[str, str], value: str) -> None:
    with pytest.raises(SettingsError, match=r"^AGENTBUS_DATA_DIR must be an absolute path"):
        load(None, environ | {"AGENTBUS_DATA_DIR": value})


@pytest.mark.parametrize(("path", "environ_more"), [("", {}), (None, {"AGENTBUS_CONFIG": ""})])
def test_an_empty_name_of_a_file_is_refused(
    environ: dict[str, str], path: str | None, environ_more: dict[str, str]
) -> None:
    with pytest.raises(SettingsError, match="is empty"):
        load(path, environ | environ_more)


def test_a_file_that_was_named_must_be_there(tmp_path: Path, environ: dict[str, str]) -> None:
    for path, variables in ((str(tmp_path / "no.json"), {}), (None, {"AGENTBUS_CONFIG": str(tmp_path / "no.json")})):
        with pytest.raises(SettingsError, match=r"no\.json: cannot read it: No such file or directory"):
            load(path, environ | variables)


def test_a_link_to_nowhere_in_the_usual_place_is_not_taken_for_no_file(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / ".config/agentbus").mkdir(parents=True)
    (tmp_path / ".config/agentbus/config.json").symlink_to("nowhere")
    with pytest.raises(SettingsError, match="No such file"):
        load(None, environ)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1, column 1: Expecting value"),
        ("[]", "one JSON object"),
        ("null", "one JSON object"),
        ('{"segment_mib": 1} x', "line 1, column 20: Extra data"),
        ('{"segment_mib": 1, "segment_mib": 2}', 'line 1, column 20: duplicate key "segment_mib"'),
        (b'{"log_level": "\xff"}', "byte 16: this is not UTF-8"),
        ('{"segement_mib": 1}', 'unknown key "segement_mib"; known keys: data_directory, '),
        ('{"segment_mib": 0}', "segment_mib must be a whole number from 1 to 1024, not 0"),
        ('{"segment_mib": 1025}', "from 1 to 1024, not 1025"),
        ('{"segment_mib": 7.0}', "from 1 to 1024, not 7.0"),
        ('{"segment_mib": true}', "from 1 to 1024, not true"),
        ('{"segment_mib": "7"}', 'from 1 to 1024, not "7"'),
        ('{"segment_mib": null}', "from 1 to 1024, not null"),
        ('{"segment_mib": {"a": 1}}', 'not {"a": 1}'),
        ('{"segment_mib": ' + "9" * 5000 + "}", "from 1 to 1024, not Infinity"),
        ('{"allow_network_filesystem": 1}', "allow_network_filesystem must be true or false, not 1"),
        ('{"log_level": "INFO"}', 'log_level must be one of debug, info, warn, error, not "INFO"'),
        ('{"log_level": "\\ud83d"}', "one of debug, info, warn, error"),
        ('{"data_directory": 5}', 'data_directory must be an absolute path, or one that begins with "~/", not 5'),
        ('{"data_directory": null}', "not null"),
        ('{"receive_default_count": 500, "receive_max_count": 499}', "500 is above receive_max_count 499"),
        ('{"receive_max_count": 50}', "receive_default_count 100 is above receive_max_count 50"),
    ],
)
def test_what_is_not_allowed_is_refused_with_the_file_the_key_and_what_is(
    tmp_path: Path, environ: dict[str, str], text: str | bytes, says: str
) -> None:
    file = _write(tmp_path / "c.json", text)
    with pytest.raises(SettingsError) as caught:
        load(file, environ | {"AGENTBUS_DATA_DIR": "/d"})
    assert caught.value.message.startswith(file)
    assert says in caught.value.message
    assert len(caught.value.message.encode()) < 1000


@pytest.mark.parametrize(
    ("key", "lowest", "highest"),
    [
        ("segment_mib", 1, 1024),
        ("cursor_idle_hours", 1, 720),
        ("receipt_retention_minutes", 1, 1440),
        ("max_message_kib", 1, 1024),
        ("receive_default_count", 1, 1000),
        ("receive_max_count", 100, 10_000),
        ("receive_max_wait_seconds", 0, 240),
        ("result_kib", 1, 4096),
    ],
)
def test_both_ends_of_a_range_are_allowed_and_the_next_above_is_not(
    tmp_path: Path, environ: dict[str, str], key: str, lowest: int, highest: int
) -> None:
    def read(value: object) -> Any:  # noqa: ANN401 - a setting of any type
        return getattr(load(_write(tmp_path / "c.json", json.dumps({key: value})), environ), key)

    assert read(lowest) == lowest
    assert read(highest) == highest
    with pytest.raises(SettingsError, match=str(highest)):
        read(highest + 1)


def test_a_directory_in_place_of_the_file_is_named(tmp_path: Path, environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="Is a directory"):
        load(str(tmp_path), environ)


def test_the_root_of_all_files_is_no_data_directory(tmp_path: Path) -> None:
    for root in ("/", "//", "/tmp/.."):
        with pytest.raises(SettingsError, match="AGENTBUS_DATA_DIR must be a directory of its own, not /"):
            load(None, {"HOME": str(tmp_path), "AGENTBUS_DATA_DIR": root})
