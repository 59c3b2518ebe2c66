"""`docs/run-directory.md` has every kind of event and every column, as the code writes them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest
from attrs import fields_dict

from areal_core.pipeline.run import Scores

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/run-directory.md").read_text()
PIPELINE, TRAINER = ROOT / "core/areal_core/pipeline", ROOT / "areal_plugins/builtin/trainer"


def rows(section: str) -> list[list[str]]:
    """The cells of each row of a section's tables, headings left out."""
    text = re.split(r"^## ", PAGE, flags=re.M)
    found = next(part for part in text if part.partition("\n")[0].strip("`") == section)
    lines = [line.strip("|").split(" | ") for line in found.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in cells] for cells in lines]


def names(section: str) -> set[str]:
    """All that the first column of its tables names."""
    return {name for cells in rows(section) for name in re.findall(r"`([^`]+)`", cells[0])}


EVENTS = {cells[0].strip("`"): cells for cells in rows("Events")}


def calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def constant(node: ast.expr | None, default: str | None = None) -> str | None:
    return node.value if isinstance(node, ast.Constant) else default


def argument(call: ast.Call, index: int) -> ast.expr | None:
    return call.args[index] if index < len(call.args) else None


def added() -> list[ast.Call]:
    """Every place where an event is added."""
    files = [path for folder in ("core", "areal_plugins", "plugins") for path in (ROOT / folder).rglob("*.py")]
    found = [call for path in files for call in calls(path) if isinstance(call.func, ast.Attribute)]
    return [c for c in found if c.func.attr == "add" and re.search(r"(^|[._])events$", ast.unparse(c.func.value))]


def told() -> dict[str, tuple[set[str], set[str]]]:
    """Levels and data of each kind that is named where it is added."""
    found: defaultdict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for call in (call for call in added() if len(call.args) > 1):
        kind, level = constant(call.args[0]), argument(call, 2)
        if kind is not None:
            levels, data = found[kind]
            levels |= {constant(level, "warning")} if level is None or constant(level) else set()
            data |= {keyword.arg or "**" for keyword in call.keywords}
    return found


NAMED = told()
ELSEWHERE = {
    "dispatch.py": ["group-retried", "group-failed"],
    "recovery.py": ["reloaded", "trainer-restarted"],
    "../workers/guard.py": ["memory-restored", "memory-pressure"],
}
"""Where a kind is chosen that is added under another name."""


def test_the_page_has_every_kind_of_event_in_order():
    assert list(EVENTS) == sorted([*NAMED, *(kind for kinds in ELSEWHERE.values() for kind in kinds)])


def test_the_kinds_that_are_chosen_elsewhere_are_all():
    indirect = [call for call in added() if len(call.args) > 1 and constant(call.args[0]) is None]
    assert sorted(ast.unparse(call.args[0]) for call in indirect) == ["kind", "kind", "note.kind"]
    texts = {file: (PIPELINE / file).read_text() for file in ELSEWHERE}
    assert re.findall(r'_report\("([a-z-]+)"', texts["dispatch.py"]) == ELSEWHERE["dispatch.py"]
    assert re.findall(r'kind = "([a-z-]+)" if .* else "([a-z-]+)"', texts["recovery.py"]) == [
        tuple(ELSEWHERE["recovery.py"])
    ]
    assert re.findall(r'Note\("([a-z-]+)"', texts["../workers/guard.py"]) == ELSEWHERE["../workers/guard.py"]


@pytest.mark.parametrize("kind", NAMED)
def test_an_event_has_the_levels_and_data_that_the_page_says(kind):
    levels, data = NAMED[kind]
    _, shown_levels, shown_data, meaning = EVENTS[kind]
    assert levels <= set(shown_levels.split(", ")) <= {"info", "warning", "error"}
    shown = set() if shown_data == "none" else set(shown_data.split(", "))
    assert data - {"**"} <= shown if "**" in data else data == shown
    assert meaning


def keys(path: Path, *functions: str) -> set[str]:
    """What the dictionaries that are written out in these functions call their values."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in functions:
            dicts = [each for each in ast.walk(node) if isinstance(each, ast.Dict)]
            found |= {key.value for each in dicts for key in each.keys if isinstance(key, ast.Constant)}
    assert found, path
    return found


def test_the_page_has_every_column_of_metrics():
    kernel = keys(PIPELINE / "train.py", "_record") | keys(
        PIPELINE / "metrics.py", "setbacks", "batch_metrics", "_lags"
    )
    trainer = keys(TRAINER / "figures.py", "of_batch", "mismatch") | keys(TRAINER / "step.py", "_accumulate", "_move")
    patterns = {"reward/NAME", "score/NAME", "dropped/CAUSE"}
    assert names("metrics.jsonl") == (kernel | trainer | patterns) - {"step", "stage"} | {"critic_grad_norm"}


def test_the_page_has_every_column_of_timings():
    written = keys(PIPELINE / "stopwatch.py", "stepped", "_transfer", "_rates", "_write") - {"step", "stage"}
    assert names("timings.jsonl") == written


def test_the_page_has_every_column_of_evaluations():
    assert names("evaluations.jsonl") == set(fields_dict(Scores))


def test_the_page_has_every_cause_of_a_drop():
    found = {
        text
        for path in PIPELINE.glob("*.py")
        for text in re.findall(
            r'(?:[._]drop\((?:\w[\w.]*, )?|_now\.close\(|_now\.discard\(|_stage\.close\()"([a-z -]+)"', path.read_text()
        )
    }
    found |= set(re.findall(r'^LOST, RELOAD = "(.*)", "(.*)"$', (PIPELINE / "recovery.py").read_text(), re.M)[0])
    causes = EVENTS["dropped"][3].partition("Causes: ")[2].partition(". Many")[0]
    assert set(re.findall(r"`([^`]+)`", causes)) == found
