"""Keys and values of all running sequences: one row a sequence, written in place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch


class KVCache:
    """A layer's keys and values as [rows, heads, length, head_dim], allocated when the layer first writes.

    Layers may differ in heads and head size; `token_bytes` is what one token takes over all of them.
    Memory is always finite numbers (zeros at first), so
    that a masked position never turns an attention sum into NaN.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.rows = self.length = self.token_bytes = 0
        self.layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def write(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store keys and values [T, heads, dim] at `slots` [T * heads]; the layer's whole tables."""
        if layer not in self.layers:
            self.layers[layer] = (self._empty(keys), self._empty(values))
            self.token_bytes += sum(x[0].numel() * self.dtype.itemsize for x in (keys, values))
        stored = self.layers[layer]
        for table, fresh in zip(stored, (keys, values), strict=True):
            width = table.shape[-1]
            table.view(-1, width).index_copy_(0, slots, fresh.reshape(-1, width))
        return stored

    def slots(self, rows: torch.Tensor, positions: torch.Tensor, heads: int) -> torch.Tensor:
        """Where the heads of tokens at `positions` of `rows` lie in a layer's flat memory: [T * heads]."""
        first = torch.add(positions, rows, alpha=heads * self.length)
        return torch.add(first[:, None], torch.arange(heads, device=rows.device), alpha=self.length).view(-1)

    @torch.inference_mode()
    def copy(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Give each of the `targets` the first `length` positions of its source row."""
        one = len(set(sources)) == 1
        source, target = (torch.tensor(rows, device=self.device) for rows in (sources, targets))
        for tables in self.layers.values():
            for table in tables:
                part = table.narrow(2, 0, length)
                if one:
                    part[targets[0] if len(targets) == 1 else target] = part[sources[0]]
                else:
                    part.index_copy_(0, target, part.index_select(0, source))

    @torch.inference_mode()
    def resize(self, rows: int, length: int) -> None:
        """Room for `rows` sequences of `length` tokens; what fits of the contents is kept."""
        kept_rows, kept_length = min(rows, self.rows), min(length, self.length)
        self.rows, self.length = rows, length
        for layer, tables in self.layers.items():
            keys, values = (self._empty(table) for table in tables)
            for old, new in zip(tables, (keys, values), strict=True):
                new[:kept_rows, :, :kept_length] = old[:kept_rows, :, :kept_length]
            self.layers[layer] = (keys, values)

    @property
    def layer_bytes(self) -> float:
        """Bytes a token takes in a layer, on average."""
        return self.token_bytes / max(len(self.layers), 1)

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        """`like` is [T, heads, dim], or a table."""
        shape = (self.rows, like.shape[1], self.length, like.shape[-1])
        return torch.zeros(shape, dtype=self.dtype, device=self.device)


def free_bytes(device: torch.device) -> int | None:
    """Memory that is free on `device`; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if device.type != "cpu" or not meminfo.exists():
        return None
    fields = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024
