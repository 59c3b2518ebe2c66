"""What a role's service is: an object whose public coroutines and async generators can be called from afar."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Protocol, get_args, get_type_hints

from attrs import frozen

from areal_core.errors import PluginError
from areal_core.importing import import_object
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
    """Built as `Class(dial, threaded)`: with `threaded`, blocking calls must leave the loop free."""

    async def close(self) -> None:
        """Free everything; the worker ends."""
        ...


@frozen
class Method:
    """One callable of a service: the types of its arguments (a tuple type), and of its result or of each item."""

    name: str
    arguments: Any
    defaults: tuple[Any, ...]
    result: Any
    streams: bool

    def complete(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """`args` with the defaults that were left out; raises `TypeError` where the number is wrong."""
        missing = len(get_args(self.arguments)) - len(args)
        if not 0 <= missing <= len(self.defaults):
            raise TypeError(f"{self.name} takes {len(get_args(self.arguments))} arguments, not {len(args)}")
        return args + self.defaults[len(self.defaults) - missing :]


def make_service(role: str, dial: Dial, threaded: bool) -> Service:
    """The service of `role`; raises `PluginError` where there is none."""
    service: Service = service_class(role)(dial, threaded)
    return service


def service_class(role: str) -> Callable[..., Any]:
    """The class that serves `role`."""
    name = ROLES.get(role, role)
    if ":" not in name:
        raise PluginError(role, "is no role of a worker", f"roles are {', '.join(ROLES)}, or module:Class")
    cls: Callable[..., Any] = import_object(name)
    return cls


@cache
def methods_of(cls: type[Any]) -> Mapping[str, Method]:
    """What can be called from afar: public coroutine and async generator functions, `close` left out."""
    functions = inspect.getmembers(cls, lambda f: inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f))
    return {name: _method(name, f) for name, f in functions if not name.startswith("_") and name != "close"}


def _method(name: str, function: Callable[..., Any]) -> Method:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    hints = get_type_hints(function)
    result, streams = hints.get("return", Any), inspect.isasyncgenfunction(function)
    return Method(
        name=name,
        arguments=tuple[tuple(hints.get(p.name, Any) for p in parameters)],  # type: ignore[misc]
        defaults=tuple(p.default for p in parameters if p.default is not p.empty),
        result=get_args(result)[0] if streams else result,
        streams=streams,
    )
