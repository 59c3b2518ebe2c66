"""`areal-plugins run`: composes an experiment and runs it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from areal_core.errors import ArealError, CheckpointError, InputError, RunFailed
from areal_plugins.cli import INTERRUPTED, add_overrides
from areal_plugins.cli.progress import Display, duration, open_display, say

if TYPE_CHECKING:
    from areal_core.contexts import RunSummary
    from areal_core.manager import Manager
    from areal_core.pipeline.compose import Composition
    from areal_core.pipeline.controller import Controller
    from areal_core.spec.experiment import Experiment

EXAMPLES = """\
examples:
  areal-plugins run specs/quickstart.yaml
  areal-plugins run spec.yaml --set training.max_steps=50 --set inference.type=vllm
  areal-plugins run spec.yaml --resume runs/NAME-TIME
  areal-plugins run spec.yaml --warm-start runs/NAME-TIME/checkpoints/step-N

Ctrl-C, SIGTERM and the end of the terminal stop the run after the step that is being trained, leave a
checkpoint and print the command that goes on from it; a second Ctrl-C or SIGTERM ends it at once.
Exit codes: 0 done, 1 the run failed, 2 bad input, 130 stopped. AREAL_DEBUG_MODE=1 runs everything in
this process, in an order that the seed fixes.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`run SPEC [--set K=V]... [--run-dir DIR] [--resume RUN | --warm-start CKPT] [--dry-run]`."""
    parser.epilog = EXAMPLES
    parser.add_argument("spec", metavar="SPEC", help="YAML file")
    add_overrides(parser)
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="where to write; runs/NAME-TIME by default")
    start = parser.add_mutually_exclusive_group()
    resume = "go on from the newest whole checkpoint of this run directory, or from this checkpoint"
    start.add_argument("--resume", type=Path, metavar="RUN", help=resume)
    warm = "begin with the weights of this checkpoint, run directory (its newest whole one) or Hugging Face directory"
    start.add_argument("--warm-start", type=Path, metavar="CKPT", help=warm)
    parser.add_argument("--dry-run", action="store_true", help="show what would be started, from where; start nothing")


def main(args: argparse.Namespace) -> int:
    """Run; see the exit codes above."""
    from areal_core.manager import Manager
    from areal_core.pipeline.claim import claimed
    from areal_core.pipeline.clock import debug_mode
    from areal_core.pipeline.compose import compose

    experiment = load(args.spec, args.overrides)
    composition = compose(experiment, _folder(args, experiment.name), debug_mode())
    if args.dry_run:
        print("\n".join([*_plan(composition), *_beginning(args, composition)]))
        return 0
    while args.run_dir is None and args.resume is None and not _made(composition.folder):
        composition = compose(experiment, _folder(args, experiment.name), debug_mode())
    with claimed(composition.folder):
        start = _start(args)
        log_to(composition.folder)
        return _run(composition, Manager.discover(experiment.files), start)


def load(spec: str, overrides: list[str]) -> Experiment:
    """The experiment; in debug mode with every worker in this process."""
    from areal_core.pipeline.clock import debug_mode
    from areal_core.spec import load_experiment

    return load_experiment(spec, [*overrides, *(["executor=inline"] if debug_mode() else [])])


def log_to(folder: Path) -> None:
    """Send what this process logs to a file of the run directory."""
    from areal_core.pipeline.clock import debug_mode

    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot hold a run: {error.strerror}"
        raise InputError(str(folder), problem, "choose another one by --run-dir") from error
    logging.basicConfig(
        filename=folder / "logs" / "controller.log",
        level=logging.DEBUG if debug_mode() else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


@frozen
class _Start:
    """What a run goes on from, and what it passed over for being damaged; or the weights it begins with."""

    resume: Path | None = None
    damaged: Sequence[CheckpointError] = ()
    warm_start: Path | None = None


def _start(args: argparse.Namespace) -> _Start:
    from areal_core.pipeline import checkpoint

    if args.warm_start is not None:
        return _Start(warm_start=model_directory(args.warm_start))
    if args.resume is None:
        return _Start()
    run = _there(args.resume, checkpoint.GIVE)
    if checkpoint.is_checkpoint(run):
        return _Start(checkpoint.latest(run))
    found, damaged = checkpoint.newest(run)
    return _Start(checkpoint.latest(run)) if found is None and damaged else _Start(found, damaged)


def model_directory(path: Path) -> Path:
    """The absolute path of a model directory, or of a run's newest whole checkpoint."""
    from areal_core.pipeline import checkpoint

    way_out = "give a run directory, a checkpoints/step-N or a Hugging Face directory"
    found = checkpoint.model_directory(_there(path, way_out))
    if not (found / "config.json").is_file():
        none_yet = (found / "checkpoints").is_dir()
        problem = "its run has no checkpoint yet" if none_yet else "is no model directory: it has no config.json"
        raise InputError(str(path), problem, way_out)
    return found


def _there(path: Path, way_out: str) -> Path:
    """`path`, absolute and without `..`; raises `InputError` where nothing is there, or cannot be looked at."""
    try:
        path.stat()
    except OSError as error:
        problem = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise InputError(str(path), problem, way_out) from error
    return path.resolve() if ".." in path.parts else path.absolute()


def _folder(args: argparse.Namespace, name: str) -> Path:
    from areal_core.pipeline import checkpoint

    if args.resume is not None:
        if args.run_dir is not None:
            raise InputError("--run-dir", "a run that is resumed stays in its directory", "leave one of the two out")
        resumed = _there(args.resume, checkpoint.GIVE)
        if checkpoint.is_checkpoint(resumed):
            return _run_of(resumed)
        if not (resumed / "checkpoints").is_dir():
            checkpoint.latest(resumed)  # says why not
        return resumed
    if args.run_dir is None:
        return _free(Path("runs").absolute() / f"{name}-{datetime.now():%Y%m%d-%H%M%S}")
    folder: Path = args.run_dir.absolute()
    try:
        taken = (folder / "metrics.jsonl").exists()
    except OSError as error:
        raise InputError(str(folder), f"cannot hold a run: {error.strerror}") from error
    if taken:
        raise InputError(str(folder), "holds a run", "go on with it by --resume, or choose another directory")
    return folder


def _run_of(saved: Path) -> Path:
    """The run directory that the checkpoint `saved` lies in."""
    if saved.parent.name != "checkpoints":
        way_out = "move it into the checkpoints/ of its run, or begin a new run by --warm-start"
        raise InputError(str(saved), "lies in no run directory", way_out)
    return saved.parent.parent


def _free(folder: Path) -> Path:
    """`folder`, or the first `folder-N` that does not exist."""
    number, found = 1, folder
    while found.exists():
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def _made(folder: Path) -> bool:
    """Whether nobody else has made `folder`: another run may have been given the same name in the same second.

    One that cannot be made at all is for `claimed` to tell of.
    """
    try:
        folder.mkdir(parents=True)
    except OSError:
        return not folder.is_dir()
    return True


def _plan(composition: Composition) -> list[str]:
    """What a run would start and do."""
    workers = [*composition.trainers(), *composition.engines, *composition.rollouts]
    stages = [
        f"stage {s.name}: steps {s.first + 1} to {s.last}, {s.order.objective.name}, "
        f"batches of {s.order.batch_size} in groups of {s.group_size}, staleness {s.pipeline.max_staleness}"
        for s in composition.stages
    ]
    return [
        f"run directory {composition.folder}",
        *(f"worker {w.name}: {w.role} on {w.place.device}, {w.place.threads} threads" for w in workers),
        f"weights by {composition.route.transport}, as {composition.route.mechanism}",
        *stages,
    ]


def _beginning(args: argparse.Namespace, composition: Composition) -> list[str]:
    """What it would go on from, or begin with. Refuses what the run itself would refuse."""
    from areal_core.pipeline import resuming
    from areal_core.pipeline.claim import claimed

    if args.resume is None:
        start = _start(args)
        return [f"begins with the weights of {_short(start.warm_start)}"] if start.warm_start else []
    with claimed(composition.folder):
        start = _start(args)
    passed_over = [f"passed over: {problem}" for problem in start.damaged]
    if start.resume is None:
        model = resuming.began_with(composition.folder)
        return ["begins again from step 0: there is no checkpoint to go on from", *([f"with {model}"] if model else [])]
    step = resuming.state_of(start.resume, composition).step
    place = start.resume.relative_to(composition.folder)
    return [*passed_over, f"goes on from {place} (step {step} of {composition.steps})"]


def _run(composition: Composition, manager: Manager, start: _Start) -> int:
    from areal_core.pipeline.clock import make_loop

    display = open_display()
    with asyncio.Runner(loop_factory=lambda: make_loop(virtual=composition.debug)) as runner:
        try:
            return runner.run(_supervised(composition, manager, display, start))
        finally:
            display.close()


async def _supervised(composition: Composition, manager: Manager, display: Display, start: _Start) -> int:
    """Run under Ctrl-C, SIGTERM and SIGHUP: the first stops the run, a second one cancels it."""
    from areal_core.pipeline.controller import Controller

    hooks, origin = manager.observers(), provenance(composition.experiment, manager)
    controller = Controller(composition, display, hooks, start.resume, start.warm_start, origin, start.damaged)
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    asked: list[str] = []

    def on_signal(name: str) -> None:
        if not asked:
            controller.stop(name)
            display.phase("stopping after this step; once more ends at once")
        elif task is not None and name != "SIGHUP":  # a shell and the system may both send that one
            task.cancel()
        asked.append(name)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as under `nohup`
            loop.add_signal_handler(number, on_signal, number.name)
    where = f"run directory: {_short(composition.folder)}"
    try:
        async with _reachable(composition, controller):
            summary = await controller.run()
    except asyncio.CancelledError:
        return _say(display, ["ended at once", where, controller.way_on()], INTERRUPTED)
    except RunFailed as error:
        lines = [*_failure(error), f"{where} (see events.jsonl, logs/)", controller.way_on()]
        return _say(display, lines, error.exit_code)
    if summary.outcome == "done":
        return _say(display, _summary(summary, where), 0)
    return _say(display, [*_summary(summary, where), controller.way_on()], INTERRUPTED)


def _reachable(composition: Composition, controller: Controller) -> AbstractAsyncContextManager[None]:
    """`areal-plugins scale` can speak to the run; not to one on a virtual clock, which never waits for anybody."""
    from areal_core.pipeline.control import Control, opened

    return nullcontext() if composition.debug else opened(Control(controller.scale), composition.folder)


def provenance(experiment: Experiment, manager: Manager) -> dict[str, Any]:
    """Where a run comes from: files, overrides, values' origins, plugins and their versions."""
    plugins = [
        {"name": p.name, "distribution": p.distribution, "version": p.version, "entry": p.entry, "state": p.state.value}
        for p in manager.plugins
    ]
    return {
        "command": sys.argv[1:],
        "sources": experiment.sources,
        "overrides": experiment.overrides,
        "seed": experiment.seed,
        "plugins": plugins,
        "origins": experiment.origins,
    }


def _summary(summary: RunSummary, where: str) -> list[str]:
    lines = [f"{summary.outcome}: {summary.steps} steps in {duration(summary.seconds)}"]
    lines += [*_accuracies(summary.evaluations), where]
    if summary.checkpoint:
        lines.append(f"checkpoint: {_short(Path(summary.checkpoint))}")
    return lines


def _accuracies(evaluations: Mapping[str, float]) -> list[str]:
    """One line an environment: before -> after, as far as there are both."""
    names = dict.fromkeys(key.partition("/")[2] for key in evaluations)
    found = {name: [evaluations.get(f"{when}/{name}") for when in ("before", "after")] for name in names}
    return [
        f"held-out accuracy of {name}: {' -> '.join(f'{value:.3f}' for value in values if value is not None)}"
        for name, values in found.items()
    ]


def _failure(error: RunFailed) -> list[str]:
    cause = error.__cause__
    lines = [] if cause is None or isinstance(cause, ArealError) else traceback.format_exception(cause)
    return [*lines, f"error: the run failed: {error.cause}"]


def _short(path: Path) -> Path:
    """Relative to here where it is below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _say(display: Display, lines: Sequence[str], code: int) -> int:
    display.close()
    say("\n".join(lines), sys.stdout if code == 0 else sys.stderr)
    return code
