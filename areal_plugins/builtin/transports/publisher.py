"""The trainer's end of shared memory: which version is in which segment."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from areal_core.contexts import TransportContext
from areal_core.data import TensorInfo, WeightVersion
from areal_plugins import TransportError
from areal_plugins.builtin.ownership import OwnedDirectory, run_key, sweep
from areal_plugins.builtin.transports.segment import Segment
from areal_plugins.builtin.transports.tensor import describe

PREFIX = "areal-weights-"
"""How the directories of all trainers on this host are called; then come the run, the process, and chance."""


class Publisher:
    """Writes each version into a segment that holds no unreleased one; in a steady run there are two.

    It begins by removing what trainers that were killed have left on this host.
    """

    def __init__(self, root: Path, context: TransportContext) -> None:
        sweep(root, PREFIX)
        self._directory = OwnedDirectory(root, f"{PREFIX}{run_key(context.work)}-{os.getpid()}-")
        self._context = context
        self._free: list[Segment] = []
        self._held: dict[WeightVersion, Segment] = {}
        self._made = 0

    def publish(
        self, version: WeightVersion, weights: Iterator[tuple[str, torch.Tensor]]
    ) -> tuple[tuple[TensorInfo, ...], dict[str, Any]]:
        """Copy `weights`; the tensors in order, and the offer's payload."""
        self.release(version)
        with self._space_for(version):
            segment = self._free.pop() if self._free else self._make()
            try:
                tensors, payload = self._fill(segment, weights)
            except BaseException:
                segment.remove()
                raise
        self._held[version] = segment
        return tensors, payload

    def release(self, version: WeightVersion) -> None:
        """The segment may be written again."""
        if version in self._held:
            self._free.append(self._held.pop(version))

    def close(self) -> None:
        """Remove every segment."""
        for segment in (*self._free, *self._held.values()):
            segment.remove()
        self._free.clear()
        self._held.clear()
        self._directory.remove()

    def _fill(
        self, segment: Segment, weights: Iterator[tuple[str, torch.Tensor]]
    ) -> tuple[tuple[TensorInfo, ...], dict[str, Any]]:
        tensors, offsets, checksums = [], [], []
        segment.begin()
        for name, tensor in weights:
            info = describe(name, tensor)
            offset = segment.append(info, tensor)
            tensors.append(info)
            offsets.append(offset)
            if self._context.verify:
                checksums.append(segment.checksum(info, offset))
        stamp = secrets.randbits(63) | 1
        segment.finish(stamp)
        place = {"segment": str(segment.path), "size": segment.end, "stamp": stamp}
        return tuple(tensors), {**place, "offsets": offsets, "checksums": checksums}

    def _make(self) -> Segment:
        self._made += 1
        return Segment(self._directory.path / str(self._made), self._context.bucket_bytes)

    @contextmanager
    def _space_for(self, version: WeightVersion) -> Iterator[None]:
        """A full file system becomes an error that says what to do."""
        root = self._directory.path.parent
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            usage = shutil.disk_usage(root)
            problem = (
                f"version {version} does not fit into {root}: {usage.free >> 20} of {usage.total >> 20} MiB are free; "
                "enlarge it (docker run --shm-size=...) or use the transport disk"
            )
            raise TransportError("shm", problem) from error
