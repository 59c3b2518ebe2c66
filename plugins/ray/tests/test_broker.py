"""What the broker does with the keepers, which are played here."""

from __future__ import annotations

import asyncio
from typing import Any

import ray
from areal_plugin_ray import broker as brokers
from areal_plugin_ray.broker import Broker
from areal_plugin_ray.records import Home, Machine


class Method:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def remote(self, *_args: Any) -> Any:
        return self.answer


class Keeper:
    node, sees = Method("a"), Method(True)


def test_a_keeper_that_nobody_heard_of_makes_room_for_the_next(monkeypatch):
    made: list[Keeper] = []
    killed: list[Keeper] = []
    monkeypatch.setattr(brokers, "_keeper", lambda *_: made.append(Keeper()) or made[-1])
    monkeypatch.setattr(brokers, "_machines", lambda: [Machine("a", "10.0.0.1", {})])
    monkeypatch.setattr(ray, "kill", killed.append)

    async def keep() -> list[Home]:
        broker = Broker(None, True)
        broker._groups[0] = "group"
        return [await broker.keep(0, index, "/run") for index in (0, 1, 0)]

    first, other, second = asyncio.run(keep())
    assert len({first.keeper, other.keeper, second.keeper}) == 3
    assert killed == made[:1]
