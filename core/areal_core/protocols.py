"""What a live component must do. Factories (named in descriptors) return objects of these shapes.

`torch` never appears here: tensors are typed `Any` and paths are `pathlib.Path`. Methods that are
`async` run on their worker's event loop and must not block it, and neither must the quick plain
ones that are called there: `stats`, `memory` and `resize` of engines, `size` and `task` of
environments, `keep` of objectives. Other plain methods are called in a thread of their own (except
`inline`, where everything shares one loop). What a method raises reaches the controller with its
traceback and is reported, never turned into a default.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from areal_core.batch import BatchArrays, LossInputs, Targets
    from areal_core.contexts import Place, StagePlan, WorkerSpec
    from areal_core.data import (
        Batch,
        Completion,
        EngineStats,
        GenerateRequest,
        Message,
        Reply,
        Sample,
        Score,
        Task,
        TrajectoryGroup,
        WeightOffer,
        WeightVersion,
    )


# --- model -----------------------------------------------------------------------------------------


class Platform(Protocol):
    """A make of device."""

    def count(self) -> int:
        """Devices present; 0 where the driver is missing. Imports nothing heavy."""
        ...

    def missing(self) -> str | None:
        """What this machine lacks to use it, in one line; None when nothing."""
        ...

    def environment(self, place: Place) -> Mapping[str, str]:
        """Variables a worker at `place` must start with (visible devices, allocator, time-outs)."""
        ...


class Tokenizer(Protocol):
    """Text to token ids and back."""

    eos_ids: tuple[int, ...]

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without special tokens added."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`, special tokens left out."""
        ...

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt that asks for the assistant's next turn; raises where there is no chat template."""
        ...


class ModelSource(Protocol):
    """Where a model comes from. Engines and trainers only ever see a Hugging Face directory."""

    def materialize(self) -> Path:
        """The directory with `config.json`, safetensors and tokenizer; made once, then found again.

        Raises:
            InputError: the path does not exist or is not a model; names the file.

        """
        ...

    def tokenizer(self, directory: Path) -> Tokenizer | None:
        """The tokenizer in `directory`; None for models without one (classic policies)."""
        ...


# --- generation ------------------------------------------------------------------------------------


class WeightSource(Protocol):
    """The engine's end of one published version, in the one mechanism that both sides chose."""

    mechanism: str

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """`tensors`: canonical name and tensor, a bucket's memory at a time; do not keep them."""
        ...

    def path(self) -> Path:
        """`hf-dir`: a directory to load from."""
        ...

    def handle(self) -> Mapping[str, Any]:
        """`shm-handle` and `process-group`: what the engine needs to fetch the bytes itself."""
        ...


class Engine(Protocol):
    """Generates. One engine a worker (or a worker group); requests are served concurrently.

    A partial rollout is nothing special: while the engine is paused a running completion is kept
    (`interruptible`) and later goes on under the new weights, each token with its own version.

    An engine may also have `def partial(self, request: str) -> Sequence[Completion]`: what it has drawn so far of
    the completions that it has not yielded yet of the request of this id, each with finish `abort`, and nothing
    for an unknown one; they go on. Such an engine goes on from what a request has `begun`, too, and yields what is
    whole of it as it is. Another may ignore `begun`: its answers begin anew when a run resumes.

    An engine may also have these three, by which its worker makes room before its memory runs out; like `partial`
    they are called on the loop, and must be quick: `def memory(self) -> float | None`, the share of its device's
    memory that is in use (None: the processor's, which the worker knows); `def relieve(self) -> None`, which
    empties caches; and `def resize(self, max_concurrent: int) -> None`, how many completions it works on at once
    from now on: those under way beyond it are finished.
    """

    async def start(self, version: WeightVersion) -> None:
        """Load the model; serve it as `version`."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncIterator[Completion]:
        """Yield each of the `n` completions as it ends; the prompt is prefilled once for all.

        Raises:
            PromptTooLong: the prompt leaves no room for a token; names the request.
            InputError: the prompt is empty, or the request makes no sense otherwise.
            Exception: the engine itself failed; it is asked nothing more, and its worker is replaced.

        """
        ...

    async def abort(self, ids: Sequence[str] | None = None) -> None:
        """End these requests (all for None); their completions are yielded with finish `abort`."""
        ...

    async def pause(self, keep: bool) -> None:
        """Return once nothing computes. `keep` holds running completions, else they finish first."""
        ...

    async def resume(self) -> None:
        """Go on."""
        ...

    async def load_weights(self, source: WeightSource, version: WeightVersion) -> None:
        """Replace the weights in place while paused; drop every cache of the old ones that is not
        knowingly kept. Tokens drawn from now on carry `version`.
        """
        ...

    def stats(self) -> EngineStats:
        """Counters; cheap."""
        ...

    async def close(self) -> None:
        """Free everything."""
        ...


# --- training --------------------------------------------------------------------------------------


class Trainer(Protocol):
    """Trains. Every rank of the group is called alike with the whole batch and takes its own part.

    A trainer may also have `memory` (called on the loop, while it trains, too) and `relieve` (called between
    steps), as an engine.
    """

    def begin_stage(self, stage: StagePlan) -> None:
        """A fresh optimizer and schedule under `stage`; the weights stay."""
        ...

    def train(self, batch: Batch) -> Mapping[str, float]:
        """One step. Returns the figures of the step: `loss`, `grad_norm`, `learning_rate`, `entropy`,
        `mismatch` (mean |trainer - engine| log-probability of the same tokens under one version),
        `tokens`, ...; the same numbers for any micro-batch split and any number of ranks.

        A step whose loss or gradient is not finite changes no weight and reports `skipped` 1. So does one
        whose gradient's norm, before clipping, is over `batch.grad_limit`; it reports `exploded` 1 as well.
        """
        ...

    def weights(self) -> Iterator[tuple[str, Any]]:
        """Every parameter, whole, under its canonical name; adapters merged. Stable order."""
        ...

    def save_model(self, directory: Path) -> Callable[[], None] | None:
        """A Hugging Face directory that `from_pretrained` loads. Writes it and returns None; or copies
        what there is to write and returns a function that writes it, which is called in another
        thread while training goes on, and which later steps must not change the result of.
        """
        ...

    def save_state(self, directory: Path) -> Callable[[], None] | None:
        """All else that a resume needs: weights, optimizer, schedule, random states. As `save_model`,
        of the same moment.
        """
        ...

    def load_state(self, directory: Path) -> None:
        """Continue exactly from `save_state`, in the stage that has begun."""
        ...

    def close(self) -> None:
        """Free everything."""
        ...


class Transport(Protocol):
    """One end of a weight transport (see `TransportContext.side`)."""

    def publish(
        self, version: WeightVersion, weights: Iterator[tuple[str, Any]], save: Callable[[Path], None]
    ) -> WeightOffer:
        """Trainer side: make `version` fetchable. `weights` yields named tensors, `save` writes a
        Hugging Face directory; a transport uses the one that its mechanism needs.
        """
        ...

    def receive(self, offer: WeightOffer) -> WeightSource:
        """Engine side: fetch or attach `offer`, verified when `verify` is on. Changes no engine.

        Raises:
            TransportError: bytes are missing or damaged.

        """
        ...

    def release(self, version: WeightVersion) -> None:
        """Either side: free what `version` holds. Unknown versions are no error."""
        ...

    def close(self) -> None:
        """Free everything; leave no file, segment or port."""
        ...


# --- tasks and judgement ---------------------------------------------------------------------------


class Session(Protocol):
    """One rollout's link to the model; it records every token, so that text is never re-tokenized."""

    member: int
    seed: int

    async def generate(self, prompt: str | Sequence[Message] | None = None, **overrides: Any) -> Reply:
        """The model's next turn. `prompt` opens the conversation; None continues after `append`.

        `overrides` are fields of `Sampling`. Members of a group that ask the same at the same time
        share one request. Where a conversation has filled the model's context the reply is empty, with
        finish `length`; a first prompt that does is an error of input. A turn ends before anything else
        is said: meanwhile `generate`, `append` and `score` raise `RuntimeError`.
        """
        ...

    def append(self, text: str) -> None:
        """Add what the environment says (a tool's result, the user's next turn), never trained on."""
        ...

    async def score(self, answer: str) -> Score:
        """The verdict of the reward that the spec gives this environment."""
        ...


class Environment(Protocol):
    """Makes tasks by index, and plays them.

    `task` is a pure function of `(split, index)`: the same in every process and after a resume. It and
    `size` are called on the loop and must be quick; what takes long belongs into the factory. An
    environment may have an `async def close(self)`, called when its worker ends.
    """

    def size(self, split: str) -> int | None:
        """How many tasks; None when there is no end. 0 when the split does not exist."""
        ...

    def task(self, split: str, index: int) -> Task:
        """The task; raises `InputError` naming file and line when its source is wrong, `IndexError` beyond `size`."""
        ...

    async def run(self, task: Task, session: Session) -> Score:
        """Play one episode. A single turn is `session.score((await session.generate(task.prompt)).text)`."""
        ...


class Reward(Protocol):
    """Judges answers. What it raises is counted and retried, and in the end fails the run.

    It may have an `async def close(self)`, called when its worker ends.
    """

    async def score(self, sample: Sample) -> Score:
        """The verdict; the same for the same sample."""
        ...


# --- objective -------------------------------------------------------------------------------------


class Objective(Protocol):
    """Pure functions of arrays."""

    needs_entropy: bool
    needs_reference: bool
    needs_critic: bool

    def keep(self, rewards: np.ndarray) -> bool:
        """Whether a whole group [G] is worth training on (dynamic sampling); True for most."""
        ...

    def targets(self, arrays: BatchArrays) -> Targets:
        """Advantages and normalized weights over the whole optimizer batch."""
        ...

    def loss(self, inputs: LossInputs) -> tuple[Any, Mapping[str, Any]]:
        """The micro-batch's share of the loss (a scalar tensor; shares add up to the batch's), and
        sums over its units for metrics (each divided by the batch's masked units afterwards).
        """
        ...


# --- execution and records -------------------------------------------------------------------------


class Peer(Protocol):
    """The other end of a link to a service: see `workers.service` for the roles."""

    name: str

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        """The method's result.

        Raises:
            RemoteError: it raised there. WorkerLost: the link ended first. TimeoutError.

        """
        ...

    def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        """What an async-generator method yields; leaving the loop early cancels it there."""
        ...

    async def close(self) -> None:
        """End the link; the process goes on."""
        ...


class Worker(Peer, Protocol):
    """The controller's handle of one worker, the same under every executor."""

    spec: WorkerSpec
    address: str
    pid: int | None

    async def lost(self) -> str:
        """Return, once it is gone, with the reason (exit code, signal); wait until then."""
        ...

    async def stop(self, grace: float) -> None:
        """Ask it to end, then make it."""
        ...

    def kill(self) -> None:
        """End it now."""
        ...


class Executor(Protocol):
    """Starts workers."""

    async def start(self, spec: WorkerSpec) -> Worker:
        """A worker whose service answers; raises `WorkerLost` with the tail of its log if it dies first."""
        ...

    async def close(self) -> None:
        """End every worker that is left."""
        ...


class Tracker(Protocol):
    """Records a run's figures; called off the controller's loop."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Figures of optimizer step `step`."""
        ...

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Figures of an evaluation of the weights after `step`."""
        ...

    def group(self, group: TrajectoryGroup) -> None:
        """A group that enters the buffer."""
        ...

    def close(self) -> None:
        """Flush."""
        ...


class Parallelism(Protocol):
    """Spreads a model over one axis of a device mesh."""

    def apply(self, model: Any, mesh: Any) -> Any:
        """The model with this axis's sharding applied; `mesh` is a torch DeviceMesh."""
        ...

    def divides(self, shape: Mapping[str, int], size: int) -> Iterable[str]:
        """What does not divide by `size` in a model of `shape` (heads, experts, ...), in words."""
        ...
