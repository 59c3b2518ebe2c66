import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from areal_core.contexts import ModuleRef, Place
from areal_core.data import Completion, GenerateRequest, Sampling, WeightOffer, WeightVersion
from areal_core.errors import ComponentError, InputError, TransportError
from areal_core.local import load_file
from areal_core.workers.engine import EngineService
from areal_core.workers.plans import EnginePlan, TransportPlan

TOYS = Path(__file__).with_name("toys.py")
toys = load_file(TOYS)
V1, V2 = WeightVersion(0, 1), WeightVersion(0, 2)


def part(kind: str, attr: str, fail: str) -> ModuleRef:
    name = toys.__name__
    return ModuleRef(kind, "toy", f"{name}:{attr}", f"{name}:Options", {"fail": fail}, (str(TOYS),))


def plan(fail: str = "", transport_fails: str = "") -> EnginePlan:
    transport = TransportPlan(part("transport", "Transport", transport_fails), "/work")
    engine = part("engine", "Engine", fail)
    return EnginePlan(engine, transport, "/model", "float32", Place(), 0, 4, True, "/work", WeightVersion(0, 0))


def offer(version: WeightVersion, **payload: Any) -> WeightOffer:
    return WeightOffer(version, "toy", "tensors", (), payload)


def request(name: str = "r", n: int = 1) -> GenerateRequest:
    return GenerateRequest(name, np.arange(3, dtype=np.int32), Sampling(), n)


async def drawn(service: EngineService, n: int = 1) -> list[Completion]:
    return [completion async for completion in service.generate(request(n=n))]


SOUND = plan()


def serving(test: Callable[[EngineService, Any, Any], Any], plan: EnginePlan = SOUND, threaded: bool = False) -> None:
    """Run `test(service, engine, transport)`."""

    async def run() -> None:
        service = EngineService(threaded=threaded)
        await service.setup(plan)
        live = service._live
        assert live is not None
        try:
            await test(service, live.engine, live.transport)
        finally:
            await service.close()

    asyncio.run(run())


def test_a_fresh_engine_serves_the_version_it_was_given() -> None:
    async def test(service: EngineService, engine: Any, _transport: Any) -> None:
        assert engine.calls == ["build", "start 0.0"]
        assert await service.version() == WeightVersion(0, 0)

    serving(test)


def test_completions_are_passed_on_as_they_end() -> None:
    async def test(service: EngineService, _engine: Any, _transport: Any) -> None:
        assert [completion.index for completion in await drawn(service, 3)] == [0, 1, 2]

    serving(test)


def test_preparing_a_version_does_not_touch_the_engine() -> None:
    async def test(service: EngineService, engine: Any, transport: Any) -> None:
        before = list(engine.calls)
        await service.prepare(offer(V1, w=1.0))
        assert engine.calls == before
        assert transport.calls == ["build", "receive 0.1"]

    serving(test)


def test_a_commit_swaps_weights_while_paused_then_frees_them() -> None:
    async def test(service: EngineService, engine: Any, transport: Any) -> None:
        await service.prepare(offer(V1, w=1.0))
        await service.commit(V1)
        assert engine.calls[2:] == ["pause True", "load {'w': 1.0}", "resume"]
        assert transport.calls[-1] == "release 0.1"
        assert await service.version() == V1

    serving(test)


def test_tokens_carry_the_version_that_drew_them() -> None:
    async def test(service: EngineService, _engine: Any, _transport: Any) -> None:
        before = await drawn(service)
        await service.prepare(offer(V1))
        await service.commit(V1)
        after = await drawn(service)
        assert [int(c.versions[0]) for c in before + after] == [WeightVersion(0, 0).code, V1.code]

    serving(test)


def test_a_version_that_was_not_prepared_cannot_be_committed() -> None:
    async def test(service: EngineService, engine: Any, _transport: Any) -> None:
        with pytest.raises(ComponentError, match=r"engine/toy: commit 0\.1: this version was not prepared"):
            await service.commit(V1)
        assert "pause True" not in engine.calls

    serving(test)


def test_a_discarded_version_is_freed_and_forgotten() -> None:
    async def test(service: EngineService, _engine: Any, transport: Any) -> None:
        await service.prepare(offer(V1))
        await service.discard(V1)
        assert transport.calls[-1] == "release 0.1"
        with pytest.raises(ComponentError, match="not prepared"):
            await service.commit(V1)

    serving(test)


def test_what_was_fetched_in_part_is_freed_too() -> None:
    async def test(service: EngineService, _engine: Any, transport: Any) -> None:
        with pytest.raises(TransportError):
            await service.prepare(offer(V1, damaged=1))
        await service.discard(V1)
        assert transport.calls[-1] == "release 0.1"

    serving(test)


def test_what_is_discarded_while_it_is_fetched_is_freed_after_that() -> None:
    async def test(service: EngineService, _engine: Any, transport: Any) -> None:
        began, go_on = asyncio.Event(), threading.Event()
        loop, receive = asyncio.get_running_loop(), transport.receive

        def slow(offer: WeightOffer) -> Any:
            loop.call_soon_threadsafe(began.set)
            go_on.wait()
            return receive(offer)

        transport.receive = slow
        prepare = asyncio.create_task(service.prepare(offer(V1)))
        await began.wait()
        prepare.cancel()
        discard = asyncio.create_task(service.discard(V1))
        await asyncio.sleep(0)
        go_on.set()
        await discard
        assert transport.calls[-2:] == ["receive 0.1", "release 0.1"]

    serving(test, threaded=True)


def test_a_failed_load_resumes_and_refuses_until_a_later_one_succeeds() -> None:
    async def test(service: EngineService, engine: Any, _transport: Any) -> None:
        await service.prepare(offer(V1, bad=1.0))
        with pytest.raises(ComponentError, match=r"engine/toy: commit 0\.1: ZeroDivisionError"):
            await service.commit(V1)
        assert engine.calls[-3:] == ["load {'bad': 1.0}", "abort None", "resume"]
        with pytest.raises(ComponentError, match=r"engine/toy: generate: its weights are unknown since loading 0\.1"):
            await drawn(service)
        with pytest.raises(ComponentError, match="weights are unknown"):
            await service.version()
        await service.prepare(offer(V2, w=2.0))
        await service.commit(V2)
        assert (await drawn(service))[0].versions[0] == V2.code

    serving(test, plan("load {'bad'"))


def test_a_completion_that_ran_into_a_failed_load_is_an_error_not_an_answer() -> None:
    async def test(service: EngineService, _engine: Any, _transport: Any) -> None:
        completions = service.generate(request("endless"))
        await anext(completions)
        await service.prepare(offer(V1))
        with pytest.raises(ComponentError):
            await service.commit(V1)
        with pytest.raises(ComponentError, match="weights are unknown"):
            await anext(completions)

    serving(test, plan("load"))


def test_generation_goes_on_after_a_pause_that_failed() -> None:
    async def test(service: EngineService, engine: Any, _transport: Any) -> None:
        await service.prepare(offer(V1))
        with pytest.raises(ComponentError, match="pause True failed"):
            await service.commit(V1)
        assert engine.calls[-1] == "resume"
        assert (await drawn(service))[0].versions[0] == WeightVersion(0, 0).code

    serving(test, plan("pause"))


def test_damaged_weights_change_nothing() -> None:
    async def test(service: EngineService, engine: Any, _transport: Any) -> None:
        before = list(engine.calls)
        with pytest.raises(TransportError, match="transport toy: checksum of w"):
            await service.prepare(offer(V1, damaged=1))
        assert engine.calls == before
        assert await service.version() == WeightVersion(0, 0)

    serving(test)


def test_an_engine_that_raises_is_blamed_with_the_request() -> None:
    async def test(service: EngineService, _engine: Any, _transport: Any) -> None:
        with pytest.raises(ComponentError, match="engine/toy: generate r: ZeroDivisionError"):
            await drawn(service)

    serving(test, plan("generate"))


def test_an_engine_that_raised_is_unsound() -> None:
    async def test(service: EngineService, engine: Any, _transport: Any) -> None:
        with pytest.raises(ComponentError):
            await drawn(service)
        asked = len(engine.calls)
        failure = r"it failed before: engine/toy: generate r: ZeroDivisionError"
        with pytest.raises(ComponentError, match=f"engine/toy: generate: {failure}"):
            await drawn(service)
        with pytest.raises(ComponentError, match=f"engine/toy: version: {failure}"):
            await service.version()
        assert len(engine.calls) == asked

    serving(test, plan("generate"))


def test_a_request_that_is_wrong_leaves_the_engine_sound() -> None:
    async def test(service: EngineService, _engine: Any, _transport: Any) -> None:
        with pytest.raises(InputError, match="request long: "):
            await anext(service.generate(request("long")))
        assert await service.version() == WeightVersion(0, 0)
        assert len(await drawn(service)) == 1

    serving(test)


def test_leaving_a_stream_early_ends_it_in_the_engine() -> None:
    async def test(service: EngineService, engine: Any, _transport: Any) -> None:
        completions = service.generate(request("endless"))
        await anext(completions)
        await completions.aclose()  # type: ignore[attr-defined]
        assert engine.calls[-1] == "generated"

    serving(test)


@pytest.mark.parametrize("threaded", [True, False])
def test_the_transport_has_a_thread_of_its_own_only_in_a_process(threaded: bool) -> None:
    async def test(service: EngineService, _engine: Any, transport: Any) -> None:
        await service.prepare(offer(V1))
        await service.commit(V1)
        assert len(transport.threads) == 1
        assert (transport.threads != {threading.get_ident()}) is threaded

    serving(test, threaded=threaded)


def test_an_engine_is_built_off_the_loop_only_in_a_process() -> None:
    for threaded in (True, False):

        async def test(_service: EngineService, engine: Any, transport: Any) -> None:
            assert (engine.built_in != threading.get_ident()) is threaded  # noqa: B023 - it runs at once
            assert (engine.built_in in transport.threads) is True

        serving(test, threaded=threaded)


def test_closing_frees_the_engine_and_then_the_transport_even_if_one_fails() -> None:
    async def test() -> None:
        service = EngineService(threaded=False)
        await service.setup(plan("close"))
        live = service._live
        assert live is not None
        with pytest.raises(ZeroDivisionError):
            await service.close()
        assert live.transport.calls[-1] == "close"  # type: ignore[attr-defined]

    asyncio.run(test())


@pytest.mark.parametrize("method", ["stats", "version"])
def test_an_engine_that_was_not_set_up_says_so(method: str) -> None:
    async def test() -> None:
        with pytest.raises(ComponentError, match="the worker was not set up"):
            await getattr(EngineService(), method)()

    asyncio.run(test())


def test_an_engine_is_set_up_once() -> None:
    async def test(service: EngineService, _engine: Any, _transport: Any) -> None:
        with pytest.raises(ComponentError, match="set up already"):
            await service.setup(plan())

    serving(test)


def test_the_engines_counters_are_passed_on() -> None:
    async def test(service: EngineService, _engine: Any, _transport: Any) -> None:
        assert (await service.stats()).generated_tokens == 5

    serving(test)


SO_FAR = Completion.empty(0, "abort")


@pytest.mark.parametrize(("interruptible", "told"), [(True, [SO_FAR]), (False, [])])
def test_an_engine_that_keeps_answers_over_an_update_tells_what_it_has_drawn_so_far(
    interruptible: bool, told: list[Completion]
) -> None:
    async def test(service: EngineService, engine: Any, _transport: Any) -> None:
        assert await service.partial("r") == []  # it cannot tell
        engine.partial = lambda request: (SO_FAR,) if request == "r" else ()
        assert await service.partial("r") == told

    serving(test, evolve(plan(), interruptible=interruptible))


def test_what_was_drawn_by_unknown_weights_is_not_told() -> None:
    async def test(service: EngineService, engine: Any, _transport: Any) -> None:
        engine.partial = lambda request: (SO_FAR,)
        await service.prepare(offer(V1, bad=1.0))
        with pytest.raises(ComponentError):
            await service.commit(V1)
        assert await service.partial("r") == []

    serving(test, plan("load {'bad'"))
