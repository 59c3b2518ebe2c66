"""One rollout's link to the model, and the record of every token that crossed it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import evolve, field, frozen

from areal_core.data import (
    NO_VERSION,
    Completion,
    Finish,
    Message,
    Reply,
    Sample,
    Sampling,
    Score,
    Task,
    TaskRef,
    Trajectory,
)
from areal_core.errors import ComponentError, GenerationAborted, InputError, PromptTooLong, RemoteError
from areal_core.protocols import Reward, Tokenizer
from areal_core.workers.faults import blamed
from areal_core.workers.requests import GroupRequests
from areal_core.workers.seeds import derive

Piece = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@frozen
class Judge:
    """The reward of an environment, and how errors name it; `reward` None: the environment judges itself.

    A verdict may take `timeout` seconds.
    """

    environment: str
    reward: Reward | None = None
    name: str = ""
    timeout: float | None = None


@frozen(eq=False)
class Opening:
    """A prompt as the model reads it: its rendered text, its token ids (int32, [P]), and their columns."""

    text: str
    tokens: np.ndarray
    columns: Piece = field(init=False)

    @columns.default
    def _unlearned(self) -> Piece:
        return _read(self.tokens)


class Prompts:
    """Renders and tokenizes; each prompt once for all members of a group."""

    def __init__(self, tokenizer: Tokenizer | None, task: TaskRef) -> None:
        self._tokenizer, self._task = tokenizer, task
        self._openings: dict[str | tuple[Message, ...], Opening] = {}

    def open(self, prompt: str | Sequence[Message]) -> Opening:
        """The opening of a conversation; the same object for the same prompt.

        Raises:
            InputError: it has no tokens, or the model has no tokenizer or chat template; names the task.

        """
        key = prompt if isinstance(prompt, str) else tuple(prompt)
        if key not in self._openings:
            text = key if isinstance(key, str) else self._tool().render(key)
            self._openings[key] = Opening(text, self.encode(text))
        opening = self._openings[key]
        if not len(opening.tokens):
            raise InputError(f"task {self._task}", "its prompt is empty", "a model needs one token at least")
        return opening

    @property
    def shared(self) -> bool:
        """Whether all members opened with one and the same prompt."""
        return len(self._openings) == 1

    def encode(self, text: str) -> np.ndarray:
        """Token ids of `text`, int32, nothing added."""
        return np.array(self._tool().encode(text), dtype=np.int32)

    def answer(self, text: str) -> np.ndarray:
        """Token ids of an answer that ends after `text`: the end token follows, where the model has one."""
        tool = self._tool()
        return np.array([*tool.encode(text), *tool.eos_ids[:1]], dtype=np.int32)

    def _tool(self) -> Tokenizer:
        if self._tokenizer is None:
            raise InputError(f"task {self._task}", "the model has no tokenizer, so that it cannot read text")
        return self._tokenizer


class Transcript:
    """What was said, in order: tokens as they were sampled or read, never tokenized again."""

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self._pieces: list[Piece] = [opening.columns]
        self._texts: list[str] = []

    @property
    def answer(self) -> str:
        """All text after the prompt."""
        return "".join(self._texts)

    def read(self, text: str, tokens: np.ndarray) -> None:
        """The environment says `text`."""
        self._pieces.append(_read(tokens))
        self._texts.append(text)

    def draw(self, completion: Completion) -> None:
        """The policy says `completion`."""
        mask = _learned(len(completion.tokens))
        self._pieces.append((completion.tokens, mask, completion.logprobs, completion.versions))
        self._texts.append(completion.text)

    def demonstrate(self, text: str, tokens: np.ndarray) -> None:
        """Somebody else's answer, to be imitated: trained on, though no policy drew it."""
        _, _, logprobs, versions = _read(tokens)
        self._pieces.append((tokens, _learned(len(tokens)), logprobs, versions))
        self._texts.append(text)

    def tokens(self) -> np.ndarray:
        """All so far, int32; the opening's own array while nothing else was said."""
        if len(self._pieces) == 1:
            return self.opening.tokens
        return np.concatenate([piece[0] for piece in self._pieces], dtype=np.int32)

    def columns(self) -> dict[str, np.ndarray]:
        """The token columns of a trajectory."""
        tokens, mask, logprobs, versions = zip(*self._pieces, strict=True)
        return {
            "tokens": np.concatenate(tokens, dtype=np.int32),
            "mask": np.concatenate(mask, dtype=np.uint8),
            "logprobs": np.concatenate(logprobs, dtype=np.float32),
            "versions": np.concatenate(versions, dtype=np.int64),
        }


def _read(tokens: np.ndarray) -> Piece:
    """Columns of tokens that are not learned."""
    size = len(tokens)
    unknown = np.full(size, NO_VERSION, dtype=np.int64)
    return tokens, np.zeros(size, dtype=np.uint8), np.zeros(size, dtype=np.float32), unknown


def _learned(size: int) -> np.ndarray:
    """The mask of tokens that are; several times faster than `np.ones` on short answers."""
    return np.frombuffer(b"\1" * size, dtype=np.uint8)


@frozen(eq=False)
class Play:
    """What the members of a group share: the task and everything that serves it."""

    ref: TaskRef
    task: Task
    prompts: Prompts
    requests: GroupRequests
    sampling: Sampling
    judge: Judge
    seed: int


class RolloutSession:
    """The `Session` of one member. `doing` says what it waits for, `replied` when the model last answered."""

    def __init__(self, play: Play, member: int) -> None:
        self.member = member
        self.seed = derive(play.seed, member)
        self.doing = "the environment"
        self.replied = 0.0
        self.failure: Exception | None = None
        self._play = play
        self._said: Transcript | None = None
        self._finish: Finish = "stop"
        self._turns = 0
        self._asking = False

    async def generate(self, prompt: str | Sequence[Message] | None = None, **overrides: Any) -> Reply:
        """The model's next turn; raises `RuntimeError` where it has not answered yet: a conversation has an order."""
        said = self._begin(prompt) if prompt is not None else self._spoken("generate without a prompt")
        sampling = evolve(self._play.sampling, **overrides) if overrides else self._play.sampling
        completion = await self._ask(said.tokens(), sampling)
        said.draw(completion)
        self._finish = completion.finish
        self.replied = asyncio.get_running_loop().time()
        return Reply(completion.text, tuple(completion.tokens.tolist()), completion.finish)

    def append(self, text: str) -> None:
        """Add what the environment says, tokenized here and only once."""
        self._spoken("append").read(text, self._play.prompts.encode(text))

    async def score(self, answer: str) -> Score:
        """The verdict of the spec's reward."""
        judge, said = self._play.judge, self._spoken("score")
        if judge.reward is None:
            raise ComponentError(judge.environment, "score", "the spec gives this environment no `reward`")
        sample = Sample(self._play.task, said.opening.text, answer, self._finish)
        self.doing = "its reward"
        try:
            async with asyncio.timeout(judge.timeout) as limit:
                verdict = sound(await judge.reward.score(sample))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            late = TimeoutError(f"no verdict within {judge.timeout:g} s") if limit.expired() else None
            self.failure = blamed(late or error, judge.name, f"score {self._play.ref}, member {self.member}")
            raise self.failure from error
        self.doing = "the environment"
        return verdict

    def trajectory(self, score: Score) -> Trajectory:
        """The whole rollout, judged."""
        said = self._spoken("end")
        return Trajectory(
            member=self.member,
            columns=said.columns(),
            prompt_length=len(said.opening.tokens),
            reward=float(score.value),
            finish=self._finish,
            scores={name: float(part) for name, part in score.parts.items()},
            prompt=said.opening.text,
            answer=said.answer,
        )

    async def _ask(self, tokens: np.ndarray, sampling: Sampling) -> Completion:
        """One completion. A failure is kept: an environment that swallows it must not score the rest."""
        self.doing, self._asking = "the engine", True
        try:
            completion = await self._play.requests.ask(tokens, sampling, (self.member, self._turns))
            if completion.finish == "abort":
                raise GenerationAborted(self._play.requests.engine, f"of {self._play.ref}")
        except Exception as error:
            if self._turns and isinstance(error, RemoteError) and error.error.type == PromptTooLong.__name__:
                self.doing = "the environment"
                return Completion.empty(self.member, "length")
            self.failure = error
            raise
        finally:
            self._asking = False
        self._turns += 1
        self.doing = "the environment"
        return completion

    def _begin(self, prompt: str | Sequence[Message]) -> Transcript:
        if self._said is not None:
            raise RuntimeError("the conversation has begun: append() what is new, then generate() without a prompt")
        self._said = Transcript(self._play.prompts.open(prompt))
        return self._said

    def _spoken(self, operation: str) -> Transcript:
        if self._said is None:
            raise RuntimeError(f"cannot {operation}: the model was not asked yet; open with generate(prompt)")
        if self._asking and operation != "end":
            raise RuntimeError(f"cannot {operation}: generate() has not answered yet; await it first")
        return self._said


def sound(verdict: Any) -> Score:
    """The verdict itself; raises `TypeError` or `ValueError` where it is no `Score` of finite numbers."""
    if not isinstance(verdict, Score):
        raise TypeError(f"the verdict must be a Score, not {type(verdict).__name__}")
    for name, value in (("value", verdict.value), *verdict.parts.items()):
        if not math.isfinite(value):
            raise ValueError(f"the verdict's {name} is {value}")
    return verdict
