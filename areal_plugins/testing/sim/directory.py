"""The invariants of a run directory: its files after each life, and its checkpoints whenever one is put in place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from areal_core.data import WeightVersion
from areal_core.errors import CheckpointError
from areal_core.pipeline import checkpoint
from areal_core.pipeline.checkpoint import PipelineState
from areal_core.pipeline.compose import Composition
from areal_plugins.testing.sim.groups import versions
from areal_plugins.testing.sim.history import DEPTH
from areal_plugins.testing.sim.setting import latest

if TYPE_CHECKING:
    from areal_plugins.testing.sim.watch import Watch


class Directory:
    """One run's, through all lives of its controller. `saved` is the newest step that was put in place."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self._fail, self._history = watch, watch.fail, watch.history
        self.saved: int | None = None
        self._placed = 0  # checkpoints of this life
        self._surplus = 0  # what kills between naming one and removing another have left, until a next is all done

    def stand(self, step: int) -> None:
        """The run goes on from `step`: what is newer is nobody's checkpoint any more."""
        self.saved = None if self.saved is None else min(self.saved, step)

    def renamed(self, source: Path, target: Path, composition: Composition) -> None:
        """A directory becomes a checkpoint."""
        step = int(target.name.removeprefix("step-"))
        self._watch.note(f"checkpoint {target.name} is put in place")
        try:
            state = checkpoint.read(source, composition.identity())
            trainer = json.loads((checkpoint.trainer_state(source) / "state.json").read_text())
            model = json.loads((source / "config.json").read_text())
        except (OSError, ValueError, CheckpointError) as error:
            self._fail("checkpoint-whole", f"{target.name} is put in place before it is whole: {error}")
            return
        if not state.step == trainer["steps"] == model["steps"] == step:
            found = f"pipeline {state.step}, trainer {trainer['steps']}, model {model['steps']}"
            self._fail("checkpoint-whole", f"{target.name} has parts of other steps: {found}")
        self._complete(state)
        self.saved, self._placed = max(step, self.saved or 0), self._placed + 1

    def _complete(self, state: PipelineState) -> None:
        """All that was drawn is in the checkpoint, trained on, or dropped."""
        held = {group.sequence for group in state.buffered} | {sequence for sequence, _ in state.under_way}
        self._partial(state)
        dropped = self._watch.dropped(state.tally, state.step)
        sequences = self._history.sequences.items()
        recent = {sequence for step, groups in sequences if step <= state.step for sequence in groups}
        trained = self._history.trained(state.step)
        if held & recent:
            self._fail("no-task-twice", f"the checkpoint of step {state.step} holds {held & recent}, trained on before")
        if len(held) + dropped + trained != state.drawn.groups:
            self._fail(
                "no-task-lost",
                f"the checkpoint of step {state.step} has drawn {state.drawn.groups} groups, but holds {len(held)};"
                f" {trained} were trained on and {dropped} dropped",
            )

    def _partial(self, state: PipelineState) -> None:
        """What was drawn so far is of groups under way, by weights that a resume has or that are older."""
        self._watch.most["partial groups"] = max(self._watch.most["partial groups"], len(state.partial))
        under_way, last = dict(state.under_way), WeightVersion(state.incarnation, state.step)
        for group in state.partial:
            if under_way.get(group.sequence) != group.task:
                self._fail("groups-whole", f"the checkpoint of step {state.step} has a part of group {group.sequence}")
            if late := [version for version in versions(group) if version > last]:
                self._fail("incarnation", f"the checkpoint of step {state.step} has tokens of {late[0]}")

    def examine(self, folder: Path, killed: bool, full: bool, keep: int) -> int:
        """All of it after a life; the last step that it holds.

        A kill may leave one step without its groups, a disk that is `full` every step since the last checkpoint.
        """
        self._checkpoints(folder, killed, keep)
        steps = [line["step"] for line in _lines(folder / "metrics.jsonl", killed or full)]
        if steps != list(range(1, len(steps) + 1)):
            self._fail("files", f"metrics.jsonl has the steps {steps}")
        if full:
            return len(steps)
        self._trajectories(folder, killed, len(steps))
        timings = [line["step"] for line in _lines(folder / "timings.jsonl", killed)]
        evaluations = [line["step"] for line in _lines(folder / "evaluations.jsonl", killed)]
        ahead = bool(timings) and timings[-1] > len(steps) and not killed  # a kill may strike while files are rewound
        if sorted(set(timings)) != timings or ahead:
            self._fail("files", f"timings.jsonl has the steps {timings} of {len(steps)}")
        if sorted(set(evaluations)) != evaluations:
            self._fail("files", f"evaluations.jsonl has the steps {evaluations}")
        return len(steps)

    def _checkpoints(self, folder: Path, killed: bool, keep: int) -> None:
        """The newest that was put in place is there and whole, whenever the end came, and older ones only to `keep`."""
        newest = latest(folder)
        if self.saved is not None and (newest is None or _step(newest) < self.saved):
            found = "there is none" if newest is None else f"the newest is {newest.name}"
            self._fail("checkpoint-kept", f"step-{self.saved} was put in place, but {found}")
        named = sorted(path.name for path in (folder / "checkpoints").glob("step-*"))
        self._surplus, self._placed = self._left(killed), 0
        if len(named) > keep + self._surplus:
            self._fail("checkpoint-kept", f"there are {named}, where {keep} are to be kept")

    def _left(self, killed: bool) -> int:
        """Names that may be too many after a life: whoever writes its second checkpoint has removed what was before."""
        before = 0 if self._placed > 1 or (self._placed and not killed) else self._surplus
        return before + 1 if killed and self._placed else max(before, int(killed))

    def _trajectories(self, folder: Path, killed: bool, last: int) -> None:
        written: dict[int, list[int]] = {}
        for path in sorted((folder / "trajectories").glob("steps-*.jsonl")):
            for line in _lines(path, killed):
                written.setdefault(line["step"], []).append(line["sequence"])
        for step in range(max(1, last - DEPTH), last + 1):
            trained = sorted(self._history.sequences.get(step, ()))
            if sorted(written.get(step, [])) != trained and not (killed and step == last):
                self._fail("files", f"step {step} trained on {trained}, trajectories/ says {written.get(step)}")


def _step(path: Path) -> int:
    """Of a checkpoint, also of one that is being replaced (`.step-N.old`)."""
    return int(path.name.removeprefix(".").removeprefix("step-").removesuffix(".old"))


def _lines(path: Path, torn: bool) -> list[dict[str, Any]]:
    """The objects of a file of lines; the last of a run that was killed may be cut short."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    if torn and lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    return [json.loads(line) for line in lines]
