from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from areal_core.contexts import EngineContext, Place, TrainerContext, TransportContext
from areal_core.data import Batch, GenerateRequest, Sampling, TaskRef, Trajectory, TrajectoryGroup, WeightVersion
from areal_core.errors import TransportError
from areal_core.pipeline.clock import make_loop
from areal_plugins.testing import mocks
from areal_plugins.testing.mocks import engine, model, trainer, transport
from areal_plugins.testing.mocks.transport import MockSource


def virtually(main):
    with asyncio.Runner(loop_factory=lambda: make_loop(virtual=True)) as runner:
        return runner.run(main)


@pytest.fixture
def folder(tmp_path) -> Path:
    model.write(tmp_path, steps=0)
    return tmp_path


def make_engine(folder, max_concurrent=4, **options):
    context = EngineContext(folder, "auto", Place(), 0, max_concurrent, True, folder)
    return engine.make(mocks.EngineOptions(**options), context)


async def drawn(made, n=1, seed=0, limit=1000):
    request = GenerateRequest("r", np.array([1, 2], np.int32), Sampling(max_new_tokens=limit), n, seed)
    return [completion async for completion in made.generate(request)]


def weights(steps):
    return MockSource({"steps": np.array([steps], np.int64)})


def test_tokens_spell_the_weights_and_columns_the_version(folder):
    async def main():
        made = make_engine(folder)
        await made.start(WeightVersion())
        await made.pause(keep=True)
        await made.load_weights(weights(7), WeightVersion(1, 7))
        await made.resume()
        return (await drawn(made))[0]

    completion = virtually(main())
    assert set(completion.tokens) == {engine.spell(7)}
    assert set(completion.versions) == {WeightVersion(1, 7).code}


def test_an_answer_goes_on_under_the_weights_that_came_meanwhile(folder):
    async def main():
        made = make_engine(folder, token_seconds=1.0, shortest=10, longest=10)
        await made.start(WeightVersion())
        answer = asyncio.ensure_future(drawn(made))
        await asyncio.sleep(4)
        await made.pause(keep=True)
        await made.load_weights(weights(1), WeightVersion(0, 1))
        await made.resume()
        return (await answer)[0]

    completion = virtually(main())
    assert completion.tokens.tolist() == [engine.spell(0)] * 4 + [engine.spell(1)] * 6


def test_a_pause_that_keeps_nothing_waits_until_all_is_drawn(folder):
    async def main():
        made = make_engine(folder, token_seconds=1.0, shortest=10, longest=10)
        answer = asyncio.ensure_future(drawn(made))
        await asyncio.sleep(4)
        await made.pause(keep=False)
        return answer.done(), asyncio.get_running_loop().time()

    assert virtually(main()) == (True, 10.0)


def test_only_so_many_answers_are_drawn_at_once(folder):
    async def main():
        await drawn(make_engine(folder, max_concurrent=2, token_seconds=1.0, shortest=10, longest=10), n=6)
        return asyncio.get_running_loop().time()

    assert virtually(main()) == 30.0


def test_the_seed_alone_decides_what_is_drawn(folder):
    async def main(seed, **options):
        made = make_engine(folder, longest=1000, **options)
        found = sorted(await drawn(made, n=3, seed=seed), key=lambda completion: completion.index)
        return [(len(c.tokens), c.logprobs.tolist(), c.text) for c in found]

    assert virtually(main(5)) == virtually(main(5, token_seconds=0.3))
    assert virtually(main(5)) != virtually(main(6))


def test_an_answer_beyond_the_limit_is_cut_there(folder):
    async def main():
        return (await drawn(make_engine(folder, shortest=50, longest=50), limit=8))[0]

    completion = virtually(main())
    assert (len(completion.tokens), completion.finish) == (8, "length")


def test_an_abort_hands_back_what_was_drawn(folder):
    async def main():
        made = make_engine(folder, token_seconds=1.0, shortest=10, longest=10)
        answer = asyncio.ensure_future(drawn(made))
        await asyncio.sleep(4)
        await made.abort()
        return (await answer)[0].finish

    assert virtually(main()) == "abort"


def batch(step, token, version):
    columns = {
        "tokens": np.array([1, token], np.int32),
        "mask": np.array([0, 1], np.uint8),
        "logprobs": np.zeros(2, np.float32),
        "versions": np.array([-1, version.code], np.int64),
    }
    trajectory = Trajectory(0, columns, 1, 1.0, "stop")
    return Batch(step, (TrajectoryGroup(0, TaskRef("e", "train", 0), (trajectory,)),))


def make_trainer(folder):
    context = TrainerContext(folder, "auto", Place(), 0, folder)
    return trainer.make(mocks.TrainerOptions(), context)


def test_the_trainer_counts_its_steps_in_its_weights(folder):
    made = make_trainer(folder)
    made.train(batch(0, engine.spell(0), WeightVersion(0, 0)))
    assert dict(made.weights())["steps"].tolist() == [1]


def test_the_trainer_refuses_tokens_of_other_weights_than_they_are_said_to_be_of(folder):
    with pytest.raises(ValueError, match="are not of the versions they are said to be of"):
        make_trainer(folder).train(batch(0, engine.spell(1), WeightVersion(0, 0)))


def test_the_trainer_refuses_a_batch_of_another_step(folder):
    with pytest.raises(ValueError, match="batch 3 for a trainer that has done 0 steps"):
        make_trainer(folder).train(batch(3, engine.spell(0), WeightVersion(0, 0)))


def test_a_trainer_goes_on_from_its_state(folder):
    made, again = make_trainer(folder), make_trainer(folder)
    made.train(batch(0, engine.spell(0), WeightVersion(0, 0)))
    made.save_state(folder)
    again.load_state(folder)
    step = batch(1, engine.spell(1), WeightVersion(0, 1))
    assert made.train(step) == again.train(step)


def make_ends(folder, options):
    contexts = [TransportContext(side, Place(), folder, True, 1) for side in ("trainer", "engine")]
    return [transport.make(options, context) for context in contexts]


def test_the_transport_fails_as_often_as_it_is_told_to(tmp_path):
    ends = make_ends(tmp_path, mocks.TransportOptions(fails_at=1, failures=2))
    offer = ends[0].publish(WeightVersion(0, 1), iter([("steps", np.array([1]))]), lambda folder: None)
    for _ in range(2):
        with pytest.raises(TransportError):
            ends[1].receive(offer)
    assert dict(ends[1].receive(offer).tensors())["steps"].tolist() == [1]
    ends[0].close()


def test_a_version_that_was_released_is_gone(tmp_path):
    ends = make_ends(tmp_path, mocks.TransportOptions())
    offer = ends[0].publish(WeightVersion(0, 1), iter([]), lambda folder: None)
    ends[0].release(offer.version)
    with pytest.raises(TransportError, match="not there"):
        ends[1].receive(offer)
    ends[0].close()
