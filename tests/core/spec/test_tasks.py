"""Environments: their names, weights, splits, rewards and demonstrations."""

from __future__ import annotations

import pytest

from areal_core.errors import Severity

NO_EVALUATION = "evaluation: {before: false, after: false}\n"


def test_without_an_environment_there_is_nothing_to_train_on(check):
    (finding,) = check("model: tiny\n").findings
    assert (finding.code, finding.severity) == ("no-environment", Severity.UNAVAILABLE)


@pytest.mark.parametrize(
    ("environments", "code", "place"),
    [
        ("[gsm8k, gsm8k]", "duplicate-name", "2:23"),
        ("[{type: gsm8k, name: a}, {type: gsm8k, name: a}]", "duplicate-name", "2:61"),
        ("[{type: gsm8k, weight: 0}]", "no-weight", "2:39"),
        ("[{type: jsonl, path: /dev/null}]", "no-reward", "2:15"),
        ("[gsm8k]\nevaluation: {split: dev}", "no-split", "3:21"),
    ],
)
def test_what_leaves_a_stage_without_tasks_or_scores_is_an_error(errors, environments, code, place):
    found = errors(f"model: tiny\nenvironments: {environments}\n")
    assert [entry.split()[0] for entry in found] == [code]
    assert place.split(":")[0] == found[0].split(" at ")[1].split(":")[0]


def test_one_of_a_kind_needs_no_name(build):
    experiment = build("", "environments=[gsm8k, {type: gsm8k, name: more, weight: 2}]")
    assert [e.name for e in experiment.stages[0].environments] == ["gsm8k", "more"]


def test_an_environment_that_judges_needs_no_reward_and_may_be_given_one(build):
    assert build().stages[0].environments[0].reward is None
    experiment = build("", "environments.0.reward={type: math, timeout: 2}")
    assert experiment.stages[0].environments[0].reward.options.timeout == 2.0


def test_an_environment_may_be_there_to_train_on_or_to_evaluate_only(build, extended):
    from areal_core import descriptors as d

    only = [
        d.EnvironmentDescriptor(
            name=split,
            summary="x",
            factory="areal_spec_fakes:make",
            capabilities=d.EnvironmentCapabilities(splits=(split,), scores=True),
        )
        for split in ("train", "test")
    ]
    build("evaluation: {every: 5}", "environments=[train, {type: test, weight: 0}]", manager=extended(*only))
    build("", "environments=[train]", manager=extended(*only))


def test_demonstrations_are_needed_where_they_are_imitated(errors):
    text = "model: tiny\nobjective: sft\nenvironments: [{type: jsonl, path: /dev/null, reward: math}]\n"
    assert [e.split()[0] for e in errors(text)] == ["no-demonstrations"]


def test_a_reward_is_needed_for_demonstrations_only_when_they_are_evaluated(errors, extended):
    from areal_core import descriptors as d

    demos = d.EnvironmentDescriptor(
        name="demos",
        summary="x",
        factory="areal_spec_fakes:make",
        capabilities=d.EnvironmentCapabilities(demonstrations=True),
    )
    text = "model: tiny\nobjective: sft\nenvironments: [demos]\n"
    assert [e.split()[0] for e in errors(text, manager=extended(demos))] == ["no-reward"]
    assert errors(text + NO_EVALUATION, manager=extended(demos)) == []
