"""What simulated runs are set in: the plugins, quiet, and the memory of this process."""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from attrs import frozen

from areal_core.errors import CheckpointError
from areal_core.manager import Manager
from areal_core.pipeline import checkpoint, rundir
from areal_core.spec import load_experiment
from areal_core.spec.experiment import Experiment
from areal_plugins.testing.pipeline import manager
from areal_plugins.testing.sim import wires


@contextmanager
def cheaply() -> Iterator[None]:
    """With no log, which would be one of faults, nothing forced to the disk, and no description of the spec."""
    logger = logging.getLogger("areal_core")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with patch.object(rundir.RunDirectory, "describe", _describe), patch.object(os, "fsync", _at_once):
            yield
    finally:
        logger.setLevel(level)


def _at_once(_descriptor: int) -> None:
    """What is written is on disk: nobody pulls the plug."""


def _describe(directory: rundir.RunDirectory, _spec: Mapping[str, Any], provenance: Mapping[str, Any]) -> None:
    """What a run that begins again reads."""
    (directory.path / "provenance.json").write_text(json.dumps({"model": provenance["model"]}))


@frozen
class Memory:
    """What this process has `seconds` into a run, after `step` steps: MiB (0 where nobody can say), and objects."""

    seconds: float
    step: int
    mib: int
    objects: int

    @classmethod
    def now(cls, seconds: float, step: int) -> Memory:
        """At this moment, without what only waits to be collected."""
        gc.collect()
        return cls(seconds, step, _resident(), len(gc.get_objects()))


def _resident() -> int:
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
