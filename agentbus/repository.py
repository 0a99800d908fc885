"""Where a working directory stands: its repository, and which repository file holds. Writes nothing.

The walk goes up to the nearest ``.git``, a directory or a file. A linked worktree is the same repository as
its main checkout; a submodule is a repository of its own. git itself is not asked: it may be slow, old, or
not there at all. Imports only what starts fast.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = ".local/agentbus.json"
_GIT_FILE_BYTES_MAX = 16 << 10  # ".git" and "commondir" files hold one path


class Where:
    """What the walk from a working directory found; all paths are absolute.

    Attributes:
        root: the nearest directory with a ``.git``; None outside of repositories.
        home: the directory whose file speaks for the repository: ``root``, or the main checkout of a linked
            worktree. None outside of repositories.
        name: the text an identity is made from where no file names one; may break the name rule.
        path: the file that holds here, readable or not; None if there is none.
        warnings: sentences about a broken ``.git``.
    """

    __slots__ = ("home", "name", "path", "root", "warnings")

    def __init__(self, directory: str) -> None:
        self.root: str | None = None
        self.home: str | None = None
        self.name = os.path.basename(directory)
        self.path: str | None = None
        self.warnings: tuple[str, ...] = ()


def find(cwd: str) -> Where:
    """Walk up from ``cwd``."""
    where = Where(os.path.abspath(cwd))
    for directory in _upward(os.path.abspath(cwd)):
        path = os.path.join(directory, FILE)
        if where.path is None and is_present(path):
            where.path = path
        if is_root(directory):
            _settle(where, directory)
            break
    return where


def is_root(directory: str) -> bool:
    """Whether ``directory`` holds a ``.git``: it is the root of a checkout."""
    return is_present(os.path.join(directory, ".git"))


def is_present(path: str) -> bool:
    """Whether something stands at ``path``; what we may not look at counts, for reading it will say why."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def read_regular(path: str, bytes_max: int) -> bytes:
    """The bytes of a regular file; never waits, as opening a named pipe would.

    Raises:
        OSError: it cannot be read, is no regular file, or is longer than ``bytes_max``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(bytes_max + 1)
    finally:
        os.close(descriptor)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"longer than {bytes_max} bytes")
    return data


def _upward(directory: str) -> Iterator[str]:
    yield directory
    while (parent := os.path.dirname(directory)) != directory:
        yield parent
        directory = parent


def _settle(where: Where, root: str) -> None:
    where.root = where.home = root
    where.name = os.path.basename(root)
    git = os.path.join(root, ".git")
    if os.path.isdir(git):
        return
    try:
        common = _read_common_directory(git)
    except OSError as error:
        where.warnings = (f"{git} is broken: {error.strerror}; taking {root} for a repository of its own",)
        return
    if common is not None:
        _adopt_main_checkout(where, common)


def _read_common_directory(git: str) -> str | None:
    """The repository behind the ``.git`` file of a linked worktree; None for other ones, as of submodules.

    Raises:
        OSError: the file does not lead to a repository; strerror is a clause that says how.
    """
    text = _read_line(git)
    if not text.startswith("gitdir:"):
        raise OSError(errno.EINVAL, 'it does not begin with "gitdir:"')
    gitdir = _existing_directory(os.path.dirname(git), text.removeprefix("gitdir:").strip(), "gitdir")
    commondir = os.path.join(gitdir, "commondir")
    if not is_present(commondir):
        return None
    return _existing_directory(gitdir, _read_line(commondir), "commondir")


def _read_line(path: str) -> str:
    return os.fsdecode(read_regular(path, _GIT_FILE_BYTES_MAX)).strip()


def _existing_directory(base: str, path: str, what: str) -> str:
    directory = os.path.join(base, path)
    if not path or not os.path.isdir(directory):
        raise OSError(errno.ENOENT, f'its {what} "{path}" is no directory (`git worktree repair` may mend it)')
    return os.path.realpath(directory)


def _adopt_main_checkout(where: Where, common: str) -> None:
    name = os.path.basename(common)
    if not name.startswith("."):  # a bare repository, or a submodule's: no checkout whose file could be used
        where.name = name.removesuffix(".git")
        return
    where.home = os.path.dirname(common)
    where.name = os.path.basename(where.home)
    path = os.path.join(where.home, FILE)
    if where.path is None and is_present(path):
        where.path = path
