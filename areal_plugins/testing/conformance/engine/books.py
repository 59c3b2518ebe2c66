"""What an engine says of itself, and leaves behind."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from areal_core.protocols import Engine
from areal_plugins.testing.conformance.base import Subject
from areal_plugins.testing.conformance.engine.rules import PLACES, EngineRules
from areal_plugins.testing.conformance.serving import (
    FIRST,
    Bench,
    collect,
    drawn,
    request,
    turns,
)


class Books(EngineRules):
    """Counters, shared prompts and the end."""

    def test_stats_count(self, bench: Bench) -> None:
        """`stats` counts the tokens drawn and what runs and waits now; both are 0 when all is done."""

        async def use(engine: Engine) -> Any:
            running = asyncio.ensure_future(collect(engine, request([7, 8], n=PLACES + 2, max_new_tokens=60)))
            await drawn(engine, 2 * PLACES)
            during = engine.stats()
            await running
            await turns(3)
            return during, engine.stats()

        during, after = bench.run(use)
        assert during.running + during.waiting == PLACES + 2, f"of {PLACES + 2} completions stats knows {during}"
        assert (after.running, after.waiting) == (0, 0), f"when all is done, {after.running} run, {after.waiting} wait"
        expected = 60 * (PLACES + 2)
        assert after.generated_tokens == expected, f"stats says {after.generated_tokens} tokens, {expected} were drawn"
        assert after.busy_seconds > 0, "busy_seconds is 0 after work"

    def test_a_groups_prompt_is_computed_once(self, bench: Bench, subject: Subject) -> None:
        """An engine that `shares_prefix` computes the prompt of a group once."""
        if not subject.descriptor.capabilities.shares_prefix:
            pytest.skip("the engine does not share prefixes")

        async def use(engine: Engine) -> int:
            await collect(engine, request([7] * 40, n=3))
            return engine.stats().prefilled_tokens

        found = bench.run(use)
        assert found <= 60, f"{found} tokens were prefilled for three answers to a prompt of 40"

    def test_close_leaves_nothing(self, bench: Bench) -> None:
        """After `close` no task and no thread of the engine is left, though a request was running."""

        async def use() -> tuple[set[str], bool]:
            engine: Engine = bench.subject.build(bench.context)
            await engine.start(FIRST)
            running = asyncio.ensure_future(collect(engine, request([5], max_new_tokens=90)))
            await drawn(engine, 5)
            await engine.close()
            ended, _ = await asyncio.wait({running}, timeout=self.patience)
            others = asyncio.all_tasks() - {asyncio.current_task(), running}
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return {task.get_name() for task in others}, bool(ended)

        before = set(threading.enumerate())
        tasks, ended = asyncio.run(use())
        threads = {thread.name for thread in set(threading.enumerate()) - before if not thread.daemon}
        assert ended, "close left a request waiting for ever"
        assert not tasks, f"close left the tasks {', '.join(sorted(tasks))}"
        assert not threads, f"close left the threads {', '.join(sorted(threads))}"
