"""Where answers end."""

from __future__ import annotations

from typing import Any

import numpy as np

from areal_plugins.testing.conformance.engine.rules import PROMPTS, EngineRules
from areal_plugins.testing.conformance.reference import LONGEST, Reference
from areal_plugins.testing.conformance.serving import (
    Bench,
    collect,
    request,
)


class Ends(EngineRules):
    """An answer ends where the request says."""

    def test_eos_ends_an_answer(self, bench: Bench, model: Reference) -> None:
        """The end token ends an answer, and is its last token; with `ignore_eos` it is a token like others."""
        settings: dict[str, Any] = {"n": 8, "temperature": 2.0, "max_new_tokens": 40}
        ended = bench.run(lambda engine: collect(engine, request([7], ignore_eos=False, **settings)))
        stopped = [answer for answer in ended if answer.finish == "stop"]
        assert stopped, "of 8 answers of up to 40 random tokens none ended with finish `stop`"
        for answer in ended:
            where = np.flatnonzero(answer.tokens == model.eos).tolist()
            expected = [len(answer.tokens) - 1] if answer.finish == "stop" else []
            assert where == expected, f"an answer of {len(answer.tokens)} tokens has the end token at {where}"
        through = bench.run(lambda engine: collect(engine, request([7], **settings)))
        assert {len(answer.tokens) for answer in through} == {40}, "with ignore_eos an answer ended early"

    def test_stop_tokens_end_an_answer(self, bench: Bench) -> None:
        """A stop token ends an answer, and is its last token."""
        stops = tuple(range(10, 20))
        wanted = request([7], n=8, max_new_tokens=60, temperature=2.0, stop_token_ids=stops)
        for answer in bench.run(lambda engine: collect(engine, wanted)):
            first = int(np.flatnonzero(np.isin(answer.tokens, stops))[:1].sum()) + 1
            assert answer.finish == "stop", f"an answer of random tokens ended with {answer.finish}"
            assert len(answer.tokens) == first, f"its stop token is the {first}th of {len(answer.tokens)} tokens"

    def test_stop_strings_end_an_answer(self, bench: Bench, model: Reference) -> None:
        """An answer ends with the token that completes a stop string; its text goes up to there."""
        prompt, answer, at = _clear(model)
        text = model.tokenizer.decode(answer)
        stop = text[at : at + 2]
        cut = text.index(stop)
        wanted = request(prompt, temperature=0.0, max_new_tokens=30, stop=(stop,))
        (found,) = bench.run(lambda engine: collect(engine, wanted))
        assert found.finish == "stop", f"the answer {text!r} was not stopped by {stop!r}"
        assert found.tokens.tolist() == answer[: cut + 2], (
            f"stopped by {stop!r}, {text!r} has {len(found.tokens)} tokens"
        )
        assert found.text == text[:cut], f"the text is {found.text!r}, not {text[:cut]!r}"

    def test_length_ends_an_answer(self, bench: Bench) -> None:
        """An answer has `max_new_tokens` tokens at most, and never outgrows the model."""
        (short,) = bench.run(lambda engine: collect(engine, request([7], max_new_tokens=5)))
        assert (len(short.tokens), short.finish) == (5, "length"), f"{len(short.tokens)} tokens, then {short.finish}"
        full = request([7] * (LONGEST - 10), max_new_tokens=50)
        (cut,) = bench.run(lambda engine: collect(engine, full))
        assert cut.finish == "length", f"an answer at the end of the model's context has finish {cut.finish}"
        assert len(cut.tokens) in (9, 10), f"{len(cut.tokens)} tokens where 10 fit"

    def test_text_is_the_answer_decoded(self, bench: Bench, model: Reference) -> None:
        """`text` is the tokens decoded, special tokens left out."""
        for answer in bench.run(lambda engine: collect(engine, request([7], n=4, max_new_tokens=40))):
            expected = model.tokenizer.decode(answer.tokens.tolist())
            assert answer.text in (expected, ""), f"the text is {answer.text!r}, the tokens say {expected!r}"

    def test_no_answer_is_too_short(self, bench: Bench, model: Reference) -> None:
        """No end or stop token is drawn before `min_new_tokens`; log-probabilities know of it."""
        stops = tuple(range(12, model.vocabulary))
        wanted = request([7], n=6, max_new_tokens=9, min_new_tokens=6, stop_token_ids=stops, temperature=1.5)
        for answer in bench.run(lambda engine: collect(engine, wanted)):
            assert len(answer.tokens) >= 6, f"an answer has {len(answer.tokens)} tokens where 6 are the fewest"
            logits = model.logits([7], answer.tokens)
            logits[:6, list(stops)] = -np.inf
            self.close_to(logits, answer, "before min_new_tokens", temperature=1.5)


def _clear(model: Reference) -> tuple[list[int], list[int], int]:
    """A prompt, its greedy answer without special tokens, and where in it two letters stand for the first time."""
    for prompt in PROMPTS:
        answer = model.greedy(prompt, 12)
        text = model.tokenizer.decode(answer)
        found = next((i for i in range(3, len(text) - 1) if text.index(text[i : i + 2]) == i), None)
        if len(text) == len(answer) and found is not None:
            return prompt, answer, found
    raise AssertionError("no prompt of the kit has a plain answer")
