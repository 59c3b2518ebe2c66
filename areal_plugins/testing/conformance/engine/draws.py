"""What is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from areal_plugins.testing.conformance.engine.rules import PROMPTS, EngineRules, named, tokens_of
from areal_plugins.testing.conformance.reference import Reference, distribution
from areal_plugins.testing.conformance.serving import (
    FIRST,
    Bench,
    collect,
    request,
    together,
)

SAMPLINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "temperature": {"temperature": 0.7},
    "top_p": {"temperature": 1.3, "top_p": 0.8},
    "top_k": {"temperature": 0.9, "top_k": 5},
    "all": {"temperature": 1.5, "top_k": 12, "top_p": 0.7},
    "greedy": {"temperature": 0.0},
}


class Draws(EngineRules):
    """Tokens and log-probabilities are those of the model, and of the seed."""

    def test_each_token_has_a_logprob_and_a_version(self, bench: Bench) -> None:
        """Answers are int32 tokens with as many float32 log-probabilities and int64 versions: those served."""
        (answer,) = bench.run(lambda engine: collect(engine, request([5, 6, 7])))
        columns = (answer.tokens, answer.logprobs, answer.versions)
        found = [(column.dtype.name, column.shape) for column in columns]
        assert found == [("int32", (8,)), ("float32", (8,)), ("int64", (8,))], f"the columns of 8 tokens are {found}"
        assert set(answer.versions.tolist()) == {FIRST.code}, f"it serves {FIRST}, tokens carry {named(answer)}"

    @pytest.mark.parametrize("sampling", SAMPLINGS)
    def test_logprobs_agree_with_the_reference(self, bench: Bench, model: Reference, sampling: str) -> None:
        """A token's log-probability is that of the distribution it was drawn from, within `tolerance`."""
        settings = SAMPLINGS[sampling]
        wanted = [request(prompt, name=str(i), seed=i, n=2, **settings) for i, prompt in enumerate(PROMPTS)]
        for prompt, answers in zip(PROMPTS, bench.run(lambda engine: together(engine, wanted)), strict=True):
            for answer in answers:
                self.agrees(model, prompt, answer, **settings)

    def test_greedy_takes_the_likeliest_token(self, bench: Bench, model: Reference) -> None:
        """At temperature 0 the likeliest token is drawn wherever it leads by more than `gap`."""
        wanted = [request(p, name=str(i), temperature=0.0, max_new_tokens=20) for i, p in enumerate(PROMPTS)]
        for prompt, (answer,) in zip(PROMPTS, bench.run(lambda engine: together(engine, wanted)), strict=True):
            for place, (logits, token) in enumerate(
                zip(model.logits(prompt, answer.tokens), answer.tokens, strict=True)
            ):
                lead = logits.max() - logits[token]
                assert lead <= self.gap, f"token {place} is {token}, whose logit is {lead:.2g} below the best"

    def test_draws_follow_the_distribution(self, bench: Bench, model: Reference) -> None:
        """At temperature 1, tokens are drawn as often as they are likely (chi-square of 400 draws)."""
        answers = bench.run(lambda engine: collect(engine, request([3, 4], n=400, seed=11, max_new_tokens=1, top_k=6)))
        p = distribution(model.logits([3, 4], [0])[0], top_k=6)
        counts = np.bincount([int(answer.tokens[0]) for answer in answers], minlength=len(p))[p > 0]
        expected = p[p > 0] * len(answers)
        excess = float(((counts - expected) ** 2 / expected).sum())
        assert excess < 40, f"{counts.tolist()} draws where {expected.round(1).tolist()} are expected"

    def test_a_seed_fixes_the_draws(self, bench: Bench) -> None:
        """Equal seeds draw equal tokens, alone or in a crowd; other seeds draw others."""
        ours = request([3, 4, 5], name="ours", n=3, seed=77, max_new_tokens=12)
        crowd = [request(PROMPTS[i % 4], name=str(i), seed=i, max_new_tokens=1 + i % 9) for i in range(12)]
        alone = bench.run(lambda engine: collect(engine, ours))
        crowded = bench.run(lambda engine: together(engine, [*crowd[:6], ours, *crowd[6:]]))[6]
        assert tokens_of(alone) == tokens_of(crowded), "the same request draws other tokens beside others"
        unlike = bench.run(lambda engine: collect(engine, request([3, 4, 5], n=3, seed=78, max_new_tokens=12)))
        assert tokens_of(alone) != tokens_of(unlike), "another seed draws the same tokens"

    def test_there_are_n_completions(self, bench: Bench) -> None:
        """`n` completions come, with the indices 0 to n-1, and each draws on its own."""
        answers = bench.run(lambda engine: collect(engine, request([3, 4, 5], n=6)))
        assert [a.index for a in answers] == list(range(6)), f"the indices are {[a.index for a in answers]}"
        assert len({tuple(tokens) for tokens in tokens_of(answers)}) == 6, "members of a group draw the same tokens"
