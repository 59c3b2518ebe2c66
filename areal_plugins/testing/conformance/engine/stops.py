"""Being stopped: aborts and pauses."""

from __future__ import annotations

import asyncio

from areal_core.data import Completion
from areal_core.protocols import Engine
from areal_plugins.testing.conformance.base import Subject
from areal_plugins.testing.conformance.engine.rules import EngineRules
from areal_plugins.testing.conformance.serving import (
    Bench,
    collect,
    drawn,
    request,
    together,
    turns,
)


class Stops(EngineRules):
    """Requests that are aborted, and engines that are paused."""

    def test_abort_ends_one_request(self, bench: Bench) -> None:
        """An aborted request yields what it has, with finish `abort`; others go on."""

        async def use(engine: Engine) -> list[list[Completion]]:
            asked = [request([5], name="a", n=2, max_new_tokens=90), request([6], name="b", max_new_tokens=90)]
            both = asyncio.ensure_future(together(engine, asked))
            await drawn(engine, 9)
            await engine.abort(["a"])
            return await both

        aborted, whole = bench.run(use)
        assert [a.finish for a in aborted] == ["abort"] * 2, f"aborted answers ended with {[a.finish for a in aborted]}"
        assert 0 < sum(len(a.tokens) for a in aborted) < 180, "an aborted request lost its tokens, or ran to its end"
        assert (whole[0].finish, len(whole[0].tokens)) == ("length", 90), "a request that was not aborted was cut"

    def test_abort_ends_all(self, bench: Bench) -> None:
        """`abort(None)` ends every request, those that wait too; the engine serves on."""

        async def use(engine: Engine) -> tuple[list[list[Completion]], list[Completion]]:
            asked = [request([5], name=str(i), n=2, max_new_tokens=90) for i in range(4)]
            all_of_them = asyncio.ensure_future(together(engine, asked))
            await drawn(engine, 9)
            await engine.abort(None)
            return await all_of_them, await collect(engine, request([5], name="after"))

        aborted, after = bench.run(use)
        assert {a.finish for answers in aborted for a in answers} == {"abort"}, "abort(None) left some request"
        assert after[0].finish == "length", "after abort(None) a request is not served"

    def test_leaving_the_stream_ends_the_request(self, bench: Bench) -> None:
        """Whoever stops listening has ended the request: nothing of it runs or waits on."""

        async def use(engine: Engine) -> tuple[int, int]:
            stream = engine.generate(request([5], n=6, max_new_tokens=90))
            task = asyncio.ensure_future(anext(stream))
            await drawn(engine, 9)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await stream.aclose()  # type: ignore[attr-defined]
            await turns()
            return engine.stats().running, engine.stats().waiting

        left = bench.run(use)
        assert left == (0, 0), f"{left[0]} completions run and {left[1]} wait for nobody"

    def test_pause_holds_everything(self, bench: Bench, subject: Subject) -> None:
        """Once `pause` has returned nothing is drawn, of running requests or new ones, until `resume`."""
        keep = subject.descriptor.capabilities.interruptible

        async def use(engine: Engine) -> tuple[int, int, list[list[Completion]]]:
            running = asyncio.ensure_future(collect(engine, request([5], name="a", n=2, max_new_tokens=60)))
            await drawn(engine, 9)
            await engine.pause(keep)
            before = engine.stats().generated_tokens
            late = asyncio.ensure_future(collect(engine, request([6], name="b")))
            await turns()
            during = engine.stats().generated_tokens
            await engine.resume()
            return before, during, [await running, await late]

        before, during, answers = bench.run(use)
        assert during == before, f"{during - before} tokens were drawn during a pause"
        assert [len(a.tokens) for group in answers for a in group] == [60, 60, 8], "a pause cost tokens"

    def test_pause_without_keep_finishes_what_runs(self, bench: Bench) -> None:
        """`pause(keep=False)` returns once the running completions have ended, whole."""

        async def use(engine: Engine) -> tuple[bool, list[Completion]]:
            running = asyncio.ensure_future(collect(engine, request([5], n=2, max_new_tokens=60)))
            await drawn(engine, 9)
            await engine.pause(False)
            await turns(3)
            ended = running.done()
            await engine.resume()
            return ended, await running

        ended, answers = bench.run(use)
        assert [len(a.tokens) for a in answers] == [60, 60], "pause(keep=False) cut a running completion"
        assert ended, "pause(keep=False) returned while a completion was still running"
