"""What an objective must keep. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from areal_core.batch import BatchArrays, LossInputs, Targets
from areal_core.contexts import ObjectiveContext
from areal_core.protocols import Objective
from areal_plugins.testing.conformance.base import Conformance, Subject

GROUP = 4
GROUPS = 3
UNITS = tuple(range(2, 2 + GROUP * GROUPS))
"""Lengths of the trajectories: no two are the same."""

STEP = 1e-6
"""Of finite differences."""

_LEARNED = ("logp", "entropy", "values")
"""What carries a gradient."""


class ObjectiveConformance(Conformance):
    """Rules for objectives, on a batch of three groups of four trajectories of 2 to 13 units.

    `tolerance`: largest relative difference between sums in another order. `gradient_tolerance`: between
    the gradient and finite differences of the loss, all in float64. What an objective detaches, or
    computes under `torch.no_grad`, counts as a constant there.
    """

    kind: ClassVar[str] = "objective"
    tolerance: ClassVar[float] = 1e-9
    gradient_tolerance: ClassVar[float] = 1e-5

    @pytest.fixture
    def objective(self, subject: Subject) -> Objective:
        """The objective, for batches of this size."""
        made: Objective = subject.build(ObjectiveContext(1.0, max(UNITS), GROUP * GROUPS, GROUP))
        return made

    @pytest.fixture
    def arrays(self, subject: Subject, objective: Objective) -> BatchArrays:
        """A batch as the objective will see it."""
        return batch(objective, drawn=subject.descriptor.capabilities.source == "generate")

    # --- what it says of itself --------------------------------------------------------------------

    def test_needs_are_those_it_declares(self, subject: Subject, objective: Objective) -> None:
        """It needs a critic if and only if its capabilities say so, and a reference policy where they do."""
        declared = subject.descriptor.capabilities
        assert objective.needs_critic is declared.critic, f"needs_critic is {objective.needs_critic}"
        assert objective.needs_reference or not declared.reference, "it declares a reference policy, and needs none"
        assert isinstance(objective.needs_entropy, bool), "needs_entropy is no bool"

    def test_groups_are_kept_unless_it_chooses(self, subject: Subject, objective: Objective) -> None:
        """`keep` says True or False of any group, and True where no dynamic sampling is declared."""
        for rewards in (np.zeros(GROUP), np.ones(GROUP), np.arange(GROUP) / GROUP, -np.ones(GROUP)):
            kept = objective.keep(rewards)
            assert isinstance(kept, bool | np.bool_), f"keep says {kept!r}"
            chooses = subject.descriptor.capabilities.dynamic_sampling
            assert kept or chooses, f"it drops {rewards.tolist()} and declares no dynamic sampling"

    # --- targets -----------------------------------------------------------------------------------

    def test_targets_are_numbers_of_units(self, objective: Objective, arrays: BatchArrays) -> None:
        """Advantages, weights, and returns where there is a critic, are finite float64, one a unit."""
        for name, column in _columns(objective.targets(arrays)).items():
            if column is None and name == "returns" and not objective.needs_critic:
                continue
            assert column is not None, f"there are no {name}"
            found = (str(column.dtype), column.shape)
            assert found == ("float64", arrays.mask.shape), f"{name} are {found}, not float64 {arrays.mask.shape}"
            assert np.isfinite(column).all(), f"{name} are not finite"

    def test_equal_rewards_have_finite_targets(self, objective: Objective, arrays: BatchArrays) -> None:
        """Where all rewards are equal, nothing is divided by their spread of nothing."""
        equal = attrs.evolve(arrays, rewards=np.ones_like(arrays.rewards))
        for name, column in _columns(objective.targets(equal)).items():
            assert column is None or np.abs(column).max() < 1e3, f"{name} go up to {np.abs(column).max():.3g}"

    def test_targets_are_a_function_of_the_batch(self, objective: Objective, arrays: BatchArrays) -> None:
        """Asked again, the targets are the same, and the batch is as it was."""
        before = {name: None if a is None else np.array(a) for name, a in _fields(arrays).items()}
        first, second = (_columns(objective.targets(arrays)) for _ in range(2))
        changed = [name for name, a in _fields(arrays).items() if not _equal(a, before[name])]
        assert not changed, f"it changes the batch's {', '.join(changed)}"
        for name, column in first.items():
            assert _equal(column, second[name]), f"{name} are others when they are asked for again"

    def test_units_that_are_masked_have_no_weight(self, objective: Objective, arrays: BatchArrays) -> None:
        """A unit that the policy did not draw weighs nothing."""
        weights = objective.targets(arrays).weights[arrays.mask == 0]
        assert not weights.any(), f"masked units weigh up to {np.abs(weights).max():.3g}"

    # --- the loss ----------------------------------------------------------------------------------

    def test_a_loss_is_a_finite_scalar(self, objective: Objective, arrays: BatchArrays) -> None:
        """The loss is a finite scalar tensor, and its metrics are finite numbers."""
        loss, metrics = objective.loss(Micro(arrays, objective.targets(arrays)).inputs())
        assert isinstance(loss, torch.Tensor), f"it is a {type(loss).__name__}"
        assert loss.shape == (), f"it has the shape {tuple(loss.shape)}"
        assert bool(torch.isfinite(loss)), f"it is {float(loss.detach())}"
        odd = [name for name, value in metrics.items() if not np.isfinite(float(value))]
        assert not odd, f"metrics that are not finite: {', '.join(odd)}"

    def test_a_loss_is_a_function_of_its_inputs(self, objective: Objective, arrays: BatchArrays) -> None:
        """Asked again, the loss is the same, and its inputs are as they were."""
        inputs = Micro(arrays, objective.targets(arrays)).inputs()
        before = {name: t.detach().clone() for name, t in _fields(inputs).items() if t is not None}
        first, second = (float(objective.loss(inputs)[0].detach()) for _ in range(2))
        assert first == second, f"it is {first} and then {second}"
        changed = [name for name, t in before.items() if not torch.equal(t, getattr(inputs, name).detach())]
        assert not changed, f"it changes the micro-batch's {', '.join(changed)}"

    def test_any_split_has_the_same_loss(self, objective: Objective, arrays: BatchArrays) -> None:
        """Losses and metrics of micro-batches add up to those of the batch, however it is split."""
        micro = Micro(arrays, objective.targets(arrays))
        whole = _total(objective, [micro.inputs()])
        for split in (_alone(), _uneven()):
            parts = _total(objective, [micro.inputs(part) for part in split])
            for name, value in whole.items():
                problem = f"{name} is {value} in one micro-batch, {parts[name]} in {len(split)}"
                assert np.isclose(parts[name], value, rtol=self.tolerance, atol=self.tolerance), problem

    def test_any_split_has_the_same_gradient(self, objective: Objective, arrays: BatchArrays) -> None:
        """A unit's gradient does not depend on the micro-batch that it is in."""
        micro = Micro(arrays, objective.targets(arrays))
        whole = _gradient(objective, micro.inputs())["logp"]
        for split in (_alone(), _uneven()):
            parts = [_gradient(objective, micro.inputs(part))["logp"] for part in split]
            worst = float(np.abs(np.concatenate(parts) - whole).max())
            assert worst <= self.tolerance, f"in {len(split)} micro-batches a gradient differs by {worst:.3g}"

    def test_the_gradient_is_that_of_the_loss(self, objective: Objective, arrays: BatchArrays) -> None:
        """The gradient equals finite differences of the loss (what is detached held constant)."""
        inputs = Micro(arrays, objective.targets(arrays)).inputs()
        for name, gradient in _gradient(objective, inputs).items():
            expected = _differences(objective, inputs, name)
            worst = float(np.abs(gradient - expected).max())
            scale = max(1.0, float(np.abs(expected).max()))
            place = int(np.abs(gradient - expected).argmax())
            problem = f"by {name} {place} the loss changes {expected[place]:.6g}, its gradient is {gradient[place]:.6g}"
            assert worst <= self.gradient_tolerance * scale, problem


def batch(objective: Objective, drawn: bool) -> BatchArrays:
    """Three groups of four; every fifth unit is masked. Not `drawn`: demonstrations, under no policy."""
    random = np.random.default_rng(5)
    trajectory = np.repeat(np.arange(len(UNITS)), UNITS)
    size = len(trajectory)
    mask = np.ones(size)
    mask[::5] = 0
    lag = random.integers(0, 3, len(UNITS))[trajectory] * (mask > 0) * drawn
    behaviour = -random.uniform(0.1, 3.0, size) * mask * drawn
    noisy = behaviour + random.normal(0, 0.2, size) * mask
    return BatchArrays(
        step=3,
        rewards=random.permutation(len(UNITS)) / len(UNITS) if drawn else np.ones(len(UNITS)),
        group=np.arange(len(UNITS)) // GROUP if drawn else np.arange(len(UNITS)),
        truncated=np.arange(len(UNITS)) % 6 == 5,
        trajectory=trajectory,
        mask=mask,
        behaviour=behaviour,
        lag=lag.astype(np.int64),
        reference=np.minimum(noisy, -0.01) if objective.needs_reference else None,
        values=random.normal(0, 0.5, size) if objective.needs_critic else None,
    )


class Micro:
    """Cuts micro-batches out of a batch, as float64 tensors with a policy that has moved on a little."""

    def __init__(self, arrays: BatchArrays, targets: Targets) -> None:
        self._arrays, self._targets = arrays, targets
        random = np.random.default_rng(6)
        size = len(arrays.mask)
        self._proximal = np.minimum(arrays.behaviour + random.normal(0, 0.1, size), -0.01)
        self._logp = np.minimum(self._proximal + random.normal(0, 0.15, size), -0.01)
        self._entropy = random.uniform(0.5, 2.0, size)
        self._values = None if arrays.values is None else arrays.values + random.normal(0, 0.1, size)

    def inputs(self, trajectories: Sequence[int] = range(len(UNITS))) -> LossInputs:
        """Whole trajectories, in this order."""
        places = [np.flatnonzero(self._arrays.trajectory == t) for t in trajectories]
        at, lengths = np.concatenate(places), [len(place) for place in places]

        def tensor(column: np.ndarray | None, learned: bool = False) -> Any:
            return None if column is None else torch.tensor(column[at]).requires_grad_(learned)

        return LossInputs(
            logp=tensor(self._logp, learned=True),
            proximal=tensor(self._proximal),
            behaviour=tensor(self._arrays.behaviour),
            advantages=tensor(self._targets.advantages),
            weights=tensor(self._targets.weights),
            mask=tensor(self._arrays.mask),
            trajectory=torch.tensor(np.repeat(np.arange(len(lengths)), lengths)),
            lag=tensor(self._arrays.lag),
            entropy=tensor(self._entropy, learned=True),
            reference=tensor(self._arrays.reference),
            values=tensor(self._values, learned=True),
            old_values=tensor(self._arrays.values),
            returns=tensor(self._targets.returns),
        )


def _alone() -> list[list[int]]:
    return [[t] for t in range(len(UNITS))]


def _uneven() -> list[list[int]]:
    return [[0], [1, 2, 3, 4, 5, 6], list(range(7, len(UNITS)))]


def _fields(record: Any) -> dict[str, Any]:
    """Its columns."""
    values = ((f.name, getattr(record, f.name)) for f in attrs.fields(type(record)))
    return {name: value for name, value in values if value is None or hasattr(value, "shape")}


def _columns(targets: Targets) -> dict[str, np.ndarray | None]:
    return {name: getattr(targets, name) for name in ("advantages", "weights", "returns")}


def _equal(one: Any, other: Any) -> bool:
    return (one is None and other is None) or bool(np.array_equal(one, other))


def _total(objective: Objective, parts: Sequence[LossInputs]) -> Mapping[str, float]:
    """The loss and all metrics, summed."""
    total: dict[str, float] = {}
    for inputs in parts:
        loss, metrics = objective.loss(inputs)
        for name, value in {"the loss": loss.detach(), **metrics}.items():
            total[name] = total.get(name, 0.0) + float(value)
    return total


def _learned(inputs: LossInputs) -> Iterator[tuple[str, torch.Tensor]]:
    for name in _LEARNED:
        if (tensor := getattr(inputs, name)) is not None:
            yield name, tensor


def _gradient(objective: Objective, inputs: LossInputs) -> dict[str, np.ndarray]:
    """Of the loss, by everything that carries one."""
    names, tensors = zip(*_learned(inputs), strict=True)
    loss, _ = objective.loss(inputs)
    found = torch.autograd.grad(loss, tensors, allow_unused=True)
    pairs = zip(names, tensors, found, strict=True)
    return {name: (torch.zeros_like(t) if g is None else g).detach().numpy() for name, t, g in pairs}


def _differences(objective: Objective, inputs: LossInputs, name: str) -> np.ndarray:
    """Central differences of the loss by `name`."""
    constants = _Constants()
    with constants:
        objective.loss(inputs)
    base: torch.Tensor = getattr(inputs, name)

    def loss(place: int, step: float) -> float:
        moved = base.detach().clone()
        moved[place] += step
        moved.requires_grad_()
        with constants.again():
            found, _ = objective.loss(attrs.evolve(inputs, **{name: moved}))
        return float(found.detach())

    return np.array([(loss(i, STEP) - loss(i, -STEP)) / (2 * STEP) for i in range(len(base))])


class _Constants(TorchFunctionMode):
    """Remembers what was detached, or computed without a gradient, and gives the same again."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Any] = []
        self._given: Iterator[Any] | None = None

    def again(self) -> _Constants:
        """The same calls follow."""
        self._given = iter(self._kept)
        return self

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not isinstance(found, torch.Tensor) or (func is not torch.Tensor.detach and torch.is_grad_enabled()):
            return found
        if self._given is not None:
            return next(self._given)
        self._kept.append(found.clone())
        return found
