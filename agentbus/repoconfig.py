"""The repository file ``.local/agentbus.json``: what it says, and the edits of it. Subscribes nobody.

One module for the command line and the server. Readers never fail: what is wrong with the file is part of the
answer. Editors refuse what they do not understand, with line and column, and then leave every byte; keys and
values that are not theirs keep their order and spelling. Imports only what starts fast; what editors need is
imported when they run.
Source: docs/reference.md, "The repository file".
"""

from __future__ import annotations

import json
import os

from agentbus.errors import VALIDATION, BusError, render_value
from agentbus.jsontext import Document, JSONTextError
from agentbus.limits import ERROR_VALUE_CHARS_MAX
from agentbus.names import AgentName, ChannelName, parse_agent_name, parse_channel_name
from agentbus.repository import FILE, Where, find, is_present, is_root, read_regular
from agentbus.visible import render_visible
from agentbus.whereabouts import is_everybodys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    # From the file (None: there is none) and where it stands to its new text, or None for no change.
    Change = Callable[[Document | None, Where], str | None]

DEFAULT_CHANNELS = (ChannelName("general"), ChannelName("memory"))
DEFAULT_IDENTITY = AgentName("agent")

_FILE_BYTES_MAX = 1 << 20  # a list of channels and a few foreign keys, not a database


class RepoFileError(BusError):
    """The repository file was not edited: nothing was written, or the message says what was."""

    def __init__(self, message: str) -> None:
        super().__init__(VALIDATION, render_visible(message))


class RepoFile:
    """What holds for a working directory, as register and the hook see it.

    Attributes:
        identity: the file's, or else the one its directory gives.
        channels: the valid names of the persistent list, each once, in order.
        failed: what could not be used -> why: an entry of the list, cut to 200 characters, or FILE.
        warnings: the same, what is wrong with the identity, and a broken ``.git``, as sentences.
        path: the file, if there is one.
    """

    __slots__ = ("channels", "failed", "identity", "path", "warnings")

    def __init__(self, where: Where) -> None:
        self.path = where.path
        self.channels: tuple[ChannelName, ...] = DEFAULT_CHANNELS
        self.failed: dict[str, str] = {}
        self.warnings = where.warnings
        self.identity = self._understand(where)

    def _understand(self, where: Where) -> AgentName:
        try:
            document = _load(where.path) if where.path else None
        except RepoFileError as error:
            self.failed[FILE] = error.message
            self.warnings += (error.message,)
            document = None
        if document and "channels" in document.value:
            self._take_list(document)
        if document and "identity" in document.value:
            return parse_agent_name(document.value["identity"])
        name, warnings = _fallback_identity(where)
        self.warnings += warnings
        return name

    def _take_list(self, document: Document) -> None:
        channels: dict[ChannelName, None] = {}
        for value, text in zip(document.value["channels"], document.entries("channels"), strict=True):
            try:
                channels[parse_channel_name(value)] = None
            except BusError as error:
                self.failed[_shorten(value if isinstance(value, str) else text)] = error.message
                self.warnings += (f"{FILE}: {error.message}",)
        self.channels = tuple(channels)


def read(cwd: str) -> RepoFile:
    """What the file that holds for ``cwd`` says, or what is wrong with it. Never fails, never waits."""
    return RepoFile(find(cwd))


def identity(cwd: str) -> tuple[AgentName, tuple[str, ...]]:
    """The name a session in ``cwd`` registers under, and warnings, each a sentence.

    The file's; else the basename of the repository root, of the main checkout in a linked worktree; else of
    the directory; else ``agent``, with a warning.
    """
    file = read(cwd)
    return file.identity, file.warnings


def add_channel(cwd: str, channel: str) -> RepoFile:
    """Add to the list that ``register`` reads in ``cwd``; without a file, make one at the repository's home.

    Raises:
        BusError: the name breaks the rule; nothing was written.
        RepoFileError: nothing was written.
    """
    return _edit_in_place(cwd, _adding(parse_channel_name(channel)))


def remove_channel(cwd: str, channel: str) -> RepoFile:
    """As add_channel, but remove; also refused where there is no file."""
    return _edit_in_place(cwd, _removing(parse_channel_name(channel)))


def add_channel_here(root: str, channel: str) -> RepoFile:
    """The command line's edit: of ``root``/.local/agentbus.json, no walk. Raises as add_channel does.

    A linked worktree gets a file of its own, which begins as a copy of its main checkout's.
    """
    return _edit_here(root, _adding(parse_channel_name(channel)))


def remove_channel_here(root: str, channel: str) -> RepoFile:
    """As add_channel_here; also refused where there is no file to begin with."""
    return _edit_here(root, _removing(parse_channel_name(channel)))


class Initialised:
    """What ``init`` found or did: the file, its identity, its directory, whether it was written."""

    __slots__ = ("home", "identity", "path", "written")

    def __init__(self, path: str, name: AgentName, *, written: bool) -> None:
        self.path = path
        self.home = path.removesuffix(f"/{FILE}")
        self.identity = name
        self.written = written


def init(cwd: str, name: str | None) -> Initialised:
    """Make sure that the repository that holds ``cwd`` has a file that names an identity.

    Args:
        cwd: in the repository; a linked worktree without a file of its own sets up its main checkout.
        name: the identity; None keeps the file's, or else takes the basename of the repository root.

    Raises:
        BusError: ``name`` breaks the rule; nothing was written.
        RepoFileError: no repository, no usable basename, or a broken file; nothing was written.
    """
    asked = None if name is None else parse_agent_name(name)
    where = find(cwd)
    if where.root is None or where.home is None:
        raise RepoFileError("this is not a git repository: run `git init` first, or change to one")
    own = os.path.join(where.root, FILE)
    path = own if is_present(own) else os.path.join(where.home, FILE)
    where.path = path if is_present(path) else None  # a file nearer to cwd is not the repository's

    def change(document: Document | None, where: Where) -> str | None:
        if document is None:
            return _render_new(asked or _chosen_identity(where))
        if "identity" in document.value and asked in (None, parse_agent_name(document.value["identity"])):
            return None
        return document.with_member("identity", _quote(asked or _chosen_identity(where)))

    written = _edit(path, where, change)
    where.path = path
    return Initialised(path, RepoFile(where).identity, written=written)


def _load(path: str) -> Document:
    """The file, checked as far as its two keys go.

    Raises:
        RepoFileError: names the file, and line and column where there are such.
    """
    try:
        data = read_regular(path, _FILE_BYTES_MAX)
    except OSError as error:
        raise RepoFileError(f"{path}: {_render_unreadable(path, error)}") from None
    try:
        document = Document(_decode(data))
        _check(document)
    except JSONTextError as error:
        raise RepoFileError(f"{path}, {error}: mend it by hand") from None
    return document


def _render_unreadable(path: str, error: OSError) -> str:
    if os.path.islink(path):
        return f"cannot follow this symbolic link to {os.readlink(path)}: {error.strerror}"
    return f"cannot read it: {error.strerror}"


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8-sig")
        line, column = good.count("\n") + 1, len(good) - good.rfind("\n")
        raise JSONTextError("this is not UTF-8", line, column) from None


def _check(document: Document) -> None:
    value = document.value
    if "identity" in value:
        try:
            parse_agent_name(value["identity"])
        except BusError as error:
            raise JSONTextError(f'"identity": {error.message}', *document.place("identity")) from None
    if "channels" in value and not isinstance(value["channels"], list):
        shown = render_value(value["channels"])
        raise JSONTextError(f'"channels" must be a list of names, not {shown}', *document.place("channels"))


def _shorten(entry: str) -> str:
    """An entry as a key of an answer: itself, but encodable and not endless."""
    text = entry if len(entry) <= ERROR_VALUE_CHARS_MAX else entry[:ERROR_VALUE_CHARS_MAX] + "…"
    return text.encode("utf-8", "backslashreplace").decode()


def _fallback_identity(where: Where) -> tuple[AgentName, tuple[str, ...]]:
    try:
        return parse_agent_name(where.name), ()
    except BusError as error:
        why = f'{error.message}; using "{DEFAULT_IDENTITY}" (`agentbus init --identity NAME` gives it another)'
        return DEFAULT_IDENTITY, (f"the directory gives no identity: {why}",)


def _chosen_identity(where: Where) -> AgentName:
    """The identity a new file gets."""
    try:
        return parse_agent_name(where.name)
    except BusError as error:
        message = f"the directory gives no identity: {error.message}; run `agentbus init --identity NAME`"
        raise RepoFileError(message) from None


def _edit_in_place(cwd: str, change: Change) -> RepoFile:
    where = find(cwd)
    if where.path is None and where.home is None:
        raise RepoFileError(f"{cwd} is not in a git repository: there is no place for {FILE}")
    if where.path is None and is_everybodys(where.home or cwd):
        raise RepoFileError(
            f"{where.home} is no project: no {FILE} is made there; `agentbus init` makes one if you ask"
        )
    _edit(where.path or os.path.join(where.home or cwd, FILE), where, change)
    return read(cwd)


def _edit_here(root: str, change: Change) -> RepoFile:
    if not is_root(root):
        raise RepoFileError("run this from the repository root")
    _edit(os.path.join(root, FILE), find(root), change)
    return read(root)


def _edit(path: str, where: Where, change: Change) -> bool:
    """Replace ``path`` by what ``change`` makes of it, or, while it is missing, of ``where.path``.

    Returns:
        Whether it was written.
    """
    from agentbus import replace  # noqa: PLC0415 - readers, who are in a hurry, do without it

    def plan() -> str | None:
        source = path if is_present(path) else where.path
        return change(_load(source) if source else None, where)

    if plan() is None:  # so that a refusal comes before anything is made on disk
        return False
    try:
        with replace.exclusive(path) as write:
            text = plan()  # again, for now nobody else edits it
            if text is not None:
                write(text.encode())
    except OSError as error:
        raise RepoFileError(f"{path}: {error.strerror}") from error
    return text is not None


def _adding(channel: ChannelName) -> Change:
    def change(document: Document | None, where: Where) -> str | None:
        if document is None:
            channels = dict.fromkeys((*DEFAULT_CHANNELS, channel))
            return _render_new(_chosen_identity(where), list(channels))
        entries = _entries(document)
        if any(name == channel for name, _ in entries):
            return None
        return _with_list(document, [*entries, (channel, _quote(channel))])

    return change


def _removing(channel: ChannelName) -> Change:
    def change(document: Document | None, _where: Where) -> str | None:
        if document is None:
            raise RepoFileError(f"there is no {FILE} here to remove {render_value(channel)} from")
        entries = _entries(document)
        kept = [(name, text) for name, text in entries if name != channel]
        return None if len(kept) == len(entries) else _with_list(document, kept)

    return change


def _entries(document: Document) -> list[tuple[ChannelName | None, str]]:
    """The list as it is written: (the name, or None where it breaks the rule; the entry's JSON text)."""
    if "channels" not in document.value:
        return [(name, _quote(name)) for name in DEFAULT_CHANNELS]
    values = document.value["channels"]
    return [(_valid(value), text) for value, text in zip(values, document.entries("channels"), strict=True)]


def _valid(value: object) -> ChannelName | None:
    try:
        return parse_channel_name(value)
    except BusError:
        return None


def _with_list(document: Document, entries: list[tuple[ChannelName | None, str]]) -> str:
    """The file's new text; of a name listed twice the first stays, what breaks the rule stays as it is."""
    texts = []
    seen: set[ChannelName] = set()
    for name, text in entries:
        if name is None or name not in seen:
            texts.append(text)
        if name is not None:
            seen.add(name)
    return document.with_member("channels", f"[{','.join(texts)}]")


def _render_new(name: AgentName, channels: list[ChannelName] | None = None) -> str:
    value: dict[str, object] = {"identity": name}
    if channels is not None:
        value["channels"] = channels
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
