from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from areal_core.contexts import Place, TransportContext
from areal_plugins.builtin.transports import DESCRIPTORS, DiskOptions, ShmOptions
from areal_plugins.builtin.transports.disk import DiskTransport
from areal_plugins.builtin.transports.memory import MemoryTransport
from areal_plugins.builtin.transports.shm import ShmTransport

Make = Callable[..., Any]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """`make(name, side, ...)`: one end of a transport, closed at the end. Shared memory is a plain directory here."""
    made: list[Any] = []
    (tmp_path / "shm").mkdir()

    def make(
        name: str, side: str, *, mechanism: str = "", verify: bool = True, rank: int = 0, bucket: int = 1 << 20
    ) -> Any:
        place = Place(rank=rank, size=rank + 1)
        context = TransportContext(side, place, tmp_path / "weights", verify, bucket, mechanism)
        options = {"shm": ShmOptions(str(tmp_path / "shm")), "disk": DiskOptions(), "memory": None}[name]
        kinds = {"shm": ShmTransport, "disk": DiskTransport, "memory": MemoryTransport}
        made.append(kinds[name](options, context))
        return made[-1]

    yield make
    for transport in reversed(made):
        transport.close()


@pytest.fixture(params=[descriptor.name for descriptor in DESCRIPTORS])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)
