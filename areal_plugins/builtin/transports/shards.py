"""Named tensors as safetensors files of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file


def write_shards(directory: Path, weights: Iterator[tuple[str, torch.Tensor]], bucket_bytes: int) -> None:
    """Write `weights` in order; at most `bucket_bytes` (or one tensor) are held in memory at a time."""
    for index, bucket in enumerate(_buckets(weights, bucket_bytes)):
        save_file(bucket, directory / f"{index:05}.safetensors")


def _buckets(weights: Iterator[tuple[str, torch.Tensor]], limit: int) -> Iterator[dict[str, torch.Tensor]]:
    bucket: dict[str, torch.Tensor] = {}
    held = 0
    for name, tensor in weights:
        if bucket and held + tensor.nbytes > limit:
            yield bucket
            bucket, held = {}, 0
        # A copy: tied parameters share memory, which safetensors refuses; and a gathered one may be reused.
        bucket[name] = tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        held += tensor.nbytes
    if bucket:
        yield bucket
