"""Fixtures for whoever tests a plugin, in every pytest of an environment where areal-plugins is installed.

    def test_my_reward_in_a_run(areal_run):
        result = areal_run({"environments": [{"type": "mock", "reward": "mine"}]}, plugins=[my_plugin])
        assert result.outcome == "done"

Light: what the fixtures need is imported when a test asks for one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from areal_plugins.testing.pipeline import MockedRun, Spec

T = TypeVar("T")


class Run(Protocol):
    """What `areal_run` gives to tests."""

    def __call__(
        self, spec: Spec = "", plugins: Iterable[Any] = (), overrides: Sequence[str] = (), limit: float = 86400.0
    ) -> MockedRun:
        """Run mocks, with `spec` on top, to the end: see `areal_plugins.testing.pipeline.run_mocked`."""
        ...


@pytest.fixture
def areal_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a plugin in an otherwise mocked pipeline, on a virtual clock and without torch; gives a `MockedRun`."""
    from areal_plugins.testing.pipeline import run_mocked

    folder = tmp_path_factory.mktemp("areal")

    def run(
        spec: Spec = "", plugins: Iterable[Any] = (), overrides: Sequence[str] = (), limit: float = 86400.0
    ) -> MockedRun:
        return run_mocked(folder, spec, plugins, overrides, limit)

    return run


@pytest.fixture
def areal_virtually() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs a coroutine on a virtual clock: nothing sleeps, and the order of events is always the same."""
    from areal_plugins.testing.clock import run_virtually

    return run_virtually
