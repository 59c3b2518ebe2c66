"""The KL term's value and gradient against the exact divergence of small categorical policies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from areal_core.batch import BatchArrays, LossInputs
from areal_plugins.builtin.objectives import kl, reward
from areal_plugins.builtin.objectives.options import Estimator, GrpoOptions

ACTIONS = 5
logits = st.lists(st.floats(-2.0, 2.0), min_size=ACTIONS, max_size=ACTIONS).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)
estimators = st.sampled_from(["k1", "k2", "k3"])


def every_action(theta: Tensor, behaviour: Tensor, reference: Tensor) -> LossInputs:
    """One unit an action, weighted by how often the behaviour policy draws it."""
    ones = torch.ones(ACTIONS, dtype=torch.float64)
    return LossInputs(
        logp=theta.log_softmax(0),
        proximal=theta.detach().log_softmax(0),
        behaviour=behaviour.log_softmax(0),
        advantages=ones,
        weights=behaviour.softmax(0),
        mask=ones,
        trajectory=torch.arange(ACTIONS),
        lag=torch.zeros(ACTIONS, dtype=torch.int64),
        reference=reference.log_softmax(0),
    )


def divergence(first: Tensor, second: Tensor) -> Tensor:
    p, q = first.log_softmax(0), second.log_softmax(0)
    return (p.exp() * (p - q)).sum()


def gradient(value: Tensor, theta: Tensor) -> Tensor:
    return torch.autograd.grad(value, theta)[0]


def options(estimator: Estimator | None = None) -> GrpoOptions:
    return GrpoOptions(kl=1.0, kl_estimator=estimator, behaviour_cap=None)


@settings(deadline=None)
@given(logits, logits, logits, estimators)
def test_the_expected_gradient_is_that_of_the_reverse_divergence_whatever_the_estimator(
    theta: Tensor, behaviour: Tensor, reference: Tensor, estimator: Estimator
) -> None:
    theta.requires_grad_(True)
    inputs = every_action(theta, behaviour, reference)
    losses, _ = kl.penalty(inputs, options(estimator))
    expected = gradient(divergence(theta, reference), theta)
    torch.testing.assert_close(gradient((inputs.weights * losses).sum(), theta), expected, rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(logits, logits, logits, st.sampled_from(["k1", "k3"]))
def test_k1_and_k3_have_the_divergence_as_their_expected_value(
    theta: Tensor, behaviour: Tensor, reference: Tensor, estimator: Estimator
) -> None:
    inputs = every_action(theta, behaviour, reference)
    losses, _ = kl.penalty(inputs, options(estimator))
    torch.testing.assert_close((inputs.weights * losses).sum(), divergence(theta, reference), rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(logits, logits)
def test_autograd_through_k3_descends_the_divergence_the_other_way_round(theta: Tensor, reference: Tensor) -> None:
    theta.requires_grad_(True)
    logp = theta.log_softmax(0)
    through = (theta.softmax(0).detach() * kl.estimate(logp - reference.log_softmax(0), "k3")).sum()
    forward = gradient(divergence(reference, theta), theta)
    torch.testing.assert_close(gradient(through, theta), forward, rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(logits, logits, logits)
def test_the_gradient_of_each_token_is_that_of_importance_weighted_k3(
    theta: Tensor, behaviour: Tensor, reference: Tensor
) -> None:
    theta.requires_grad_(True)
    inputs = every_action(theta, behaviour, reference)
    weighted = (inputs.logp - inputs.behaviour).exp() * kl.estimate(inputs.logp - inputs.reference, "k3")
    losses, _ = kl.penalty(inputs, options())
    for ours, theirs in zip(losses, weighted, strict=True):
        (expected,) = torch.autograd.grad(theirs, theta, retain_graph=True)
        (found,) = torch.autograd.grad(ours, theta, retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(logits, logits)
def test_as_a_reward_k1_has_the_gradient_of_the_divergence(theta: Tensor, reference: Tensor) -> None:
    theta.requires_grad_(True)
    logp = theta.log_softmax(0)
    score = (logp.exp().detach() * (logp - reference.log_softmax(0)).detach() * logp).sum()
    expected = gradient(divergence(theta, reference), theta)
    torch.testing.assert_close(gradient(score, theta), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("estimator", "value"), [("k1", 0.5), ("k2", 0.125), ("k3", 0.10653065971263342)])
def test_estimates_of_a_known_log_ratio(estimator: Estimator, value: float) -> None:
    assert float(kl.estimate(torch.tensor(0.5, dtype=torch.float64), estimator)) == pytest.approx(value, rel=1e-14)


def test_the_importance_weight_is_bounded_by_the_behaviour_cap() -> None:
    one = torch.ones(1, dtype=torch.float64)
    inputs = evolve(
        every_action(torch.zeros(5), torch.zeros(5), torch.zeros(5)), logp=0 * one, behaviour=-3 * one, reference=-one
    )
    losses, _ = kl.penalty(inputs, evolve(options("k1"), behaviour_cap=2.0))
    assert losses.tolist() == [2.0]


def test_in_the_reward_every_drawn_token_pays_and_the_last_one_earns(batch: Callable[..., BatchArrays]) -> None:
    arrays = batch([3.0, 1.0], [0, 0], [[1, 0, 1], [0, 0]])
    assert arrays.reference is not None
    k1 = arrays.behaviour - arrays.reference
    expected = [-0.1 * k1[0], 0.0, 3.0 - 0.1 * k1[2], 0.0, 0.0]
    assert reward.per_unit(arrays, 0.1).tolist() == pytest.approx(expected)
    assert reward.per_trajectory(arrays, 0.1).tolist() == pytest.approx([3.0 - 0.1 * (k1[0] + k1[2]), 1.0])
