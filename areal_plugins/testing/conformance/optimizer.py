"""What an optimizer must keep. Needs torch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest
import torch

from areal_core.contexts import OptimizerContext
from areal_plugins.testing.conformance.base import Conformance, Subject

Groups = list[dict[str, Any]]


class OptimizerConformance(Conformance):
    """Rules for optimizers, on a matrix and a vector in a group each.

    `learning_rate` is what the optimizer is built with, `steps` how many it takes to get somewhere.
    """

    kind: ClassVar[str] = "optimizer"
    learning_rate: ClassVar[float] = 0.01
    steps: ClassVar[int] = 40

    @pytest.fixture
    def groups(self) -> Callable[[], Groups]:
        """Parameters that are the same whenever they are made: two groups, as trainers make them."""

        def make() -> Groups:
            random = torch.Generator().manual_seed(4)
            matrix, vector = (torch.nn.Parameter(torch.randn(s, generator=random)) for s in ((6, 4), (5,)))
            return [{"params": [matrix]}, {"params": [vector], "weight_decay": 0.0}]

        return make

    @pytest.fixture
    def build(self, subject: Subject) -> Callable[[Groups], torch.optim.Optimizer]:
        """Builds the optimizer for parameters."""

        def make(groups: Groups) -> torch.optim.Optimizer:
            made: torch.optim.Optimizer = subject.build(OptimizerContext(groups, self.learning_rate))
            return made

        return make

    def test_it_is_an_optimizer_of_torch(
        self, groups: Callable[[], Groups], build: Callable[[Groups], torch.optim.Optimizer]
    ) -> None:
        """It is a `torch.optim.Optimizer`, so that schedules and checkpoints of any backend can handle it."""
        made = build(groups())
        assert isinstance(made, torch.optim.Optimizer), f"it is a {type(made).__name__}"

    def test_it_has_every_parameter_once(
        self, groups: Callable[[], Groups], build: Callable[[Groups], torch.optim.Optimizer]
    ) -> None:
        """Its groups hold every parameter that it was given, once."""
        given = groups()
        held = [id(p) for group in build(given).param_groups for p in group["params"]]
        assert sorted(held) == sorted(id(p) for p in _parameters(given)), f"of 2 parameters it holds {len(held)}"

    def test_it_starts_at_the_learning_rate(
        self, groups: Callable[[], Groups], build: Callable[[Groups], torch.optim.Optimizer]
    ) -> None:
        """Each group's `lr` is the learning rate that it was built with."""
        rates = [group.get("lr") for group in build(groups()).param_groups]
        assert rates == [self.learning_rate] * len(rates), f"the rates are {rates}, not {self.learning_rate}"

    def test_steps_go_downhill(
        self, groups: Callable[[], Groups], build: Callable[[Groups], torch.optim.Optimizer]
    ) -> None:
        """A sum of squares is less after some steps than before."""
        given = groups()
        before = _loss(given)
        self._walk(build(given), given)
        assert _loss(given) < before, f"a loss of {before:.3g} is {_loss(given):.3g} after {self.steps} steps"

    def test_steps_are_deterministic(
        self, groups: Callable[[], Groups], build: Callable[[Groups], torch.optim.Optimizer]
    ) -> None:
        """The same gradients take the same parameters to the same place, bit by bit."""
        first, second = groups(), groups()
        with torch.random.fork_rng(devices=[]):
            for seed, each in enumerate((first, second)):
                torch.manual_seed(seed)
                self._walk(build(each), each)
        assert _same(first, second), "two walks from one start end in two places"

    def test_it_goes_on_from_its_state(
        self, groups: Callable[[], Groups], build: Callable[[Groups], torch.optim.Optimizer]
    ) -> None:
        """An optimizer that loads the state of another goes on exactly as that one does."""
        first = groups()
        one = build(first)
        self._walk(one, first, 5)
        second = [
            {**group, "params": [torch.nn.Parameter(p.detach().clone()) for p in group["params"]]} for group in first
        ]
        other = build(second)
        other.load_state_dict(copy.deepcopy(one.state_dict()))
        self._walk(one, first, 5)
        self._walk(other, second, 5)
        assert _same(first, second), "after a resume its steps are others"

    def test_a_rate_of_nothing_changes_nothing(
        self, groups: Callable[[], Groups], build: Callable[[Groups], torch.optim.Optimizer]
    ) -> None:
        """Schedules set each group's `lr`: at 0 no parameter moves."""
        given, start = groups(), groups()
        made = build(given)
        for group in made.param_groups:
            group["lr"] = 0.0
        self._walk(made, given, 3)
        assert _same(given, start), "parameters move at a learning rate of 0"

    def test_what_has_no_gradient_stays(
        self, groups: Callable[[], Groups], build: Callable[[Groups], torch.optim.Optimizer]
    ) -> None:
        """A parameter without a gradient is not touched."""
        given, start = groups(), groups()
        made = build(given)
        given[0]["params"][0].square().sum().backward()
        made.step()
        assert torch.equal(given[1]["params"][0], start[1]["params"][0]), "a parameter without a gradient moves"

    def _walk(self, optimizer: torch.optim.Optimizer, groups: Groups, steps: int | None = None) -> None:
        """Down the sum of squares."""
        for _ in range(self.steps if steps is None else steps):
            optimizer.zero_grad()
            sum((p.square().sum() for p in _parameters(groups)), torch.zeros(())).backward()  # type: ignore[no-untyped-call]  # torch's
            optimizer.step()


def _parameters(groups: Sequence[Mapping[str, Any]]) -> list[torch.Tensor]:
    return [parameter for group in groups for parameter in group["params"]]


def _loss(groups: Groups) -> float:
    return float(sum(p.detach().square().sum() for p in _parameters(groups)))


def _same(one: Groups, other: Groups) -> bool:
    return all(torch.equal(a, b) for a, b in zip(_parameters(one), _parameters(other), strict=True))
