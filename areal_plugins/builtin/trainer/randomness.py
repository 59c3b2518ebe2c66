"""The trainer's own random stream, whatever else draws in its process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class RandomStream:
    """States of the generators of torch (on the processor and on `device`), numpy and Python; begins at `seed`."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self._device = device
        self.states: dict[str, Any] = {}
        with self._aside():
            torch.manual_seed(seed)
            np.random.seed(seed % (1 << 32))  # the generator that other people's code draws from
            random.seed(seed)
            self.states = self._read()

    @contextmanager
    def active(self) -> Iterator[None]:
        """What is drawn within comes from this stream, which goes on from where it was."""
        with self._aside():
            self._write(self.states)
            yield
            self.states = self._read()

    def _read(self) -> dict[str, Any]:
        states = {"torch": torch.get_rng_state(), **_plain()}
        if self._device.type != "cpu":
            states["device"] = torch.get_device_module(self._device).get_rng_state(self._device)
        return states

    def _write(self, states: dict[str, Any]) -> None:
        torch.set_rng_state(states["torch"])
        if "device" in states:
            torch.get_device_module(self._device).set_rng_state(states["device"], self._device)
        _set_plain(states)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        others = _plain()
        with self._torch_aside():
            try:
                yield
            finally:
                _set_plain(others)

    @contextmanager
    def _torch_aside(self) -> Iterator[None]:
        if self._device.type == "cpu":
            with torch.random.fork_rng(devices=[]):
                yield
        else:
            module = torch.get_device_module(self._device)
            index = module.current_device() if self._device.index is None else self._device.index
            with torch.random.fork_rng(devices=[index], device_type=self._device.type):
                yield


def _plain() -> dict[str, Any]:
    """The states of numpy's and Python's own generators, of such values as a checkpoint may hold."""
    name, key, *rest = np.random.get_state()
    return {"numpy": (name, torch.from_numpy(np.array(key)), *rest), "python": random.getstate()}


def _set_plain(states: dict[str, Any]) -> None:
    name, key, *rest = states["numpy"]
    np.random.set_state((name, key.numpy(), *rest))
    random.setstate(states["python"])
