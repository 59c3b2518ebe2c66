"""One run of the real pipeline on a spec made here, and what its run directory says afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

Line = dict[str, Any]


@frozen
class Record:
    """The lines of `metrics.jsonl`, `timings.jsonl` (one a step each) and `evaluations.jsonl`."""

    metrics: list[Line]
    timings: list[Line]
    evaluations: list[Line]


def write_spec(spec: Mapping[str, Any], path: Path) -> Path:
    """The spec as YAML."""
    from ruamel.yaml import YAML

    YAML(typ="safe").dump(dict(spec), path)
    return path


def run(spec: Path, directory: Path, warm_start: Path | None = None) -> Record:
    """Run `spec` in a process of its own, in the run directory `directory`; `warm_start` gives its first weights.

    Raises:
        RuntimeError: the run failed; with the end of what it said.

    """
    command = [sys.executable, "-m", "areal_plugins", "run", str(spec), "--run-dir", str(directory)]
    if warm_start is not None:
        command += ["--warm-start", str(warm_start)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return read(directory)


def read(directory: Path) -> Record:
    """What the run in `directory` wrote."""
    return Record(*(_lines(directory / f"{name}.jsonl") for name in ("metrics", "timings", "evaluations")))


def _lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
