"""Where a run begins that goes on from a checkpoint, or begins again without one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import evolve

from areal_core.errors import CheckpointError
from areal_core.pipeline import checkpoint
from areal_core.pipeline.checkpoint import PipelineState
from areal_core.pipeline.compose import Composition, StageProgram
from areal_core.pipeline.evaluate import recorded
from areal_core.pipeline.rundir import provenance_of
from areal_core.spec.secrets import without_secrets


def command(composition: Composition) -> str:
    """What continues a run, secrets masked; without a checkpoint it begins again from step 0."""
    experiment = composition.experiment
    sets = [word for override in without_secrets(experiment.overrides) for word in ("--set", override)]
    words = ["areal-plugins", "run", *experiment.sources[:1], *sets]
    return shlex.join([*words, "--resume", str(composition.folder)])


def begin_again(folder: Path) -> str | None:
    """Forget how far a run in `folder` came; see `began_with`."""
    model = began_with(folder)
    if model is not None:
        (folder / "evaluations.jsonl").unlink(missing_ok=True)  # the rest is after step 0, and goes as in every resume
    return model


def began_with(folder: Path) -> str | None:
    """The model that a run in `folder` began with, "" for the spec's. None: there was none.

    Raises:
        InputError: it does not say.

    """
    path = folder / "provenance.json"
    return str(provenance_of(path).get("model", "")) if path.exists() else None


def state_of(resume: Path, composition: Composition) -> PipelineState:
    """What the checkpoint `resume` holds, for the trainer's next incarnation.

    Raises:
        CheckpointError: it is damaged, of another experiment, or there is nothing left to do.

    """
    state = checkpoint.read(resume, composition.identity())
    if state.step >= composition.steps and not _lacks_its_end(state, composition):
        problem = f"all {composition.steps} steps of the run are done; raise training.max_steps to go on"
        raise CheckpointError(str(resume), problem)
    program = stages_left(state, composition)[0]
    if not program.first <= state.step <= program.last:
        problem = (
            f"its step {state.step} is of stage {program.name}, whose steps are {program.first + 1} to {program.last}"
            " in the spec; leave training.max_steps of the stages up to it as it was"
            f" ({checkpoint.as_it_was(resume)})"
        )
        raise CheckpointError(str(resume), problem)
    return evolve(state, incarnation=state.incarnation + 1)


def _lacks_its_end(state: PipelineState, composition: Composition) -> bool:
    """Whether all that is left to do is the evaluation after the last step."""
    after = composition.stages[-1].evaluation.after
    return after and state.step == composition.steps and state.step not in evaluated(composition.folder, state)


def evaluated(folder: Path, state: PipelineState) -> dict[int, Mapping[str, float]]:
    """The evaluations up to `state`, by step; one may have ended after the checkpoint of its step was taken."""
    since = {step: figures for step, figures in recorded(folder / "evaluations.jsonl").items() if step <= state.step}
    return dict(state.scores) | since


def stages_left(state: PipelineState, composition: Composition) -> Sequence[StageProgram]:
    """The stage to go on with, the checkpoint's or the first, and those after it."""
    names = [program.name for program in composition.stages]
    return composition.stages[names.index(state.stage) if state.stage else 0 :]
