"""Batches that break peers: equal rewards, missing members, nothing drawn, one token, cut answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from areal_core.batch import BatchArrays
from areal_core.protocols import Objective

GROUPED = ["grpo", "dr-grpo", "dapo", "gspo", "cispo", "rloo"]
POLICY = [*GROUPED, "reinforce++", "ppo"]
ALL = [*POLICY, "sft"]

Make = Callable[..., Objective]
MakeBatch = Callable[..., BatchArrays]


@pytest.fixture
def run(policies: Callable[..., Any], outcome: Callable[..., Any]) -> Callable[..., Any]:
    """An objective's outcome on a batch, under policies that have drifted."""

    def on(objective: Objective, arrays: BatchArrays) -> Any:
        return outcome(objective, arrays, policies(arrays))

    return on


@pytest.mark.parametrize("name", [*GROUPED, "reinforce++"])
def test_equal_rewards_everywhere_give_a_gradient_of_exactly_zero(
    name: str, objective: Make, batch: MakeBatch, run: Callable[..., Any]
) -> None:
    arrays = batch([0.3, 0.1 + 0.2, 0.3], [0, 0, 1], [[1, 1], [1], [1, 1, 1]])
    assert not run(objective(name), arrays).logp.any()


@pytest.mark.parametrize("name", [*GROUPED, "reinforce++"])
def test_a_group_of_equal_rewards_gets_no_gradient_among_others(
    name: str, objective: Make, batch: MakeBatch, run: Callable[..., Any]
) -> None:
    arrays = batch([0.7, 0.7, 1.0, 0.0], [0, 0, 1, 1], [[1, 1], [1], [1, 1, 1], [1]])
    options = {"baseline": "group"} if name == "reinforce++" else {}
    gradient = run(objective(name, **options), arrays).logp
    assert not gradient[arrays.trajectory < 2].any()
    assert gradient[arrays.trajectory >= 2].any()


@pytest.mark.parametrize("name", GROUPED)
def test_groups_of_equal_rewards_do_not_dilute_the_denominator(name: str, objective: Make, batch: MakeBatch) -> None:
    alone = objective(name).targets(batch([1.0, 0.0], [0, 0], [[1, 1, 1], [1]]))
    among = objective(name).targets(batch([1.0, 0.0, 0.5, 0.5], [0, 0, 1, 1], [[1, 1, 1], [1], [1, 1], [1]]))
    np.testing.assert_allclose(among.weights, [*alone.weights, 0, 0, 0])
    np.testing.assert_allclose(among.advantages, [*alone.advantages, 0, 0, 0])


@pytest.mark.parametrize("name", GROUPED)
def test_they_do_where_the_options_say_so(name: str, objective: Make, batch: MakeBatch) -> None:
    among = batch([1.0, 0.0, 0.5, 0.5], [0, 0, 1, 1], [[1, 1], [1, 1], [1, 1], [1, 1]])
    skipped, counted = (objective(name, equal_groups=choice).targets(among) for choice in ("skip", "count"))
    np.testing.assert_allclose(counted.weights[:4], skipped.weights[:4] / 2)
    assert counted.weights[4:].all()


def test_groups_of_equal_rewards_keep_their_kl_and_entropy_terms(
    objective: Make, batch: MakeBatch, run: Callable[..., Any]
) -> None:
    arrays = batch([1.0, 0.0, 0.5, 0.5], [0, 0, 1, 1], [[1, 1], [1, 1], [1, 1], [1, 1]])
    result = run(objective("grpo", kl=0.1, entropy=0.1), arrays)
    np.testing.assert_allclose(result.entropy, -0.1 / 8)
    assert result.logp[4:].all()


def test_beside_kl_the_policy_term_is_still_averaged_over_groups_that_differ(objective: Make, batch: MakeBatch) -> None:
    arrays = batch([1.0, 0.0, 0.5, 0.5], [0, 0, 1, 1], [[1, 1], [1], [1, 1], [1]])
    plain, regularized = (objective("grpo", entropy=entropy).targets(arrays) for entropy in (0.0, 0.1))
    np.testing.assert_allclose(plain.weights * plain.advantages, regularized.weights * regularized.advantages)


@pytest.mark.parametrize("name", GROUPED)
def test_a_partial_group_is_compared_within_itself(name: str, objective: Make, batch: MakeBatch) -> None:
    arrays = batch([1.0, 0.0, 1.0, 0.0, 3.0], [0, 0, 1, 1, 1], [[1]] * 5)
    advantages = objective(name).targets(arrays).advantages
    assert advantages[:2].sum() == pytest.approx(0.0, abs=1e-12)
    assert advantages[2:].sum() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", GROUPED)
def test_a_group_with_one_member_left_teaches_nothing(
    name: str, objective: Make, batch: MakeBatch, run: Callable[..., Any]
) -> None:
    arrays = batch([5.0, 1.0, 0.0], [0, 1, 1], [[1, 1], [1], [1, 1, 1]])
    assert not run(objective(name), arrays).logp[:2].any()
    assert not objective(name).targets(arrays).weights[:2].any()


@pytest.mark.parametrize("name", ALL)
def test_a_batch_without_a_drawn_token_has_loss_and_gradient_zero(
    name: str, objective: Make, batch: MakeBatch, run: Callable[..., Any]
) -> None:
    result = run(objective(name), batch([1.0, 0.0], [0, 0], [[0, 0], [0]]))
    assert result.loss == 0
    assert not result.logp.any()


@pytest.mark.parametrize("name", ALL)
def test_a_trajectory_without_a_drawn_token_stays_out_of_the_denominator(
    name: str, objective: Make, batch: MakeBatch
) -> None:
    rewards, group = [1.0, 0.0, 1.0], [0, 0, 0]
    weights = objective(name).targets(batch(rewards, group, [[1, 1], [1, 1], [0, 0]])).weights
    expected = objective(name).targets(batch(rewards[:2], group[:2], [[1, 1], [1, 1]])).weights
    np.testing.assert_allclose(weights, [*expected, 0, 0])


@pytest.mark.parametrize("name", ALL)
def test_answers_of_one_token(name: str, objective: Make, batch: MakeBatch, run: Callable[..., Any]) -> None:
    result = run(objective(name), batch([1.0, 0.0], [0, 0], [[1], [1]]))
    assert np.isfinite(result.logp).all()
    if name != "gspo":  # whose narrow range clips both
        assert result.logp.any()


@pytest.mark.parametrize("name", POLICY)
def test_an_answer_without_an_end_is_trained_on_like_any_other(
    name: str, objective: Make, batch: MakeBatch, run: Callable[..., Any]
) -> None:
    rewards, group, masks = [1.0, 0.0, 0.5], [0, 0, 0], [[1, 1], [1], [1, 1, 1]]
    ended = run(objective(name), batch(rewards, group, masks))
    cut = run(objective(name), batch(rewards, group, masks, [False, True, True]))
    np.testing.assert_array_equal(ended.logp, cut.logp)


@pytest.mark.parametrize("name", POLICY)
def test_masked_truncated_answers_leave_gradient_and_denominator_but_not_the_baseline(
    name: str, objective: Make, batch: MakeBatch
) -> None:
    arrays = batch([1.0, 0.0, 0.5], [0, 0, 0], [[1, 1], [1, 1], [1, 1]], [False, False, True])
    masked = objective(name, mask_truncated=True).targets(arrays)
    plain = objective(name).targets(arrays)
    assert not masked.weights[4:].any()
    np.testing.assert_allclose(masked.weights[:4], plain.weights[:4] * 3 / 2)
    np.testing.assert_allclose(masked.advantages[:4], plain.advantages[:4])


@pytest.mark.parametrize("name", POLICY)
def test_a_batch_of_truncated_answers_alone_has_loss_zero_when_they_are_masked(
    name: str, objective: Make, batch: MakeBatch, run: Callable[..., Any]
) -> None:
    arrays = batch([1.0, 0.0], [0, 0], [[1, 1], [1]], [True, True])
    result = run(objective(name, mask_truncated=True), arrays)
    assert result.loss == 0
    assert not result.logp.any()
    assert not result.values.any()


def test_dynamic_sampling_keeps_groups_whose_rewards_differ(objective: Make) -> None:
    keep = objective("dapo").keep
    assert [keep(np.array(rewards)) for rewards in ([0.0, 1.0], [1.0, 1.0], [0.3, 0.1 + 0.2])] == [True, False, False]


def test_without_dynamic_sampling_every_group_is_kept(objective: Make) -> None:
    assert objective("dapo", dynamic_sampling=False).keep(np.array([1.0, 1.0]))


@pytest.mark.parametrize("name", [name for name in ALL if name != "dapo"])
def test_other_objectives_keep_every_group(name: str, objective: Make) -> None:
    assert objective(name).keep(np.array([1.0, 1.0]))


def test_overlong_answers_are_punished_on_a_ramp(objective: Make, batch: MakeBatch) -> None:
    # Limit 8, buffer 4: rewards 0, -0.5 and -1 for 4, 6 and 8 tokens.
    arrays = batch([0.0, 0.0, 0.0], [0, 0, 0], [[1] * 4, [1] * 6, [1] * 8])
    advantages = objective("dapo", overlong_buffer=4, scale="none").targets(arrays).advantages
    assert [advantages[0], advantages[4], advantages[10]] == pytest.approx([0.5, 0.0, -0.5])


def test_values_that_moved_too_far_in_the_right_direction_stop_learning(
    objective: Make, batch: MakeBatch, policies: Callable[..., Any], outcome: Callable[..., Any]
) -> None:
    arrays = evolve(batch([1.0], [0], [[1]]), values=np.zeros(1))
    for value, learns in ((0.1, True), (0.3, False), (-0.3, True)):
        moved = evolve(policies(arrays), values=np.array([value]))
        assert bool(outcome(objective("ppo"), arrays, moved).values.any()) is learns


def test_explained_variance_is_one_for_a_perfect_critic(objective: Make, batch: MakeBatch) -> None:
    arrays = evolve(batch([1.0, 0.0], [0, 0], [[1, 1], [1]]), values=np.array([1.0, 1.0, 0.0]))
    assert objective("ppo").targets(arrays).metrics["explained_variance"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ({}, (False, False)),
        ({"kl": 0.1}, (True, False)),
        ({"kl": 0.1, "kl_in": "reward"}, (True, False)),
        ({"entropy": 0.1}, (False, True)),
    ],
)
def test_an_objective_asks_only_for_what_its_options_use(
    options: dict[str, Any], needs: tuple[bool, bool], objective: Make
) -> None:
    made = objective("grpo", **options)
    assert (made.needs_reference, made.needs_entropy) == needs


def test_metrics_are_sums_over_drawn_units(objective: Make, batch: MakeBatch, run: Callable[..., Any]) -> None:
    arrays = batch([1.0, 0.0], [0, 0], [[1, 0, 1], [1]])
    metrics = run(objective("grpo", kl=0.1), arrays).metrics
    assert set(metrics) == {"clip_fraction", "ratio", "behaviour_weight", "behaviour_capped", "kl"}
    assert 0 <= metrics["clip_fraction"] <= 3
