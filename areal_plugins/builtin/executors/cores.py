"""A core of its own for each worker that computes on this machine's processor, where each has one thread.

Where the system moves an engine and a trainer between two cores, each finds the other's data in its cache and the
other in its place; kept apart they take a twelfth less time for a step of a small model. Everyone else
may run anywhere: rollout workers and the controller fill the time in which one of those waits. Workers of several
threads are left to the system, which knows the processor's layout.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

from areal_core.contexts import WorkerSpec

logger = logging.getLogger(__name__)


def allot(workers: Sequence[WorkerSpec], cores: Sequence[int], first: int = 0) -> Mapping[str, int]:
    """One of `cores` for every worker that computes on them, by its name.

    None where there are not enough for all, where one has several threads, and none for a single worker, whom nobody
    disturbs. `first` is the place among `cores` from which they are given out, so that two runs do not always choose
    alike.
    """
    computing = [worker for worker in workers if worker.role != "rollout" and worker.place.device == "cpu"]
    several = any(worker.place.threads > 1 for worker in computing)
    if several or not 2 <= len(computing) <= len(cores):
        return {}
    return {worker.name: cores[(first + place) % len(cores)] for place, worker in enumerate(computing)}


def available() -> Sequence[int]:
    """The cores that this process may use; none where the system cannot keep a process to one of them."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ()


def keep(pid: int, core: int) -> None:
    """Let the process, and all threads that it starts from now on, run on `core` only.

    Where the system refuses (the core is not this container's any more, say) it runs anywhere, which is logged.
    """
    try:
        os.sched_setaffinity(pid, {core})
    except ProcessLookupError:
        return  # it has ended, which others notice
    except OSError as error:
        logger.warning("process %d runs on any core, for it cannot be kept to core %d: %s", pid, core, error)
