"""Who waits for what in a stage, and what goes on meanwhile: as the controller runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from areal_core.spec.choose import Choice
from areal_core.spec.resolve import Draft

Wait = dict[str, str]


def waits(drafts: Sequence[Draft], transport: Choice | None) -> Iterator[Wait]:
    """One entry a place where something is awaited: `what` waits `until`, and what is not held `meanwhile`.

    The run is evaluated before its first step and after its last one, whatever stages lie between.
    """
    for draft in drafts:
        first, last = draft is drafts[0], draft is drafts[-1]
        found = [*_rollouts(draft), *_weights(draft, transport), *_evaluation(draft, first, last)]
        found += [_end(), *_checkpoints(drafts[0], last)]
        yield from ({"stage": draft.name, **wait} for wait in found)


def _demonstrates(draft: Draft) -> bool:
    part = draft.parts.get(("objective",))
    return bool(part and part.descriptor and part.descriptor.capabilities.source == "demonstrate")


def _rollouts(draft: Draft) -> Iterator[Wait]:
    pipeline, training = draft.spec.pipeline, draft.spec.training
    ahead = (pipeline.max_staleness + 1) * training.batch_size
    yield {
        "what": "admission of a group",
        "until": f"running + accepted trajectories are fewer than (committed step + {pipeline.max_staleness} + 1) x "
        f"{training.batch_size}: at most {ahead} of them are ahead of the trainer",
        "meanwhile": "groups under way go on" if pipeline.max_staleness else "on-policy: the trainer takes turns",
    }
    oldest = "the oldest work is among it" if pipeline.on_stale == "wait" else "what is too old is dropped"
    groups = training.batch_size // draft.spec.objective.group_size
    yield {
        "what": "a training step",
        "until": f"{groups} scored groups make a batch; {oldest}",
        "meanwhile": "rollouts go on as far as admission lets them",
    }


def _weights(draft: Draft, transport: Choice | None) -> Iterator[Wait]:
    if _demonstrates(draft):
        yield {
            "what": "publishing weights",
            "until": "an evaluation or the end of the stage needs them: no engine generates in this stage",
            "meanwhile": "training goes on",
        }
        return
    if transport is None or transport.part.descriptor is None:
        yield {
            "what": "trainer and engines, at each update",
            "until": "what the transport asks for: it is not known here",
            "meanwhile": "with a collective one nothing goes on, else rollouts and training do",
        }
        return
    if transport.part.descriptor.capabilities.collective:
        yield {
            "what": "trainer, engines and admission",
            "until": "the version has gone from the trainer to all engines at once, every step",
            "meanwhile": "nothing: both ends must act together",
        }
        return
    yield {
        "what": "the trainer, after each step",
        "until": "the version before is on all engines, and this one can be fetched",
        "meanwhile": "rollouts go on; engines fetch and verify while the next step trains",
    }
    yield {
        "what": "admission, at each commit",
        "until": "every engine has swapped its weights",
        "meanwhile": _running(draft),
    }


def _running(draft: Draft) -> str:
    part = draft.parts.get(("inference",))
    able = part is not None and part.descriptor is not None and part.descriptor.capabilities.interruptible
    if part is None or part.descriptor is None:
        return "training goes on"
    if able and draft.spec.pipeline.interruptible:
        return "training goes on; running answers keep their tokens and go on under the new weights"
    return "training goes on; running answers are finished first"


def _evaluation(draft: Draft, first: bool, last: bool) -> Iterator[Wait]:
    evaluation = draft.spec.evaluation
    if evaluation.before and first:
        yield {"what": "the first step", "until": "the evaluation before it is done", "meanwhile": "nothing"}
    if evaluation.every:
        yield {
            "what": f"nothing, at the evaluation every {evaluation.every} steps",
            "until": "-",
            "meanwhile": "training and rollouts go on; one that is due while the last still runs is left out",
        }
    if evaluation.after and last:
        yield {"what": "the end of the run", "until": "the last evaluation is done", "meanwhile": "nothing"}


def _end() -> Wait:
    return {
        "what": "the end of the stage",
        "until": "the engines serve its last version, and an evaluation that is under way is done",
        "meanwhile": "rollouts under way are given up",
    }


def _checkpoints(first: Draft, last: bool) -> Iterator[Wait]:
    """The first stage says how often, for the whole run."""
    if every := first.spec.checkpoint.every:
        yield {
            "what": f"the trainer, every {every} steps",
            "until": "its state is copied; the checkpoint is written while training goes on",
            "meanwhile": "rollouts go on; with AREAL_DEBUG_MODE=1 they come to rest first, until it is written",
        }
    if last:
        yield {
            "what": "the trainer, after the last step",
            "until": "the checkpoint is written",
            "meanwhile": "nothing: there is no more to train on",
        }
