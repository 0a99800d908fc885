"""Every state a power cut may leave of a model disk, or a fair choice where there are too many. Touches no file.

Where the space is small (`_EVERY_MAX`) that is every combination. Otherwise, of a file: as it is, as it was when it
was last safe and after each change since, its size cut at each border of 512 bytes, each block alone old, each alone
new, and each alone in each version; of a directory: all, none, each alone, each alone missing, and the first n of the
changes of its names; of a disk: each of these with all else as it is, and with all else as it was; and some by chance.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from tools.crashes.disk import BEFORE, BLOCK_BYTES, Directory, File

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tools.crashes.disk import Change, Disk, Node

Tree = dict[str, bytes | None]
"""Bytes by path, relative to the disk's root; None for a directory."""

_EVERY_MAX: Final = 32
_BY_CHANCE: Final = 8


def after_a_cut(disk: Disk, chance: Random) -> Iterator[Tree]:
    """The states, some of them maybe twice."""
    files: list[tuple[File, list[bytes]]] = []
    directories: list[tuple[Directory, list[dict[str, Node]]]] = []
    for node in _nodes(disk.top, {}):
        if isinstance(node, File):
            if not node.settled:
                files.append((node, _contents(node, chance)))
        elif node.pending:
            directories.append((node, _names(node, chance)))
    axes = [len(choices) for _, choices in files] + [len(choices) for _, choices in directories]
    for at in _combinations(axes, chance):
        bytes_of = {id(node): choices[each] for (node, choices), each in zip(files, at, strict=False)}
        rest = at[len(files) :]
        names_of = {id(node): choices[each] for (node, choices), each in zip(directories, rest, strict=True)}
        yield dict(_tree(disk.top, "", bytes_of, names_of))


def _nodes(directory: Directory, seen: dict[int, Node]) -> list[Node]:
    """All that has or may have a name, each once."""
    if id(directory) not in seen:
        seen[id(directory)] = directory
        for node in (*directory.now.values(), *directory.safe.values(), *(each.node for each in directory.pending)):
            if isinstance(node, Directory):
                _nodes(node, seen)
            else:
                seen[id(node)] = node
    return list(seen.values())


def _combinations(axes: list[int], chance: Random) -> Iterator[tuple[int, ...]]:
    """Choices by index, one for each axis; of each axis 0 is as it is, 1 (if there is one) as it was."""
    every = 1
    for count in axes:
        every *= count
    if every <= _EVERY_MAX:
        yield from itertools.product(*map(range, axes))
        return
    for base in (tuple(0 for _ in axes), tuple(min(1, count - 1) for count in axes)):
        for axis, count in enumerate(axes):
            for choice in range(count):
                yield (*base[:axis], choice, *base[axis + 1 :])
    for _ in range(_BY_CHANCE):
        yield tuple(chance.randrange(count) for count in axes)


def _tree(
    directory: Directory, path: str, bytes_of: dict[int, bytes], names_of: dict[int, dict[str, Node]]
) -> Iterator[tuple[str, bytes | None]]:
    for name, node in names_of.get(id(directory), directory.now).items():
        at = f"{path}{name}"
        if isinstance(node, Directory):
            yield at, None
            yield from _tree(node, at + "/", bytes_of, names_of)
        else:
            yield at, bytes_of.get(id(node), node.now)


def _names(directory: Directory, chance: Random) -> list[dict[str, Node]]:
    """What a directory may hold: with all changes first, with none second."""
    changes = directory.pending
    many = range(len(changes))
    if 1 << len(changes) <= _EVERY_MAX:
        subsets = [set(each) for size in many for each in itertools.combinations(many, size + 1)]
    else:
        subsets = [{each} for each in many] + [set(many) - {each} for each in many]
        subsets += [set(range(each)) for each in many]
        subsets += [{each for each in many if chance.random() < 0.5} for _ in range(_BY_CHANCE)]
    found: list[dict[str, Node]] = []
    for subset in (set(many), set[int](), *subsets):
        names = _apply(directory.safe, [change for each, change in enumerate(changes) if each in subset])
        if names not in found:
            found.append(names)
    return found


def _apply(safe: dict[str, Node], changes: list[Change]) -> dict[str, Node]:
    names = dict(safe)
    for change in changes:
        change.apply(names)
    return names


def _contents(file: File, chance: Random) -> list[bytes]:
    """What a file may hold: as it is first, as it was second."""
    sizes = _sizes(file)
    every = len(sizes)
    for versions in file.blocks.values():
        every *= len(versions)
    found = {file.now: None, _at(file, BEFORE): None}
    if every <= _EVERY_MAX:
        for picked in itertools.product(*file.blocks.values()):
            blocks = {block: data for block, (_, data) in zip(file.blocks, picked, strict=True)}
            found |= dict.fromkeys(_assemble(file, size, blocks) for size in sizes)
    else:
        found |= dict.fromkeys(_choice(file, sizes, chance))
    return list(found)


def _choice(file: File, sizes: list[int], chance: Random) -> Iterator[bytes]:
    size = len(file.now)
    new = {block: versions[-1][1] for block, versions in file.blocks.items()}
    old = {block: versions[0][1] for block, versions in file.blocks.items()}
    for change in sorted({change for versions in file.blocks.values() for change, _ in versions}):
        yield _at(file, change)
    for each in sizes:
        yield _assemble(file, each, new)
    for block, versions in file.blocks.items():
        yield _assemble(file, size, old | {block: new[block]})
        for _, data in versions:
            yield _assemble(file, size, new | {block: data})
    for _ in range(_BY_CHANCE):
        picked = {block: chance.choice(versions)[1] for block, versions in file.blocks.items()}
        yield _assemble(file, chance.choice(sizes), picked)


def _sizes(file: File) -> list[int]:
    sizes = {size for _, size in file.sizes}
    borders = range(-(-min(sizes) // BLOCK_BYTES) * BLOCK_BYTES, max(sizes), BLOCK_BYTES)
    return sorted(sizes | set(borders))


def _at(file: File, change: int) -> bytes:
    """As it was after a change."""
    size = [size for number, size in file.sizes if number <= change][-1]
    blocks = {
        block: [data for number, data in versions if number <= change][-1] for block, versions in file.blocks.items()
    }
    return _assemble(file, size, blocks)


def _assemble(file: File, size: int, blocks: dict[int, bytes]) -> bytes:
    """A file of a size, with these blocks where it is not safe; what was never there reads as NUL."""
    data = bytearray(file.now[:size].ljust(size, b"\0"))
    for block, held in blocks.items():
        start = block * BLOCK_BYTES
        if start < size:
            data[start : start + BLOCK_BYTES] = held.ljust(BLOCK_BYTES, b"\0")
    return bytes(data[:size])
