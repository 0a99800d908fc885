"""One file of SQLite's FTS5: made once, then only read. Keeps no text, and knows neither the bus nor where it lies.

It holds which tokens stand where in which text, by seq, and one record of what it covers. A finished file is opened
"immutable": SQLite takes no lock, makes no other file beside it, and needs no right to write. Whoever publishes such
files sees to it that their bytes do not change.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import ModuleType

    from agentbus.search.matching import Phrase

_PHRASES_MAX: Final = 64  # of a query; more would not narrow further, and the literal look decides
_ESCAPED: Final = str.maketrans({char: f"%{ord(char):02x}" for char in "%?#"})  # in the name of a file
_STEPS: Final = 20_000  # of SQLite's machine between two looks at the clock
# ASCII letters and digits fold and join, all that is not ASCII stands as it is given: the rest of the work is ours.
_MAKE: Final = """
CREATE VIRTUAL TABLE texts USING fts5(tokens, content='', tokenize="ascii tokenchars '_'");
CREATE TABLE covers (record BLOB NOT NULL);
"""
_RANK: Final = """
SELECT rowid, -bm25(texts) AS weight FROM texts WHERE texts MATCH ? ORDER BY weight DESC, rowid DESC LIMIT ?
"""


class FullTextError(Exception):
    """SQLite cannot: the file is damaged, the disk is full, or this Python has no FTS5. The text says which."""


class FullText:
    """An open file. Use it in one thread, and close it.

    Args:
        path: absolute.
        writable: an empty file to be filled, or a copy of a finished one to be filled further, which nobody else reads.
        check: asked now and then while SQLite works; what it raises ends the work.
    """

    def __init__(self, path: str, *, writable: bool = False, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._stopped: BaseException | None = None
        with self._told() as sqlite:
            mode = "mode=rw" if writable else "mode=ro&immutable=1"
            self._connection: sqlite3.Connection = sqlite.connect(
                f"file:{path.translate(_ESCAPED)}?{mode}", uri=True, isolation_level=None, check_same_thread=False
            )
        try:
            with self._told():
                self._prepare(writable=writable)
        except BaseException:
            self.close()
            raise

    def _prepare(self, *, writable: bool) -> None:
        self._connection.set_progress_handler(self._look, _STEPS)
        self._connection.execute("PRAGMA temp_store = MEMORY")
        self._connection.execute("PRAGMA cache_size = -8000")
        if not writable:
            return
        # Nobody else knows the file, and a half-made one is thrown away: nothing needs to be undone or flushed.
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        if not self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            self._connection.executescript(_MAKE)
        self._connection.execute("BEGIN")

    def close(self) -> None:
        """Let it go; what was added without `finish` is lost."""
        self._connection.close()

    def add(self, texts: Iterable[tuple[int, str]]) -> None:
        """Add texts as (seq, tokens), each seq above those before. What the iterable raises comes out as it is."""
        failure: list[BaseException] = []

        def guarded() -> Iterator[tuple[int, str]]:
            try:
                yield from texts
            except BaseException as error:
                failure.append(error)
                raise

        try:
            with self._told():
                self._connection.executemany("INSERT INTO texts (rowid, tokens) VALUES (?, ?)", guarded())
        except FullTextError:
            if failure:
                raise failure[0] from None
            raise

    def finish(self, record: bytes) -> None:
        """Put in place of the record what the file covers now, and everything onto the file."""
        with self._told():
            self._connection.execute("DELETE FROM covers")
            self._connection.execute("INSERT INTO covers VALUES (?)", (record,))
            self._connection.execute("COMMIT")

    def record(self) -> bytes:
        """What `finish` was given; empty if it never was."""
        with self._told():
            found = self._connection.execute("SELECT record FROM covers").fetchone()
        return bytes(found[0]) if found else b""

    def rank(self, phrases: Sequence[Phrase], many: int) -> Iterator[tuple[int, float]]:
        """(seq, weight) of at most ``many`` texts that hold every phrase, the best first, of equals the newest."""
        with self._told():
            yield from self._connection.execute(_RANK, (_render(phrases), many))

    def holding(self, phrase: Phrase) -> int:
        """How many texts hold a phrase."""
        with self._told():
            found = self._connection.execute("SELECT count(*) FROM texts WHERE texts MATCH ?", (_render([phrase]),))
            return int(found.fetchone()[0])

    def words(self, begin: str, others: Iterable[str], many: int) -> list[tuple[str, int]]:
        """At most ``many`` tokens that begin with ``begin``, and those of ``others`` that are there.

        Each with how many texts hold it.
        """
        with self._told():
            execute = self._connection.execute
            execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab(main, texts, row)")
            found = execute(
                "SELECT term, doc FROM words WHERE term >= ? AND term < ? LIMIT ?",
                (begin, begin + chr(0x10FFFF), many),
            ).fetchall()
            for other in others:
                found += execute("SELECT term, doc FROM words WHERE term = ?", (other,)).fetchall()
        return found

    def _look(self) -> int:
        """SQLite's question whether to stop. What is raised here would be printed and lost."""
        try:
            self._check()
        except BaseException as error:  # noqa: BLE001  # goes on where the statement fails for it
            self._stopped = error
            return 1
        return 0

    @contextmanager
    def _told(self) -> Iterator[ModuleType]:
        """Turn what SQLite says into FullTextError, or into what ended its work."""
        try:
            import sqlite3  # noqa: PLC0415  # only those who search pay for it
        except ImportError as error:
            raise FullTextError(f"this Python has no SQLite ({error})") from error
        try:
            yield sqlite3
        except (sqlite3.Error, sqlite3.Warning) as error:
            stopped, self._stopped = self._stopped, None
            if stopped is not None:
                raise stopped from None
            raise FullTextError(str(error)) from error


def _render(phrases: Sequence[Phrase]) -> str:
    """In the language of FTS5. A token holds no quotation mark: none of its characters is a border."""
    kept = sorted(phrases, key=lambda phrase: -len("".join(phrase.tokens)))[:_PHRASES_MAX]
    return " ".join(f'"{" ".join(phrase.tokens)}"' + (" *" if phrase.open_end else "") for phrase in kept)
