"""Whose room is given back; the worker and the stay are played here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from areal_plugin_ray import RayOptions
from areal_plugin_ray.executor import make

from areal_plugins.protocols import ExecutorContext


@pytest.mark.parametrize(("ended", "vacated"), [("stopped", ["engine-1"]), ("killed by SIGKILL", [])])
def test_only_a_worker_that_is_stopped_gives_its_room_back(ended, vacated):
    given: list[str] = []

    async def lost() -> str:
        return ended

    async def vacate(name: str) -> None:
        given.append(name)

    async def main() -> None:
        swept = asyncio.get_running_loop().create_future()
        swept.set_result(None)
        worker, body = SimpleNamespace(name="engine-1", lost=lost), SimpleNamespace(swept=swept)
        executor = make(RayOptions(), ExecutorContext("run", Path("/shared/run/logs")))
        await executor._farewell(worker, body, SimpleNamespace(vacate=vacate))

    asyncio.run(main())
    assert given == vacated
