"""What happened beside the steps: failures, restarts, drops, alarms. Kept in `events.jsonl`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

from attrs import field, frozen

Level = Literal["info", "warning", "error"]

log = logging.getLogger(__name__)

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@frozen
class Event:
    """One of them: a stable `kind` (`worker-lost`, `dropped`, ...), a line for people, and its data."""

    kind: str
    message: str
    step: int
    level: Level = "warning"
    data: dict[str, Any] = field(factory=dict)


class Events:
    """Tells every listener of each event, in order. `step` is set by whoever trains."""

    def __init__(self, *listeners: Callable[[Event], None]) -> None:
        self.step = 0
        self._listeners = listeners

    def add(self, kind: str, message: str, level: Level = "warning", **data: Any) -> None:
        """Something happened."""
        event = Event(kind, message, self.step, level, data)
        log.log(_LEVELS[level], "%s: %s", kind, message)
        for listener in self._listeners:
            listener(event)
