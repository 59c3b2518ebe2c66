"""What an inference engine must keep."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from areal_core.contexts import EngineContext, Place
from areal_core.data import Completion, WeightVersion
from areal_core.errors import InputError, PromptTooLong
from areal_core.protocols import Engine
from areal_plugins.testing.conformance.base import Conformance, Subject
from areal_plugins.testing.conformance.reference import LONGEST, Reference, distribution, reference
from areal_plugins.testing.conformance.serving import (
    FIRST,
    NEXT,
    Bench,
    Weights,
    collect,
    drawn,
    request,
    swap,
    together,
    turns,
)

SAMPLINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "temperature": {"temperature": 0.7},
    "top_p": {"temperature": 1.3, "top_p": 0.8},
    "top_k": {"temperature": 0.9, "top_k": 5},
    "all": {"temperature": 1.5, "top_k": 12, "top_p": 0.7},
    "greedy": {"temperature": 0.0},
}
SENSELESS: dict[str, dict[str, Any]] = {
    "empty prompt": {"tokens": []},
    "no completion": {"n": 0},
    "no token": {"max_new_tokens": 0},
    "temperature below 0": {"temperature": -1.0},
    "unknown token": {"tokens": [1 << 20]},
}
PLACES = 4


class EngineConformance(Conformance):
    """Rules for engines of language models, against a tiny Qwen2 that plain transformers runs beside them.

    `tolerance`: largest difference of a log-probability from the float64 reference. `gap`: greedy
    decoding must take the likeliest token where its logit leads by more than this. `dtype`: what the
    engine is asked to compute in. `patience`: seconds that any one rule may take.
    """

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

    # --- what is drawn -----------------------------------------------------------------------------

    def test_each_token_has_a_logprob_and_a_version(self, bench: Bench) -> None:
        """Answers are int32 tokens with as many float32 log-probabilities and int64 versions: those served."""
        (answer,) = bench.run(lambda engine: collect(engine, request([5, 6, 7])))
        columns = (answer.tokens, answer.logprobs, answer.versions)
        found = [(column.dtype.name, column.shape) for column in columns]
        assert found == [("int32", (8,)), ("float32", (8,)), ("int64", (8,))], f"the columns of 8 tokens are {found}"
        assert set(answer.versions.tolist()) == {FIRST.code}, f"it serves {FIRST}, tokens carry {_named(answer)}"

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
        assert _tokens(alone) == _tokens(crowded), "the same request draws other tokens beside others"
        unlike = bench.run(lambda engine: collect(engine, request([3, 4, 5], n=3, seed=78, max_new_tokens=12)))
        assert _tokens(alone) != _tokens(unlike), "another seed draws the same tokens"

    def test_there_are_n_completions(self, bench: Bench) -> None:
        """`n` completions come, with the indices 0 to n-1, and each draws on its own."""
        answers = bench.run(lambda engine: collect(engine, request([3, 4, 5], n=6)))
        assert [a.index for a in answers] == list(range(6)), f"the indices are {[a.index for a in answers]}"
        assert len({tuple(tokens) for tokens in _tokens(answers)}) == 6, "members of a group draw the same tokens"

    # --- where answers end -------------------------------------------------------------------------

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

    # --- being stopped -----------------------------------------------------------------------------

    def test_abort_ends_one_request(self, bench: Bench) -> None:
        """An aborted request yields what it has, with finish `abort`; others go on."""

        async def use(engine: Engine) -> list[list[Completion]]:
            asked = [request([5], name="a", n=2, max_new_tokens=90), request([6], name="b", max_new_tokens=90)]
            both = asyncio.ensure_future(together(engine, asked))
            await drawn(engine, 9)
            await engine.abort(["a"])
            return await both

        aborted, whole = bench.run(use)
        assert [a.finish for a in aborted] == ["abort"] * 2, f"aborted answers ended with {[a.finish for a in aborted]}"
        assert 0 < sum(len(a.tokens) for a in aborted) < 180, "an aborted request lost its tokens, or ran to its end"
        assert (whole[0].finish, len(whole[0].tokens)) == ("length", 90), "a request that was not aborted was cut"

    def test_abort_ends_all(self, bench: Bench) -> None:
        """`abort(None)` ends every request, those that wait too; the engine serves on."""

        async def use(engine: Engine) -> tuple[list[list[Completion]], list[Completion]]:
            asked = [request([5], name=str(i), n=2, max_new_tokens=90) for i in range(4)]
            all_of_them = asyncio.ensure_future(together(engine, asked))
            await drawn(engine, 9)
            await engine.abort(None)
            return await all_of_them, await collect(engine, request([5], name="after"))

        aborted, after = bench.run(use)
        assert {a.finish for answers in aborted for a in answers} == {"abort"}, "abort(None) left some request"
        assert after[0].finish == "length", "after abort(None) a request is not served"

    def test_leaving_the_stream_ends_the_request(self, bench: Bench) -> None:
        """Whoever stops listening has ended the request: nothing of it runs or waits on."""

        async def use(engine: Engine) -> tuple[int, int]:
            stream = engine.generate(request([5], n=6, max_new_tokens=90))
            task = asyncio.ensure_future(anext(stream))
            await drawn(engine, 9)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await stream.aclose()  # type: ignore[attr-defined]
            await turns()
            return engine.stats().running, engine.stats().waiting

        left = bench.run(use)
        assert left == (0, 0), f"{left[0]} completions run and {left[1]} wait for nobody"

    def test_pause_holds_everything(self, bench: Bench, subject: Subject) -> None:
        """Once `pause` has returned nothing is drawn, of running requests or new ones, until `resume`."""
        keep = subject.descriptor.capabilities.interruptible

        async def use(engine: Engine) -> tuple[int, int, list[list[Completion]]]:
            running = asyncio.ensure_future(collect(engine, request([5], name="a", n=2, max_new_tokens=60)))
            await drawn(engine, 9)
            await engine.pause(keep)
            before = engine.stats().generated_tokens
            late = asyncio.ensure_future(collect(engine, request([6], name="b")))
            await turns()
            during = engine.stats().generated_tokens
            await engine.resume()
            return before, during, [await running, await late]

        before, during, answers = bench.run(use)
        assert during == before, f"{during - before} tokens were drawn during a pause"
        assert [len(a.tokens) for group in answers for a in group] == [60, 60, 8], "a pause cost tokens"

    def test_pause_without_keep_finishes_what_runs(self, bench: Bench) -> None:
        """`pause(keep=False)` returns once the running completions have ended, whole."""

        async def use(engine: Engine) -> tuple[bool, list[Completion]]:
            running = asyncio.ensure_future(collect(engine, request([5], n=2, max_new_tokens=60)))
            await drawn(engine, 9)
            await engine.pause(False)
            await turns(3)
            ended = running.done()
            await engine.resume()
            return ended, await running

        ended, answers = bench.run(use)
        assert [len(a.tokens) for a in answers] == [60, 60], "pause(keep=False) cut a running completion"
        assert ended, "pause(keep=False) returned while a completion was still running"

    # --- new weights -------------------------------------------------------------------------------

    @pytest.mark.parametrize("mechanism", ["tensors", "hf-dir"])
    def test_new_weights_answer(self, bench: Bench, subject: Subject, other: Reference, mechanism: str) -> None:
        """After `load_weights` answers are those of the new weights, and carry their version."""
        self.accepts(subject, mechanism)

        async def use(engine: Engine) -> list[Completion]:
            await collect(engine, request([5, 6, 7], name="before", n=2))  # a prompt that is cached
            await swap(engine, Weights(other, mechanism), NEXT, keep=bench.context.interruptible)
            return await collect(engine, request([5, 6, 7], name="after", n=2))

        for answer in bench.run(use):
            assert set(answer.versions.tolist()) == {NEXT.code}, f"{NEXT} is loaded, tokens carry {_named(answer)}"
            self.agrees(other, [5, 6, 7], answer)

    def test_a_running_answer_goes_on_under_new_weights(
        self, bench: Bench, subject: Subject, model: Reference, other: Reference
    ) -> None:
        """A running completion keeps its tokens over an update and goes on; each token has its own version."""
        if not subject.descriptor.capabilities.interruptible:
            pytest.skip("the engine is not interruptible")
        mechanism = self.first_accepted(subject)

        async def use(engine: Engine) -> list[Completion]:
            running = asyncio.ensure_future(collect(engine, request([5, 6], n=2, max_new_tokens=60)))
            await drawn(engine, 20)
            await swap(engine, Weights(other, mechanism), NEXT, keep=True)
            return await running

        for answer in bench.run(use):
            assert len(answer.tokens) == 60, f"an update left {len(answer.tokens)} of 60 tokens"
            assert _named(answer) == [str(FIRST), str(NEXT)], f"its tokens carry {_named(answer)}, in this order"
            old = int((answer.versions == FIRST.code).sum())
            self.close_to(model.logits([5, 6], answer.tokens)[:old], answer, "before the update")

    def test_a_waiting_request_gets_the_new_weights(self, bench: Bench, subject: Subject, other: Reference) -> None:
        """A request that arrives during the update is answered by the new weights alone."""
        source = Weights(other, self.first_accepted(subject))

        async def use(engine: Engine) -> list[Completion]:
            await engine.pause(bench.context.interruptible)
            waiting = asyncio.ensure_future(collect(engine, request([5, 6, 7], n=2)))
            await turns(3)
            await engine.load_weights(source, NEXT)
            await engine.resume()
            return await waiting

        for answer in bench.run(use):
            assert set(answer.versions.tolist()) == {NEXT.code}, f"{NEXT} is loaded, tokens carry {_named(answer)}"
            self.agrees(other, [5, 6, 7], answer)

    # --- many at once ------------------------------------------------------------------------------

    def test_requests_run_side_by_side(self, bench: Bench) -> None:
        """A short request ends before a long one that came first."""

        async def use(engine: Engine) -> list[str]:
            ended: list[str] = []

            async def ask(name: str, length: int) -> None:
                await collect(engine, request([7], name=name, max_new_tokens=length))
                ended.append(name)

            await asyncio.gather(ask("long", 90), ask("short", 3), ask("middle", 30))
            return ended

        ended = bench.run(use)
        assert ended == ["short", "middle", "long"], f"requests of 90, 3 and 30 tokens ended in the order {ended}"

    def test_more_requests_than_places_are_all_served(self, bench: Bench) -> None:
        """At most `max_concurrent` completions run; the others wait, and every one is served."""

        async def use(engine: Engine) -> tuple[int, list[list[Completion]]]:
            asked = [request(PROMPTS[i % 4], name=str(i), n=2, max_new_tokens=6) for i in range(8)]
            serving = asyncio.ensure_future(together(engine, asked))
            most = 0
            while not serving.done():
                most = max(most, engine.stats().running)
                await asyncio.sleep(0)
            return most, await serving

        most, answers = bench.run(use)
        assert most <= PLACES, f"{most} completions ran at once where {PLACES} may"
        lengths = [len(answer.tokens) for group in answers for answer in group]
        assert lengths == [6] * 16, f"16 completions of 6 tokens have lengths {lengths}"

    # --- requests that make no sense ---------------------------------------------------------------

    def test_a_prompt_that_fills_the_model_is_too_long(self, bench: Bench) -> None:
        """A prompt that leaves no room for a token is `PromptTooLong`."""

        async def use(engine: Engine) -> list[Completion]:
            return await collect(engine, request([7] * LONGEST))

        _expect(PromptTooLong, bench, use, f"a prompt of {LONGEST} tokens in a model of {LONGEST}")

    @pytest.mark.parametrize("problem", SENSELESS)
    def test_a_senseless_request_is_refused(self, bench: Bench, problem: str) -> None:
        """A request that makes no sense is an `InputError`, and the engine serves on."""
        wrong = request(**({"tokens": [3], "name": "odd"} | SENSELESS[problem]))

        async def use(engine: Engine) -> list[Completion]:
            try:
                return await collect(engine, wrong)
            finally:
                await _served(engine, problem)

        _expect(InputError, bench, use, problem)

    # --- its books ---------------------------------------------------------------------------------

    def test_stats_count(self, bench: Bench) -> None:
        """`stats` counts the tokens drawn and what runs and waits now; both are 0 when all is done."""

        async def use(engine: Engine) -> Any:
            running = asyncio.ensure_future(collect(engine, request([7, 8], n=PLACES + 2, max_new_tokens=60)))
            await drawn(engine, 2 * PLACES)
            during = engine.stats()
            await running
            await turns(3)
            return during, engine.stats()

        during, after = bench.run(use)
        assert during.running + during.waiting == PLACES + 2, f"of {PLACES + 2} completions stats knows {during}"
        assert (after.running, after.waiting) == (0, 0), f"when all is done, {after.running} run, {after.waiting} wait"
        expected = 60 * (PLACES + 2)
        assert after.generated_tokens == expected, f"stats says {after.generated_tokens} tokens, {expected} were drawn"
        assert after.busy_seconds > 0, "busy_seconds is 0 after work"

    def test_a_groups_prompt_is_computed_once(self, bench: Bench, subject: Subject) -> None:
        """An engine that `shares_prefix` computes the prompt of a group once."""
        if not subject.descriptor.capabilities.shares_prefix:
            pytest.skip("the engine does not share prefixes")

        async def use(engine: Engine) -> int:
            await collect(engine, request([7] * 40, n=3))
            return engine.stats().prefilled_tokens

        found = bench.run(use)
        assert found <= 60, f"{found} tokens were prefilled for three answers to a prompt of 40"

    def test_close_leaves_nothing(self, bench: Bench) -> None:
        """After `close` no task and no thread of the engine is left, though a request was running."""

        async def use() -> tuple[set[str], bool]:
            engine: Engine = bench.subject.build(bench.context)
            await engine.start(FIRST)
            running = asyncio.ensure_future(collect(engine, request([5], max_new_tokens=90)))
            await drawn(engine, 5)
            await engine.close()
            ended, _ = await asyncio.wait({running}, timeout=self.patience)
            others = asyncio.all_tasks() - {asyncio.current_task(), running}
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return {task.get_name() for task in others}, bool(ended)

        before = set(threading.enumerate())
        tasks, ended = asyncio.run(use())
        threads = {thread.name for thread in set(threading.enumerate()) - before if not thread.daemon}
        assert ended, "close left a request waiting for ever"
        assert not tasks, f"close left the tasks {', '.join(sorted(tasks))}"
        assert not threads, f"close left the threads {', '.join(sorted(threads))}"

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


PROMPTS = [[5, 6, 7], [9], [4, 8, 15, 16, 23, 3], [2, 2, 2, 12]]


def _possible(logits: np.ndarray, token: int, top_p: float = 1.0, **sampling: Any) -> list[float]:
    """Log-probabilities of the token; three where rounding may decide what the nucleus takes in."""
    nuclei = [top_p] if top_p == 1 else [top_p - 1e-5, top_p, top_p + 1e-5]
    with np.errstate(divide="ignore"):
        return [float(np.log(distribution(logits, top_p=nucleus, **sampling)[token])) for nucleus in nuclei]


def _tokens(answers: list[Completion]) -> list[list[int]]:
    return [answer.tokens.tolist() for answer in answers]


def _named(answer: Completion) -> list[str]:
    """Its versions, each once, in the order in which they come."""
    return [str(WeightVersion.from_code(code)) for code in dict.fromkeys(answer.versions.tolist())]


def _clear(model: Reference) -> tuple[list[int], list[int], int]:
    """A prompt, its greedy answer without special tokens, and where in it two letters stand for the first time."""
    for prompt in PROMPTS:
        answer = model.greedy(prompt, 12)
        text = model.tokenizer.decode(answer)
        found = next((i for i in range(3, len(text) - 1) if text.index(text[i : i + 2]) == i), None)
        if len(text) == len(answer) and found is not None:
            return prompt, answer, found
    raise AssertionError("no prompt of the kit has a plain answer")


async def _served(engine: Engine, problem: str) -> None:
    answers = await collect(engine, request([3], name="after", max_new_tokens=2))
    assert len(answers) == 1, f"after a refused request ({problem}) another is not served"


def _expect(kind: type[InputError], bench: Bench, use: Any, what: str) -> None:
    try:
        answers = bench.run(use)
    except kind:
        return
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__} instead of {kind.__name__}: {error}") from error
    raise AssertionError(f"{what}: {len(answers)} completions instead of {kind.__name__}")
