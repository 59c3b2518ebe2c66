"""Who waits for what."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SEEDS = sorted((ROOT / "tests/core/spec/seed").glob("*.yaml"))


def text(waits) -> str:
    return "\n".join(f"{wait['what']} until {wait['until']} meanwhile {wait['meanwhile']}" for wait in waits)


def test_the_admission_bound_is_spelled_out(explained):
    found = text(explained("pipeline.max_staleness=2")["waits"])
    assert "(committed step + 2 + 1) x 16: at most 48 of them are ahead" in found


def test_a_step_waits_for_whole_groups(explained):
    assert "a training step until 4 scored groups make a batch; the oldest" in text(explained()["waits"])
    assert "what is too old is dropped" in text(explained("pipeline.on_stale=drop")["waits"])


def test_a_commit_holds_admission_and_keeps_running_answers_or_finishes_them(explained):
    assert "running answers keep their tokens" in text(explained()["waits"])
    assert "running answers are finished first" in text(explained("pipeline.interruptible=false")["waits"])


def test_an_evaluation_between_steps_holds_nobody(explained):
    found = text(explained("evaluation={every: 5, before: false, after: false}")["waits"])
    assert "nothing, at the evaluation every 5 steps" in found
    assert "the first step" not in found


def test_a_checkpoint_holds_the_trainer_alone(explained):
    found = text(explained("checkpoint.every=7")["waits"])
    assert "the trainer, every 7 steps until its state is copied" in found
    assert "the trainer, after the last step until the checkpoint is written" in found


def test_stages_are_evaluated_before_the_first_and_after_the_last(explained):
    stages = "stages=[{name: one, objective: sft}, {name: two}]"
    found = explained(stages)["waits"]
    one, two = ([wait for wait in found if wait["stage"] == name] for name in ("one", "two"))
    assert "the first step" in text(one)
    assert "no engine generates" in text(one)
    assert "the end of the run" not in text(one)
    assert "the end of the run" in text(two)
    assert "the first step" not in text(two)


def test_an_unknown_transport_is_not_guessed(explained):
    assert "it is not known here" in text(explained("weights=xccl")["waits"])


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.stem)
def test_every_seed_spec_is_explained(explained, seed):
    data = explained(text=seed.read_text())
    assert data["waits"]
    assert data["devices"]["workers"]
    assert data["values"]


@pytest.mark.parametrize("spec", sorted((ROOT / "specs").glob("*.yaml")), ids=lambda spec: spec.stem)
def test_every_shipped_spec_is_explained(spec, capsys):
    from areal_plugins.cli import main

    assert main(["explain", str(spec)]) == 0
    assert "who waits for what" in capsys.readouterr().out
