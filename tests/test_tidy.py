"""The house's own rules, kept by the suite: layers, purity, sizes, and documents that say what the code says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from agentbus import config, errors, events, fold, tools
from agentbus.config import Settings

ROOT = Path(__file__).parent.parent
HOUSE = (ROOT / "docs" / "house.md").read_text()
IMPURE = {
    "os",
    "time",
    "random",
    "secrets",
    "pathlib",
    "threading",
    "socket",
    "subprocess",
    "mcp",
    "click",
    "portalocker",
}
FUNCTION_LINES_MAX = 50
MODULE_LINES_MAX = 400
TEST_MODULE_LINES_MAX = 700
EXCEPTION = re.compile(r"#\s*(noqa|type: ignore|pragma: no)\b")
REASONED = re.compile(
    r"#\s*(noqa: [A-Z]+\d+(, [A-Z]+\d+)*|type: ignore\[[\w, -]+\]|pragma: no (cover|branch))\s+(#|--?)\s*\w"
)
PACKAGES = ("journal", "agentbus")


def rooms(package: str) -> dict[str, bool]:
    """Each room of a package in the document's order, and whether it is pure."""
    table = HOUSE.split(f"### {package}\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| (\S+) \| (P?) ?\| ", table, flags=re.MULTILINE)
    return {name.replace("\\", ""): bool(pure) for name, pure in rows if name != "room"}


def room_of(path: Path) -> str:
    relative = path.relative_to(ROOT / path.relative_to(ROOT).parts[0])
    return "cli/" if relative.parts[0] == "cli" else relative.as_posix()


def modules(package: str) -> list[Path]:
    return sorted(
        path for path in (ROOT / package).rglob("*.py") if path.relative_to(ROOT / package).as_posix() != "__init__.py"
    )


ALL = [path for package in PACKAGES for path in modules(package)]
EVERY = sorted(path for folder in (*PACKAGES, "tests", "tools") for path in (ROOT / folder).rglob("*.py"))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path, *, typing: bool = False) -> set[str]:
    """Dotted names that a module imports when it runs; with ``typing`` also those for its types alone.

    ``from a import b`` counts as a.b and a.
    """
    found: set[str] = set()
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            todo += node.orelse + (node.body if typing else [])
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        else:
            todo += ast.iter_child_nodes(node)
    return found


def dotted(package: str, room: str) -> str:
    return f"{package}/{room}".removesuffix(".py").removesuffix("/__init__").rstrip("/").replace("/", ".")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_is_a_room_of_the_house_and_every_room_is_a_file(package: str) -> None:
    assert {room_of(path) for path in modules(package)} == set(rooms(package))


@pytest.mark.parametrize("path", ALL, ids=named)
def test_a_room_imports_only_rooms_above_it(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    order = list(rooms(package))
    mine = order.index(room_of(path))
    beneath = [dotted(package, room) for room in order[mine + 1 :]]
    for imported in imports(path):
        # agentbus.decide stands for its __init__, and its members stand above it.
        below = [name for name in beneath if imported == name or (name.endswith(".cli") and imported.startswith(name))]
        assert not below, f"{named(path)} imports {imported}, which stands beneath it"


def test_the_journal_knows_nothing_of_the_bus() -> None:
    for path in modules("journal"):
        assert not any(name.split(".")[0] == "agentbus" for name in imports(path, typing=True)), named(path)


def test_the_bus_uses_only_what_the_journal_exports() -> None:
    import journal  # noqa: PLC0415  # the one test that needs it

    for path in modules("agentbus"):
        for name in imports(path, typing=True):
            if name.startswith("journal."):
                assert name.removeprefix("journal.") in journal.__all__, f"{named(path)} imports {name}"


@pytest.mark.parametrize("path", ALL, ids=named)
def test_a_pure_room_imports_no_clock_no_files_and_no_threads(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    if rooms(package)[room_of(path)]:
        assert not {name.split(".")[0] for name in imports(path)} & IMPURE


def test_only_the_demo_and_the_sdks_own_door_import_the_sdk() -> None:
    users = [named(path) for path in ALL if any(name.split(".")[0] == "mcp" for name in imports(path))]
    assert users == ["agentbus/cli/demo.py", "agentbus/sdk.py"]


@pytest.mark.parametrize("path", EVERY, ids=named)
def test_a_module_is_short_and_begins_with_its_job(path: Path) -> None:
    text = path.read_text()
    tested = "tests" in path.relative_to(ROOT).parts
    assert len(text.splitlines()) <= (TEST_MODULE_LINES_MAX if tested else MODULE_LINES_MAX)
    if text and not tested:
        assert ast.get_docstring(ast.parse(text)), "its first line must say what lives here"


@pytest.mark.parametrize("path", EVERY, ids=named)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, f"{node.name} in {named(path)}"


@pytest.mark.parametrize("path", EVERY, ids=named)
def test_each_exception_from_the_checks_carries_its_code_and_its_reason(path: Path) -> None:
    for line in path.read_text().splitlines():
        if EXCEPTION.search(line):
            assert REASONED.search(line), line.strip()


def test_the_fold_knows_every_event_type() -> None:
    assert set(fold._APPLY) == set(get_args(events.AnyEvent))


def test_the_readme_names_every_tool() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [tool.name for tool in tools.TOOLS if f"`{tool.name}`" not in readme] == []


def test_the_readme_names_every_command() -> None:
    from agentbus.cli import main  # noqa: PLC0415  # click is heavy, and only this test needs it

    readme = (ROOT / "README.md").read_text()
    commands = main.list_commands(None)  # type: ignore[arg-type]  # the group asks nothing of its context
    assert [name for name in commands if f"`agentbus {name}" not in readme] == []


def test_the_documents_name_every_setting_with_its_default_and_its_range() -> None:
    text = (ROOT / "docs" / "reference.md").read_text().split("## Settings\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.*?) ?\| (?:.+) \|$", text, flags=re.MULTILINE)
    defaults = ["`~/.local/share/agentbus`", *Settings.__struct_defaults__]
    in_code = [
        (key, str(default).lower() if isinstance(default, bool) else str(default), config.render_range(key))
        for key, default in zip(Settings.__struct_fields__, defaults, strict=True)
    ]
    assert rows == in_code


def test_the_documents_name_every_error_code() -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    assert [code for code in errors.CODES if f"| `{code}` |" not in text] == []


def test_the_format_names_every_event_type() -> None:
    text = (ROOT / "journal" / "FORMAT.md").read_text() + (ROOT / "docs" / "reference.md").read_text()
    tags = [kind.__struct_config__.tag for kind in get_args(events.AnyEvent)]
    assert [tag for tag in tags if f"`{tag}`" not in text] == []


def test_the_reference_lists_each_tool_with_its_arguments_in_order() -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    for tool in tools.TOOLS:
        row = re.search(rf"^\| `{tool.name}` \| (.+?) \| ", text, flags=re.MULTILINE)
        assert row, tool.name
        assert row[1].split(", ") == list(tool.schema["properties"]), tool.name


@pytest.mark.parametrize("event", get_args(events.AnyEvent), ids=lambda event: event.__name__)
def test_the_reference_lists_each_event_with_its_fields(event: type[msgspec.Struct]) -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    row = re.search(rf"^\| `{event.__struct_config__.tag}` \| (.+?) \|$", text, flags=re.MULTILINE)
    assert row
    listed = {re.sub(r":.*", "", field) for field in re.split(r", (?!gone|fresh)", row[1])}
    fields = msgspec.structs.fields(event)
    assert {name.rstrip("?") for name in listed} == {field.encode_name for field in fields}
    assert {name for name in listed if name.endswith("?")} == {
        f"{field.encode_name}?" for field in fields if field.default is msgspec.UNSET
    }
