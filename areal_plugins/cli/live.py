"""The live display of a run on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO, cast

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from areal_plugins.cli.progress import Lasting, Pace, duration, evaluation_line, figures, worth_saying

if TYPE_CHECKING:
    from areal_core.pipeline.events import Event
    from areal_core.pipeline.run import EvaluationReport, StepReport

_STYLES = {"warning": "yellow", "error": "bold red"}


class LiveDisplay:
    """A bar and the figures of the last step, redrawn in place; evaluations and events scroll by above."""

    def __init__(self, stream: TextIO, console: Console | None = None) -> None:
        self._console = console or Console(file=cast(TextIO, Lasting(stream)))
        self._pace = Pace()
        self._figures: dict[str, str] = {}
        self._bar = Progress(
            TextColumn("[bold]{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"), console=self._console, expand=True,
        )  # fmt: skip
        self._task = self._bar.add_task("starting", total=None, left="")
        self._live = Live(self._picture(), console=self._console, refresh_per_second=4)
        self._live.start()

    def phase(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def stepped(self, report: StepReport) -> None:
        self._pace.stepped(report)
        self._figures = figures(report)
        left = f"left {duration(self._pace.left(report))}"
        self._bar.update(self._task, description=report.stage, completed=report.step, total=report.steps, left=left)
        self._live.update(self._picture())

    def evaluated(self, report: EvaluationReport) -> None:
        self._print(evaluation_line(report), "green")

    def happened(self, event: Event) -> None:
        if worth_saying(event):
            self._print(f"{event.level}: {event.message}", _STYLES[event.level])

    def close(self) -> None:
        self._live.stop()

    def _print(self, text: str, style: str) -> None:
        self._live.console.print(text, style=style, markup=False, highlight=False)

    def _picture(self) -> Group:
        row = Table.grid(padding=(0, 3))
        row.add_row(*self._figures.values())
        return Group(self._bar, row)
