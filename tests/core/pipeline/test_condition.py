from __future__ import annotations

import asyncio

import pytest

from areal_core.pipeline.condition import Condition


def test_what_many_wait_for_is_looked_at_once_however_often_something_changes():
    async def main():
        condition, looks = Condition(), []
        waiters = [
            asyncio.create_task(condition.until(lambda index=index: bool(looks.append(index)))) for index in range(5)
        ]
        await asyncio.sleep(0)
        looks.clear()
        for _ in range(10):
            condition.changed()
        for _ in range(3):
            await asyncio.sleep(0)
        for waiter in waiters:
            waiter.cancel()
        return looks

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_only_who_has_what_it_waits_for_goes_on():
    async def main():
        condition, ready, went_on = Condition(), set(), []

        async def wait(name):
            await condition.until(lambda: name in ready)
            went_on.append(name)

        tasks = [asyncio.create_task(wait(name)) for name in "abc"]
        await asyncio.sleep(0)
        ready.add("b")
        condition.changed()
        for _ in range(4):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        return went_on

    assert asyncio.run(main()) == ["b"]


def test_who_was_cancelled_is_not_looked_at_for():
    async def main():
        condition, looks = Condition(), []
        waiter = asyncio.create_task(condition.until(lambda: bool(looks.append(1))))
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.sleep(0)
        looks.clear()
        condition.changed()
        await asyncio.sleep(0)
        return looks

    assert asyncio.run(main()) == []


def test_what_a_look_raises_reaches_its_own_coroutine():
    async def main():
        condition, broken = Condition(), []

        def holds():
            if broken:
                raise LookupError("broken")
            return False

        waiter = asyncio.create_task(condition.until(holds))
        await asyncio.sleep(0)
        broken.append(True)
        condition.changed()
        await waiter

    with pytest.raises(LookupError):
        asyncio.run(main())
