import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_core.data import NO_VERSION, Completion, Message, Reply, Sampling, Score, Task, TaskRef, Trajectory
from areal_core.errors import Remote, RemoteError
from areal_core.workers.session import Judge, Opening, Play, Prompts, RolloutSession, Transcript, sound
from areal_plugins.testing.clock import run_virtually

REF = TaskRef("world", "train", 0)


class Words:
    """A token a word, so that text is never what its tokens' texts add up to."""

    eos_ids: tuple[int, ...] = (0,)

    def encode(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]

    def decode(self, tokens: Sequence[int]) -> str:
        raise AssertionError("text is not read back from tokens")

    def render(self, messages: Sequence[Message]) -> str:
        return " ".join(m.content for m in messages)


class Requests:
    """Answers the turns of one member with completions that were drawn beforehand; notes what was asked."""

    engine = "engine-0"

    def __init__(self, completions: Sequence[Completion]) -> None:
        self.completions = list(completions)
        self.asked: list[list[int]] = []

    def ask(self, tokens: np.ndarray, sampling: Sampling, stream: tuple[int, int]) -> asyncio.Future[Completion]:
        self.asked.append(tokens.tolist())
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        if self.completions:
            answer.set_result(self.completions.pop(0))
        else:
            answer.set_exception(RemoteError("engine-0", "generate", Remote("PromptTooLong", "no room", exit_code=2)))
        return answer


drawn = st.lists(
    st.tuples(st.integers(0, 9), st.floats(-9, 0, width=32), st.integers(0, 2**50)), min_size=1, max_size=4
)
turns = st.lists(st.one_of(drawn, st.sampled_from(["and then", "one two three", ""])), min_size=1, max_size=6)


def completion(units: Sequence[tuple[int, float, int]]) -> Completion:
    tokens, logprobs, versions = zip(*units, strict=True)
    return Completion(
        0, np.array(tokens, np.int32), np.array(logprobs, np.float32), np.array(versions, np.int64), "stop", "t"
    )


def play(requests: Requests) -> Play:
    prompts = Prompts(Words(), REF)
    return Play(REF, Task("a bc def"), prompts, requests, Sampling(), Judge("environment/world"), 3)  # type: ignore[arg-type]


@given(turns)
def test_a_trajectory_is_what_was_read_and_drawn_in_order(turns: list[Any]) -> None:
    answers = [turn for turn in turns if not isinstance(turn, str)]
    requests = Requests([completion([(9, -1.0, 7)]), *map(completion, answers)])

    async def main() -> RolloutSession:
        session = RolloutSession(play(requests), 0)
        await session.generate("a bc def")
        for turn in turns:
            if isinstance(turn, str):
                session.append(turn)
            else:
                await session.generate()
        return session

    columns = asyncio.run(main()).trajectory(Score(1.0)).columns
    unread = [(token, 0, 0.0, NO_VERSION) for token in (1, 2, 3)]
    expected = [*unread, (9, 1, -1.0, 7)]
    for turn in turns:
        if isinstance(turn, str):
            expected += [(len(word), 0, 0.0, NO_VERSION) for word in turn.split()]
        else:
            expected += [(token, 1, logprob, version) for token, logprob, version in turn]
    assert list(zip(*(columns[name].tolist() for name in columns), strict=True)) == expected
    tokens = columns["tokens"].tolist()
    assert all(asked == tokens[: len(asked)] for asked in requests.asked)


def test_a_conversation_that_fills_the_context_goes_on_without_the_model() -> None:
    async def converse() -> tuple[Reply, Trajectory]:
        session = RolloutSession(play(Requests([completion([(5, -1.0, 0)])])), 0)
        await session.generate("a bc def")
        session.append("and then")
        reply = await session.generate()
        return reply, session.trajectory(Score(1.0))

    reply, trajectory = asyncio.run(converse())
    assert (reply.text, reply.tokens, reply.finish) == ("", (), "length")
    assert trajectory.finish == "length"
    assert trajectory.columns["mask"].tolist() == [0, 0, 0, 1, 0, 0]


def test_a_first_prompt_that_fills_the_context_is_an_error_of_input() -> None:
    async def open_with_too_much() -> None:
        await RolloutSession(play(Requests([])), 0).generate("a bc def")

    with pytest.raises(RemoteError, match="no room") as raised:
        asyncio.run(open_with_too_much())
    assert raised.value.exit_code == 2


class Slow(Requests):
    """Answers after a second."""

    def ask(self, tokens: np.ndarray, sampling: Sampling, stream: tuple[int, int]) -> asyncio.Future[Completion]:
        async def later() -> Completion:
            await asyncio.sleep(1)
            return await answer

        answer = super().ask(tokens, sampling, stream)
        return asyncio.ensure_future(later())


async def attempt(session: RolloutSession, operation: str) -> None:
    match operation:
        case "generate":
            await session.generate()
        case "append":
            session.append("and then")
        case "score":
            await session.score("t")


@pytest.mark.parametrize("operation", ["generate", "append", "score"])
def test_nothing_is_said_while_the_model_speaks(operation: str) -> None:
    """Two turns at once would be drawn from the same context, and recorded one after the other."""

    async def interrupt() -> RolloutSession:
        session = RolloutSession(play(Slow([completion([(5, -1.0, 0)])] * 3)), 0)
        await session.generate("a bc def")
        asked = asyncio.ensure_future(session.generate())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match=f"cannot {operation}.*await it first"):
            await attempt(session, operation)
        await asked
        await session.generate()
        return session

    columns = run_virtually(interrupt()).trajectory(Score(1.0)).columns
    assert columns["mask"].tolist() == [0, 0, 0, 1, 1, 1]


def test_a_turn_that_is_given_up_may_be_asked_for_again() -> None:
    async def ask_again() -> Reply:
        session = RolloutSession(play(Slow([completion([(5, -1.0, 0)])] * 3)), 0)
        await session.generate("a bc def")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.generate(), 0.5)
        return await session.generate()

    assert run_virtually(ask_again()).tokens == (5,)


@given(st.lists(st.integers(0, 9), min_size=1))
def test_a_demonstration_is_learned_from_nobodys_draws(tokens: list[int]) -> None:
    said = Transcript(Opening("p", np.array([5], np.int32)))
    said.demonstrate("answer", np.array(tokens, np.int32))
    columns = said.columns()
    assert columns["mask"].tolist() == [0] + [1] * len(tokens)
    assert set(columns["versions"].tolist()) == {NO_VERSION}
    assert not columns["logprobs"].any()


@pytest.mark.parametrize(("eos", "expected"), [((0, 7), [1, 2, 0]), ((), [1, 2])])
def test_an_answer_ends_where_the_model_should_stop(eos: tuple[int, ...], expected: list[int]) -> None:
    words = Words()
    words.eos_ids = eos
    assert Prompts(words, REF).answer("a bc").tolist() == expected


@pytest.mark.parametrize("value", [0, 1.5, True, np.float64(0.5)])
def test_any_finite_number_is_a_sound_value(value: Any) -> None:
    assert sound(Score(value)) == Score(value)
