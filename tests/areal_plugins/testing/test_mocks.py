from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from areal_core.batch import BatchArrays
from areal_core.contexts import EngineContext, Place, TrainerContext, TransportContext
from areal_core.data import (
    Batch,
    GenerateRequest,
    Sample,
    Sampling,
    Task,
    TaskRef,
    Trajectory,
    TrajectoryGroup,
    WeightVersion,
)
from areal_core.errors import SpecError, TransportError
from areal_core.hookspecs import COMPONENT_HOOKS
from areal_core.manager import Manager, State
from areal_core.spec import load_experiment
from areal_core.workers.engine import EngineService
from areal_core.workers.rollout import RolloutService
from areal_core.workers.service import methods_of
from areal_core.workers.trainer import TrainerService
from areal_plugins.testing import mocks
from areal_plugins.testing.clock import run_virtually as virtually
from areal_plugins.testing.mocks import engine, model, objective, parallelism, reward, trainer, transport
from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.options import (
    EngineOptions,
    Fault,
    Latency,
    ObjectiveOptions,
    ParallelismOptions,
    RewardOptions,
    Script,
    TrainerOptions,
)
from areal_plugins.testing.mocks.transport import MockSource
from areal_plugins.testing.pipeline import SPEC, manager, run_mocked


@pytest.fixture
def folder(tmp_path) -> Path:
    model.write(tmp_path, steps=0)
    return tmp_path


def make_engine(folder, max_concurrent=4, **options):
    context = EngineContext(folder, "auto", Place(), 0, max_concurrent, True, folder)
    return engine.make(EngineOptions(**options), context)


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
    return trainer.make(TrainerOptions(), context)


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
    made.save_state(folder)()
    again.load_state(folder)
    step = batch(1, engine.spell(1), WeightVersion(0, 1))
    assert made.train(step) == again.train(step)


def make_ends(folder, options):
    contexts = [TransportContext(side, Place(), folder, True, 1) for side in ("trainer", "engine")]
    return [transport.make(options, context) for context in contexts]


def test_the_transport_fails_as_often_as_it_is_told_to(tmp_path):
    ends = make_ends(tmp_path, Script(faults=(Fault("receive", times=2),)))
    offer = ends[0].publish(WeightVersion(0, 1), iter([("steps", np.array([1]))]), lambda folder: None)
    for _ in range(2):
        with pytest.raises(TransportError):
            ends[1].receive(offer)
    assert dict(ends[1].receive(offer).tensors())["steps"].tolist() == [1]
    ends[0].close()


def test_a_version_that_was_released_is_gone(tmp_path):
    ends = make_ends(tmp_path, Script())
    offer = ends[0].publish(WeightVersion(0, 1), iter([]), lambda folder: None)
    ends[0].release(offer.version)
    with pytest.raises(TransportError, match="not there"):
        ends[1].receive(offer)
    ends[0].close()


def test_there_is_a_mock_of_every_kind():
    (record,) = Manager([]).joined_by(mocks).plugins
    assert record.state is State.READY
    assert sorted(component.kind for component in record.components) == sorted(COMPONENT_HOOKS)
    assert {component.name for component in record.components} == {"mock"}


def test_no_mock_is_installed_for_specs_that_do_not_ask_for_it():
    assert not [registered for registered in Manager.discover().components() if registered.descriptor.name == "mock"]


@pytest.mark.parametrize("section", ["platform", "weights"])
def test_what_a_spec_leaves_open_never_becomes_a_mock(section, tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    experiment = load_experiment(spec, [f"{section}=auto"], manager(), here=False)
    stage = experiment.stages[0]
    assert (stage.platform if section == "platform" else stage.transport).name != "mock"


def test_what_the_executor_can_be_told_is_a_method_of_a_service():
    methods = {name for service in (EngineService, TrainerService, RolloutService) for name in methods_of(service)}
    assert set(mocks.CALLS) == {"start", *methods} - {"generate"}


# --- latencies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latency", "times"),
    [
        (Latency("fixed", 2.0), [2.0, 2.0, 2.0]),
        (Latency("uniform", 1.0, most=3.0), [1.0, 2.0, 2.998]),
        (Latency("log-uniform", 1.0, most=100.0), [1.0, 10.0, 99.540]),
        (Latency("heavy-tail", 1.0, exponent=1.0), [1.0, 2.0, 1000.0]),
        (Latency("heavy-tail", 1.0, exponent=1.0, most=50.0), [1.0, 2.0, 50.0]),
    ],
)
def test_a_latency_has_the_quantiles_of_its_distribution(latency, times):
    assert [latency.at(point) for point in (0.0, 0.5, 0.999)] == pytest.approx(times, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("{distribution: uniform}", "needs `most`"),
        ("{distribution: log-uniform, most: 2}", "above 0"),
        ("{distribution: heavy-tail}", "above 0"),
        ("{distribution: uniform, least: 3, most: 2}", "less than `least`"),
        ("{distribution: gauss}", "must be"),
    ],
)
def test_a_latency_that_cannot_be_is_a_finding(options, problem, tmp_path):
    with pytest.raises(SpecError, match=problem) as caught:
        run_mocked(tmp_path, overrides=[f"inference.mock.latency={{generate: {options}}}"])
    assert {finding.code for finding in caught.value.findings} == {"bad-value"}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("training.mock.latency={tarin: 1}", "there is no method 'tarin'"),
        ("training.mock.faults=[{method: train, kind: hang}]", "train is no coroutine and cannot hang"),
        ("weights.mock.faults=[{method: publish, kind: twice}]", "publish cannot answer twice"),
        ("executor.mock.faults=[{method: generate}]", "there is no method 'generate'"),
    ],
)
def test_a_script_that_cannot_be_played_is_a_finding(script, problem, tmp_path):
    with pytest.raises(SpecError, match=problem):
        run_mocked(tmp_path, overrides=[script])


async def _times(conduct: Conduct, count: int, key: int | None = None) -> list[float]:
    loop, times = asyncio.get_running_loop(), []
    for _ in range(count):
        began = loop.time()
        await conduct.act("score", key)
        times.append(loop.time() - began)
    return times


def test_latencies_are_drawn_from_the_seed_alone():
    def drawn(seed, key=None):
        script = Script(latency={"score": Latency("uniform", 0.0, most=8.0)}, draws=seed)
        return virtually(_times(Conduct(script), 4, key))

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert len(set(drawn(1))) == 4
    assert len(set(drawn(1, key=5))) == 1


def test_a_plain_method_holds_up_the_virtual_clock():
    async def main():
        Conduct(Script(latency={"train": 3.0})).act_here("train")
        return asyncio.get_running_loop().time()

    assert virtually(main()) == 3.0


# --- faults ----------------------------------------------------------------------------------------


def test_the_call_that_is_named_fails_and_no_other():
    async def main():
        conduct, failed = Conduct(Script(faults=(Fault("score", call=2, times=2),))), []
        for call in range(1, 6):
            try:
                await conduct.act("score")
            except RuntimeError:
                failed.append(call)
        return failed

    assert virtually(main()) == [2, 3]


def test_a_late_answer_comes_later_by_so_much():
    script = Script(latency={"score": 1.0}, faults=(Fault("score", "late", call=2, seconds=5.0),))
    assert virtually(_times(Conduct(script), 3)) == [1.0, 6.0, 1.0]


def test_a_call_that_hangs_never_ends():
    with pytest.raises(TimeoutError, match="not done after 1000 s of virtual time"):
        virtually(_times(Conduct(Script(faults=(Fault("score", "hang"),))), 1), limit=1000)


def test_an_engine_that_answers_twice_yields_each_completion_twice(folder):
    async def main():
        return await drawn(make_engine(folder, faults=(Fault("generate", "twice"),)))

    assert [completion.index for completion in virtually(main())] == [0, 0]


def test_a_run_refuses_an_engine_that_answers_twice(tmp_path):
    result = run_mocked(tmp_path, overrides=["inference.mock.faults=[{method: generate, kind: twice, times: null}]"])
    assert result.outcome == "failed"
    assert "twice, or beyond" in str(result.error)


# --- the rest --------------------------------------------------------------------------------------


def test_the_objective_is_the_policy_gradient_with_a_baseline():
    arrays = BatchArrays(
        step=0, rewards=np.array([0.0, 1.0]), group=np.array([0, 0]), truncated=np.zeros(2, bool),
        trajectory=np.array([0, 1, 1]), mask=np.ones(3), behaviour=np.zeros(3), lag=np.zeros(3, np.int64),
    )  # fmt: skip
    targets = objective.make(ObjectiveOptions(), None).targets(arrays)
    assert targets.advantages.tolist() == [-0.5, 0.5, 0.5]
    assert targets.weights.tolist() == pytest.approx([1 / 3] * 3)


def test_a_group_of_equal_rewards_is_kept_unless_a_spread_is_asked_for():
    assert objective.make(ObjectiveOptions(), None).keep(np.ones(4))
    assert not objective.make(ObjectiveOptions(least_spread=0.5), None).keep(np.ones(4))


def test_a_parallelism_says_what_does_not_divide():
    made = parallelism.make(ParallelismOptions(), None)
    assert list(made.divides({"num_attention_heads": 6}, 4)) == ["num_attention_heads 6 does not divide by 4"]
    assert list(made.divides({"num_attention_heads": 8}, 4)) == []


def test_a_reward_takes_an_answer_of_no_mock_engine_for_wrong():
    sample = Sample(Task("p"), "p", "\N{GREEK SMALL LETTER ALPHA} 0.5 what?")
    assert virtually(reward.make(RewardOptions(), None).score(sample)).value == 0.0


def test_the_trainer_lets_the_optimizer_step_where_it_is_told_to(tmp_path):
    pytest.importorskip("torch")
    result = run_mocked(tmp_path, "training: {learning_rate: 0.25, mock: {optimizes: true}}")
    assert [line["distance"] for line in result.ensure_done().metrics] == [1.5, 1.0, 0.5]
