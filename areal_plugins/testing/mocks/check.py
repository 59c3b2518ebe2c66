"""What can be wrong with a mock's script: methods that the mock does not have, and faults that they cannot have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from areal_plugins import CheckContext, Finding
from areal_plugins.testing.mocks.options import Script


def script(coroutines: Iterable[str] = (), plain: Iterable[str] = (), streams: Iterable[str] = ()) -> _ScriptCheck:
    """The check of a mock with these methods."""
    return _ScriptCheck(tuple(coroutines), tuple(plain), tuple(streams))


class _ScriptCheck:
    """Called with the context of a check."""

    def __init__(self, coroutines: tuple[str, ...], plain: tuple[str, ...], streams: tuple[str, ...]) -> None:
        self.methods = (*coroutines, *plain, *streams)
        self._plain, self._streams = plain, streams

    def __call__(self, ctx: CheckContext) -> Iterator[Finding]:
        options: Script = ctx.options
        for method in options.latency:
            yield from self._unknown(method, (*ctx.path, "latency", method))
        for index, fault in enumerate(options.faults):
            path = (*ctx.path, "faults", index)
            yield from self._unknown(fault.method, (*path, "method"))
            if fault.kind == "hang" and fault.method in self._plain:
                hint = "let the executor hang: executor: {type: mock, mock: {faults: [{method: ..., kind: hang}]}}"
                yield Finding("bad-value", f"{fault.method} is no coroutine and cannot hang", (*path, "kind"), hint)
            if fault.kind == "twice" and fault.method not in self._streams:
                known = ", ".join(self._streams) or "nothing of this mock"
                yield Finding("bad-value", f"{fault.method} cannot answer twice; {known} can", (*path, "kind"))

    def _unknown(self, method: str, path: tuple[str | int, ...]) -> Iterator[Finding]:
        if method not in self.methods:
            yield Finding("bad-value", f"there is no method {method!r}; there are {', '.join(self.methods)}", path)
