"""What a tracker must keep."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from areal_core.contexts import RunInfo, TrackerContext
from areal_core.data import NO_VERSION, TaskRef, Trajectory, TrajectoryGroup, WeightVersion
from areal_core.protocols import Tracker
from areal_plugins.testing.conformance.base import Conformance, Subject
from areal_plugins.testing.conformance.leftovers import running

METRICS = {"loss": 0.5, "reward/math": 0.25, "lag/mean": 1.0, "tokens/trained": 1e9}
STRANGE = {"loss": float("nan"), "grad_norm": float("inf"), "reward/\u00fcbung [x] {y}": -0.0}


class TrackerConformance(Conformance):
    """Rules for what records a run, told of a short run as the pipeline tells it.

    A tracker that sends figures elsewhere overrides `component` with options that keep it offline.
    """

    kind: ClassVar[str] = "tracker"

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The run directory, as there is one; the working directory is another, and empty."""
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        (tmp_path / "run").mkdir()
        return tmp_path / "run"

    @pytest.fixture
    def make(self, subject: Subject, folder: Path) -> Callable[[], Tracker]:
        """Builds the tracker of a run."""
        spec = {"name": "conformance", "training": {"batch_size": 2}}
        return lambda: subject.build(TrackerContext(RunInfo("conformance", folder, 3, spec)))

    def test_it_takes_a_whole_run(self, make: Callable[[], Tracker]) -> None:
        """Steps, evaluations and groups are taken without an error, an evaluation before the first step, too."""
        tracker = make()
        tracker.evaluation(0, {"accuracy/math": 0.25})
        _told(tracker)

    def test_it_takes_figures_that_are_not_finite(self, make: Callable[[], Tracker]) -> None:
        """Figures that are not finite, and names with signs in them, do not end the record."""
        tracker = make()
        tracker.log(1, STRANGE)
        tracker.evaluation(1, STRANGE)
        tracker.log(2, METRICS)
        tracker.close()

    def test_it_is_told_in_another_thread(self, make: Callable[[], Tracker]) -> None:
        """It may be made in one thread and told in another, as the pipeline does."""
        tracker, raised = make(), list[BaseException]()

        def tell() -> None:
            try:
                _told(tracker)
            except BaseException as error:  # passed on below
                raised.append(error)

        thread = threading.Thread(target=tell)
        thread.start()
        thread.join()
        assert not raised, f"it raises {raised[0]!r}"

    def test_it_changes_no_group(self, make: Callable[[], Tracker]) -> None:
        """What it is shown is still to be trained on: it is left as it is."""
        group, untouched, tracker = _group(0), _group(0), make()
        tracker.group(group)
        tracker.close()
        for shown, same in zip(group, untouched, strict=True):
            changed = [
                name
                for name, c in same.columns.items()
                if name not in shown.columns or not np.array_equal(shown.columns[name], c)
            ]
            assert not changed, f"it changes the columns {', '.join(changed)}"

    def test_it_writes_into_the_run_directory(self, make: Callable[[], Tracker], folder: Path) -> None:
        """Files go into the run directory, not into whatever directory the run was started in."""
        _told(make())
        strays = [path.name for path in Path.cwd().iterdir()]
        assert not strays, f"it writes {', '.join(strays)} into the working directory"

    def test_what_it_was_told_is_there_once_it_is_closed(self, make: Callable[[], Tracker], folder: Path) -> None:
        """After `close` nothing is written any more, and nothing runs that did not run before."""
        before = running()
        _told(make())
        left = running() - before
        assert not left, f"it leaves {', '.join(sorted(left))}"

    def test_it_goes_on_after_a_resume(self, make: Callable[[], Tracker], folder: Path) -> None:
        """A second life in the same run directory takes up the record, and loses nothing of it."""
        _told(make())
        before = _sizes(folder)
        _told(make(), steps=(3,))
        lost = [name for name, size in before.items() if _sizes(folder).get(name, -1) < size]
        assert not lost, f"a resume shortens {', '.join(lost)}"


def _told(tracker: Tracker, steps: tuple[int, ...] = (1, 2)) -> None:
    """These steps of a run, and its end."""
    for step in steps:
        tracker.group(_group(step))
        tracker.log(step, METRICS)
        tracker.evaluation(step, {"accuracy/math": 0.5})
    tracker.close()


def _group(step: int) -> TrajectoryGroup:
    return TrajectoryGroup(step, TaskRef("math", "train", step), tuple(_trajectory(member) for member in range(2)))


def _trajectory(member: int) -> Trajectory:
    drawn = WeightVersion(0, 1).code
    columns: dict[str, Any] = {
        "tokens": np.array([5, 6, 7, 8], np.int32),
        "mask": np.array([0, 0, 1, 1], np.uint8),
        "logprobs": np.array([0, 0, -0.5, -1.5], np.float32),
        "versions": np.array([NO_VERSION, NO_VERSION, drawn, drawn], np.int64),
    }
    return Trajectory(
        member, columns, 2, 0.5, "stop", scores={"part": 1.0}, prompt="6 times 7?", answer="it is 42\u2028\u00fc"
    )


def _sizes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
