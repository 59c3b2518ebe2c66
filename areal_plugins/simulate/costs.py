"""How long work takes: rooflines (Williams, Waterman and Patterson, 2009) for each part of a step.

A part takes its operations over what the devices reach of their peak, or its bytes over what they reach of
their bandwidth, whichever is longer. Everything is in tokens, bytes and seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import field, frozen

from areal_plugins.simulate.hardware import Hardware
from areal_plugins.simulate.shape import Shape

LATENCY = 10e-6
"""Seconds that one collective takes however small it is."""


@frozen
class Reach:
    """What share of their peaks devices reach, and what a decoding step costs beside them."""

    prefill: float = field(default=0.5, metadata={"doc": "Of FLOP/s, reading prompts.", "gt": 0, "le": 1})
    decode: float = field(default=0.7, metadata={"doc": "Of memory bandwidth, drawing tokens.", "gt": 0, "le": 1})
    train: float = field(default=0.4, metadata={"doc": "Of FLOP/s, training (MFU).", "gt": 0, "le": 1})
    link: float = field(default=0.7, metadata={"doc": "Of links.", "gt": 0, "le": 1})
    memory: float = field(default=0.85, metadata={"doc": "Of memory, weights and cache.", "gt": 0, "le": 1})
    step: float = field(default=0.004, metadata={"doc": "Seconds a decoding step takes at least.", "ge": 0})
    scale: float = field(default=1.0, metadata={"doc": "All compute times are multiplied by it: the fit.", "gt": 0})


@frozen
class EngineCosts:
    """One engine on `devices` devices that share the model.

    A decoding step of `n` sequences with `context` tokens in all takes `step(n) + slope * context`: linear in
    the context, so that any number of steps has a closed form.
    """

    hardware: Hardware
    shape: Shape
    reach: Reach
    devices: int

    @property
    def capacity(self) -> int:
        """Tokens that the cache holds; 0 or less when not even the weights fit."""
        room = self.hardware.memory * self.devices * self.reach.memory - self.shape.weights
        return int(room // self.shape.kv_bytes)

    @property
    def slope(self) -> float:
        """Seconds a step, for each token of context: attention reads its keys and values."""
        compute = 4 * self.shape.layers * self.shape.hidden / (self._flops * self.reach.prefill)
        read = self.shape.kv_bytes / (self._bandwidth * self.reach.decode)
        return max(compute, read) * self.reach.scale

    def step(self, n: int) -> float:
        """Seconds of a step of `n` sequences, without attention: every weight is read once."""
        compute = 2 * self.shape.parameters * n / (self._flops * self.reach.prefill)
        read = self.shape.weights / (self._bandwidth * self.reach.decode)
        return (self.reach.step + max(compute, read) + self._gather(n)) * self.reach.scale

    def prefill(self, tokens: int) -> float:
        """Seconds to read one sequence of `tokens`."""
        shape = self.shape
        operations = 2 * shape.parameters * tokens + 2 * shape.layers * shape.hidden * tokens**2
        compute = operations / (self._flops * self.reach.prefill)
        return (compute + self._gather(tokens)) * self.reach.scale

    def swap(self) -> float:
        """Seconds to replace the weights by ones that were fetched: read and written once."""
        return 2 * self.shape.weights / self._bandwidth

    def _gather(self, tokens: int) -> float:
        """Two all-reduces a layer, where the model is split."""
        if self.devices == 1:
            return 0.0
        link = self.hardware.near if self.devices <= self.hardware.node else self.hardware.far
        moved = 2 * (self.devices - 1) / self.devices * tokens * self.shape.hidden * self.shape.width
        return 2 * self.shape.layers * (LATENCY + moved / (link * self.reach.link))

    @property
    def _flops(self) -> float:
        return self.hardware.flops * self.devices

    @property
    def _bandwidth(self) -> float:
        return self.hardware.bandwidth * self.devices


@frozen
class TrainerCosts:
    """A trainer on `devices` devices. `forwards` passes without gradients go before the step.

    They are one to know the policy before the step (decoupled objectives, and several updates a batch), and one
    for a reference policy. With `recompute` the backward pass makes the activations once more instead of keeping them.
    """

    hardware: Hardware
    shape: Shape
    reach: Reach
    devices: int
    updates: int = 1
    forwards: int = 0
    recompute: bool = False

    def train(self, lengths: Iterable[int]) -> float:
        """Seconds of one optimizer step, or of `updates`: 6 N operations a token, and 6 L h s^2 a sequence of s.

        The second is causal attention (Narayanan et al., 2021, appendix, halved for the mask).
        """
        tokens = squares = 0
        for length in lengths:
            tokens += length
            squares += length * length
        shape, passes = self.shape, 1 + (self.forwards + self.recompute) / 3
        operations = passes * (6 * shape.parameters * tokens + 6 * shape.layers * shape.hidden * squares)
        compute = operations / (self.hardware.flops * self.devices * self.reach.train) * self.reach.scale
        return compute + self.updates * self._reduce()

    def _reduce(self) -> float:
        """Gradients are added up over all devices: a ring moves all of them twice."""
        if self.devices == 1:
            return 0.0
        link = self.hardware.near if self.devices <= self.hardware.node else self.hardware.far
        return 2 * (self.devices - 1) / self.devices * self.shape.weights / (link * self.reach.link)


@frozen
class UpdateCosts:
    """Weights on their way from `trainers` devices to `engines` engines; `disk` bytes/s where they pass a disk."""

    hardware: Hardware
    shape: Shape
    reach: Reach
    trainers: int
    engines: int
    disk: float | None = None

    def publish(self) -> float:
        """Seconds until they can be fetched: gathered on one node, or written."""
        if self.disk is not None:
            return self.shape.weights / self.disk
        return 0.0 if self.trainers == 1 else self.shape.weights / (self._link(self.trainers) * self.reach.link)

    def prepare(self) -> float:
        """Seconds until every engine has fetched them: each passes them on, or all read the same disk."""
        if self.disk is not None:
            return self.shape.weights * self.engines / self.disk
        return self.shape.weights / (self._link(self.trainers + self.engines) * self.reach.link)

    def _link(self, devices: int) -> float:
        return self.hardware.near if devices <= self.hardware.node else self.hardware.far
