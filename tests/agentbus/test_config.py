"""The user's settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agentbus.config import Fault, Settings, SettingsError, check, load, render_allowed, render_range, trace

if TYPE_CHECKING:
    from pathlib import Path


RANGES = [
    ("segment_mib", 1, 1024),
    ("journal_keep_days", 0, 3650),
    ("message_retention_hours", 1, 8760),
    ("cursor_idle_hours", 1, 720),
    ("cleanup_interval_seconds", 5, 86_400),
    ("receipt_retention_minutes", 1, 1440),
    ("max_message_kib", 1, 1024),
    ("send_messages_per_second", 1, 10_000),
    ("send_kib_per_second", 64, 65_536),
    ("receive_default_count", 1, 1000),
    ("receive_max_count", 100, 10_000),
    ("receive_max_wait_seconds", 0, 240),
    ("result_kib", 1, 4096),
]


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
        "journal_keep_days": 0,
        "message_retention_hours": 168,
        "cursor_idle_hours": 72,
        "cleanup_interval_seconds": 3600,
        "receipt_retention_minutes": 60,
        "max_message_kib": 32,
        "send_messages_per_second": 100,
        "send_kib_per_second": 1024,
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
        (b'{"log_level": "\xff"}', "line 1, column 16: this is not UTF-8"),
        (b'\xef\xbb\xbf{\n"\xc3\xa4": "\xff"}', "line 2, column 7: this is not UTF-8"),
        ('{"segement_mib": 1}', 'line 1, column 18: unknown key "segement_mib": did you mean "segment_mib"?'),
        ('{"x": 1}', 'unknown key "x"; known keys: data_directory, allow_network_filesystem, '),
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
        ('{"receive_default_count": 1001}', "receive_default_count must be a whole number from 1 to 1000, not 1001"),
        (
            '{"x": 1, "log_level": 2, "segment_mib": 0}',
            "(and 2 more: `agentbus config --check FILE` names them all)",
        ),
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


@pytest.mark.parametrize(("key", "lowest", "highest"), RANGES)
def test_both_ends_of_a_range_are_allowed_and_what_lies_next_to_them_is_not(
    tmp_path: Path, environ: dict[str, str], key: str, lowest: int, highest: int
) -> None:
    def read(value: object) -> Any:  # noqa: ANN401 - a setting of any type
        return getattr(load(_write(tmp_path / "c.json", json.dumps({key: value})), environ), key)

    assert read(lowest) == lowest
    assert read(highest) == highest
    for outside in (highest + 1, -1 if key == "receive_max_count" else lowest - 1):
        with pytest.raises(SettingsError, match=f"{key} must be a whole number from .* to {highest}, not {outside}"):
            read(outside)


def test_a_directory_in_place_of_the_file_is_named(tmp_path: Path, environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="Is a directory"):
        load(str(tmp_path), environ)


def test_the_root_of_all_files_is_no_data_directory(tmp_path: Path) -> None:
    for root in ("/", "//", "/tmp/.."):
        with pytest.raises(SettingsError, match="AGENTBUS_DATA_DIR must be a directory of its own, not /"):
            load(None, {"HOME": str(tmp_path), "AGENTBUS_DATA_DIR": root})


def test_the_ranges_tested_above_are_all_there_are() -> None:
    numbers = {key for key in Settings.__struct_fields__ if " to " in render_range(key)}
    assert numbers == {case[0] for case in RANGES}


def test_each_setting_says_where_it_comes_from(tmp_path: Path, environ: dict[str, str]) -> None:
    usual = tmp_path / ".config/agentbus/config.json"
    nothing = trace(None, environ)
    assert (nothing.file, nothing.named_by, nothing.is_there) == (str(usual), None, False)
    assert set(nothing.origins.values()) == {"default"}
    _write(usual, '{"segment_mib": 16, "data_directory": "/from/file"}')
    found = trace(None, environ | {"AGENTBUS_DATA_DIR": "/from/variable"})
    assert found.is_there
    assert list(found.origins) == list(Settings.__struct_fields__)
    assert found.origins["segment_mib"] == str(usual)
    assert found.origins["data_directory"] == "AGENTBUS_DATA_DIR"
    assert found.origins["log_level"] == "default"
    assert trace(None, environ).origins["data_directory"] == str(usual)
    named = environ | {"AGENTBUS_CONFIG": str(usual)}
    assert trace(None, named).named_by == "AGENTBUS_CONFIG"
    assert trace(str(usual), named).named_by == "--config"


def test_every_fault_of_a_file_is_found_with_its_place(tmp_path: Path, environ: dict[str, str]) -> None:
    text = '{\n  "segment_mib": 0,\n  "x": "y",\n  "log_level": "info", "receive_max_count": 50\n}'
    file = _write(tmp_path / "c.json", text)
    keys, faults = check("~/c.json", environ)
    assert keys == ["log_level", "receive_max_count"]
    number = "a whole number from 1 to 1024"
    order = "receive_default_count at most receive_max_count"
    assert faults[0] == Fault(file, f"segment_mib must be {number}, not 0", 2, 18, "segment_mib", "0", number)
    assert (faults[1].line, faults[1].column, faults[1].key, faults[1].value) == (3, 8, "x", '"y"')
    assert faults[1].allowed is None
    assert (faults[2].line, faults[2].column, faults[2].key, faults[2].allowed) == (4, 45, "receive_max_count", order)
    assert len(faults) == 3


def test_a_file_full_of_faults_is_an_answer_and_not_a_wait(tmp_path: Path, environ: dict[str, str]) -> None:
    file = _write(tmp_path / "c.json", json.dumps({str(number): number for number in range(3000)}))
    assert len(check(file, environ)[1]) == 100
    _write(tmp_path / "c.json", " " * (64 << 10) + "{}")
    assert check(file, environ)[1] == [Fault(file, "cannot read it: longer than 65536 bytes")]


def test_a_sound_file_has_no_fault(tmp_path: Path, environ: dict[str, str]) -> None:
    file = _write(tmp_path / "c.json", '{"segment_mib": 1, "data_directory": "~/x"}')
    assert check(file, environ) == (["segment_mib", "data_directory"], [])


def test_what_is_allowed_is_told_in_words() -> None:
    assert render_allowed("journal_keep_days") == "a whole number from 0 to 3650"
    assert render_allowed("log_level") == "one of debug, info, warn, error"
    assert render_allowed("allow_network_filesystem") == "true or false"
    assert render_allowed("data_directory") == 'an absolute path, or one that begins with "~/"'
