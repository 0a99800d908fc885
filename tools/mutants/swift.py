"""A process that has collected the tests and tries a mutant by changing a function where it is, in a fork of itself.

A hundred times as fast as to import everything anew. What runs at import cannot be tried so: `Swift.attempt` says that
it cannot, and trial.py does it the long way.
"""

from __future__ import annotations

import gc
import os
import resource
import types
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tools.mutants import fork

if TYPE_CHECKING:
    from collections.abc import Callable

Codes = dict[str, list[types.CodeType]]
Pairs = list[tuple[types.CodeType, types.CodeType]]


class Swift:
    """A pytest plugin: instead of running the tests it answers requests, then ends the session."""

    def __init__(self, copy: str, serve: Callable[[Swift], None]) -> None:
        """Take the project's directory, and the function that has the tests collected and may call `attempt`."""
        self._copy = os.path.realpath(copy)
        self._serve = serve
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[types.CodeType, list[types.FunctionType]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Serve, in the place of the tests."""
        self._items = {item.nodeid: item for item in session.items}
        for each in gc.get_objects():
            if isinstance(each, types.FunctionType):
                self._functions.setdefault(each.__code__, []).append(each)
        self._serve(self)
        return True

    def attempt(self, room: str, original: str, changed: str, tests: list[str], processor_s: int) -> dict[str, Any]:
        """The test that fails as ``by``, or None; "cannot" if more than functions change. As `fork.in_child`."""
        path = os.path.join(self._copy, room)
        pairs = _pairs(_codes(original, path), _codes(changed, path))
        if pairs is None or not all(old in self._functions for old, _ in pairs):
            return {"by": "cannot"}
        return twice(tests, lambda some: fork.in_child(lambda: self._run(pairs, some, processor_s)))

    def control(self) -> list[str]:
        """The tests that fail though nothing is changed, each in a fork as a mutant would be."""
        found: list[str] = []
        tests = list(self._items)
        while (by := fork.in_child(partial(self._run, [], tests, resource.RLIM_INFINITY)).get("by")) is not None:
            found.append(by)
            tests = tests[tests.index(by) + 1 :]
        return found

    def _run(self, pairs: Pairs, tests: list[str], processor_s: int) -> dict[str, Any]:
        resource.setrlimit(resource.RLIMIT_CPU, (processor_s, resource.RLIM_INFINITY))
        for old, new in pairs:
            for function in self._functions[old]:
                function.__code__ = new
        items = [self._items[test] for test in tests]
        if not items:
            return {"by": None}
        failures = Failures(tests)
        items[0].config.pluginmanager.register(failures)
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failures.by is not None:
                break
        return {"by": failures.by, "late": failures.late}


def twice(tests: list[str], run: Callable[[list[str]], dict[str, Any]]) -> dict[str, Any]:
    """What ``run`` says of the tests, but a test must fail twice: one that fails now and then kills no mutant.

    One that did not end in its time is believed at once, or endless waits would take twice as long.
    """
    answer = run(tests)
    while (by := answer.get("by")) in tests and not answer.get("late") and run([by]).get("by") is None:
        tests = tests[tests.index(by) + 1 :]
        answer = run(tests) if tests else {"by": None}
    return answer


class Failures:
    """Runs chosen tests in their order, where pytest runs them; remembers the first that fails."""

    def __init__(self, tests: list[str]) -> None:
        """Take the tests."""
        self._place = {test: number for number, test in enumerate(tests)}
        self.by: str | None = None
        self.late = False

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the others out."""
        items[:] = [item for item in items if item.nodeid in self._place]
        items.sort(key=lambda item: self._place[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed and self.by is None:
            self.by = report.nodeid
            self.late = "Timeout (>" in str(report.longrepr)


def _codes(source: str, path: str) -> Codes:
    """The functions and classes of a module by their dotted names; under "" the module itself."""
    found: Codes = {}
    todo = [("", compile(source, path, "exec", dont_inherit=True))]
    while todo:
        name, code = todo.pop()
        found.setdefault(name, []).append(code)
        inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
        todo += [(const.co_qualname, const) for const in inner]
    return found


def _pairs(old: Codes, new: Codes) -> Pairs | None:
    """The outermost functions that differ, as they were and as they are; None if more than functions differs."""
    if old.keys() != new.keys():
        return None
    pairs: Pairs = []
    for name, were in old.items():
        are = new[name]
        if [_shape(code) for code in were] == [_shape(code) for code in are]:
            continue
        top = name.partition(".<locals>")[0]
        if not top or len(old[top]) != 1 or not old[top][0].co_flags & 2:  # a class or the module: CO_NEWLOCALS is off
            return None
        pairs.append((old[top][0], new[top][0]))
    return pairs or None


def _shape(code: types.CodeType) -> tuple[object, ...]:
    """A code object but for its lines, without those within it."""
    consts = [repr(None if isinstance(const, types.CodeType) else const) for const in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, tuple(consts)
