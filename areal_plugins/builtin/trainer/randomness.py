"""The trainer's own random stream, whatever else draws in its process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class RandomStream:
    """States of torch's generators on the processor and on `device`; begins at `seed`."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self._device = device
        self.states: list[Tensor] = []
        with self._aside():
            torch.manual_seed(seed)
            self.states = self._read()

    @contextmanager
    def active(self) -> Iterator[None]:
        """What is drawn within comes from this stream, which goes on from where it was."""
        with self._aside():
            torch.set_rng_state(self.states[0])
            if len(self.states) > 1:
                torch.get_device_module(self._device).set_rng_state(self.states[1], self._device)
            yield
            self.states = self._read()

    def _read(self) -> list[Tensor]:
        states = [torch.get_rng_state()]
        if self._device.type != "cpu":
            states.append(torch.get_device_module(self._device).get_rng_state(self._device))
        return states

    @contextmanager
    def _aside(self) -> Iterator[None]:
        if self._device.type == "cpu":
            with torch.random.fork_rng(devices=[]):
                yield
        else:
            module = torch.get_device_module(self._device)
            index = module.current_device() if self._device.index is None else self._device.index
            with torch.random.fork_rng(devices=[index], device_type=self._device.type):
                yield
