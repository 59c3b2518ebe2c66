import asyncio

import numpy as np
import pytest
import torch

from areal_core.data import WeightVersion
from areal_plugins import InputError

SETTINGS = [
    {"temperature": 1.0},
    {"temperature": 0.7},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 0.9, "top_k": 5},
    {"temperature": 1.5, "top_k": 12, "top_p": 0.7},
    {"temperature": 0.0},
]


def prompts(count: int, longest: int = 12) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(2, 61, size=random.integers(1, longest)) for _ in range(count)]


def greedy_reference(model, prompt, length: int) -> list[int]:
    out = model.generate(
        torch.tensor(prompt)[None],
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=length,
        min_new_tokens=length,
        eos_token_id=None,
        pad_token_id=0,
    )
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("family", "options"), [("qwen", {}), ("llama", {"prefill_tokens": 3})])
def test_greedy_answers_are_those_of_transformers(family, options, fused, request, tools, monkeypatch):
    if not fused:
        monkeypatch.setattr("areal_plugins.builtin.engine.runner.FAMILY", ())
    model, directory = request.getfixturevalue(family)
    asked = prompts(12)

    async def main():
        async with tools.serve(directory, rows=5, **options) as engine:
            requests = [
                tools.request(p, name=str(i), temperature=0.0, max_new_tokens=3 + 2 * i) for i, p in enumerate(asked)
            ]
            return await asyncio.gather(*(tools.collect(engine, r) for r in requests))

    for i, (answer,) in enumerate(asyncio.run(main())):
        assert answer.tokens.tolist() == greedy_reference(model, asked[i], 3 + 2 * i)


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_logprobs_are_of_the_distribution_a_token_was_drawn_from(sampling, qwen, tools):
    model, directory = qwen

    async def main():
        async with tools.serve(directory) as engine:
            requests = [tools.request(p, name=str(i), seed=i, n=2, **sampling) for i, p in enumerate(prompts(4))]
            return await asyncio.gather(*(tools.collect(engine, r) for r in requests))

    for prompt, answers in zip(prompts(4), asyncio.run(main()), strict=True):
        for answer in answers:
            wanted = [
                np.log(tools.distribution(logits, **sampling)[token])
                for logits, token in zip(tools.logits(model, prompt, answer.tokens), answer.tokens, strict=True)
            ]
            assert answer.logprobs == pytest.approx(wanted, abs=1e-4)


def test_a_float64_reference_and_a_float64_engine_agree_closely(tools, tmp_path):
    model = tools.build("llama").double()
    model.save_pretrained(tmp_path)

    async def main():
        async with tools.serve(tmp_path) as engine:
            return await tools.collect(engine, tools.request([5, 6, 7], n=3))

    for answer in asyncio.run(main()):
        logits = tools.logits(model, [5, 6, 7], answer.tokens)
        wanted = [np.log(tools.distribution(row)[t]) for row, t in zip(logits, answer.tokens, strict=True)]
        assert answer.logprobs == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("sampling", [{}, {"top_p": 0.9, "top_k": 20}], ids=str)
def test_a_seed_draws_the_same_alone_and_in_a_crowd(sampling, qwen, tools):
    _, directory = qwen
    ours = tools.request([3, 4, 5], name="ours", n=3, seed=77, max_new_tokens=12, **sampling)

    async def main(crowd: int):
        async with tools.serve(directory, rows=7, prefill_tokens=4) as engine:
            others = [
                tools.collect(engine, tools.request(p, name=str(i), seed=i, max_new_tokens=1 + i % 9))
                for i, p in enumerate(prompts(crowd))
            ]
            half = len(others) // 2
            answers = await asyncio.gather(*others[:half], tools.collect(engine, ours), *others[half:])
            return answers[half]

    alone, crowded = asyncio.run(main(0)), asyncio.run(main(30))
    assert [a.tokens.tolist() for a in alone] == [a.tokens.tolist() for a in crowded]


def test_members_of_a_group_draw_differently(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            return await tools.collect(engine, tools.request([3, 4, 5], n=4))

    assert len({tuple(a.tokens) for a in asyncio.run(main())}) == 4


@pytest.mark.parametrize(("rows", "prefill_tokens"), [(8, 512), (8, 3), (8, 5), (8, 1), (2, 512), (1, 4)])
def test_the_prompt_of_a_group_is_computed_once(rows, prefill_tokens, qwen, tools):
    async def main():
        async with tools.serve(qwen[1], rows=rows, prefill_tokens=prefill_tokens) as engine:
            answers = await tools.collect(engine, tools.request(range(2, 13), n=6, max_new_tokens=5))
            return answers, engine.stats()

    answers, stats = asyncio.run(main())
    assert [a.index for a in answers] == list(range(6))
    assert 10 <= stats.prefilled_tokens <= 11  # the last token of a prompt may be computed as one that decodes
    assert stats.generated_tokens == 30


def test_a_group_with_fewer_rows_than_members_draws_the_same(qwen, tools):
    request = tools.request(range(2, 13), n=6, max_new_tokens=5, seed=3)

    async def main(rows: int):
        async with tools.serve(qwen[1], rows=rows) as engine:
            return [a.tokens.tolist() for a in await tools.collect(engine, request)]

    assert asyncio.run(main(8)) == asyncio.run(main(2)) == asyncio.run(main(1))


def test_an_answer_ends_at_eos_and_keeps_it(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            return await tools.collect(
                engine, tools.request([7], n=8, ignore_eos=False, max_new_tokens=100, temperature=2.0)
            )

    stopped = [a for a in asyncio.run(main()) if a.finish == "stop"]
    assert stopped
    assert all(a.tokens[-1] == 1 and 1 not in a.tokens[:-1] for a in stopped)


def test_an_answer_goes_through_eos_when_told_to(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            return await tools.collect(engine, tools.request([7], n=8, max_new_tokens=60, temperature=2.0))

    answers = asyncio.run(main())
    assert {(len(a.tokens), a.finish) for a in answers} == {(60, "length")}
    assert any(1 in a.tokens[:-1] for a in answers)


def test_stop_token_ids_end_an_answer(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            request = tools.request([7], n=8, max_new_tokens=60, temperature=2.0, stop_token_ids=tuple(range(10, 40)))
            return await tools.collect(engine, request)

    answers = asyncio.run(main())
    assert {a.finish for a in answers} == {"stop"}
    assert all(10 <= a.tokens[-1] < 40 for a in answers)


def test_no_answer_ends_before_its_shortest_length(qwen, tools):
    model, directory = qwen
    stops = tuple(range(20, 61))
    sampling = {"min_new_tokens": 6, "stop_token_ids": stops, "temperature": 1.5}

    async def main():
        async with tools.serve(directory) as engine:
            return await tools.collect(engine, tools.request([7], n=8, max_new_tokens=9, **sampling))

    for answer in asyncio.run(main()):
        assert len(answer.tokens) > 6
        logits = tools.logits(model, [7], answer.tokens)
        logits[:6, list(stops)] = -np.inf
        wanted = [np.log(tools.distribution(row, 1.5)[t]) for row, t in zip(logits, answer.tokens, strict=True)]
        assert answer.logprobs == pytest.approx(wanted, abs=1e-4)


def test_an_answer_has_as_many_tokens_logprobs_and_versions(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            return await tools.collect(engine, tools.request([7, 8], max_new_tokens=5))

    (answer,) = asyncio.run(main())
    columns = (answer.tokens, answer.logprobs, answer.versions)
    assert [(c.dtype, len(c)) for c in columns] == [(np.int32, 5), (np.float32, 5), (np.int64, 5)]


def test_completions_come_as_they_end(qwen, tools):
    async def main():
        async with tools.serve(qwen[1], rows=4) as engine:
            ended = []

            async def run(name: str, length: int):
                await tools.collect(engine, tools.request([7], name=name, max_new_tokens=length))
                ended.append(name)

            await asyncio.gather(run("long", 30), run("short", 3), run("middle", 10))
            return ended

    assert asyncio.run(main()) == ["short", "middle", "long"]


def test_a_call_that_takes_a_few_turns_of_the_loop_waits_for_a_step_or_two(qwen, tools):
    async def main():
        async with tools.serve(qwen[1], rows=1) as engine:
            task = asyncio.create_task(tools.collect(engine, tools.request([7], max_new_tokens=200)))
            for _ in range(100):
                await asyncio.sleep(0)
            before = engine.stats().generated_tokens
            for _ in range(8):  # as many as two calls take from their message to their answer
                await asyncio.sleep(0)
            drawn = engine.stats().generated_tokens - before
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return drawn

    assert 1 <= asyncio.run(main()) <= 3


def test_waiting_requests_are_served_in_order_of_arrival(qwen, tools):
    async def main():
        async with tools.serve(qwen[1], rows=1) as engine:
            ended = []

            async def run(name: str):
                await tools.collect(engine, tools.request([7], name=name, max_new_tokens=3))
                ended.append(name)

            await asyncio.gather(*(run(str(i)) for i in range(5)))
            return ended

    assert asyncio.run(main()) == list("01234")


def test_stats_tell_running_from_waiting(qwen, tools):
    async def main():
        async with tools.serve(qwen[1], rows=2) as engine:
            task = asyncio.create_task(tools.collect(engine, tools.request([7, 8], n=5, max_new_tokens=50)))
            for _ in range(10):
                await asyncio.sleep(0)
            during = engine.stats()
            await task
            return during, engine.stats()

    during, after = asyncio.run(main())
    assert (during.running, during.waiting) == (2, 3)
    assert (after.running, after.waiting, after.generated_tokens) == (0, 0, 250)
    assert after.busy_seconds > 0


def test_a_bounded_cache_holds_fewer_sequences_and_changes_no_answer(qwen, tools):
    requests = [tools.request(p, name=str(i), seed=i, max_new_tokens=20) for i, p in enumerate(prompts(8))]

    async def main(**options):
        async with tools.serve(qwen[1], rows=8, **options) as engine:
            tasks = [asyncio.create_task(tools.collect(engine, r)) for r in requests]
            most = 0
            while not all(task.done() for task in tasks):
                most = max(most, engine.stats().running)
                await asyncio.sleep(0)
            return most, [(await task)[0].tokens.tolist() for task in tasks]

    (free, expected), (bound, found) = asyncio.run(main()), asyncio.run(main(kv_tokens=70))
    assert (free, bound) == (8, 2)
    assert found == expected


def test_a_long_request_is_served_after_short_ones_that_end_together(qwen, tools):
    async def main():
        async with tools.serve(qwen[1], rows=4, kv_tokens=64) as engine:
            short = [tools.request([5], name=str(i), max_new_tokens=8) for i in range(4)]
            requests = [*short, tools.request([5], name="long", max_new_tokens=60)]
            return await asyncio.gather(*(tools.collect(engine, r) for r in requests))

    assert [len(answer.tokens) for (answer,) in asyncio.run(main())] == [8, 8, 8, 8, 60]


def test_an_answer_never_outgrows_the_model(qwen, tools):
    async def main():
        async with tools.serve(qwen[1], max_model_len=16) as engine:
            return await tools.collect(engine, tools.request(range(2, 12), max_new_tokens=50))

    (answer,) = asyncio.run(main())
    assert (len(answer.tokens), answer.finish) == (6, "length")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tokens": []}, "the prompt is empty"),
        ({"tokens": [2] * 128}, "the prompt of 128 tokens leaves no room in 128"),
        ({"tokens": [61]}, "outside the vocabulary of 61"),
        ({"tokens": [-1]}, "outside the vocabulary of 61"),
        ({"n": 0}, "it asks for no token"),
        ({"max_new_tokens": 0}, "it asks for no token"),
        ({"temperature": -1.0}, "no distribution"),
        ({"top_p": 0.0}, "no distribution"),
        ({"stop": ("x",)}, "stop strings need a tokenizer"),
    ],
    ids=str,
)
def test_a_request_that_cannot_be_served_is_named_with_its_problem(change, problem, qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            request = tools.request(**({"tokens": [3], "name": "odd"} | change))
            with pytest.raises(InputError, match=f"request odd: .*{problem}"):
                await tools.collect(engine, request)
            return await tools.collect(engine, tools.request([3], max_new_tokens=2))

    assert len(asyncio.run(main())) == 1


def test_two_running_requests_of_one_id_are_refused(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            first = asyncio.create_task(tools.collect(engine, tools.request([3], name="twin")))
            await asyncio.sleep(0)
            with pytest.raises(InputError, match="request twin"):
                await tools.collect(engine, tools.request([3], name="twin"))
            await first

    asyncio.run(main())


def test_the_same_order_of_requests_gives_the_same_answers(qwen, tools):
    async def main():
        async with tools.serve(qwen[1], rows=3) as engine:
            requests = [tools.request(p, name=str(i), seed=i, n=2) for i, p in enumerate(prompts(6))]
            answers = await asyncio.gather(*(tools.collect(engine, r) for r in requests))
            return [(a.tokens.tobytes(), a.logprobs.tobytes()) for group in answers for a in group]

    assert asyncio.run(main()) == asyncio.run(main())


def test_tokens_carry_the_version_the_engine_started_with(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            return await tools.collect(engine, tools.request([3]))

    assert set(asyncio.run(main())[0].versions) == {WeightVersion(0, 0).code}
