"""The YAML spec: model, loading with positions, merging, resolution, schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from areal_core.spec.resolve import Examined, examine, load_experiment

__all__ = ["Examined", "examine", "load_experiment"]


def __getattr__(name: str) -> Any:
    """The loader on first use: workers import the model without it."""
    if name in __all__:
        from areal_core.spec import resolve

        return getattr(resolve, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
