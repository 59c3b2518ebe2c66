"""Files in shared memory: written by one process, read by others without a copy."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attrs import frozen

from areal_core.data import TensorInfo
from areal_plugins.builtin.transports.checksum import checksum
from areal_plugins.builtin.transports.tensor import nbytes, view

ALIGNMENT = 64
"""Tensors start at multiples of a cache line, which is a multiple of every element size."""

_HEADER = struct.Struct("<8sQ")  # magic, stamp of what is written (0 while writing)
_MAGIC = b"arealw\x00\x01"


@frozen(eq=False)
class _Place:
    """Where a tensor stands in a mapped segment: as a tensor and as bytes."""

    info: TensorInfo
    tensor: torch.Tensor
    data: np.ndarray[Any, np.dtype[np.uint8]]


class Segment:
    """The writer's end. It grows at first, by at most `step` bytes more than is needed, and is then
    written again and again without allocating anything.

    Raises:
        OSError: shared memory is full; so does `append`.

    """

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        self.end = ALIGNMENT
        self._step = step
        self._published = False
        self._places: dict[int, _Place] = {}
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(self._file, 0, ALIGNMENT)
        except BaseException:
            self.remove()
            raise
        self._mapped = mmap.mmap(self._file, ALIGNMENT)
        self._memory = torch.frombuffer(self._mapped, dtype=torch.uint8)

    def begin(self) -> None:
        """Start over: until `finish`, readers see that nothing is whole."""
        self.end = ALIGNMENT
        self._stamp(0)

    def append(self, info: TensorInfo, tensor: torch.Tensor) -> int:
        """Copy `tensor` (of any device and strides) behind what is there; its offset."""
        offset = self.end
        self.end = _aligned(offset + nbytes(info))
        self._reserve(self.end)
        self._place(info, offset).tensor.copy_(tensor.detach())
        return offset

    def checksum(self, info: TensorInfo, offset: int) -> int:
        """Of the bytes that `append` wrote."""
        return checksum(self._place(info, offset).data)

    def finish(self, stamp: int) -> None:
        """All is written; `stamp` (not 0) tells it from what this segment held before."""
        if not self._published:  # nobody reads it yet: what was taken in advance can go
            self._resize(self.end)
        self._published = True
        self._stamp(stamp)

    def remove(self) -> None:
        """Unlink the file; readers keep the memory that they have mapped."""
        self.path.unlink(missing_ok=True)
        os.close(self._file)

    def _place(self, info: TensorInfo, offset: int) -> _Place:
        """Made once: a version mostly has the tensors of the one before."""
        known = self._places.get(offset)
        if known is None or known.info != info:
            data = self._memory[offset : offset + nbytes(info)].numpy()
            known = self._places[offset] = _Place(info, view(self._memory, info, offset), data)
        return known

    def _reserve(self, size: int) -> None:
        """Memory is taken now, not when it is touched: a full file system must raise, not kill with SIGBUS."""
        present = len(self._mapped)
        if size > present:
            size = max(size, present + min(present, self._step))
            os.posix_fallocate(self._file, 0, size)
            self._resize(size)

    def _resize(self, size: int) -> None:
        """Mapped pages stay mapped, but may move: there must be no view of them."""
        self._places.clear()
        del self._memory
        self._mapped.resize(size)
        self._memory = torch.frombuffer(self._mapped, dtype=torch.uint8)

    def _stamp(self, stamp: int) -> None:
        header = torch.frombuffer(bytearray(_HEADER.pack(_MAGIC, stamp)), dtype=torch.uint8)
        self._memory[: _HEADER.size] = header


class Attachment:
    """A reader's end: a private mapping, so that not even a faulty reader can write into the segment.

    Raises:
        OSError: there is no such file. ValueError: it is shorter than `size` bytes.

    """

    def __init__(self, path: Path, size: int) -> None:
        self.size = size
        file = os.open(path, os.O_RDONLY)
        try:
            present = os.fstat(file).st_size
            if present < size:  # touching what is beyond the end would kill this process
                raise ValueError(f"{path} holds {present} of {size} bytes")
            mapped = mmap.mmap(file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            os.close(file)
        self._memory = torch.frombuffer(mapped, dtype=torch.uint8)

    @property
    def stamp(self) -> int:
        """Of what the segment holds now; 0 while it is written, or when it is no segment."""
        magic, stamp = _HEADER.unpack(self._memory[: _HEADER.size].numpy().tobytes())
        return int(stamp) if magic == _MAGIC else 0

    def tensor(self, info: TensorInfo, offset: int) -> torch.Tensor:
        """A view."""
        return view(self._memory, info, offset)

    def checksum(self, info: TensorInfo, offset: int) -> int:
        """Of the tensor's bytes."""
        return checksum(self._memory[offset : offset + nbytes(info)].numpy())


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
