"""Weights that change while answers run."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve

from areal_core.data import Completion, WeightVersion
from areal_plugins import ComponentError, InputError, TransportError


class Source:
    """Weights as a transport gives them."""

    def __init__(self, weights: Any) -> None:
        self.mechanism = "hf-dir" if isinstance(weights, Path) else "tensors"
        self._weights = weights

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self._weights

    def path(self) -> Path:
        return self._weights


def saying(model: Any, token: int) -> list[tuple[str, torch.Tensor]]:
    """Weights under which the model says `token`, whatever it has read."""
    weights = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for name, tensor in weights.items():
        if "norm" in name or "embed" in name:
            tensor.fill_(1.0)
    weights["lm_head.weight"][token] = 10.0
    return list(weights.items())


async def generated(engine: Any, tokens: int) -> None:
    """Return once `tokens` more are drawn."""
    goal = engine.stats().generated_tokens + tokens
    for _ in range(1000):
        await asyncio.sleep(0)
        if engine.stats().generated_tokens >= goal:
            return
    raise AssertionError("the engine draws no more tokens")


async def swap(engine: Any, weights: Any, step: int, *, keep: bool = True) -> None:
    await engine.pause(keep)
    await engine.load_weights(Source(weights), WeightVersion(0, step))
    await engine.resume()


@pytest.mark.parametrize("kv_on_update", ["rebuild", "keep"])
def test_each_token_carries_the_version_that_drew_it(kv_on_update, llama, tools):
    model, directory = llama
    seen = []

    async def main():
        async with tools.serve(directory, kv_on_update=kv_on_update) as engine:
            await swap(engine, saying(model, 40), 0)
            requests = [tools.request([2, 3 + i], name=str(i), n=2, max_new_tokens=20 + i) for i in range(3)]
            tasks = [asyncio.create_task(tools.collect(engine, r)) for r in requests]
            for version in range(1, 4):
                await generated(engine, 6 * (2 + version))
                await swap(engine, saying(model, 40 + version), version)
            for task in tasks:
                seen.extend(await task)

    asyncio.run(main())
    assert len(seen) == 6
    for answer in seen:
        assert {WeightVersion.from_code(v).step for v in answer.versions} == {0, 1, 2, 3}
        assert answer.tokens.tolist() == [40 + WeightVersion.from_code(v).step for v in answer.versions]


def test_an_answer_goes_on_as_if_its_text_had_been_computed_under_the_new_weights(qwen, tools):
    _, directory = qwen
    other = tools.build("qwen2", seed=1)
    prompt = [5, 6, 7, 8, 9]

    async def main():
        async with tools.serve(directory) as engine:
            request = tools.request(prompt, n=3, max_new_tokens=12, temperature=0.0)
            task = asyncio.create_task(tools.collect(engine, request))
            await generated(engine, 3 * 4)
            await swap(engine, other.named_parameters(), 1)
            return await task

    for answer in asyncio.run(main()):
        new = answer.versions > 0
        assert 0 < new.sum() < 12
        logits = tools.logits(other, prompt, answer.tokens)
        assert answer.tokens[new].tolist() == logits[new].argmax(axis=1).tolist()
        wanted = [np.log(tools.distribution(row)[t]) for row, t in zip(logits[new], answer.tokens[new], strict=True)]
        assert answer.logprobs[new] == pytest.approx(wanted, abs=1e-4)


def test_a_rebuilt_cache_is_that_of_a_fresh_prompt(qwen, tools):
    _, directory = qwen
    other = tools.build("qwen2", seed=1)

    async def rebuilt():
        async with tools.serve(directory, prefill_tokens=4) as engine:
            task = asyncio.create_task(tools.collect(engine, tools.request([5, 6, 7], n=2, max_new_tokens=12)))
            await generated(engine, 2 * 5)
            await swap(engine, other.named_parameters(), 1)
            await generated(engine, 2)
            tables = {k: [t.clone() for t in pair] for k, pair in cache_of(engine).layers.items()}
            rows = rows_of(engine)
            lengths, tokens = rows.state["cached"][:2].copy(), rows.tokens[:2].copy()
            await task
            return tables, lengths, tokens

    async def fresh(tokens):
        async with tools.serve(directory) as engine:
            await swap(engine, other.named_parameters(), 1)
            await tools.collect(engine, tools.request(tokens, max_new_tokens=1))
            return {k: [t.clone() for t in pair] for k, pair in cache_of(engine).layers.items()}

    tables, lengths, tokens = asyncio.run(rebuilt())
    for row in range(2):
        expected = asyncio.run(fresh(tokens[row, : lengths[row]]))
        for layer, pair in tables.items():
            for found, wanted in zip(pair, expected[layer], strict=True):
                torch.testing.assert_close(found[row, :, : lengths[row]], wanted[0, :, : lengths[row]])


def test_a_kept_cache_is_not_computed_again(qwen, tools):
    model, directory = qwen

    async def main(kv_on_update: str) -> int:
        async with tools.serve(directory, kv_on_update=kv_on_update) as engine:
            task = asyncio.create_task(tools.collect(engine, tools.request([5, 6, 7], n=2, max_new_tokens=12)))
            await generated(engine, 2 * 5)
            before = engine.stats().prefilled_tokens
            await swap(engine, model.named_parameters(), 1)
            await task
            return engine.stats().prefilled_tokens - before

    assert asyncio.run(main("keep")) == 0
    assert asyncio.run(main("rebuild")) > 0


def test_the_same_weights_again_change_no_answer(qwen, tools):
    model, directory = qwen
    requests = [tools.request([5, 6, 7 + i], name=str(i), n=3, seed=i, max_new_tokens=15) for i in range(3)]

    async def main(updates: int, **options):
        async with tools.serve(directory, rows=4, **options) as engine:
            tasks = [asyncio.create_task(tools.collect(engine, r)) for r in requests]
            for step in range(updates):
                await generated(engine, 7)
                await swap(engine, model.named_parameters(), step)
            return [a.tokens.tolist() for task in tasks for a in await task]

    undisturbed = asyncio.run(main(0))
    assert asyncio.run(main(9)) == undisturbed
    assert asyncio.run(main(9, prefill_tokens=2)) == undisturbed
    assert asyncio.run(main(9, kv_on_update="keep")) == undisturbed


def test_members_admitted_after_an_update_do_not_share_the_old_prompt(qwen, tools):
    other = tools.build("qwen2", seed=1)

    async def main():
        async with tools.serve(qwen[1], rows=1, kv_on_update="keep") as engine:
            request = tools.request([5, 6, 7], n=3, max_new_tokens=6, temperature=0.0)
            task = asyncio.create_task(tools.collect(engine, request))
            await generated(engine, 4)
            await swap(engine, other.named_parameters(), 1)
            return await task

    for answer in asyncio.run(main())[1:]:
        wanted = tools.logits(other, [5, 6, 7], answer.tokens).argmax(axis=1)
        assert answer.tokens.tolist() == wanted.tolist()


def test_a_pause_without_keeping_lets_running_answers_finish_and_starts_none(qwen, tools):
    async def main():
        async with tools.serve(qwen[1], rows=2) as engine:
            task = asyncio.create_task(tools.collect(engine, tools.request([5, 6], n=5, max_new_tokens=9)))
            await generated(engine, 4)
            await swap(engine, tools.build("qwen2", seed=1).named_parameters(), 1, keep=False)
            return await task

    steps = [{WeightVersion.from_code(v).step for v in a.versions} for a in asyncio.run(main())]
    assert steps == [{0}, {0}, {1}, {1}, {1}]


def test_nothing_is_computed_while_paused(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            task = asyncio.create_task(tools.collect(engine, tools.request([5, 6], max_new_tokens=30)))
            await generated(engine, 4)
            await engine.pause(True)
            before = engine.stats()
            for _ in range(20):
                await asyncio.sleep(0)
            after = engine.stats()
            await engine.resume()
            await task
            return before, after

    before, after = asyncio.run(main())
    assert before == after


def test_an_aborted_request_ends_with_what_it_has(qwen, tools):
    async def main():
        async with tools.serve(qwen[1], rows=3) as engine:
            doomed = asyncio.create_task(tools.collect(engine, tools.request([5], name="a", n=5, max_new_tokens=90)))
            other = asyncio.create_task(tools.collect(engine, tools.request([6], name="b", max_new_tokens=9)))
            await generated(engine, 12)
            await engine.abort(["a"])
            return await doomed, await other, engine.stats()

    doomed, (other,), stats = asyncio.run(main())
    assert [a.finish for a in doomed] == ["abort"] * 5
    assert [len(a.tokens) for a in doomed] == [4, 4, 4, 0, 0]
    assert (len(other.tokens), other.finish) == (9, "length")
    assert (stats.running, stats.waiting) == (0, 0)


def test_all_requests_abort_while_paused(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            tasks = [asyncio.create_task(tools.collect(engine, tools.request([5 + i], name=str(i)))) for i in range(3)]
            await generated(engine, 3)
            await engine.pause(True)
            await engine.abort()
            return await asyncio.gather(*tasks)

    assert [a.finish for (a,) in asyncio.run(main())] == ["abort"] * 3


def test_a_caller_that_leaves_frees_its_rows(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            task = asyncio.create_task(tools.collect(engine, tools.request([5], n=4, max_new_tokens=90)))
            await generated(engine, 8)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return engine.stats()

    assert asyncio.run(main()).running == 0


def test_a_directory_replaces_the_weights(qwen, tools, tmp_path):
    other = tools.build("qwen2", seed=1)
    other.save_pretrained(tmp_path)

    async def main():
        async with tools.serve(qwen[1]) as engine:
            await swap(engine, tmp_path, 1)
            return await tools.collect(engine, tools.request([5, 6], temperature=0.0))

    (answer,) = asyncio.run(main())
    assert answer.tokens.tolist() == tools.logits(other, [5, 6], answer.tokens).argmax(axis=1).tolist()


def test_a_directory_of_another_model_changes_nothing(qwen, tools, tmp_path):
    tools.build("qwen2", seed=1, intermediate_size=40).save_pretrained(tmp_path)

    async def main():
        async with tools.serve(qwen[1]) as engine:
            before = await tools.collect(engine, tools.request([5, 6]))
            with pytest.raises(TransportError, match=r"another shape for: model\.layers\.0\.mlp"):
                await swap(engine, tmp_path, 1)
            await engine.resume()
            return before, await tools.collect(engine, tools.request([5, 6]))

    (before,), (after,) = asyncio.run(main())
    assert before.tokens.tolist() == after.tokens.tolist()
    assert set(after.versions) == {0}


def test_half_replaced_weights_serve_nobody_until_they_are_whole(qwen, tools):
    model, directory = qwen
    half = list(model.named_parameters())[:5]

    async def main():
        async with tools.serve(directory) as engine:
            running = asyncio.create_task(tools.collect(engine, tools.request([5], max_new_tokens=90)))
            await generated(engine, 3)
            with pytest.raises(TransportError, match="did not arrive"):
                await swap(engine, half, 1)
            await engine.resume()
            with pytest.raises(ComponentError, match=r"part old, part 0\.1"):
                await running
            with pytest.raises(ComponentError, match=r"part old, part 0\.1"):
                await tools.collect(engine, tools.request([5]))
            await swap(engine, model.named_parameters(), 2)
            return await tools.collect(engine, tools.request([5]))

    assert {WeightVersion.from_code(v).step for v in asyncio.run(main())[0].versions} == {2}


def test_weights_are_only_replaced_while_paused(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            with pytest.raises(ComponentError, match="not paused"):
                await engine.load_weights(Source([]), WeightVersion(0, 1))

    asyncio.run(main())


def test_a_mechanism_the_engine_does_not_take_is_named(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            source = Source([])
            source.mechanism = "process-group"
            await engine.pause(True)
            with pytest.raises(TransportError, match="not process-group"):
                await engine.load_weights(source, WeightVersion(0, 1))

    asyncio.run(main())


def test_weights_that_give_no_numbers_fail_all_callers_with_the_version(qwen, tools):
    model, directory = qwen
    broken = [(name, torch.full_like(p, torch.nan)) for name, p in model.named_parameters()]

    async def main():
        async with tools.serve(directory) as engine:
            running = [
                asyncio.create_task(tools.collect(engine, tools.request([5], name=str(i), max_new_tokens=90)))
                for i in range(2)
            ]
            await generated(engine, 4)
            await swap(engine, broken, 1)
            outcomes = await asyncio.gather(*running, return_exceptions=True)
            with pytest.raises(ComponentError, match="not finite"):
                await tools.collect(engine, tools.request([5]))
            return outcomes

    for outcome in asyncio.run(main()):
        assert isinstance(outcome, ComponentError)
        assert "under weights 0.1 the model gives logits that are not finite" in str(outcome)


def test_whatever_a_step_raises_reaches_every_caller(qwen, tools, monkeypatch):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            runner = engine._live().core.runner
            monkeypatch.setattr(runner, "logits", lambda plan: 1 / 0)
            tasks = [tools.collect(engine, tools.request([5], name=str(i))) for i in range(3)]
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            await engine.pause(False)
            return outcomes

    for outcome in asyncio.run(main()):
        assert isinstance(outcome, ComponentError)
        assert "ZeroDivisionError" in str(outcome)


def test_closing_fails_those_who_wait(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            task = asyncio.create_task(tools.collect(engine, tools.request([5], max_new_tokens=90)))
            await generated(engine, 3)
        with pytest.raises(ComponentError, match="the engine was closed"):
            await task
        with pytest.raises(ComponentError, match="not started"):
            await tools.collect(engine, tools.request([5]))

    asyncio.run(main())


def cache_of(engine: Any) -> Any:
    return engine._live().core.runner.cache


def rows_of(engine: Any) -> Any:
    return engine._live().scheduler.rows


# --- going on from what was begun elsewhere ---------------------------------------------------------


async def cut(engine: Any, request: Any, tokens: int) -> list[Any]:
    """What was drawn of `request` after `tokens` tokens, whole completions among it; the rest is given up."""
    whole: dict[int, Completion] = {}

    async def listen() -> None:
        async for completion in engine.generate(request):
            whole[completion.index] = completion

    task = asyncio.create_task(listen())
    await generated(engine, tokens)
    partial = {completion.index: completion for completion in engine.partial(request.id)}
    await asyncio.sleep(0)  # what has ended by now is on its way
    found = whole | partial
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return [found[index] for index in sorted(found)]


def columns(answers: list[Any]) -> list[Any]:
    return [(a.index, a.tokens.tolist(), a.versions.tolist(), a.finish, a.text) for a in answers]


@pytest.mark.parametrize("prompt", [[5, 6, 7, 8, 9], [5]])
@pytest.mark.parametrize("rows", [8, 2])
@pytest.mark.parametrize("tokens", [3, 25, 45])
def test_an_answer_that_goes_on_elsewhere_is_the_one_that_was_never_cut(speaker, tools, prompt, rows, tokens):
    """Some of its members may wait for a row, some be whole."""
    _, directory = speaker
    stops = {"ignore_eos": False, "stop_token_ids": (40, 41, 90, 120, 200, 201), "temperature": 1.5}
    request = tools.request(prompt, n=4, seed=5, max_new_tokens=16, **stops)

    async def main():
        async with tools.serve(directory, rows=rows, prefill_tokens=4) as engine:
            uncut = await tools.collect(engine, request)
        async with tools.serve(directory, rows=rows) as engine:
            begun = await cut(engine, request, tokens)
        async with tools.serve(directory, rows=rows, prefill_tokens=4) as engine:
            return uncut, begun, await tools.collect(engine, evolve(request, begun=tuple(begun)))

    uncut, begun, answers = asyncio.run(main())
    assert [answer.index for answer in begun] == [0, 1, 2, 3]
    assert any(0 < len(answer.tokens) < len(whole.tokens) for answer, whole in zip(begun, uncut, strict=True))
    assert columns(answers) == columns(uncut)
    for answer, whole in zip(answers, uncut, strict=True):
        assert answer.logprobs == pytest.approx(whole.logprobs, abs=1e-4)


def test_an_answer_that_goes_on_under_new_weights_keeps_what_was_drawn_by_the_old_ones(qwen, tools):
    _, directory = qwen
    other = tools.build("qwen2", seed=1)
    prompt = [5, 6, 7, 8, 9]
    request = tools.request(prompt, n=3, max_new_tokens=12, temperature=0.0)

    async def main():
        async with tools.serve(directory) as engine:
            begun = await cut(engine, request, 3 * 5)
        async with tools.serve(directory) as engine:
            await swap(engine, other.named_parameters(), 1)
            return begun, await tools.collect(engine, evolve(request, begun=tuple(begun)))

    for old, answer in zip(*asyncio.run(main()), strict=True):
        kept = len(old.tokens)
        assert answer.versions.tolist() == [0] * kept + [1] * (12 - kept)
        assert answer.tokens[:kept].tolist() == old.tokens.tolist()
        assert answer.logprobs[:kept].tolist() == old.logprobs.tolist()
        logits = tools.logits(other, prompt, answer.tokens)[kept:]
        assert answer.tokens[kept:].tolist() == logits.argmax(axis=1).tolist()
        wanted = [np.log(tools.distribution(row)[t]) for row, t in zip(logits, answer.tokens[kept:], strict=True)]
        assert answer.logprobs[kept:] == pytest.approx(wanted, abs=1e-4)


def test_a_stop_string_may_begin_in_what_was_drawn_before(speaker, tools):
    _, directory = speaker

    async def main():
        async with tools.serve(directory) as engine:
            (free,) = await tools.collect(engine, tools.request([70], seed=3, max_new_tokens=12))
            stop = engine._live().core.scheduler._text(free.tokens[4:7].tolist())
            request = tools.request([70], seed=3, max_new_tokens=12, stop=(stop,))
            (uncut,) = await tools.collect(engine, request)
            begun = evolve(free, tokens=free.tokens[:6], logprobs=free.logprobs[:6], versions=free.versions[:6])
            begun = evolve(begun, finish="abort", text="")
            return uncut, *(await tools.collect(engine, evolve(request, begun=(begun,))))

    uncut, answer = asyncio.run(main())
    assert uncut.finish == "stop"
    assert columns([answer]) == columns([uncut])


def test_what_was_begun_and_has_no_room_left_has_ended_by_its_length(speaker, tools):
    _, directory = speaker

    async def main():
        async with tools.serve(directory) as engine:
            (free,) = await tools.collect(engine, tools.request([70], max_new_tokens=12))
            request = tools.request([70], max_new_tokens=6)
            return free, *(await tools.collect(engine, evolve(request, begun=(evolve(free, finish="abort"),))))

    free, answer = asyncio.run(main())
    assert columns([answer]) == columns([evolve(free, finish="length")])


def test_an_engine_tells_what_it_has_drawn_and_goes_on_with_it(qwen, tools):
    _, directory = qwen
    request = tools.request([5, 6], n=3, seed=9, max_new_tokens=12)

    async def main():
        async with tools.serve(directory, rows=2) as engine:
            task = asyncio.create_task(tools.collect(engine, request))
            await generated(engine, 9)
            assert engine.partial("another") == []
            return engine.partial("r"), await task

    partial, answers = asyncio.run(main())
    assert [(p.index, p.finish) for p in partial] == [(0, "abort"), (1, "abort"), (2, "abort")]
    assert len(partial[0].tokens) > 0
    assert len(partial[2].tokens) == 0  # it waits for a row
    for part, answer in zip(partial, answers, strict=True):
        assert part.tokens.tolist() == answer.tokens[: len(part.tokens)].tolist()
        assert part.logprobs.tolist() == answer.logprobs[: len(part.tokens)].tolist()


def test_as_many_are_begun_as_are_asked_for(qwen, tools):
    _, directory = qwen
    begun = (Completion.empty(0, "abort"),)

    async def main():
        async with tools.serve(directory) as engine:
            await tools.collect(engine, evolve(tools.request([5], n=2), begun=begun))

    with pytest.raises(InputError, match="1 of its 2 completions are begun"):
        asyncio.run(main())
