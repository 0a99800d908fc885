"""Tests run on a changed copy of the project. The project itself is never written to; knows nothing of operators.

Everything runs in forks of this process, which has imported pytest and the heavy libraries and nothing of the project:
what a fork imports, it imports from the copy. First all tests run once under coverage, to learn which of them runs
which line. Then a mutant meets only the tests that run its lines, the quick before the slow, and the first that fails
ends the trial: by swift.py where that can do it, else with everything imported anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coverage
import hypothesis
import pytest

from tools.mutants import fork
from tools.mutants.swift import Failures, Swift, twice

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from tools.mutants.operators import Mutant

COPIED = ("agentbus", "journal", "tests", "tools", "docs", "README.md", "pyproject.toml")
PACKAGES = ("agentbus", "journal")
# They read the sources, so any change would fail them, or they start a client that has nothing to do with the rooms.
LEFT_OUT = ("tests/test_tidy.py", "tests/test_readme.py", "tests/test_mutate.py", "tests/agentbus/test_demo.py")
MEMORY_BYTES_MAX = 4 << 30  # a mutant may ask for more and more
GRACE_S = 10.0  # on top of three times what the tests took before: in processor time, so that a busy machine kills none
TEST_S = 20  # what one test may take by the clock; who waits for ever uses no processor
OTHERS_S = 15.0  # tests of other rooms are tried until they have taken so long together
ALL_S = 24 * 3600
MEMORY = "/dev/shm"  # noqa: S108  # where there is one, nothing waits for a disk
AT_IMPORT = ""
_OPTIONS = ("-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "tmp_path_retention_policy=none")
_QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # we import hypothesis before pytest does


@dataclass
class Map:
    """What the tests did on the unchanged project.

    Attributes:
        seconds: how much processor time each took, that of processes it started included, with coverage's own.
        lines: who ran which line ("file:line"); `AT_IMPORT` is among them if it ran when the module was imported.
        failed: those that fail already.
        digests: of every file that was there, by its path.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)

    def add(self, later: Map) -> None:
        """Take what was learned of other tests, and of the same ones anew."""
        files = {test.partition("::")[0] for test in later.seconds}
        gone = {test for test in self.seconds if test.partition("::")[0] in files}
        self.seconds = {test: took for test, took in self.seconds.items() if test not in gone} | later.seconds
        self.failed = [test for test in self.failed if test not in gone] + later.failed
        for line in self.lines.keys() | later.lines.keys():
            kept = set(self.lines.get(line, ())) - gone
            self.lines[line] = sorted(kept | set(later.lines.get(line, ())))
        self.digests = later.digests


@dataclass(frozen=True)
class Outcome:
    """How a trial ended. ``by`` is the test that failed, "death" or "import"; None: nothing noticed."""

    by: str | None
    tests: int


class Trials:
    """A copy of the project on which mutants are tried, one at a time."""

    def __init__(self, root: Path, tests: Iterable[str], others_s: float = OTHERS_S) -> None:
        """Copy the project at ``root``; ``tests`` are the paths in it from which tests may come."""
        self._others_s = others_s
        self._directory = Path(tempfile.mkdtemp(prefix="mutate-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
        self._copy = self._directory / "project"
        self._tests = list(tests)
        self._stderr = os.dup(2)
        for name in COPIED:
            source, target = root / name, self._copy / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)

    def close(self) -> None:
        """Remove the copy."""
        os.close(self._stderr)
        shutil.rmtree(self._directory, ignore_errors=True)

    def source(self, room: str) -> str:
        """A module of the copy."""
        return (self._copy / room).read_text()

    def learn(self) -> Map:
        """Run all tests once on the unchanged copy."""
        return self._learn(self._tests)

    def refresh(self, known: Map) -> bool:
        """Run the test files that are new or changed since, or all tests if anything else is; whether any was run."""
        now = self._digests()
        changed = {path for path, digest in now.items() if known.digests.get(path) != digest}
        if not changed:
            return False
        only_tests = all(Path(path).name.startswith("test_") for path in changed)
        known.add(self._learn(sorted(changed) if only_tests else self._tests))
        return True

    def _digests(self) -> dict[str, str]:
        """Of the rooms, of the tests that are run, and of what those share."""
        shared = self._copy.glob("tests/**/*.py")
        files = {file for name in (*PACKAGES, *self._tests) for file in self._python(self._copy / name)}
        files |= {file for file in shared if not file.name.startswith("test_")}
        return {str(file.relative_to(self._copy)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    def _python(self, path: Path) -> Iterable[Path]:
        return [path] if path.is_file() else path.rglob("*.py")

    def _learn(self, tests: Iterable[str]) -> Map:
        answer = self._in_project(lambda: _learn(self._arguments(tests)), ALL_S, write_bytecode=True)
        if not answer:
            raise RuntimeError(f"the tests did not end on the unchanged project: {self._said()}")
        known = Map(**answer)
        known.failed += self._in_project(lambda: self._control(tests), ALL_S).get("failed", [])
        known.digests = self._digests()
        return known

    def _control(self, tests: Iterable[str]) -> dict[str, Any]:
        failed: list[str] = []
        swift = Swift(str(self._copy), lambda swift: failed.extend(swift.control()))
        pytest.main(self._arguments(tests), plugins=[swift])
        return {"failed": failed}

    def attempt(self, mutants: list[Mutant], known: Map) -> list[Outcome]:
        """Try mutants."""
        chosen = [choose(mutant, known, self._others_s) for mutant in mutants]
        files = sorted({test.partition("::")[0] for tests in chosen for test in tests})
        answer = self._in_project(lambda: self._swiftly(mutants, chosen, known, files), ALL_S)
        if not answer:
            raise RuntimeError(f"the trials did not end: {self._said()}")
        outcomes = []
        for mutant, tests, by in zip(mutants, chosen, answer["by"], strict=True):
            found = by
            if by == "cannot":
                found = self._slowly(mutant, tests, known)
                self._tick(found)
            outcomes.append(Outcome(found, len(tests)))
        return outcomes

    def _tick(self, by: str | None) -> None:
        """A sign of life for who waits: a dot, a question mark for what must be tried again, S for a survivor."""
        os.write(self._stderr, {None: b"S", "cannot": b"?"}.get(by, b"."))

    def _swiftly(self, mutants: list[Mutant], chosen: list[list[str]], known: Map, files: list[str]) -> dict[str, Any]:
        outcomes: list[str | None] = []

        def serve(swift: Swift) -> None:
            for mutant, tests in zip(mutants, chosen, strict=True):
                by = "cannot" if tests else None
                if tests and AT_IMPORT not in _who(mutant, known):
                    with self._changed(mutant) as original:
                        answer = swift.attempt(mutant.room, original, mutant.source, tests, _limit(tests, known))
                    by = _by(answer)
                outcomes.append(by)
                self._tick(by)

        pytest.main(self._arguments(files), plugins=[Swift(str(self._copy), serve)])
        return {"by": outcomes}

    def _slowly(self, mutant: Mutant, tests: list[str], known: Map) -> str | None:
        def run(some: list[str]) -> dict[str, Any]:
            files = list(dict.fromkeys(test.partition("::")[0] for test in some))
            return self._in_project(lambda: _run(some, self._arguments(files)), _limit(some, known))

        with self._changed(mutant):
            return _by(twice(tests, run))

    @contextlib.contextmanager
    def _changed(self, mutant: Mutant) -> Iterator[str]:
        """The mutant in the file: for the processes that tests start. Another time of change makes its bytecode old."""
        file = self._copy / mutant.room
        original, facts = file.read_text(), file.stat()
        try:
            file.write_text(mutant.source)
            os.utime(file, (1, 1))
            yield original
        finally:
            file.write_text(original)
            os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
            shutil.rmtree(self._temporary(), ignore_errors=True)
            self._temporary().mkdir()

    def _temporary(self) -> Path:
        return self._directory / "tmp"

    def _arguments(self, paths: Iterable[str]) -> list[str]:
        there = [path for path in paths if (self._copy / path).exists()]
        left_out = [f"--ignore={path}" for path in LEFT_OUT]
        return [*there, *left_out, *_OPTIONS, *_QUIET, f"--timeout={TEST_S}", f"--basetemp={self._temporary()}"]

    def _said(self) -> str:
        return (self._directory / "said").read_text()[-2000:]

    def _in_project(
        self, work: Callable[[], dict[str, Any]], processor_s: int, *, write_bytecode: bool = False
    ) -> dict[str, Any]:
        """What ``work`` returns in a child to which the copy is the project; as `fork.in_child`."""

        def child() -> dict[str, Any]:
            os.chdir(self._copy)
            os.environ |= {"PYTHONPATH": str(self._copy), "HOME": str(self._directory)}
            if not write_bytecode:
                os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
                sys.dont_write_bytecode = True
            sys.path.insert(0, str(self._copy))
            resource.setrlimit(resource.RLIMIT_CPU, (processor_s, resource.RLIM_INFINITY))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
            said = os.open(self._directory / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(said, 1)
            os.dup2(said, 2)
            hypothesis.settings.register_profile("mutate", derandomize=True, database=None, deadline=None)
            hypothesis.settings.load_profile("mutate")
            return work()

        return fork.in_child(child)


def choose(mutant: Mutant, known: Map, others_s: float = OTHERS_S) -> list[str]:
    """The tests that run a mutant's lines; every test of the module, and of its own file, if they run at import.

    All of the room's own tests, then those of others as far as ``others_s`` goes; the quick before the slow.
    """
    found = _who(mutant, known)
    if AT_IMPORT in found or not found:
        prefix = f"{mutant.room}:"
        found = {test for line, tests in known.lines.items() if line.startswith(prefix) for test in tests}
        found |= {test for test in known.seconds if _is_own(test, mutant.room)}  # it may only look at a constant
        found = found - {AT_IMPORT} or set(known.seconds)  # nothing of the room runs but at import
    ordered = sorted(found - {AT_IMPORT, *known.failed}, key=lambda test: known.seconds[test])
    own = [test for test in ordered if _is_own(test, mutant.room)]
    left_s = others_s
    for test in ordered:
        if test not in own:
            left_s -= known.seconds[test]
            if left_s < 0 and own:
                break
            own.append(test)
    return own


def _is_own(test: str, room: str) -> bool:
    words = Path(room).with_suffix("").parts[1:]
    file = Path(test.partition("::")[0]).stem.removeprefix("test_")
    name = "_".join(word for word in words if word != "__init__")
    return file == name or file.startswith(f"{name}_") or file == words[-1]


def _who(mutant: Mutant, known: Map) -> set[str]:
    lines = range(mutant.line, mutant.last_line + 1)
    return {test for line in lines for test in known.lines.get(f"{mutant.room}:{line}", ())}


def _limit(tests: list[str], known: Map) -> int:
    return int(GRACE_S + 3 * sum(known.seconds[test] for test in tests))


def _by(answer: dict[str, Any]) -> str | None:
    return answer["by"] if answer else "death"  # by the limit of processor time, most likely


def _run(tests: list[str], arguments: list[str]) -> dict[str, Any]:
    failures = Failures(tests)
    status = pytest.main(["-x", *arguments], plugins=[failures])
    by = failures.by or (None if status == pytest.ExitCode.OK else "import")
    return {"by": by, "late": failures.late}


class _Learner:
    """Notes each test's time, and has coverage keep the tests apart."""

    def __init__(self, cover: coverage.Coverage) -> None:
        self._cover = cover
        self.known = Map()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """One test, with its set-up and tear-down."""
        self._cover.switch_context(item.nodeid)
        began = sum(os.times()[:4])
        result = yield
        self.known.seconds[item.nodeid] = round(sum(os.times()[:4]) - began, 3)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails on the unchanged project tells nothing."""
        if report.failed:
            self.known.failed.append(report.nodeid)


def _learn(arguments: list[str]) -> dict[str, Any]:
    cover = coverage.Coverage(data_file=None, config_file=False, source=list(PACKAGES))
    cover.start()
    learner = _Learner(cover)
    pytest.main(arguments, plugins=[learner])
    cover.stop()
    data = cover.get_data()
    here = Path.cwd().resolve()
    for file in data.measured_files():
        room = Path(file).resolve().relative_to(here).as_posix()
        for line, tests in data.contexts_by_lineno(file).items():
            learner.known.lines[f"{room}:{line}"] = sorted(tests)
    return asdict(learner.known)
