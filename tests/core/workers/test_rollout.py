"""The rollout service against an engine that answers as a test tells it to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve, frozen

from areal_core.contexts import EnvironmentContext, ModuleRef, RewardContext
from areal_core.data import (
    NO_VERSION,
    Completion,
    GenerateRequest,
    Message,
    Sample,
    Sampling,
    Score,
    Task,
    TaskRef,
    TrajectoryGroup,
    WeightVersion,
)
from areal_core.errors import ComponentError, GenerationAborted, InputError, Remote, RemoteError, WorkerLost
from areal_core.workers.plans import EnvironmentPlan, GroupOrder, GroupResult, ModelPlan, RolloutPlan
from areal_core.workers.rollout import RolloutService

VERSION = WeightVersion(1, 7).code


class Letters:
    """A token a character; 0 ends."""

    eos_ids = (0,)

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.encoded.append(text)
        return [ord(letter) for letter in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(token) for token in tokens if token)

    def render(self, messages: Sequence[Message]) -> str:
        return "".join(f"<{m.role}>{m.content}" for m in messages) + "<assistant>"


TOKENIZER = Letters()


class Model:
    def tokenizer(self, directory: Path) -> Letters | None:
        return None if directory.name == "wordless" else TOKENIZER


def make_model(_options: object, _context: object) -> Model:
    return Model()


@frozen
class None_:
    """No options."""


Play = Callable[[Task, Any], Awaitable[Score]]


async def single_turn(task: Task, session: Any) -> Score:
    reply = await session.generate(task.prompt)
    return await session.score(reply.text)


class World:
    """The environment; `play` is set by the test."""

    play: Play = staticmethod(single_turn)
    task_made: Task = Task("ask", answer="ok", demonstration="yes")
    context: EnvironmentContext | None = None
    closed = 0

    def size(self, split: str) -> int | None:
        return {"train": None, "test": 5}.get(split, 0)

    def task(self, split: str, index: int) -> Task:
        if index == 404:
            raise IndexError("no such task")
        return World.task_made

    async def run(self, task: Task, session: Any) -> Score:
        return await World.play(task, session)

    async def close(self) -> None:
        World.closed += 1


def make_world(_options: object, context: EnvironmentContext) -> World:
    World.context = context
    return World()


class Judge:
    verdict: Callable[[Sample], Any] = staticmethod(lambda sample: Score(float(sample.answer == "ok")))

    async def score(self, sample: Sample) -> Score:
        verdict = Judge.verdict(sample)
        return await verdict if asyncio.iscoroutine(verdict) else verdict


def make_judge(_options: object, _context: RewardContext) -> Judge:
    return Judge()


@pytest.fixture(autouse=True)
def _as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls, names in ((World, ("play", "task_made", "context", "closed")), (Judge, ("verdict",))):
        for name in names:
            monkeypatch.setattr(cls, name, cls.__dict__[name])
    TOKENIZER.encoded.clear()


def completion(index: int, text: str = "ok", finish: str = "stop", logprob: float = -0.5) -> Completion:
    tokens = [ord(letter) for letter in text] + ([0] if finish == "stop" else [])
    return Completion(
        index,
        np.array(tokens, dtype=np.int32),
        np.full(len(tokens), logprob, dtype=np.float32),
        np.full(len(tokens), VERSION, dtype=np.int64),
        finish,  # type: ignore[arg-type]
        text,
    )


Answering = Callable[[GenerateRequest], AsyncIterator[Completion]]


async def at_once(request: GenerateRequest) -> AsyncIterator[Completion]:
    for index in range(request.n):
        yield completion(index)


async def never(request: GenerateRequest) -> AsyncIterator[Completion]:
    await asyncio.Event().wait()
    yield completion(0)


class Engine:
    """A peer that answers requests by `answering`, and notes which were made and which were left early."""

    name = "engine-0"

    def __init__(self, answering: Answering = at_once) -> None:
        self.answering = answering
        self.requests: list[GenerateRequest] = []
        self.left: list[str] = []
        self.closed = 0

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        raise AssertionError(f"{method} is not called")

    async def stream(self, method: str, *args: Any) -> AsyncIterator[Completion]:
        assert method == "generate"
        (request,) = args
        self.requests.append(request)
        try:
            async for answer in self.answering(request):
                yield answer
        except (asyncio.CancelledError, GeneratorExit):
            self.left.append(request.id)
            raise

    async def close(self) -> None:
        self.closed += 1


def ref(kind: str, factory: str) -> ModuleRef:
    return ModuleRef(kind, factory.removeprefix("make_"), f"{__name__}:{factory}", f"{__name__}:None_")


def plan(reward: bool = True, directory: str = "model") -> RolloutPlan:
    return RolloutPlan(
        model=ModelPlan(ref("model", "make_model"), "cache", "run", 0),
        directory=directory,
        environments=(
            EnvironmentPlan("world", ref("environment", "make_world"), ref("reward", "make_judge") if reward else None),
        ),
        seed=11,
    )


def order(
    members: tuple[int, ...] = (0, 1, 2), index: int = 3, mode: str = "generate", timeout: float | None = None
) -> GroupOrder:
    task = TaskRef("world", "train", index)
    return GroupOrder(5, task, members, Sampling(max_new_tokens=8), 42, "unix:engine", mode, timeout)


@asynccontextmanager
async def serving(engine: Engine, setup: RolloutPlan | None = None) -> AsyncIterator[RolloutService]:
    async def dial(address: str) -> Engine:
        assert address == "unix:engine"
        return engine

    service = RolloutService(dial, threaded=False)
    await service.setup(setup or plan())
    try:
        yield service
    finally:
        await service.close()


def rolled(engine: Engine, asked: GroupOrder | None = None, setup: RolloutPlan | None = None) -> GroupResult:
    async def main() -> GroupResult:
        async with serving(engine, setup) as service:
            return await service.run_group(asked or order())

    return asyncio.run(main())


# --- requests --------------------------------------------------------------------------------------


def test_members_that_ask_the_same_share_one_request() -> None:
    engine = Engine()
    rolled(engine)
    assert [request.n for request in engine.requests] == [3]


def test_the_prompt_is_tokenized_once_for_the_group() -> None:
    rolled(Engine())
    assert TOKENIZER.encoded == ["ask"]


def test_the_request_carries_the_prompt_and_the_sampling() -> None:
    engine = Engine()
    rolled(engine)
    assert engine.requests[0].tokens.tolist() == [ord(c) for c in "ask"]
    assert engine.requests[0].sampling == Sampling(max_new_tokens=8)


def test_members_that_ask_for_other_sampling_get_a_request_of_their_own() -> None:
    async def odd(task: Task, session: Any) -> Score:
        reply = await session.generate(task.prompt, **({"temperature": 0.5} if session.member == 1 else {}))
        return await session.score(reply.text)

    World.play = staticmethod(odd)
    engine = Engine()
    rolled(engine)
    assert [(r.n, r.sampling.temperature) for r in engine.requests] == [(2, 1.0), (1, 0.5)]


def test_equal_overrides_still_share() -> None:
    async def cool(task: Task, session: Any) -> Score:
        return await session.score((await session.generate(task.prompt, temperature=0.5)).text)

    World.play = staticmethod(cool)
    engine = Engine()
    rolled(engine)
    assert [r.n for r in engine.requests] == [3]


def test_the_same_order_draws_from_the_same_streams() -> None:
    first, second = Engine(), Engine()
    rolled(first)
    rolled(second)
    assert first.requests[0].seed == second.requests[0].seed


def test_a_part_of_the_group_draws_from_streams_of_its_own() -> None:
    whole, part = Engine(), Engine()
    rolled(whole)
    rolled(part, order(members=(1, 2)))
    assert whole.requests[0].seed != part.requests[0].seed


def test_request_ids_are_never_used_twice() -> None:
    engine = Engine()
    rolled(engine)
    rolled(engine)
    assert engine.requests[0].id != engine.requests[1].id


def test_each_member_has_a_seed_of_its_own() -> None:
    seeds: list[int] = []

    async def note(task: Task, session: Any) -> Score:
        seeds.append(session.seed)
        return await single_turn(task, session)

    World.play = staticmethod(note)
    rolled(Engine())
    rolled(Engine(), order(members=(2,)))
    assert len(set(seeds)) == 3
    assert seeds[3] == seeds[2]


def test_a_completion_wakes_its_member_while_others_still_generate() -> None:
    scored: list[str] = []
    verdict_given = asyncio.Event()

    async def one_by_one(request: GenerateRequest) -> AsyncIterator[Completion]:
        for index in reversed(range(request.n)):
            yield completion(index, f"answer {index}")
            await verdict_given.wait()
            verdict_given.clear()

    def note(sample: Sample) -> Score:
        scored.append(sample.answer)
        verdict_given.set()
        return Score(0.0)

    Judge.verdict = staticmethod(note)
    group = rolled(Engine(one_by_one)).group
    assert scored == ["answer 2", "answer 1", "answer 0"]
    assert [t.answer for t in group] == ["answer 0", "answer 1", "answer 2"]


# --- trajectories ----------------------------------------------------------------------------------


def test_a_trajectory_holds_the_prompt_and_what_was_sampled() -> None:
    group = rolled(Engine()).group
    columns = group.trajectories[0].columns
    assert columns["tokens"].tolist() == [*b"ask", *b"ok", 0]
    assert columns["mask"].tolist() == [0, 0, 0, 1, 1, 1]
    assert columns["logprobs"].tolist() == [0, 0, 0, -0.5, -0.5, -0.5]
    assert columns["versions"].tolist() == [NO_VERSION] * 3 + [VERSION] * 3


def test_columns_have_the_types_of_the_contract() -> None:
    columns = rolled(Engine()).group.trajectories[0].columns
    types = {name: column.dtype.name for name, column in columns.items()}
    assert types == {"tokens": "int32", "mask": "uint8", "logprobs": "float32", "versions": "int64"}


def test_the_group_is_named_and_its_members_are_in_order() -> None:
    group = rolled(Engine(), order(members=(4, 2))).group
    assert (group.sequence, group.task) == (5, TaskRef("world", "train", 3))
    assert [t.member for t in group] == [4, 2]
    assert group.oldest == WeightVersion(1, 7)


def test_the_verdict_is_the_reward_with_its_parts() -> None:
    Judge.verdict = staticmethod(lambda sample: Score(0.25, {"format": 1}))
    trajectory = rolled(Engine()).group.trajectories[0]
    assert (trajectory.reward, trajectory.scores) == (0.25, {"format": 1.0})


def test_a_reward_sees_the_rendered_prompt_and_how_the_answer_ended() -> None:
    seen: list[Sample] = []
    World.task_made = Task((Message("user", "hi"),), answer="ok")
    Judge.verdict = staticmethod(lambda sample: seen.append(sample) or Score(0.0))

    async def cut(request: GenerateRequest) -> AsyncIterator[Completion]:
        yield completion(0, "o", finish="length")

    trajectory = rolled(Engine(cut), order(members=(0,))).group.trajectories[0]
    assert seen == [Sample(World.task_made, "<user>hi<assistant>", "o", "length")]
    assert (trajectory.finish, trajectory.prompt, trajectory.answer) == ("length", "<user>hi<assistant>", "o")


def test_prompts_that_differ_share_nothing() -> None:
    async def own(task: Task, session: Any) -> Score:
        return await session.score((await session.generate(f"member {session.member}")).text)

    World.play = staticmethod(own)
    assert [t.prompt_length for t in rolled(Engine()).group] == [0, 0, 0]


def test_the_shared_prompt_is_counted() -> None:
    assert [t.prompt_length for t in rolled(Engine()).group] == [3, 3, 3]


async def two_turns(task: Task, session: Any) -> Score:
    await session.generate(task.prompt)
    session.append("|more?")
    return await session.score((await session.generate(max_new_tokens=2)).text)


def test_a_second_turn_continues_with_the_very_tokens() -> None:
    World.play = staticmethod(two_turns)
    engine = Engine()
    trajectory = rolled(engine, order(members=(0,))).group.trajectories[0]
    assert engine.requests[1].tokens.tolist() == [*b"ask", *b"ok", 0, *b"|more?"]
    assert trajectory.columns["tokens"].tolist() == [*b"ask", *b"ok", 0, *b"|more?", *b"ok", 0]
    assert trajectory.columns["mask"].tolist() == [0] * 3 + [1] * 3 + [0] * 6 + [1] * 3
    assert trajectory.columns["versions"].tolist() == [-1] * 3 + [VERSION] * 3 + [-1] * 6 + [VERSION] * 3
    assert trajectory.answer == "ok|moreok".replace("more", "more?")
    assert trajectory.prompt_length == 3


def test_appended_text_is_tokenized_once() -> None:
    World.play = staticmethod(two_turns)
    rolled(Engine(), order(members=(0,)))
    assert TOKENIZER.encoded == ["ask", "|more?"]


def test_turns_draw_from_different_streams() -> None:
    World.play = staticmethod(two_turns)
    engine = Engine()
    rolled(engine)
    assert len({r.seed for r in engine.requests}) == 4


def test_overrides_hold_for_one_turn() -> None:
    World.play = staticmethod(two_turns)
    engine = Engine()
    rolled(engine, order(members=(0,)))
    assert [r.sampling.max_new_tokens for r in engine.requests] == [8, 2]


# --- demonstrations --------------------------------------------------------------------------------


def test_a_demonstration_is_trained_on_though_nobody_drew_it() -> None:
    engine = Engine()
    group = rolled(engine, order(members=(0,), mode="demonstrate")).group
    columns = group.trajectories[0].columns
    assert columns["tokens"].tolist() == [*b"ask", *b"yes", 0]
    assert columns["mask"].tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert columns["logprobs"].tolist() == [0.0] * 7
    assert columns["versions"].tolist() == [NO_VERSION] * 7
    assert group.oldest is None
    assert engine.requests == []


def test_a_task_without_demonstration_is_bad_input() -> None:
    World.task_made = Task("ask")
    with pytest.raises(InputError, match="task world/train/3: has no demonstration"):
        rolled(Engine(), order(mode="demonstrate"))


# --- failures --------------------------------------------------------------------------------------


def test_a_reward_that_raises_is_named_with_the_task_and_the_cause() -> None:
    def broken(sample: Sample) -> Score:
        raise KeyError("gold")

    Judge.verdict = staticmethod(broken)
    with pytest.raises(ComponentError) as failure:
        rolled(Engine(), order(members=(1,)))
    assert str(failure.value) == "reward/judge: score world/train/3, member 1: KeyError: 'gold'"


class Burst(BaseException):
    """As some libraries' time-outs are, so that nobody takes them for an ordinary error."""


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, Burst])
def test_a_reward_that_raises_what_is_no_exception_is_one_that_fails(kind: type[BaseException]) -> None:
    def leaves(sample: Sample) -> Score:
        raise kind(0)

    Judge.verdict = staticmethod(leaves)
    with pytest.raises(ComponentError, match=f"reward/judge: score world/train/3, member 1: {kind.__name__}: 0"):
        rolled(Engine(), order(members=(1,)))


@pytest.mark.parametrize(
    ("verdict", "cause"),
    [
        (Score(float("nan")), "ValueError: the verdict's value is nan"),
        (Score(0.0, {"length": float("inf")}), "ValueError: the verdict's length is inf"),
        (1.0, "TypeError: the verdict must be a Score, not float"),
        (None, "TypeError: the verdict must be a Score, not NoneType"),
    ],
)
def test_a_verdict_that_is_none_is_the_rewards_fault(verdict: Any, cause: str) -> None:
    Judge.verdict = staticmethod(lambda sample: verdict)
    with pytest.raises(ComponentError) as failure:
        rolled(Engine(), order(members=(1,)))
    assert (failure.value.component, failure.value.cause) == ("reward/judge", cause)


def test_an_environment_that_raises_is_named() -> None:
    async def broken(task: Task, session: Any) -> Score:
        raise ZeroDivisionError("board of size 0")

    World.play = staticmethod(broken)
    with pytest.raises(ComponentError) as failure:
        rolled(Engine(), order(members=(1,)))
    assert str(failure.value) == "environment/world: play world/train/3, member 1: ZeroDivisionError: board of size 0"


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, Burst])
def test_an_environment_that_raises_what_is_no_exception_is_one_that_fails(kind: type[BaseException]) -> None:
    async def leaves(task: Task, session: Any) -> Score:
        raise kind(3)

    World.play = staticmethod(leaves)
    with pytest.raises(ComponentError, match=f"environment/world: play world/train/3, member 1: {kind.__name__}: 3"):
        rolled(Engine(), order(members=(1,)))


def test_an_environment_that_raises_it_where_it_makes_a_task_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def bursts(self: World, split: str, index: int) -> Task:
        raise Burst("no map")

    monkeypatch.setattr(World, "task", bursts)
    with pytest.raises(ComponentError, match="environment/world: make world/train/3: Burst: no map"):
        rolled(Engine(), order())


def test_an_environment_that_cannot_make_the_task_is_named() -> None:
    with pytest.raises(ComponentError, match="environment/world: make world/train/404: IndexError: no such task"):
        rolled(Engine(), order(index=404))


async def swallowing(task: Task, session: Any) -> Score:
    try:
        return await single_turn(task, session)
    except Exception:
        return Score(0.0)


def test_a_failed_reward_cannot_be_swallowed_into_a_zero() -> None:
    def broken(sample: Sample) -> Score:
        raise ValueError("no gold")

    World.play, Judge.verdict = staticmethod(swallowing), staticmethod(broken)
    with pytest.raises(ComponentError, match=r"reward/judge.*no gold"):
        rolled(Engine())


def test_an_abort_cannot_be_swallowed_into_a_zero() -> None:
    async def aborted(request: GenerateRequest) -> AsyncIterator[Completion]:
        yield completion(0, "o", finish="abort")

    World.play = staticmethod(swallowing)
    with pytest.raises(GenerationAborted):
        rolled(Engine(aborted))


def test_an_aborted_completion_ends_the_whole_group() -> None:
    async def one_aborted(request: GenerateRequest) -> AsyncIterator[Completion]:
        yield completion(1, "o", finish="abort")
        await asyncio.Event().wait()

    engine = Engine(one_aborted)
    with pytest.raises(GenerationAborted, match="engine engine-0"):
        rolled(engine)
    assert engine.left == [engine.requests[0].id]


def test_a_member_that_fails_ends_the_others_requests() -> None:
    async def one_fails(task: Task, session: Any) -> Score:
        if session.member == 2:
            await asyncio.sleep(0)
            raise RuntimeError("out of cards")
        return await single_turn(task, session)

    World.play = staticmethod(one_fails)
    engine = Engine(never)
    with pytest.raises(ComponentError, match="member 2: RuntimeError: out of cards"):
        rolled(engine)
    assert len(engine.left) == len(engine.requests)


def test_an_engine_that_raises_passes_as_it_is() -> None:
    async def broken(request: GenerateRequest) -> AsyncIterator[Completion]:
        yield completion(0)
        raise RemoteError("engine-0", "generate", Remote("ComponentError", "engine/torch: out of memory"))

    with pytest.raises(RemoteError, match="out of memory"):
        rolled(Engine(broken))


@pytest.mark.parametrize(
    ("indices", "cause"),
    [((0,), "2 of 3 completions missing"), ((0, 0), "completion 0 twice"), ((7,), "completion 7 twice, or beyond 3")],
)
def test_an_engine_that_miscounts_is_named(indices: tuple[int, ...], cause: str) -> None:
    async def miscounting(request: GenerateRequest) -> AsyncIterator[Completion]:
        for index in indices:
            yield completion(index)

    with pytest.raises(ComponentError, match=f"engine-0: generate .*{cause}"):
        rolled(Engine(miscounting))


def test_columns_of_different_lengths_are_the_engines_fault() -> None:
    async def ragged(request: GenerateRequest) -> AsyncIterator[Completion]:
        whole = completion(0)
        yield Completion(0, whole.tokens, whole.logprobs[:1], whole.versions, "stop")

    with pytest.raises(ComponentError, match=r"engine-0.*columns of different lengths"):
        rolled(Engine(ragged), order(members=(0,)))


@pytest.mark.parametrize(
    ("play", "cause"),
    [
        (lambda task, session: session.score("ok"), "cannot score: the model was not asked yet"),
        (lambda task, session: session.generate(), "cannot generate without a prompt"),
    ],
)
def test_a_conversation_opens_with_a_prompt(play: Any, cause: str) -> None:
    World.play = staticmethod(play)
    with pytest.raises(ComponentError, match=f"environment/world.*{cause}"):
        rolled(Engine())


def test_a_conversation_opens_only_once() -> None:
    async def twice(task: Task, session: Any) -> Score:
        await session.generate(task.prompt)
        return await session.score((await session.generate(task.prompt)).text)

    World.play = staticmethod(twice)
    with pytest.raises(ComponentError, match="the conversation has begun"):
        rolled(Engine())


def test_an_environment_that_never_asks_the_model_is_named() -> None:
    async def idle(task: Task, session: Any) -> Score:
        return Score(1.0)

    World.play = staticmethod(idle)
    with pytest.raises(ComponentError, match=r"environment/world.*cannot end: the model was not asked yet"):
        rolled(Engine())


def test_an_environment_that_cancels_itself_is_named() -> None:
    async def cancelled(task: Task, session: Any) -> Score:
        raise asyncio.CancelledError

    World.play = staticmethod(cancelled)
    with pytest.raises(ComponentError, match=r"environment/world.*it cancelled its own rollout"):
        rolled(Engine())


def test_an_unknown_sampling_override_is_the_environments_fault() -> None:
    async def misspelt(task: Task, session: Any) -> Score:
        return await session.score((await session.generate(task.prompt, temprature=1)).text)

    World.play = staticmethod(misspelt)
    with pytest.raises(ComponentError, match=r"environment/world.*temprature"):
        rolled(Engine())


def test_an_environment_without_reward_cannot_ask_for_one() -> None:
    with pytest.raises(ComponentError, match="environment/world: score: the spec gives this environment no `reward`"):
        rolled(Engine(), setup=plan(reward=False))


def test_an_empty_prompt_is_bad_input() -> None:
    World.task_made = Task("")
    with pytest.raises(InputError, match="task world/train/3: its prompt is empty"):
        rolled(Engine())


def test_a_model_without_tokenizer_cannot_read_text() -> None:
    with pytest.raises(InputError, match="task world/train/3: the model has no tokenizer"):
        rolled(Engine(), setup=plan(directory="wordless"))


# --- time and cancellation -------------------------------------------------------------------------


def test_a_group_that_takes_too_long_says_what_held_it() -> None:
    async def stuck(sample: Sample) -> Score:
        await asyncio.Event().wait()
        return Score(0.0)

    async def only_the_last(request: GenerateRequest) -> AsyncIterator[Completion]:
        yield completion(2)
        await asyncio.Event().wait()

    Judge.verdict = staticmethod(stuck)
    engine = Engine(only_the_last)
    with pytest.raises(ComponentError) as failure:
        rolled(engine, order(timeout=0.01))
    assert failure.value.operation == "play world/train/3"
    assert failure.value.cause == "not done after 0.01 s: the engine held member 0, 1; its reward held member 2"
    assert engine.left == [engine.requests[0].id]


def test_cancelling_a_group_ends_its_requests() -> None:
    asked = asyncio.Event()

    async def silent(request: GenerateRequest) -> AsyncIterator[Completion]:
        asked.set()
        await asyncio.Event().wait()
        yield completion(0)

    engine = Engine(silent)

    async def main() -> None:
        async with serving(engine) as service:
            group = asyncio.create_task(service.run_group(order()))
            await asked.wait()
            group.cancel()
            with pytest.raises(asyncio.CancelledError):
                await group

    asyncio.run(main())
    assert engine.left == [engine.requests[0].id]


def test_a_rewards_own_time_out_is_not_the_groups() -> None:
    async def slow(sample: Sample) -> Score:
        raise TimeoutError("the judge is down")

    Judge.verdict = staticmethod(slow)
    with pytest.raises(ComponentError, match=r"reward/judge.*the judge is down"):
        rolled(Engine(), order(timeout=100.0))


# --- the service -----------------------------------------------------------------------------------


def test_sizes_are_the_environments() -> None:
    async def main() -> list[int | None]:
        async with serving(Engine()) as service:
            return [await service.size("world", split) for split in ("train", "test", "other")]

    assert asyncio.run(main()) == [None, 5, 0]


def test_an_unknown_environment_is_named_with_the_known_ones() -> None:
    async def main() -> None:
        async with serving(Engine()) as service:
            await service.size("wrold", "train")

    with pytest.raises(ComponentError, match=r"environment wrold.*there are world"):
        asyncio.run(main())


@pytest.mark.parametrize(("reward", "told"), [(True, "reward/judge"), (False, None)])
def test_an_environment_is_told_whether_a_reward_judges(reward: bool, told: str | None) -> None:
    async def main() -> None:
        async with serving(Engine(), plan(reward)):
            assert EnvironmentContext("world", 11, told) == World.context

    asyncio.run(main())


def test_closing_the_service_closes_components_and_links() -> None:
    engine = Engine()
    rolled(engine)
    assert (World.closed, engine.closed) == (1, 1)


def test_a_second_setup_replaces_the_first() -> None:
    async def main() -> None:
        async with serving(Engine()) as service:
            await service.setup(plan())
            assert World.closed == 1
            await service.run_group(order())

    asyncio.run(main())


class Switchboard:
    """Dials engines in turn and counts."""

    def __init__(self, *engines: Engine | Exception) -> None:
        self.engines = list(engines)

    async def __call__(self, address: str) -> Engine:
        await asyncio.sleep(0)
        engine = self.engines.pop(0)
        if isinstance(engine, Exception):
            raise engine
        return engine


async def lost(request: GenerateRequest) -> AsyncIterator[Completion]:
    raise WorkerLost("engine-0", "killed by signal 9")
    yield


@pytest.mark.parametrize(
    ("first", "reason"), [(Engine(lost), "signal 9"), (WorkerLost("engine-0", "nobody answers"), "nobody answers")]
)
def test_a_lost_engine_is_dialled_again(first: Engine | Exception, reason: str) -> None:
    async def main() -> None:
        service = RolloutService(Switchboard(first, Engine()), threaded=False)  # type: ignore[arg-type]
        await service.setup(plan())
        with pytest.raises(WorkerLost, match=reason):
            await service.run_group(order())
        assert len((await service.run_group(order())).group.trajectories) == 3
        await service.close()

    asyncio.run(main())


def test_a_link_that_breaks_while_nobody_uses_it_is_forgotten(linked: Any) -> None:
    async def main() -> None:
        async with linked(Engine()) as (link, served):

            async def dial(_address: str) -> Any:
                return link

            engines = RolloutService(dial, threaded=False)._engines
            assert await engines.link("unix:engine") is link
            served.abort("the engine died")
            await link.lost()
            await asyncio.sleep(0)  # for the callbacks
            assert not engines._links

    asyncio.run(main())


def test_groups_that_start_together_share_one_link() -> None:
    async def main() -> None:
        service = RolloutService(Switchboard(Engine()), threaded=False)  # type: ignore[arg-type]
        await service.setup(plan())
        await asyncio.gather(*(service.run_group(order()) for _ in range(3)))
        await service.close()

    asyncio.run(main())


def test_building_happens_off_the_loop_where_asked() -> None:
    async def main() -> None:
        service = RolloutService(Switchboard(Engine()), threaded=True)  # type: ignore[arg-type]
        await service.setup(plan())
        assert (await service.run_group(order())).group.rewards.tolist() == [1.0, 1.0, 1.0]
        await service.close()

    asyncio.run(main())


# --- answers on their way --------------------------------------------------------------------------


class Halfway(Engine):
    """Member 1 is done, the others have drawn "o" so far."""

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        assert (method, args) == ("partial", (self.requests[0].id,))
        return [completion(index, "o", "abort") for index in range(self.requests[0].n) if index != 1]


class Silent(Halfway):
    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        await asyncio.Event().wait()


class Gone(Halfway):
    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        raise WorkerLost(self.name, "gone")


async def one_is_done(request: GenerateRequest) -> AsyncIterator[Completion]:
    if request.n == 3:
        yield completion(1)
    await asyncio.Event().wait()


async def told(service: RolloutService, engine: Engine, turns: int = 20) -> list[TrajectoryGroup]:
    """What is told of the group 5 a while after it has begun; it is given up then."""
    playing = asyncio.ensure_future(service.run_group(order()))
    for _ in range(turns):
        await asyncio.sleep(0)
    try:
        return await service.partial([4, 5])
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


def telling(engine: Engine) -> list[TrajectoryGroup]:
    async def main() -> list[TrajectoryGroup]:
        async with serving(engine) as service:
            return await told(service, engine)

    return asyncio.run(main())


def test_what_was_drawn_so_far_is_told_of_those_on_their_way_and_of_those_that_are_done() -> None:
    (group,) = telling(Halfway(one_is_done))
    assert (group.sequence, group.task) == (5, TaskRef("world", "train", 3))
    assert [(t.finish, t.answer, t.trained_units) for t in group] == [
        ("abort", "o", 1),
        ("stop", "ok", 3),
        ("abort", "o", 1),
    ]


def test_a_group_is_told_of_while_only_its_verdict_is_missing() -> None:
    Judge.verdict = lambda sample: asyncio.Event().wait()
    (group,) = telling(Halfway(at_once))
    assert [(trajectory.finish, trajectory.answer) for trajectory in group] == [("stop", "ok")] * 3


def test_an_engine_that_is_gone_has_nothing_to_tell() -> None:
    assert telling(Gone(one_is_done)) == []


def test_an_engine_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areal_core.workers.rollout.PATIENCE", 0.0)
    assert telling(Silent(one_is_done)) == []


def test_a_group_that_has_not_asked_yet_or_was_not_asked_for_is_not_told_of() -> None:
    async def main() -> None:
        engine = Halfway(one_is_done)
        async with serving(engine) as service:
            assert await told(service, engine, turns=1) == []
            playing = asyncio.ensure_future(service.run_group(order()))
            await asyncio.sleep(0.01)
            assert await service.partial([4]) == []
            playing.cancel()

    asyncio.run(main())


def test_members_that_ask_for_different_things_are_not_told_of() -> None:
    async def play(task: Task, session: Any) -> Score:
        return await single_turn(Task(f"ask {session.member}"), session)

    World.play = play
    assert telling(Halfway(never)) == []


def test_a_later_turn_is_not_told_of_but_the_first_is() -> None:
    async def play(task: Task, session: Any) -> Score:
        await session.generate(task.prompt)
        session.append("and?")
        return await session.score((await session.generate()).text)

    async def first_turn(request: GenerateRequest) -> AsyncIterator[Completion]:
        for index in range(request.n if len(request.tokens) == 3 else 0):
            yield completion(index)
        await asyncio.Event().wait()

    class Done(Engine):
        async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
            return []

    World.play = play
    (group,) = telling(Done(first_turn))
    assert [trajectory.answer for trajectory in group] == ["ok", "ok", "ok"]
    assert [trajectory.prompt_length for trajectory in group] == [3, 3, 3]


def test_a_group_goes_on_from_what_was_begun_of_it() -> None:
    (begun,) = telling(Halfway(one_is_done))
    engine = Engine()
    rolled(engine, evolve(order(), begun=begun))
    (request,) = engine.requests
    assert [(c.index, c.finish, c.text) for c in request.begun] == [
        (0, "abort", "o"),
        (1, "stop", "ok"),
        (2, "abort", "o"),
    ]
    assert [c.tokens.tolist() for c in request.begun] == [[ord("o")], [ord("o"), ord("k"), 0], [ord("o")]]


def test_only_the_first_turn_goes_on() -> None:
    async def play(task: Task, session: Any) -> Score:
        await session.generate(task.prompt)
        return await session.score((await session.generate()).text)

    World.play = play
    (begun,) = telling(Halfway(one_is_done))
    engine = Engine()
    rolled(engine, evolve(order(), begun=begun))
    assert [len(request.begun) for request in engine.requests] == [3, 0, 0, 0]


def test_a_task_that_has_changed_begins_anew() -> None:
    (begun,) = telling(Halfway(one_is_done))
    World.task_made = Task("another", answer="ok")
    engine = Engine()
    rolled(engine, evolve(order(), begun=begun))
    assert engine.requests[0].begun == ()
