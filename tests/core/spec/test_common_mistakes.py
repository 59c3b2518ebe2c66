"""Mistakes that tools of this kind let pass, to fail hours later or never.

Those that a spec can hold are found by `check`, with the built-in components. The others show in a run, and
`IN_A_RUN` names the tests that hold them down.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from areal_core.manager import Manager, PluginRecord, State
from areal_core.spec import examine

ROOT = Path(__file__).parents[3]
BASE = {
    "model": "model: tiny",
    "platform": "platform: cpu",
    "environments": "environments: [{type: jsonl, path: data.jsonl, test_fraction: 0.1, reward: exact}]",
}


@pytest.fixture(scope="module")
def built_in() -> Manager:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AREAL_PLUGINS_AUTOLOAD", "0")
        return Manager.discover()


@pytest.fixture
def found(write, built_in):
    """`code: message -> hint` of each error in a complete spec with `text` in place of its sections."""

    def of(text: str, *overrides: str, manager: Manager = built_in) -> list[str]:
        write("{}", "data.jsonl")
        rest = [line for key, line in BASE.items() if not re.search(rf"^{key}:", text, re.M)]
        examined = examine(write("\n".join([text, *rest])), overrides, manager)
        assert all(f.location is not None for f in examined.findings)
        return [f"{f.code}: {f.message} -> {f.hint}" for f in examined.errors]

    return of


def one(found: list[str]) -> str:
    (finding,) = found
    return finding


# --- accepted at load ------------------------------------------------------------------------------------


def test_an_engine_that_does_not_exist(found):
    assert "did you mean `sglang`?" in one(found("inference: sg-lang"))
    assert "no engine is called 'tgi'" in one(found("inference: {type: tgi}"))


def test_a_way_of_moving_weights_that_does_not_exist(found):
    assert "did you mean `disk`?" in one(found("weights: {type: disc}"))
    assert one(found("weights: {mode: nccl}")).startswith("unknown-key: weights.mode -> there are: ")


def test_a_negative_staleness(found):
    assert one(found("pipeline: {max_staleness: -1}")).startswith("out-of-range: pipeline.max_staleness")
    assert one(found("", "pipeline.max_staleness=-1")).startswith("out-of-range: pipeline.max_staleness")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("inference: {sampling: {temprature: 0.5}}", "inference.sampling.temprature"),
        ("inference: {torch: {prefil_tokens: 64}}", "inference.torch.prefil_tokens"),
        ("training: {optimizer: {weight_decy: 0.1}}", "training.optimizer.weight_decy"),
        ("resources: {infer: {num_gpu: 1}}", "resources.infer.num_gpu"),
        ("stages: [{name: a, objective: {group_sise: 4}}]", "objective.group_sise"),
        ("objective: {clip_hihg: 0.3}", "objective.clip_hihg"),
    ],
)
def test_a_misspelt_key_however_deep(found, text, path):
    finding = one(found(text))
    assert finding.startswith(f"unknown-key: {path} -> did you mean")


@pytest.mark.parametrize("spec", sorted((ROOT / "specs").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_example_that_no_longer_loads(spec):
    assert examine(spec).errors == ()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("resources: {infer: {num_gpus: 4, num_nodes: 1, gpus_per_node: 8}}", "contradictory-sizes"),
        ("resources: {infer: {num_gpus: 4, parallel: {dp: 2}}}", "wrong-world-size"),
        ("training: {batch_size: 64}\npipeline: {queue_size: 2}", "queue-too-small"),
        ("inference: {sampling: {max_new_tokens: 1024}}\nmodel: {type: tiny, max_positions: 512}", "answers-too-long"),
        ("inference: {sampling: {min_new_tokens: 9, max_new_tokens: 8}}", "lengths-crossed"),
    ],
)
def test_two_sizes_that_contradict_each_other(found, text, code):
    assert one(found(text)).startswith(f"{code}: ")


def test_a_key_that_is_given_twice(found):
    assert one(found("seed: 1\nseed: 2")) == "duplicate-key: seed is given twice -> first on line 1"


# --- plugins ---------------------------------------------------------------------------------------------


def test_a_plugin_that_fails_to_import_does_not_vanish(found, built_in):
    cause = "ImportError: libcudart.so.12: cannot open shared object file"
    broken = PluginRecord("vllm", State.IMPORT_FAILED, "areal-plugins-vllm", "0.1.0", cause=cause)
    finding = one(found("inference: vllm", manager=Manager([*built_in.plugins, broken])))
    assert finding.startswith("import-failed: ")
    assert cause in finding


# --- groups, divergence, schedules -----------------------------------------------------------------------


def test_groups_of_one_have_nothing_to_compare(found):
    assert one(found("objective: {type: grpo, group_size: 1}")).startswith("group-too-small: ")


def test_a_batch_that_cuts_a_group(found):
    assert one(found("training: {batch_size: 20}")).startswith("batch-not-groups: ")


def test_an_estimator_of_the_divergence_with_the_wrong_gradient(found):
    text = "objective: {type: grpo, kl: 0.1, kl_in: reward, kl_estimator: k3, reference: {}}"
    assert one(found(text)).startswith("biased-estimator: ")


def test_a_divergence_from_nothing(found):
    assert one(found("objective: {type: grpo, kl: 0.1}")).startswith("missing-reference: ")


@pytest.mark.parametrize("key", ["warmup_ratio", "warmup_epochs", "decay_samples"])
def test_a_schedule_in_a_unit_that_is_not_steps(found, key):
    assert one(found(f"training: {{optimizer: {{{key}: 0.1}}}}")).startswith("unknown-key: ")
    assert one(found("training: {optimizer: {warmup_steps: 0.1}}")).startswith("bad-type: ")


# --- in a run --------------------------------------------------------------------------------------------

IN_A_RUN = {
    "a reward that raises becomes 0": (
        "tests/core/workers/test_rollout.py::test_a_failed_reward_cannot_be_swallowed_into_a_zero",
        "tests/core/pipeline/test_failures.py::test_a_reward_that_always_raises_fails_the_run_with_its_error",
    ),
    "a verifier that hangs ignores its own time-out": (
        "tests/areal_plugins/builtin/rewards/test_isolation.py::test_a_call_that_hangs_is_killed_and_its_process_replaced",
        "tests/areal_plugins/builtin/rewards/test_function.py::test_a_function_that_hangs_in_c_is_killed",
    ),
    "a rollout worker dies, and the trainer polls an empty buffer": (
        "tests/core/pipeline/test_failures.py::test_a_worker_that_dies_is_replaced_and_its_groups_are_rolled_out_anew",
        "tests/core/pipeline/test_failures.py::test_a_worker_that_dies_too_often_fails_the_run_with_a_command_that_resumes",
    ),
    "a straggler blocks its group": (
        "tests/core/workers/test_rollout.py::test_a_group_that_takes_too_long_says_what_held_it",
        "tests/core/pipeline/test_staleness.py::test_later_work_may_overtake_while_the_older_can_still_be_in_time",
    ),
    "the bound on staleness does not hold after a resume": (
        "tests/core/pipeline/test_resume.py::test_the_bound_holds_after_a_resume",
    ),
    "a resume drops what was buffered": (
        "tests/core/pipeline/test_resume.py::test_what_was_finished_or_under_way_when_a_run_stopped_is_in_its_checkpoint",
    ),
    "a resume at the end trains nothing and exits 0": (
        "tests/core/pipeline/test_resume.py::test_a_run_that_is_complete_says_how_to_go_on",
    ),
    "a recovered engine serves before it has the current weights": (
        "tests/core/pipeline/test_failures.py::test_an_engine_that_comes_back_serves_the_current_weights_only",
    ),
    "generation stays paused after an update": (
        "tests/core/workers/test_engine.py::test_a_failed_load_resumes_and_refuses_until_a_later_one_succeeds",
        "tests/core/workers/test_engine.py::test_generation_goes_on_after_a_pause_that_failed",
    ),
    "tokens carry the wrong version": (
        "tests/areal_plugins/builtin/engine/test_updates.py::test_each_token_carries_the_version_that_drew_it",
    ),
    "the prefix cache keeps values of old weights": (
        "tests/areal_plugins/builtin/engine/test_updates.py::test_members_admitted_after_an_update_do_not_share_the_old_prompt",
    ),
    "text is tokenized again between turns": (
        "tests/core/workers/test_rollout.py::test_a_second_turn_continues_with_the_very_tokens",
    ),
    "the loss depends on the cut into micro-batches and ranks": (
        "tests/areal_plugins/builtin/trainer/test_step.py::test_any_cut_into_micro_batches_gives_the_same_gradient_and_figures",
        "tests/areal_plugins/builtin/trainer/test_step.py::test_parts_average_to_the_whole_batch",
    ),
    "truncated answers are masked wrongly": (
        "tests/areal_plugins/builtin/objectives/test_edges.py::test_masked_truncated_answers_leave_gradient_and_denominator_but_not_the_baseline",
    ),
    "padding enters the loss, or hides the end of an answer": (
        "tests/areal_plugins/builtin/trainer/test_step.py::test_the_gradient_is_that_of_the_plain_computation",
        "tests/areal_plugins/builtin/engine/test_engine.py::test_an_answer_ends_at_eos_and_keeps_it",
        "tests/core/workers/test_session.py::test_a_trajectory_is_what_was_read_and_drawn_in_order",
    ),
    "groups of equal rewards get huge advantages": (
        "tests/areal_plugins/builtin/objectives/test_advantage.py::test_rewards_that_differ_in_their_last_digits_only_are_equal",
    ),
    "groups of equal rewards dilute the denominator": (
        "tests/areal_plugins/builtin/objectives/test_edges.py::test_groups_of_equal_rewards_do_not_dilute_the_denominator",
    ),
    "partial groups misalign the normalization": (
        "tests/areal_plugins/builtin/objectives/test_edges.py::test_a_partial_group_is_compared_within_itself",
    ),
    "k3 in the loss gives a biased gradient": (
        "tests/areal_plugins/builtin/objectives/test_kl.py::test_the_expected_gradient_is_that_of_the_reverse_divergence_whatever_the_estimator",
    ),
    "the schedule counts in the wrong unit": (
        "tests/areal_plugins/builtin/trainer/test_schedule.py::test_optimizer_steps_are_counted_where_a_batch_has_several",
    ),
    "memory grows at every step": (
        "tests/core/pipeline/test_memory.py::test_of_many_groups_no_more_are_alive_than_the_bound_lets_wait",
    ),
}


@pytest.mark.parametrize("mistake", IN_A_RUN)
def test_a_mistake_that_shows_in_a_run_has_a_test_there(mistake):
    for test in IN_A_RUN[mistake]:
        file, _, name = test.partition("::")
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.M), test
