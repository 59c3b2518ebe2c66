"""Proofs that a component keeps its protocol: one class a kind, to be subclassed in a plugin's own tests.

    class TestMine(EngineConformance):
        @pytest.fixture
        def component(self) -> str:
            return "engine/mine"

pytest collects the rules from the class. `areal-plugins plugins check engine/mine` runs the same
ones. A rule is skipped only where the descriptor's capabilities say that it does not apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from areal_core.descriptors import KINDS
from areal_core.importing import import_object

if TYPE_CHECKING:
    from areal_plugins.testing.conformance.base import Case, Conformance
    from areal_plugins.testing.conformance.engine import EngineConformance
    from areal_plugins.testing.conformance.environment import EnvironmentConformance
    from areal_plugins.testing.conformance.executor import ExecutorConformance
    from areal_plugins.testing.conformance.model import ModelConformance
    from areal_plugins.testing.conformance.objective import ObjectiveConformance
    from areal_plugins.testing.conformance.optimizer import OptimizerConformance
    from areal_plugins.testing.conformance.parallelism import ParallelismConformance
    from areal_plugins.testing.conformance.platform import PlatformConformance
    from areal_plugins.testing.conformance.reward import RewardConformance
    from areal_plugins.testing.conformance.tracker import TrackerConformance
    from areal_plugins.testing.conformance.trainer import TrainerConformance
    from areal_plugins.testing.conformance.transport import TransportConformance

CLASSES: dict[str, str] = {kind: f"{__name__}.{kind}:{kind.capitalize()}Conformance" for kind in KINDS}
"""Kind -> its class as `module:name`; imported when it is asked for, since the classes need pytest."""

_PLACES = {path.partition(":")[2]: path for path in CLASSES.values()} | {
    name: f"{__name__}.base:{name}" for name in ("Case", "Conformance")
}

__all__ = [
    "CLASSES",
    "Case",
    "Conformance",
    "EngineConformance",
    "EnvironmentConformance",
    "ExecutorConformance",
    "ModelConformance",
    "ObjectiveConformance",
    "OptimizerConformance",
    "ParallelismConformance",
    "PlatformConformance",
    "RewardConformance",
    "TrackerConformance",
    "TrainerConformance",
    "TransportConformance",
]


def conformance_class(kind: str) -> type[Conformance]:
    """The class whose rules components of `kind` must keep."""
    found: type[Conformance] = import_object(CLASSES[kind])
    return found


def __getattr__(name: str) -> Any:
    """The classes by name, on first use."""
    if name in _PLACES:
        return import_object(_PLACES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
