"""How often Python looks for reference cycles while a run is under way."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (1_000_000, 10, 10)
"""New records before a search: about as many as a step of 4,096 devices with 16 trajectories each adds."""


@contextmanager
def seldom_searched() -> Iterator[None]:
    """Hardly any of the many records of a run is ever part of a cycle: looking as often as by default takes a fifth."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def search_recent() -> None:
    """Look among what was made lately: a failure is often part of a cycle, and its traceback may hold a whole batch."""
    gc.collect(0)
