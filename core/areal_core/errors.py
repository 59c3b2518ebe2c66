"""What can go wrong, as data first and text second.

Every error raised on purpose derives from `ArealError` and carries the command's exit code:
2 when the input is at fault, 1 when the run is.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from attrs import field, frozen


class Severity(enum.Enum):
    """`ERROR`: wrong on every machine. `UNAVAILABLE`: this machine lacks something."""

    ERROR = "error"
    UNAVAILABLE = "unavailable"


@frozen
class Location:
    """A place in a spec. Lines and columns count from 1; `excerpt` is that line's text."""

    file: str
    line: int
    column: int
    excerpt: str = ""
    width: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@frozen
class Finding:
    """One thing that is wrong with a spec.

    `path` is the way through the spec (`("training", "batch_size")`, list items by index); whoever
    loaded the spec turns it into a `location`. `code` is stable: `unknown-key`, `bad-type`, ...
    """

    code: str
    message: str
    path: tuple[str | int, ...] = ()
    hint: str | None = None
    severity: Severity = Severity.ERROR
    location: Location | None = None

    @property
    def dotted(self) -> str:
        return ".".join(str(part) for part in self.path)


class ArealError(Exception):
    """Base of all errors raised on purpose."""

    exit_code: int = 1


class SpecError(ArealError):
    """The spec cannot be used; all findings at once."""

    exit_code = 2

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__(findings)
        self.findings = tuple(findings)

    def __str__(self) -> str:
        return "\n".join(f"{f.location or f.dotted}: {f.severity.value}[{f.code}]: {f.message}" for f in self.findings)


class InputError(ArealError):
    """Something the user gave (a file, a path, a value) is wrong; `where` names it, to the line if possible."""

    exit_code = 2

    def __init__(self, where: str, problem: str, way_out: str = "") -> None:
        super().__init__(where, problem, way_out)
        self.where, self.problem, self.way_out = where, problem, way_out

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" + (f" ({self.way_out})" if self.way_out else "")


class PromptTooLong(InputError):
    """A prompt leaves its engine no room for a token."""


class PluginError(ArealError):
    """A plugin that the spec or the command names cannot be used."""

    exit_code = 2

    def __init__(self, plugin: str, problem: str, way_out: str = "") -> None:
        super().__init__(plugin, problem, way_out)
        self.plugin, self.problem, self.way_out = plugin, problem, way_out

    def __str__(self) -> str:
        return f"plugin {self.plugin}: {self.problem}" + (f" ({self.way_out})" if self.way_out else "")


class ComponentError(ArealError):
    """A component raised, or broke its contract, while it was used."""

    def __init__(self, component: str, operation: str, cause: str) -> None:
        super().__init__(component, operation, cause)
        self.component, self.operation, self.cause = component, operation, cause

    def __str__(self) -> str:
        return f"{self.component}: {self.operation}: {self.cause}"


@frozen
class Remote:
    """An error as it crosses between processes: the class's name, its text and its traceback."""

    type: str
    text: str
    traceback: str = field(default="", repr=False)
    exit_code: int = 1


class RemoteError(ArealError):
    """A call to another process raised there. An error of input reads, and exits, as it would have here."""

    def __init__(self, worker: str, method: str, error: Remote) -> None:
        super().__init__(worker, method, error)
        self.worker, self.method, self.error = worker, method, error
        self.exit_code = error.exit_code
        if error.traceback:
            self.add_note(f"In {worker}:\n{error.traceback}")

    def __str__(self) -> str:
        if self.error.exit_code == InputError.exit_code:
            return self.error.text
        return f"{self.worker}: {self.method}: {self.error.type}: {self.error.text}"


class WorkerLost(ArealError):
    """A worker process ended or fell silent; `reason` says how (signal, exit code, no heartbeat)."""

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(worker, reason)
        self.worker, self.reason = worker, reason

    def __str__(self) -> str:
        return f"worker {self.worker}: {self.reason}"


class GenerationAborted(ArealError):
    """The engine was told to end this request; the group it belongs to is not whole and is not scored."""

    def __init__(self, engine: str, request: str) -> None:
        super().__init__(engine, request)
        self.engine, self.request = engine, request

    def __str__(self) -> str:
        return f"engine {self.engine}: request {self.request} was aborted"


class TransportError(ArealError):
    """Weights did not arrive whole; the version is not committed anywhere."""

    def __init__(self, transport: str, problem: str) -> None:
        super().__init__(transport, problem)
        self.transport, self.problem = transport, problem

    def __str__(self) -> str:
        return f"transport {self.transport}: {self.problem}"


class CheckpointError(ArealError):
    """A checkpoint is missing, damaged or of another experiment."""

    exit_code = 2

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"checkpoint {self.path}: {self.problem}"


class RunFailed(ArealError):
    """The run ended early. What was computed is in `run_dir`; `resume` is the command that goes on."""

    def __init__(self, cause: str, run_dir: str = "", resume: str = "") -> None:
        super().__init__(cause, run_dir, resume)
        self.cause, self.run_dir, self.resume = cause, run_dir, resume

    def __str__(self) -> str:
        return f"the run failed: {self.cause}" + (f"; continue with: {self.resume}" if self.resume else "")
