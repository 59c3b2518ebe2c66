import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from areal_core.contexts import ModuleRef, ObjectiveContext, Place
from areal_core.data import Batch, WeightVersion
from areal_core.errors import ComponentError
from areal_core.local import load_file
from areal_core.workers.plans import ModelPlan, StageOrder, TrainerPlan, TransportPlan
from areal_core.workers.trainer import TrainerService

TOYS = Path(__file__).with_name("toys.py")
toys = load_file(TOYS)


def part(kind: str, attr: str, fail: str = "") -> ModuleRef:
    name = toys.__name__
    return ModuleRef(kind, "toy", f"{name}:{attr}", f"{name}:Options", {"fail": fail}, (str(TOYS),))


def plan(fail: str = "", transport_fails: str = "") -> TrainerPlan:
    transport = TransportPlan(part("transport", "Transport", transport_fails), "/work")
    return TrainerPlan(part("trainer", "Trainer", fail), transport, "/model", "float32", Place(), 0, "/work")


def order() -> StageOrder:
    return StageOrder(
        name="rl",
        objective=part("objective", "make_pair"),
        objective_context=ObjectiveContext(temperature=1.0, max_new_tokens=8, batch_size=4, group_size=2),
        optimizer=part("optimizer", "make_pair", "later"),
        learning_rate=1e-3,
        schedule="constant",
        warmup_steps=0,
        total_steps=10,
        min_ratio=0.0,
        grad_clip=None,
        lag_decay=0.0,
        batch_size=4,
        updates=1,
    )


SOUND = plan()


def serving(test: Callable[[TrainerService, Any, Any], Any], plan: TrainerPlan = SOUND, threaded: bool = False) -> None:
    """Run `test(service, trainer, transport)`."""

    async def run() -> None:
        service = TrainerService(threaded=threaded)
        await service.setup(plan)
        live = service._live
        assert live is not None
        try:
            await test(service, live.trainer, live.transport)
        finally:
            await service.close()

    asyncio.run(run())


def test_a_model_is_materialized_before_there_is_a_trainer() -> None:
    async def test() -> None:
        service = TrainerService(threaded=False)
        directory = await service.materialize(ModelPlan(part("model", "Model"), "/cache", "/work", 0))
        assert directory == str(Path("/cache/model"))

    asyncio.run(test())


def test_a_stage_brings_a_live_objective_and_optimizer() -> None:
    async def test(service: TrainerService, trainer: Any, _transport: Any) -> None:
        await service.begin_stage(order())
        objective = (toys.Options(""), order().objective_context)
        optimizer = (toys.Options("later"), "context")
        assert trainer.calls[-1] == f"begin rl {objective} {optimizer}"

    serving(test)


def test_a_step_gives_plain_figures() -> None:
    async def test(service: TrainerService, _trainer: Any, _transport: Any) -> None:
        result = await service.train(Batch(3, ()))
        assert result.metrics == {"loss": 0.5, "tokens": 3.0}
        assert {type(value) for value in result.metrics.values()} == {float}
        assert result.seconds >= 0

    serving(test)


def test_what_is_published_are_the_weights_as_they_are_now() -> None:
    async def test(service: TrainerService, trainer: Any, _transport: Any) -> None:
        await service.train(Batch(0, ()))
        offer = await service.publish(WeightVersion(0, 1))
        assert (offer.version, offer.payload) == (WeightVersion(0, 1), {"w": 1.0})
        assert trainer.calls[-1] == "save_model model"

    serving(test)


def test_a_released_version_is_freed_by_the_transport() -> None:
    async def test(service: TrainerService, _trainer: Any, transport: Any) -> None:
        await service.release(WeightVersion(0, 1))
        assert transport.calls[-1] == "release 0.1"

    serving(test)


@pytest.mark.parametrize("operation", ["save_model", "save_state", "load_state"])
def test_directories_reach_the_trainer_as_paths(operation: str) -> None:
    async def test(service: TrainerService, trainer: Any, _transport: Any) -> None:
        await getattr(service, operation)("/run/checkpoints")
        assert trainer.calls[-1] == f"{operation} {Path('/run/checkpoints')}"

    serving(test)


@pytest.mark.parametrize("threaded", [True, False])
def test_trainer_and_transport_share_one_thread_which_is_the_loops_only_inline(threaded: bool) -> None:
    async def test(service: TrainerService, trainer: Any, transport: Any) -> None:
        await service.begin_stage(order())
        await service.train(Batch(0, ()))
        await service.publish(WeightVersion(0, 1))
        assert len(trainer.threads | transport.threads) == 1
        assert (trainer.threads != {threading.get_ident()}) is threaded

    serving(test, threaded=threaded)


def test_the_loop_answers_while_a_step_computes() -> None:
    async def test(service: TrainerService, trainer: Any, _transport: Any) -> None:
        go_on = threading.Event()
        trainer.train = lambda _batch: {"waited": go_on.wait(30)}
        step = asyncio.create_task(service.train(Batch(0, ())))
        await asyncio.sleep(0)
        go_on.set()  # a loop that waited for the step would never come here
        assert (await step).metrics == {"waited": 1.0}

    serving(test, threaded=True)


@pytest.mark.parametrize(
    ("fail", "call", "blamed"),
    [
        ("train", lambda service: service.train(Batch(7, ())), "trainer/toy: train step 7: ZeroDivisionError"),
        ("begin", lambda service: service.begin_stage(order()), "trainer/toy: begin stage rl: ZeroDivisionError"),
        ("save_state", lambda service: service.save_state("/x"), "trainer/toy: save_state /x: ZeroDivisionError"),
    ],
)
def test_a_trainer_that_raises_is_blamed_by_name(fail: str, call: Any, blamed: str) -> None:
    async def test(service: TrainerService, _trainer: Any, _transport: Any) -> None:
        with pytest.raises(ComponentError, match=blamed):
            await call(service)

    serving(test, plan(fail))


def test_a_transport_that_raises_is_blamed_by_name() -> None:
    async def test(service: TrainerService, _trainer: Any, _transport: Any) -> None:
        with pytest.raises(ComponentError, match=r"transport/toy: publish 0\.1: ZeroDivisionError"):
            await service.publish(WeightVersion(0, 1))

    serving(test, plan(transport_fails="publish"))


def test_a_trainer_that_was_not_set_up_says_so() -> None:
    async def test() -> None:
        with pytest.raises(ComponentError, match="the worker was not set up"):
            await TrainerService().train(Batch(0, ()))

    asyncio.run(test())


def test_a_trainer_that_cannot_be_built_frees_the_transport_in_the_end() -> None:
    async def test() -> None:
        service = TrainerService(threaded=False)
        with pytest.raises(ComponentError, match="trainer/toy: build"):
            await service.setup(plan("build"))
        await service.close()

    asyncio.run(test())
