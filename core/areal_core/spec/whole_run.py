"""What must hold over all stages of a run, where each is right by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from areal_core.spec.scene import Conflict, Scene, conflict

Conflicts = Iterator[tuple[int, Conflict]]
"""Each with the index of the stage that is to blame."""


def run_conflicts(stages: Sequence[Scene]) -> Conflicts:
    """What has an effect in no stage."""
    yield from unreached_evaluation(stages)


def unreached_evaluation(stages: Sequence[Scene]) -> Conflicts:
    """The run is long enough for one of the evaluations that it asks for; steps are counted over all stages."""
    last, asking = 0, []
    for index, spec in enumerate(scene.spec for scene in stages):
        evaluation, every = spec.evaluation, spec.evaluation.every
        first, last = last, last + spec.training.max_steps
        at_an_end = (evaluation.before and index == 0) or (evaluation.after and index == len(stages) - 1)
        if at_an_end or (every and last // every > first // every):
            return
        asking += [(index, every)] if every else []
    if asking:
        index, every = asking[0]
        message = f"the run ends before step {every}, the first that is evaluated"
        reads = ("evaluation.every", "evaluation.before", "evaluation.after", "training.max_steps")
        yield index, conflict("no-evaluation", message, *reads, hint="evaluate more often, or write `after: true`")
