"""A running experiment can be spoken to: a door on this machine, for whoever may read the run directory.

The address and a key of its own stand in `control.json` there, readable by the owner alone, for as long as the
run goes on. The door is a port of the loopback interface: nothing is left of it when the process is killed.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from attrs import frozen

from areal_core.errors import InputError
from areal_core.workers.address import Listener, connect
from areal_core.workers.hello import Card, Refused, greet
from areal_core.workers.link import Link
from areal_core.workers.service import methods_of
from areal_core.workers.wire import Wire

FILE = "control.json"


@frozen
class Change:
    """Engines before, and by name those that joined or left."""

    before: int
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Control:
    """What a run can be asked from outside."""

    def __init__(self, scale: Callable[[int], Awaitable[Change]]) -> None:
        self._scale = scale

    async def scale(self, engines: int) -> Change:
        """Have so many engines; returns once those that join serve and those that leave are gone."""
        return await self._scale(engines)

    async def close(self) -> None:
        """Nothing to free."""


@asynccontextmanager
async def opened(control: Control, folder: Path) -> AsyncIterator[None]:
    """Let `control` be asked while the block runs, by whoever can read what stands in `folder`."""
    key, card, links = secrets.token_bytes(32), Card("controller"), set[Link]()

    async def accept(wire: Wire) -> None:
        with suppress(Refused):
            theirs = await greet(wire, "listener", key, card)
            link = Link(wire, theirs.name, service=control)
            links.add(link)
            link.gone.add_done_callback(lambda _: links.discard(link))

    listener, file = Listener(accept), folder / FILE
    await listener.bind("tcp:127.0.0.1:0")
    try:
        _write(file, json.dumps({"address": listener.address, "key": key.hex(), "pid": os.getpid()}))
        yield
    finally:
        file.unlink(missing_ok=True)
        await listener.close()
        for link in tuple(links):
            await link.close()


@asynccontextmanager
async def reached(folder: Path) -> AsyncIterator[Link]:
    """A link to the `Control` of the run in `folder`.

    Raises:
        InputError: there is no run, or it is not going on.

    """
    wire, key = await _wire(folder)
    try:
        theirs = await greet(wire, "dialer", key, Card("command"))
    except Refused as error:
        raise InputError(str(folder), f"its run cannot be spoken to: {error}") from error
    link = Link(wire, theirs.name, methods_of(Control))
    try:
        yield link
    finally:
        await link.close()


async def _wire(folder: Path) -> tuple[Wire, bytes]:
    content = _read(folder)
    try:
        said = json.loads(content)
        key = bytes.fromhex(said["key"])
        return await connect(said["address"]), key
    except ConnectionError:
        raise InputError(str(folder), "its run has ended without notice", "go on with it by run --resume") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError) as error:
        problem = f"does not say where the run is: {type(error).__name__}: {error}"
        raise InputError(str(folder / FILE), problem, "stop the run, and go on with it by run --resume") from error


def _read(folder: Path) -> bytes:
    try:
        return (folder / FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise _no_run(folder) from None
    except PermissionError:
        raise InputError(str(folder / FILE), "cannot be read: the run belongs to another user") from None
    except OSError as error:
        raise InputError(str(folder / FILE), f"cannot be read: {error.strerror}") from error


def _no_run(folder: Path) -> InputError:
    """Why there is nobody to speak to in `folder`."""
    if not folder.exists():
        return InputError(str(folder), "does not exist", "give the directory of a run that is going on")
    if not (folder / "provenance.json").exists():
        return InputError(str(folder), "is no run directory", "give the one that the run named, as runs/NAME-TIME")
    way_out = "go on with it by run --resume; one that still goes on in debug mode cannot be spoken to"
    return InputError(str(folder), "its run has ended", way_out)


def _write(file: Path, text: str) -> None:
    """Nobody else may read it, at no moment."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)
