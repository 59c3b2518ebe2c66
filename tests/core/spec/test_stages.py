"""One run in several parts."""

from __future__ import annotations

import pytest

STAGES = """\
objective: {type: grpo, group_size: 4, clip: 0.3}
training: {batch_size: 8, max_steps: 50}
stages:
  - {name: warmup, objective: sft, training: {max_steps: 20}}
  - {name: rl}
  - {name: more, objective: {clip: 0.1}, training: {learning_rate: 1e-6}}
"""


def test_a_spec_without_stages_has_one(build):
    assert [stage.name for stage in build().stages] == ["main"]


def test_an_empty_list_of_stages_is_none(build):
    assert [stage.name for stage in build("stages: []").stages] == ["main"]


def test_each_stage_overrides_the_sections_above_it(build):
    warmup, rl, more = build(STAGES).stages
    assert [s.objective.name for s in (warmup, rl, more)] == ["sft", "grpo", "grpo"]
    assert [s.spec.training.max_steps for s in (warmup, rl, more)] == [20, 50, 50]
    assert [s.objective.options.clip for s in (rl, more)] == [0.3, 0.1]
    assert more.spec.training.learning_rate == 1e-6


def test_the_old_components_options_do_not_leak(build):
    warmup = build(STAGES.replace("objective: sft", "objective: {type: sft}")).stages[0]
    assert warmup.spec.objective.options == {}


def test_demonstrations_come_one_by_one(build):
    merged = STAGES.replace("objective: sft", "objective: {type: sft}")
    assert [build(text).stages[0].spec.objective.group_size for text in (STAGES, merged)] == [1, 1]


def test_an_objective_with_a_critic_gets_one(build):
    assert build("objective: ppo").stages[0].spec.objective.critic is not None


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("model: {hidden_size: 128}", "model"),
        ("executor: inline", "executor"),
        ("training: {backend: plain}", "training.backend"),
        ("training: {amp: {enabled: true}}", "training.amp"),
        ("inference: {type: stranger}", "inference.type"),
        ("inference: {torch: {kv_blocks: 1}}", "inference.blocks"),
        ("weights: disk", "weights"),
        ("seed: 1", "seed"),
        ("pipeline: {interruptible: false}", "pipeline.interruptible"),
        ("trackers: []", "trackers"),
        ("checkpoint: {every: 5}", "checkpoint"),
    ],
)
def test_what_workers_keep_cannot_change_between_stages(check, complete, override, key):
    found = check(f"{complete}stages:\n  - name: a\n  - name: b\n    {override}\n").errors
    fixed = [f for f in found if f.code == "fixed-in-stages"]
    assert [f.message.split()[3].rstrip(",") for f in fixed] == [key]
    assert fixed[0].location.line == 8


def test_saying_the_same_again_changes_nothing(build):
    build("stages: [{name: a, training: {backend: torch}, seed: 0}]")


@pytest.mark.parametrize(
    ("stages", "code", "place"),
    [
        ("5", "bad-type", "5:9"),
        ("[5]", "bad-type", "5:10"),
        ("[{objective: sft}]", "missing-key", "5:10"),
        ("[{name: 5}]", "bad-type", "5:17"),
        ("[{name: a}, {name: a}]", "duplicate-name", "5:28"),
        ("[{name: a, trainning: {}}]", "unknown-key", "5:20"),
        ("[{name: a, training: {max_steps: x}}]", "bad-type", "5:42"),
        ("[{name: a, stages: []}]", "unknown-key", "5:20"),
        ("[{name: a, training: {batch_size: 9}}]", "batch-not-groups", "5:43"),
    ],
)
def test_what_is_wrong_in_a_stage_is_located_there(errors, complete, stages, code, place):
    assert f"{code} at {place}" in errors(f"{complete}stages: {stages}\n")


def test_what_is_wrong_above_the_stages_is_said_once(errors, complete):
    text = complete + "training: {batch_size: 9}\nstages: [{name: a}, {name: b}]\n"
    assert errors(text) == ["batch-not-groups at 5:24"]


def test_what_is_wrong_above_the_stages_is_said_even_where_all_of_them_override_it(errors, complete):
    text = complete + "training: {max_steps: x}\nstages: [{name: a, training: {max_steps: 5}}]\n"
    assert errors(text) == ["bad-type at 5:23"]


def test_an_override_goes_to_a_stage_by_name(build):
    stages = build(STAGES, "stages.warmup.training.max_steps=3", "training.max_steps=7").stages
    assert [stage.spec.training.max_steps for stage in stages] == [3, 7, 7]


def test_an_override_that_no_stage_runs_under_is_an_error(check, complete):
    text = complete + "stages: [{name: a, training: {max_steps: 5}}]\n"
    (finding,) = check(text, "training.max_steps=3").errors
    assert (finding.code, finding.hint) == ("no-effect", "use --set stages.a.training.max_steps=...")
    assert str(finding.location) == "--set:1:10"
