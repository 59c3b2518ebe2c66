"""What simulated runs are set in: the plugins, quiet, and the memory of this process."""

from __future__ import annotations

import json
import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from areal_core.errors import CheckpointError
from areal_core.manager import Manager
from areal_core.pipeline import checkpoint, rundir
from areal_core.spec import load_experiment
from areal_core.spec.experiment import Experiment
from areal_plugins.testing.pipeline import manager
from areal_plugins.testing.sim import wires


@contextmanager
def cheaply() -> Iterator[None]:
    """With no log, which would be one of faults, and run directories that do not describe the spec."""
    logger = logging.getLogger("areal_core")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with patch.object(rundir.RunDirectory, "describe"):
            yield
    finally:
        logger.setLevel(level)


def resident() -> int:
    """MiB of memory that this process has; 0 where nobody can say."""
    file = Path("/proc/self/statm")
    return int(file.read_text().split()[1]) * resource.getpagesize() >> 20 if file.exists() else 0


@cache
def plugins() -> Manager:
    """The mocks, and the executor of simulations."""
    return manager([wires])


def experiment_of(folder: Path, spec: Any) -> Experiment:
    """The experiment of a schedule's spec."""
    source = folder / "spec.json"
    source.write_text(json.dumps(spec))
    return load_experiment(source, (), plugins())


def latest(run: Path) -> Path | None:
    """The checkpoint from which a resume goes on, if there is one."""
    try:
        return checkpoint.latest(run)
    except CheckpointError:
        return None
