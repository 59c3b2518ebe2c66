"""What flows through the pipeline. All of it is frozen, and crosses processes as it is.

A trajectory is columnar: named numpy arrays over one declared unit (a token, or an environment
step), so that an answer and a classic policy's unroll fit the same buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
from attrs import field, frozen

from areal_core.columns import Columns, columns_of

NO_VERSION = -1
"""The version of a token that no policy sampled (a prompt, a tool's answer, a demonstration)."""

_INCARNATION_SHIFT = 40
_LARGEST = (1 << 64) - 1


@frozen(order=True)
class WeightVersion:
    """Which weights: `step` optimizer steps, counted by the trainer's `incarnation`.

    A trainer that restarts from a checkpoint gets the next incarnation; versions order by
    incarnation first.
    """

    incarnation: int = 0
    step: int = 0

    @property
    def code(self) -> int:
        """The version as one int64, for columns; orders as the version does."""
        return (self.incarnation << _INCARNATION_SHIFT) | self.step

    @classmethod
    def from_code(cls, code: int) -> WeightVersion:
        return cls(code >> _INCARNATION_SHIFT, code & ((1 << _INCARNATION_SHIFT) - 1))

    @staticmethod
    def steps_of(codes: np.ndarray) -> np.ndarray:
        """The steps of a column of codes, int64."""
        return codes & ((1 << _INCARNATION_SHIFT) - 1)

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.step}"


@frozen
class TaskRef:
    """A task by name: the `index`-th of an environment's `split`. Enough to make the task again anywhere."""

    environment: str
    split: str
    index: int

    def __str__(self) -> str:
        return f"{self.environment}/{self.split}/{self.index}"


@frozen
class Message:
    """One turn of a conversation; `role` is `system`, `user`, `assistant` or `tool`."""

    role: str
    content: str


@frozen
class Task:
    """One prompt or episode seed.

    `prompt` is a text, or messages to be rendered by the model's chat template. `answer` is what a
    reward compares with; `demonstration` is an answer worth imitating, for supervised objectives.
    """

    prompt: str | tuple[Message, ...]
    answer: str = ""
    demonstration: str | None = None
    metadata: dict[str, Any] = field(factory=dict)


@frozen
class Sampling:
    """How to draw tokens. `temperature` 0 is greedy; `top_p` 1 and `top_k` 0 are off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 256
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


@frozen(eq=False)
class GenerateRequest:
    """`n` completions of one prompt (int32 token ids, [P]). `seed` alone fixes the random draws.

    Completion k draws from the stream `(seed, k)`, whatever else the engine is doing. `begun`: none, or all n to
    go on from. One with finish `abort` is continued, its columns kept as they are; another is whole already.
    """

    id: str
    tokens: np.ndarray
    sampling: Sampling
    n: int = 1
    seed: int = 0
    begun: tuple[Completion, ...] = ()


Finish = Literal["stop", "length", "abort"]


@frozen(eq=False)
class Completion:
    """One finished (or aborted) completion of T tokens, the stop token included when one was drawn.

    `logprobs` [T] float32: log-probability under the distribution each token was drawn from
    (temperature, top-p and top-k applied). `versions` [T] int64: `WeightVersion.code` of the
    weights that drew it. `text` is the decoded answer without special tokens and stop string.
    """

    index: int
    tokens: np.ndarray
    logprobs: np.ndarray
    versions: np.ndarray
    finish: Finish
    text: str = ""

    @classmethod
    def empty(cls, index: int, finish: Finish) -> Completion:
        """One of no tokens."""
        tokens, logprobs, versions = (np.zeros(0, dtype=kind) for kind in (np.int32, np.float32, np.int64))
        return cls(index, tokens, logprobs, versions, finish)


@frozen
class Score:
    """A reward's verdict; `parts` are its named ingredients, logged beside it."""

    value: float
    parts: dict[str, float] = field(factory=dict)


@frozen
class Sample:
    """What a reward sees: the task, the prompt as rendered, the answer's text, and how it ended."""

    task: Task
    prompt: str
    answer: str
    finish: Finish = "stop"


@frozen(eq=False)
class Trajectory:
    """One rollout. Every column has one entry a unit, N in all.

    Token columns: `tokens` int32, `mask` uint8 (1: drawn by the policy, trained on), `logprobs`
    float32 (0 where the mask is), `versions` int64 (`NO_VERSION` where the mask is 0). The first
    `prompt_length` entries are the prompt that all members of a group share.
    """

    member: int
    columns: Columns = field(converter=columns_of)
    prompt_length: int
    reward: float
    finish: Finish
    unit: Literal["token", "step"] = "token"
    scores: dict[str, float] = field(factory=dict)
    prompt: str = ""
    answer: str = ""

    def __len__(self) -> int:
        return self.columns.units

    @cached_property
    def trained_units(self) -> int:
        """Units that the policy drew, or that are imitated."""
        return int(np.count_nonzero(self.columns["mask"]))

    @cached_property
    def oldest(self) -> int | None:
        """The code of the oldest version that drew a unit of it; None when none was drawn by a policy."""
        codes = self.columns["versions"]
        if not codes.size:
            return None
        found = int(codes.view(np.uint64).min())  # there `NO_VERSION` is larger than any code
        return None if found == _LARGEST else found


@frozen(eq=False)
class TrajectoryGroup:
    """The rollouts of one task; `sequence` is its place in the order of submission, from 0."""

    sequence: int
    task: TaskRef
    trajectories: tuple[Trajectory, ...]

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.trajectories)

    @property
    def oldest(self) -> WeightVersion | None:
        """The oldest version that drew a unit of it; None when none was drawn by a policy."""
        codes = [code for trajectory in self.trajectories if (code := trajectory.oldest) is not None]
        return WeightVersion.from_code(min(codes)) if codes else None

    @property
    def rewards(self) -> np.ndarray:
        """[G] float64."""
        return np.array([t.reward for t in self.trajectories], dtype=np.float64)


@frozen(eq=False)
class Batch:
    """What one optimizer step consumes: it turns version `step` into `step + 1`.

    `grad_limit` is the largest norm of a gradient that may be applied; None: any.
    """

    step: int
    groups: tuple[TrajectoryGroup, ...]
    grad_limit: float | None = None

    @property
    def trajectories(self) -> list[Trajectory]:
        return [trajectory for group in self.groups for trajectory in group]


@frozen
class TensorInfo:
    """One parameter under its canonical Hugging Face name; `dtype` as torch spells it (`bfloat16`)."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@frozen
class WeightOffer:
    """Small record of a published version that travels to the engines; the bytes do not.

    `mechanism` says how they are fetched (`tensors`, `shm-handle`, `hf-dir`, `process-group`),
    `payload` where; both ends of the transport agree on its keys.
    """

    version: WeightVersion
    transport: str
    mechanism: str
    tensors: tuple[TensorInfo, ...] = ()
    payload: dict[str, Any] = field(factory=dict)


@frozen
class EngineStats:
    """Since the start: useful tokens drawn, seconds computing, and what is running or waiting now."""

    generated_tokens: int = 0
    prefilled_tokens: int = 0
    busy_seconds: float = 0.0
    running: int = 0
    waiting: int = 0


@frozen
class Reply:
    """What a model answered to an environment."""

    text: str
    tokens: tuple[int, ...]
    finish: str
