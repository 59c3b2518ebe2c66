"""Whose fault it is: errors get the component's name where they arise, and cross processes as data."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from areal_core.errors import ArealError, ComponentError, Remote, RemoteError

RAISED = (Exception, SystemExit)
"""What an import raises: a module that calls `sys.exit` has failed like any other, and ends no process of ours."""

_ENDED = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)
"""What says that somebody ended the call. All else is raised by the component, whatever class it is derived from."""


@contextmanager
def blaming(component: str, operation: str) -> Iterator[None]:
    """What the block raises becomes a `ComponentError` naming `component` and `operation`.

    Errors that were raised on purpose (`InputError`, `TransportError`, ...) say more and pass as they are.
    """
    try:
        yield
    except (ArealError, *_ENDED):
        raise
    except BaseException as error:
        raise blamed(error, component, operation) from error


def blamed(error: BaseException, component: str, operation: str) -> ArealError:
    """What `blaming` makes of `error`, for paths that are too hot for a context manager."""
    if isinstance(error, ArealError):
        return error
    return ComponentError(component, operation, f"{type(error).__name__}: {error_text(error)}")


def as_remote(error: BaseException) -> Remote:
    """`error` as it crosses to another process; an error that has crossed already keeps its origin."""
    if isinstance(error, RemoteError):
        return error.error
    return Remote(
        type=type(error).__name__,
        text=error_text(error),
        traceback=_encodable("".join(traceback.format_exception(error))),
        exit_code=error.exit_code if isinstance(error, ArealError) else 1,
    )


def error_text(error: BaseException) -> str:
    """What `error` says of itself, as text that can cross and be written down, whoever wrote its class."""
    try:
        return _encodable(str(error))
    except Exception as unsaid:
        return f"its message cannot be shown: its __str__ raises {type(unsaid).__name__}"


def _encodable(text: str) -> str:
    """`text` with what UTF-8 has no bytes for, a lone surrogate, spelt out."""
    return text.encode("utf-8", "backslashreplace").decode()
