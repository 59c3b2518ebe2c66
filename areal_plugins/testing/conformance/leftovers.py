"""What a component must not leave: tasks on the loop, threads that keep a process alive, child processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def running() -> set[str]:
    """Names of what runs now besides the caller: tasks of the running loop, threads, children."""
    return {*_tasks(), *_threads(), *_children()}


def _tasks() -> set[str]:
    try:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
    except RuntimeError:
        return set()
    return {f"the task {getattr(task.get_coro(), '__qualname__', '')} ({id(task)})" for task in tasks}


def _threads() -> set[str]:
    return {f"the thread {t.name} ({t.ident})" for t in threading.enumerate() if not t.daemon and not _pooled(t)}


def _pooled(thread: threading.Thread) -> bool:
    """The event loop's own pool ends with the loop."""
    return thread.name.startswith("asyncio_")


def _children() -> set[str]:
    """Of this process, from /proc where there is one, else those of `multiprocessing`."""
    lists = list(Path("/proc/self/task").glob("*/children")) if Path("/proc/self/task").is_dir() else []
    if not lists:
        return {f"the process {child.pid}" for child in multiprocessing.active_children()}
    return {f"the process {pid}" for file in lists for pid in _read(file).split()}


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the thread has ended meanwhile
        return ""


async def close(component: Any) -> None:
    """Close it, where it can be closed."""
    if hasattr(component, "close"):
        await component.close()


@asynccontextmanager
async def opened(make: Callable[[], T]) -> AsyncIterator[T]:
    """A component, closed in the end."""
    component = make()
    try:
        yield component
    finally:
        await close(component)


async def patiently(work: Awaitable[T], patience: float) -> T:
    """The result of `work`, which must come within `patience` seconds."""
    try:
        async with asyncio.timeout(patience) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(f"it is not done after {patience:g} s") from None


async def turns(count: int = 20) -> None:
    """Let everything else on the loop go on for a while."""
    for _ in range(count):
        await asyncio.sleep(0)
