"""Runs a conformance class outside of a test suite: for `plugins check`, and to prove that a rule catches."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pytest
from attrs import frozen

from areal_core.descriptors import Component
from areal_plugins.testing.conformance.base import Conformance
from areal_plugins.testing.conformance.subject import Case

GIVEN: dict[str, type[Conformance]] = {}
"""The classes that are being run; the file that pytest collects takes them from here."""

_UNUSED = ("terminal", "cacheprovider", "logging", "unraisableexception", "threadexception")
_OPTIONS = [f"-pno:{name}" for name in _UNUSED] + ["--import-mode=importlib"]
_numbers = count()


@frozen
class Result:
    """What became of one rule, by the name of its test; `cause` says why it failed or does not apply."""

    test: str
    parameters: str
    outcome: Literal["passed", "failed", "skipped"]
    cause: str = ""

    @property
    def rule(self) -> str:
        """As a sentence."""
        return rule_name(f"{self.test}[{self.parameters}" if self.parameters else self.test)


def rule_name(test: str) -> str:
    """A test's name as a sentence: `test_seed_fixes_draws[x]` is `seed fixes draws [x]`."""
    name, _, parameters = test.removeprefix("test_").rstrip("]").partition("[")
    return name.replace("_", " ") + (f" [{parameters}]" if parameters else "")


def run(kind: type[Conformance], component: str | Component[Any] | Case, only: Sequence[str] = ()) -> list[Result]:
    """The rules of `kind` on `component`, in order; with `only`, those of these test names."""
    return run_class(_given(kind, component), only)


def run_class(kind: type[Conformance], only: Sequence[str] = ()) -> list[Result]:
    """The rules of a class that has its component."""
    recorder = _Recorder(tuple(only))
    with _file(kind) as file:
        where = ["-c", str(file.with_name("pytest.ini")), "--rootdir", str(file.parent)]
        code = pytest.main([*_OPTIONS, *where, f"--basetemp={file.parent / 'work'}", str(file)], plugins=[recorder])
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest could not run the rules ({code!r}): {'; '.join(recorder.problems)}")
    return list(recorder.results.values())


class _Recorder:
    """A pytest plugin that keeps each test's outcome; one that fails anywhere has failed."""

    def __init__(self, only: tuple[str, ...]) -> None:
        self.only = only
        self.results: dict[str, Result] = {}
        self.problems: list[str] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        config.option.tbstyle = "native"  # nobody sees the tracebacks

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.only:
            items[:] = [item for item in items if item.name.partition("[")[0] in self.only]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problems.append(report.longreprtext)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report: pytest.TestReport = yield
        known = self.results.get(item.name)
        decides = report.when == "call" or report.outcome != "passed"
        if decides and (known is None or known.outcome != "failed"):
            test, _, parameters = item.name.rstrip("]").partition("[")
            self.results[item.name] = Result(test, parameters, report.outcome, _cause(call))
        return report


def _cause(call: pytest.CallInfo[None]) -> str:
    """The first line of what was raised."""
    if call.excinfo is None:
        return ""
    error = call.excinfo.value
    if isinstance(error, pytest.skip.Exception):
        return str(error.msg)
    text = next(iter(str(error).splitlines()), "")
    if isinstance(error, AssertionError | pytest.fail.Exception):
        return text or "an assertion failed"
    return f"{type(error).__name__}: {text}"


def _given(kind: type[Conformance], component: str | Component[Any] | Case) -> type[Conformance]:
    def given(self: Conformance) -> str | Component[Any] | Case:
        return component

    return type("TestComponent", (kind,), {"component": pytest.fixture(given)})


@contextmanager
def _file(kind: type[Conformance]) -> Iterator[Path]:
    """A file for pytest to collect `kind` from; plugins of the user's pytest stay out of it."""
    name = f"areal_conformance_{next(_numbers)}"
    GIVEN[name] = kind
    with tempfile.TemporaryDirectory(prefix="areal-conformance-") as folder, _no_plugins():
        file = Path(folder, f"{name}.py")
        file.write_text(f"from {__name__} import GIVEN\nTestComponent = GIVEN[{name!r}]\n", encoding="utf-8")
        file.with_name("pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        try:
            yield file
        finally:
            del GIVEN[name]


@contextmanager
def _no_plugins() -> Iterator[None]:
    with mock.patch.dict(os.environ, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}):
        yield
