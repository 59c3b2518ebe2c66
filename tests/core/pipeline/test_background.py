from __future__ import annotations

import asyncio

import pytest

from areal_core.pipeline.background import Background, Stop, Stopped
from areal_core.pipeline.condition import Condition


async def never():
    await asyncio.get_running_loop().create_future()


def test_a_race_returns_what_the_work_returns(virtually):
    async def main():
        return await Stop(Condition()).race(asyncio.sleep(1, "done"))

    assert virtually(main()) == "done"


def test_a_race_raises_what_the_work_raises(virtually):
    async def fails():
        raise KeyError("mine")

    async def main():
        await Stop(Condition()).race(fails())

    with pytest.raises(KeyError, match="mine"):
        virtually(main())


def test_a_stop_ends_what_races(virtually):
    async def main():
        stop = Stop(Condition())
        asyncio.get_running_loop().call_later(1, stop.ask, "enough")
        await stop.race(never())

    with pytest.raises(Stopped):
        virtually(main())


def test_nothing_starts_after_a_stop(virtually):
    async def main():
        stop = Stop(Condition())
        stop.ask("enough")
        await stop.race(never())

    with pytest.raises(Stopped):
        virtually(main())


def test_a_race_that_is_cancelled_is_cancelled_and_not_stopped(virtually):
    async def main():
        task = asyncio.ensure_future(Stop(Condition()).race(never()))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        virtually(main())


def test_the_first_cause_counts(virtually):
    async def main():
        stop, first = Stop(Condition()), ValueError("first")
        stop.fail(first)
        stop.fail(ValueError("second"))
        stop.ask("third")
        return stop.cause is first

    assert virtually(main())


@pytest.mark.parametrize("lasting", [True, False])
def test_a_failure_of_the_run_itself_outlives_one_of_the_training_that_is_overcome(lasting, virtually):
    """The last engine was given up in the very moment in which the trainer was lost: without it nothing goes on."""

    async def fails():
        raise ValueError("no engine is left")

    async def main():
        stop = Stop(Condition())
        stop.fail(ValueError("the trainer is lost"))
        Background(stop, lasting).spawn(fails())
        await asyncio.sleep(1)
        stop.ask("signal")
        stop.overcome()
        return stop.asked, str(stop.cause)

    assert virtually(main()) == (("failed", "no engine is left") if lasting else ("signal", "None"))


def test_a_task_in_the_background_that_raises_stops_the_run(virtually):
    async def fails():
        raise ValueError("mine")

    async def main():
        stop = Stop(Condition())
        Background(stop).spawn(fails())
        with pytest.raises(Stopped):
            await stop.race(never())
        return stop.cause

    assert str(virtually(main())) == "mine"


def test_a_task_in_the_background_that_is_cancelled_or_stopped_does_not(virtually):
    async def stopped():
        raise Stopped

    async def main():
        stop = Stop(Condition())
        background = Background(stop)
        background.spawn(stopped())
        background.spawn(never()).cancel()
        await asyncio.sleep(1)
        return stop.asked

    assert virtually(main()) is None


def test_cancelling_the_background_waits_until_everything_has_ended(virtually):
    ended = []

    async def slow():
        try:
            await never()
        finally:
            await asyncio.sleep(1)
            ended.append(True)

    async def main():
        background = Background(Stop(Condition()))
        background.spawn(slow())
        await asyncio.sleep(0)
        await background.cancel()

    virtually(main())
    assert ended == [True]
