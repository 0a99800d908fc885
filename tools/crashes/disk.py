"""A model of a disk: what was written, what of it is safe, what a power cut may leave. Touches no file and no clock.

The rules, none kinder than a journaling filesystem on a disk with blocks of 512 bytes:

- A write or a cut changes blocks and the size in memory. Until a flush of the file returns, the disk may hold any
  version that a block has had since it was last safe, each block for itself, and any size the file has had since then.
- A flush that fails leaves all that in doubt for good: the blocks count as clean, a later flush that succeeds says
  nothing of them. Only a block that is written anew is flushed anew. Whoever had the file open hears of the failure at
  his next flush, once; who opens it after the failure was reported to somebody never does. (As Linux has it.)
- A flush of a file does not make its name safe. Names that came, went or moved since the last flush of their directory
  may each have done so or not. A flush of a directory that fails says nothing, and a later one is as good as any: names
  go through the filesystem's own journal, and a filesystem that cannot write it stops altogether.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import Final

BLOCK_BYTES: Final = 512
BEFORE: Final = -1
"""The number of the change that made what is safe."""


@dataclass(slots=True, eq=False)
class File:
    """The bytes of one file.

    Attributes:
        now: as everybody sees them.
        blocks: of each block that is not safe every version that the disk may hold, with the number of its change.
        sizes: every size that the disk may hold, likewise; the last is that of ``now``.
        failures: flushes that failed.
    """

    now: bytes = b""
    blocks: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    sizes: list[tuple[int, int]] = field(default_factory=lambda: [(BEFORE, 0)])
    failures: int = 0
    _dirty: set[int] = field(default_factory=set)
    _resized: bool = False

    def become(self, change: int, now: bytes, first_byte: int) -> None:
        """Hold other bytes from ``first_byte`` on."""
        for block in range(first_byte // BLOCK_BYTES, -(-max(len(now), len(self.now)) // BLOCK_BYTES)):
            old, new = _block(self.now, block), _block(now, block)
            if old != new:
                self.blocks.setdefault(block, [(BEFORE, old)]).append((change, new))
                self._dirty.add(block)
        if len(now) != len(self.now):
            self.sizes.append((change, len(now)))
            self._resized = True
        self.now = now

    def flushed(self) -> None:
        """A flush returned."""
        for block in self._dirty:
            del self.blocks[block]
        if self._resized:
            self.sizes = [(BEFORE, len(self.now))]
        self._clean()

    def not_flushed(self) -> None:
        """A flush failed."""
        self.failures += 1
        self._clean()

    def _clean(self) -> None:
        self._dirty.clear()
        self._resized = False

    @property
    def settled(self) -> bool:
        """Whether the disk can hold nothing but ``now``."""
        return not self.blocks and len(self.sizes) == 1

    def safe_bytes(self) -> int:
        """How many bytes from the beginning are those of ``now`` in whatever the disk may hold."""
        length = min(size for _, size in self.sizes)
        for block, versions in self.blocks.items():
            same = min(_same_bytes(_block(self.now, block), version) for _, version in versions)
            if same < len(_block(self.now, block)):
                length = min(length, block * BLOCK_BYTES + same)
        return length


@dataclass(slots=True, frozen=True)
class Change:
    """A name that came (``old`` empty), went (``new`` empty) or moved."""

    old: str
    new: str
    node: Node

    def apply(self, names: dict[str, Node]) -> None:
        """Make it."""
        if self.old and names.get(self.old) is self.node:
            del names[self.old]
        if self.new:
            names[self.new] = self.node


@dataclass(slots=True, eq=False)
class Directory:
    """The names in one directory: as everybody sees them, as they are safe, and the changes between, in order."""

    now: dict[str, Node] = field(default_factory=dict)
    safe: dict[str, Node] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    def make(self, change: Change) -> None:
        """Change a name."""
        change.apply(self.now)
        self.pending.append(change)

    def flushed(self) -> None:
        """A flush returned."""
        self.safe = dict(self.now)
        self.pending = []

    def may_hold(self, name: str) -> list[Node | None]:
        """All that a name may stand for on the disk."""
        found = [self.safe.get(name)]
        found += [change.node for change in self.pending if change.new == name]
        return found + [None for change in self.pending if change.old == name]


Node = File | Directory


@dataclass(slots=True, eq=False)
class _Handle:
    """An open file; copies of a descriptor share one."""

    node: Node
    heard: int


class Disk:
    """Everything below one directory, which is there and safe from the beginning.

    Attributes:
        changes: how many there were; each has its number.
    """

    def __init__(self, root: str) -> None:
        self.top = Directory()
        self.changes = 0
        self._root = root.rstrip("/") + "/"
        self._handles: dict[int, _Handle] = {}

    def opened(self, fd: int, path: str, *, created: bool, cut: bool) -> None:
        """A file or directory was opened."""
        if created:
            parent, name = self._parent(path)
            self._make(parent, Change("", name, File()))
        node = self.node(path)
        self._handles[fd] = _Handle(node, node.failures if isinstance(node, File) else 0)
        if cut and isinstance(node, File) and node.now:
            self._become(node, b"", 0)

    def copied(self, fd: int, copy: int) -> None:
        """A descriptor was duplicated."""
        self._handles[copy] = self._handles[fd]

    def closed(self, fd: int) -> None:
        """A descriptor was closed."""
        self._handles.pop(fd, None)

    def wrote(self, fd: int, data: bytes, offset: int) -> None:
        """Bytes were written at an offset, at most the end."""
        node = self._file(fd)
        self._become(node, node.now[:offset] + data + node.now[offset + len(data) :], offset)

    def truncated(self, fd: int, length: int) -> None:
        """A file was cut."""
        node = self._file(fd)
        self._become(node, node.now[:length], length)

    def flushed(self, fd: int) -> None:
        """A flush returned.

        Raises:
            OSError: it cannot have: an earlier one failed, and this descriptor has not heard of it yet.
        """
        handle = self._handles[fd]
        handle.node.flushed()
        if isinstance(handle.node, File) and handle.heard < handle.node.failures:
            handle.heard = handle.node.failures
            raise OSError(errno.EIO, "an earlier flush failed")

    def not_flushed(self, fd: int) -> None:
        """A flush failed; whoever made it has been told."""
        handle = self._handles[fd]
        if isinstance(handle.node, File):
            handle.node.not_flushed()
            handle.heard = handle.node.failures

    def renamed(self, old: str, new: str) -> None:
        """A file was put in the place of another, in the same directory."""
        parent, name = self._parent(old)
        self._make(parent, Change(name, os.path.basename(new), parent.now[name]))

    def unlinked(self, path: str) -> None:
        """A name was taken out."""
        parent, name = self._parent(path)
        self._make(parent, Change(name, "", parent.now[name]))

    def made(self, path: str) -> None:
        """A directory was made."""
        parent, name = self._parent(path)
        self._make(parent, Change("", name, Directory()))

    def node(self, path: str) -> Node:
        """What stands at a path now; something of no interest for one that is not below the root."""
        if path + "/" == self._root:
            return self.top
        if not path.startswith(self._root):
            return Directory()
        parent, name = self._parent(path)
        return parent.now[name]

    def unsafe(self) -> list[str]:
        """Names and bytes of segments that a power cut could take now, for people; empty if there are none."""
        return list(_unsafe(self.top, ""))

    def _parent(self, path: str) -> tuple[Directory, str]:
        node = self.top
        *above, name = path.removeprefix(self._root).split("/")
        for each in above:
            below = node.now[each]
            if isinstance(below, File):
                raise NotADirectoryError(path)
            node = below
        return node, name

    def _file(self, fd: int) -> File:
        node = self._handles[fd].node
        if isinstance(node, Directory):
            raise IsADirectoryError(fd)
        return node

    def _become(self, node: File, now: bytes, first_byte: int) -> None:
        node.become(self.changes, now, first_byte)
        self.changes += 1

    def _make(self, directory: Directory, change: Change) -> None:
        directory.make(change)
        self.changes += 1


def _unsafe(directory: Directory, path: str) -> list[str]:
    found: list[str] = []
    for name, node in directory.now.items():
        at = f"{path}/{name}"
        if isinstance(node, Directory):
            below = _unsafe(node, at)
            found += below
            if _segments(node) and directory.may_hold(name) != [node]:
                found.append(f"{at}: the name of the directory")
        elif name.endswith(".jsonl"):
            found += _unsafe_file(directory, name, node, at)
    return found


def _unsafe_file(directory: Directory, name: str, node: File, at: str) -> list[str]:
    if node.now and any(
        not isinstance(held, File) or held.now[: held.safe_bytes()] != node.now for held in directory.may_hold(name)
    ):
        return [f"{at}: {len(node.now)} bytes, {node.safe_bytes()} of them safe if its name is"]
    return []


def _segments(directory: Directory) -> bool:
    """Whether a segment lies in it or below."""
    return any(
        _segments(node) if isinstance(node, Directory) else name.endswith(".jsonl")
        for name, node in directory.now.items()
    )


def _same_bytes(one: bytes, other: bytes) -> int:
    """How many bytes from the beginning are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _block(data: bytes, block: int) -> bytes:
    return data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
