"""What a role's service is: an object whose public coroutines and async generators can be called from afar."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Protocol, get_args, get_type_hints

from attrs import frozen

from areal_core.errors import PluginError
from areal_core.protocols import Peer

Dial = Callable[[str], Awaitable[Peer]]
"""Opens a link to another worker by its address; raises `WorkerLost` where nobody answers."""

ROLES: dict[str, str] = {
    "engine": "areal_core.workers.engine:EngineService",
    "trainer": "areal_core.workers.trainer:TrainerService",
    "rollout": "areal_core.workers.rollout:RolloutService",
}
"""The service of each role. A role may also be such a path itself: `module:Class`."""


class Service(Protocol):
    """Built as `Class(dial)`, or `Class(dial, threaded=...)` where it may move blocking calls off the loop."""

    async def close(self) -> None:
        """Free everything; the worker ends."""
        ...


@frozen
class Method:
    """One callable of a service: the types of its arguments, and of its result (of each item if it `streams`)."""

    name: str
    arguments: tuple[Any, ...]
    result: Any
    streams: bool


def make_service(role: str, dial: Dial, threaded: bool) -> Service:
    """The service of `role`; raises `PluginError` where there is none."""
    cls = service_class(role)
    chosen = {"threaded": threaded} if "threaded" in inspect.signature(cls).parameters else {}
    service: Service = cls(dial, **chosen)
    return service


def service_class(role: str) -> Callable[..., Any]:
    """The class that serves `role`."""
    module, _, attribute = ROLES.get(role, role).partition(":")
    if not attribute:
        raise PluginError(role, "is no role of a worker", f"roles are {', '.join(ROLES)}, or module:Class")
    found: Any = import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    cls: Callable[..., Any] = found
    return cls


@cache
def methods_of(cls: type[Any]) -> Mapping[str, Method]:
    """What can be called from afar: public coroutine and async generator functions, `close` left out."""
    functions = inspect.getmembers(cls, lambda f: inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f))
    return {name: _method(name, f) for name, f in functions if not name.startswith("_") and name != "close"}


def _method(name: str, function: Callable[..., Any]) -> Method:
    hints = get_type_hints(function)
    result = hints.get("return", Any)
    streams = inspect.isasyncgenfunction(function)
    return Method(
        name=name,
        arguments=tuple(hints.get(p, Any) for p in list(inspect.signature(function).parameters)[1:]),
        result=(get_args(result) or (Any,))[0] if streams else result,
        streams=streams,
    )
