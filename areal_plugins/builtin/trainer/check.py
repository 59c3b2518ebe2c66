"""What can be wrong with the trainer's part of a spec. Light: no torch."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from areal_plugins import CheckContext, Finding, Severity


def trainer(ctx: CheckContext) -> Iterator[Finding]:
    """Checks of `torch`."""
    yield from adapters(ctx)
    yield from devices(ctx)


def devices(ctx: CheckContext) -> Iterator[Finding]:
    """One rank drives one device; what is meant for more can still be read, and run by another backend."""
    count = ctx.spec.resources.train.devices
    if count > 1:
        yield Finding(
            "unsupported-axis",
            f"the torch trainer drives one device, and resources.train asks for {count}",
            ("resources", "train"),
            hint="train with a backend that shards, such as fsdp2",
            severity=Severity.UNAVAILABLE,
        )


def adapters(ctx: CheckContext) -> Iterator[Finding]:
    """Adapters are peft's."""
    if ctx.spec.model.lora is not None and find_spec("peft") is None:
        yield Finding(
            "not-installed",
            "the torch trainer makes adapters with peft, which is not installed",
            ("model", "lora"),
            hint="pip install 'areal-plugins[torch]'",
            severity=Severity.UNAVAILABLE,
        )


def betas(ctx: CheckContext) -> Iterator[Finding]:
    """Both are shares."""
    if not all(0 <= beta < 1 for beta in ctx.options.betas):
        yield Finding("out-of-range", f"betas: {list(ctx.options.betas)} must lie in [0, 1)", (*ctx.path, "betas"))
