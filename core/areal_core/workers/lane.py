"""Where a worker's blocking calls run, so that its loop goes on answering."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from areal_core.workers.faults import blaming

P = ParamSpec("P")
T = TypeVar("T")


class Lane:
    """One thread for one component's calls, in order; without `threaded` they run on the loop itself.

    Always the same thread: torch keeps its thread count, and CUDA its current device, by thread.
    """

    def __init__(self, name: str, threaded: bool) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name) if threaded else None

    async def call(
        self, component: str, operation: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What `function` returns; what it raises names `component` and `operation`.

        A call that is cancelled while it computes runs to its end, and later ones wait for it.
        """

        def blamed() -> T:
            with blaming(component, operation):
                return function(*args, **kwargs)

        if self._pool is None:
            return blamed()
        return await asyncio.get_running_loop().run_in_executor(self._pool, blamed)

    def settle(self) -> None:
        """Leave the objects of all that was imported and set up out of later garbage collections.

        A full collection among those of torch and transformers holds the loop for a tenth of a
        second. Without `threaded` the process is not this worker's own, and is left alone.
        """
        if self._pool is not None:
            gc.collect()
            gc.freeze()

    def close(self) -> None:
        """Take no more calls; one that computes is left to end by itself."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
