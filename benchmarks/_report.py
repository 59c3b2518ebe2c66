"""How every benchmark ends: a table, and one line of JSON with the figures, the machine and `ok`."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Processor, cores and Python of this machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {"processor": model, "cores": os.cpu_count(), "python": platform.python_version()}


def median(values: Sequence[float]) -> float:
    """The median; NaN of nothing."""
    return statistics.median(values) if values else float("nan")


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Rows as aligned columns; the first is the head."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)


def _cell(value: Any) -> str:
    if value is None:
        return "never"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def finish(name: str, figures: Mapping[str, Any], compared_with: str, ok: bool) -> int:
    """Print the JSON line; the exit code."""
    line = {"benchmark": name, **figures, "compared_with": compared_with, "machine": machine(), "ok": ok}
    print(json.dumps(line))
    return 0 if ok else 1
