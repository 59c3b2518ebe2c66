"""The other processes of the tests of shared memory; imported there by name, so a module of its own."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from areal_core.contexts import Place, TransportContext
from areal_core.data import WeightVersion
from areal_plugins.builtin.transports import ShmOptions
from areal_plugins.builtin.transports.shm import ShmTransport


def _transport(work: Path, side: str) -> ShmTransport:
    context = TransportContext(side, Place(), work / "weights", verify=True, bucket_bytes=1 << 20)
    return ShmTransport(ShmOptions(str(work / "shm")), context)


def _save(directory: Path) -> None:
    raise AssertionError(f"shared memory asked for a directory ({directory})")


def engine(work: Path, link: Connection) -> None:
    """Answers each offer with the sum of every tensor, until None comes."""
    transport = _transport(work, "engine")
    while (offer := link.recv()) is not None:
        link.send({name: float(tensor.sum()) for name, tensor in transport.receive(offer).tensors()})
    transport.close()


def doomed(work: Path, link: Connection) -> None:
    """Publishes a version, says where, and is killed in the middle of the next one."""
    transport = _transport(work, "trainer")
    link.send(transport.publish(WeightVersion(0, 1), iter([("weight", torch.ones(100_000))]), _save))

    def weights() -> Any:
        yield "weight", torch.ones(100_000)
        os.kill(os.getpid(), signal.SIGKILL)

    transport.publish(WeightVersion(0, 2), weights(), _save)
