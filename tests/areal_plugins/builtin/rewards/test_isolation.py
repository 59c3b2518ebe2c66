"""Real processes, really killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from areal_plugins.builtin.rewards import isolation
from areal_plugins.builtin.rewards.isolation import CallFailed, IsolatedFunction, LimitExceeded, Limits

FUNCTIONS = """
import os, re, signal, subprocess, sys, threading
def echo(*args): return [os.getpid(), *args]
def chatty(text): print("this is no reply"); sys.stdout.flush(); os.write(1, b"nor this"); return text
def greedy(size): return len(bytearray(size))
def broken(text): raise ValueError(text)
def strange(): return object()
def crash(): os.kill(os.getpid(), 11)
def leave(): os._exit(3)
def any_of(name, *args): return globals()[name](*args)
def hang_in_c(): re.fullmatch(r"(a+)+", "a" * 60 + "b")  # holds the interpreter's lock for years
def hang_in_python(): threading.Event().wait()
def hang_without_alarms():
    signal.setitimer(signal.ITIMER_REAL, 0)
    hang_in_c()
def spin():
    signal.setitimer(signal.ITIMER_REAL, 0)
    while True: pass
def start(): subprocess.Popen(["sleep", "3600"])
def start_and_leave(): start(); os._exit(5)
def fork(): return os.fork() and "parent"
def fork_and_raise(): os.fork() or broken("child")
def interrupt(): raise KeyboardInterrupt
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("functions") / "functions.py"
    path.write_text(FUNCTIONS)
    return f"{path}:any_of"


@pytest.fixture(scope="module")
def isolated(functions: str) -> Iterator[IsolatedFunction]:
    function = IsolatedFunction(functions, Limits(20.0, 512), workers=1)
    yield function
    function.close()


@pytest.fixture(scope="module")
def hasty(functions: str) -> Iterator[IsolatedFunction]:
    function = IsolatedFunction(functions, Limits(0.2), workers=1)
    yield function
    function.close()


def test_arguments_and_results_are_plain_data(isolated: IsolatedFunction) -> None:
    data = ["a", 1, 0.5, None, True, {"k": [b"v"]}, "\N{SNOWMAN}" * 100_000]
    assert isolated.call_blocking("echo", *data)[1:] == data


def test_calls_run_in_another_process_that_is_kept(isolated: IsolatedFunction) -> None:
    first, second = isolated.call_blocking("echo"), isolated.call_blocking("echo")
    assert first == second != [os.getpid()]


def test_what_the_function_prints_is_no_reply(isolated: IsolatedFunction) -> None:
    assert isolated.call_blocking("chatty", "reply") == "reply"


def test_what_the_function_raises_is_told(isolated: IsolatedFunction) -> None:
    with pytest.raises(CallFailed, match="ValueError: no gold"):
        isolated.call_blocking("broken", "no gold")
    with pytest.raises(CallFailed, match="KeyboardInterrupt: "):
        isolated.call_blocking("interrupt")


def test_a_result_that_is_no_plain_data_is_told(isolated: IsolatedFunction) -> None:
    with pytest.raises(CallFailed, match="TypeError: "):
        isolated.call_blocking("strange")


@pytest.mark.parametrize("how", ["fork", "fork_and_raise"])
def test_a_child_that_the_function_forks_answers_no_call(isolated: IsolatedFunction, how: str) -> None:
    assert isolated.call_blocking(how) in ("parent", None)
    assert [isolated.call_blocking("echo", n)[1:] for n in range(5)] == [[n] for n in range(5)]


def test_an_answer_that_nobody_took_is_not_taken_for_the_next(functions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = IsolatedFunction(functions, Limits(20.0), workers=1)
    function.start()
    with monkeypatch.context() as patch:
        patch.setattr(isolation, "_read_within", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            function.call_blocking("echo", "first")
    with pytest.raises(CallFailed, match="answered call 1 instead of 2"):
        function.call_blocking("echo", "second")
    assert function.call_blocking("echo", "third")[1:] == ["third"]
    function.close()


def test_a_process_that_ended_while_it_was_idle_says_how_and_is_replaced(functions: str) -> None:
    function = IsolatedFunction(functions, Limits(20.0), workers=1)
    (process,) = function.call_blocking("echo")
    os.kill(process, signal.SIGKILL)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    with pytest.raises(CallFailed, match=r"signal 9 \(SIGKILL\)"):
        function.call_blocking("echo")
    assert function.call_blocking("echo") != [process]
    function.close()


@pytest.mark.parametrize(("how", "told"), [("crash", r"signal 11 \(SIGSEGV\)"), ("leave", "exit code 3")])
def test_a_process_that_dies_says_how_and_is_replaced(isolated: IsolatedFunction, how: str, told: str) -> None:
    with pytest.raises(CallFailed, match=told):
        isolated.call_blocking(how)
    assert isolated.call_blocking("echo", how)[1:] == [how]


def test_too_much_memory_is_a_limit(isolated: IsolatedFunction) -> None:
    with pytest.raises(LimitExceeded, match="more memory than it may"):
        isolated.call_blocking("greedy", 2 << 30)
    assert isolated.call_blocking("greedy", 1 << 20) == 1 << 20


@pytest.mark.parametrize("how", ["hang_in_c", "hang_in_python"])
def test_a_call_that_hangs_is_killed_and_its_process_replaced(hasty: IsolatedFunction, how: str) -> None:
    (before,) = hasty.call_blocking("echo")
    with pytest.raises(LimitExceeded, match=r"no result within 0\.2 s"):
        hasty.call_blocking(how)
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    assert hasty.call_blocking("echo") != [before]


def test_the_loop_goes_on_while_a_call_hangs(hasty: IsolatedFunction) -> None:
    async def main() -> list[str]:
        order: list[str] = []
        call = asyncio.create_task(hasty.call("hang_in_c"))
        call.add_done_callback(lambda _: order.append("killed"))
        await asyncio.sleep(0)
        order.append("loop")
        with pytest.raises(LimitExceeded):
            await call
        return order

    assert asyncio.run(main()) == ["loop", "killed"]


def test_no_more_processes_than_workers(functions: str) -> None:
    function = IsolatedFunction(functions, Limits(20.0), workers=2)

    async def main() -> set[int]:
        return {pid for (pid, _) in await asyncio.gather(*(function.call("echo", n) for n in range(12)))}

    try:
        assert len(asyncio.run(main())) <= 2
    finally:
        function.close()


def test_closing_ends_calls_under_way(functions: str) -> None:
    function = IsolatedFunction(functions, Limits(60.0), workers=1)
    function.start()

    async def main() -> None:
        call = asyncio.create_task(function.call("hang_in_c"))
        await asyncio.sleep(0)
        await asyncio.to_thread(function.close)
        with pytest.raises((CallFailed, asyncio.CancelledError)):
            await call

    asyncio.run(main())


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("/nowhere/functions.py:f", "no such plugin file"),
        ("no_such_package.module:f", "ModuleNotFoundError|there is no such module"),
        ("os:no_such_function", "there is no 'no_such_function' in os"),
    ],
)
def test_what_cannot_be_imported_is_known_at_the_start(target: str, told: str) -> None:
    function = IsolatedFunction(target, Limits(1.0), workers=1)
    with pytest.raises(CallFailed, match=told):
        function.start()
    function.close()


PARENT = """
import os, sys, threading
from areal_plugins.builtin.rewards.isolation import CallFailed, IsolatedFunction, Limits
function = IsolatedFunction(sys.argv[1], Limits(2.0), 1)
function.start()
if sys.argv[2] == "start":
    function.call_blocking("start")
elif sys.argv[2] == "start_and_leave":
    try:
        function.call_blocking("start_and_leave")
    except CallFailed:
        pass
elif sys.argv[2]:
    threading.Thread(target=function.call_blocking, args=(sys.argv[2],)).start()
    threading.Event().wait(0.5)
print("gone", flush=True)
os._exit(9)
"""


@pytest.mark.parametrize("call", ["", "hang_in_c", "hang_without_alarms", "spin", "start", "start_and_leave"])
def test_processes_end_with_their_parent_and_all_that_they_started(functions: str, call: str) -> None:
    parent = subprocess.run(
        [sys.executable, "-c", PARENT, functions, call],
        capture_output=True,  # the pipes close only when the last process that holds them has ended
        timeout=60,
        check=False,
        cwd=Path(__file__).parent,
    )
    assert (parent.returncode, parent.stdout) == (9, b"gone\n")
