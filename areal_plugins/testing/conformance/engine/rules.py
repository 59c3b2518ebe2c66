"""What all rules for engines are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from areal_core.contexts import EngineContext, Place
from areal_core.data import Completion, WeightVersion
from areal_plugins.testing.conformance.base import Conformance, Subject
from areal_plugins.testing.conformance.reference import Reference, distribution, reference
from areal_plugins.testing.conformance.serving import (
    Bench,
)

PLACES = 4
"""Completions that may run at once."""
PROMPTS = [[5, 6, 7], [9], [4, 8, 15, 16, 23, 3], [2, 2, 2, 12]]


class EngineRules(Conformance):
    """What the rules share: the models, the engine on a bench, comparisons with the reference."""

    kind: ClassVar[str] = "engine"
    tolerance: ClassVar[float] = 1e-4
    gap: ClassVar[float] = 1e-4
    dtype: ClassVar[str] = "float32"
    patience: ClassVar[float] = 60.0

    @pytest.fixture
    def model(self) -> Reference:
        """The model that the engine starts with."""
        return reference(seed=0)

    @pytest.fixture
    def other(self) -> Reference:
        """Another model of the same shape, to be loaded in its place."""
        return reference(seed=1)

    @pytest.fixture
    def bench(self, subject: Subject, model: Reference, place: Place, tmp_path: Path) -> Bench:
        """Serves the engine."""
        interruptible = subject.descriptor.capabilities.interruptible
        context = EngineContext(
            model.directory,
            self.dtype,
            place,
            seed=0,
            max_concurrent=PLACES,
            interruptible=interruptible,
            work=tmp_path,
        )
        return Bench(subject, context, self.patience)

    # --- comparisons -------------------------------------------------------------------------------

    def agrees(self, model: Reference, prompt: list[int], answer: Completion, **sampling: Any) -> None:
        """Every log-probability of `answer` is the reference's."""
        self.close_to(model.logits(prompt, answer.tokens), answer, "in an answer", **sampling)

    def close_to(self, logits: np.ndarray, answer: Completion, where: str, **sampling: Any) -> None:
        """The log-probabilities of the first T tokens are those that the logits [T, V] give."""
        for place, (row, token) in enumerate(zip(logits, answer.tokens, strict=False)):
            found, expected = float(answer.logprobs[place]), _possible(row, int(token), **sampling)
            nearest = min(expected, key=lambda value: abs(value - found))
            assert abs(nearest - found) <= self.tolerance, (
                f"token {place} {where} has log-probability {found:.6f}, the reference {nearest:.6f}"
            )

    @staticmethod
    def accepts(subject: Subject, mechanism: str) -> None:
        """Skip where the engine does not declare the mechanism."""
        if mechanism not in subject.descriptor.capabilities.accepts:
            pytest.skip(f"the engine does not accept {mechanism}")

    @staticmethod
    def first_accepted(subject: Subject) -> str:
        """The best mechanism of the engine that the kit can offer."""
        accepted = subject.descriptor.capabilities.accepts
        for mechanism in accepted:
            if mechanism in ("tensors", "hf-dir"):
                return str(mechanism)
        pytest.skip(f"the engine accepts {', '.join(accepted)} alone, which needs its own transport")


def named(answer: Completion) -> list[str]:
    """Its versions, each once, in the order in which they come."""
    return [str(WeightVersion.from_code(code)) for code in dict.fromkeys(answer.versions.tolist())]


def tokens_of(answers: list[Completion]) -> list[list[int]]:
    """The tokens of each answer."""
    return [answer.tokens.tolist() for answer in answers]


def _possible(logits: np.ndarray, token: int, top_p: float = 1.0, **sampling: Any) -> list[float]:
    """Log-probabilities of the token; three where rounding may decide what the nucleus takes in."""
    nuclei = [top_p] if top_p == 1 else [top_p - 1e-5, top_p, top_p + 1e-5]
    with np.errstate(divide="ignore"):
        return [float(np.log(distribution(logits, top_p=nucleus, **sampling)[token])) for nucleus in nuclei]
