"""A request and its completions, as the scheduler follows them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from attrs import define, field

from areal_core.data import Completion, GenerateRequest
from areal_plugins.builtin.engine.sampling import stream_keys
from areal_plugins.builtin.engine.stop import StopStrings


@define(eq=False)
class Group:
    """A request: which members wait, which run, and which of those wait for the prompt to be computed.

    `limit`: most tokens of prompt and answer. `stop_ids` end an answer. `deliver` is given each
    completion as it ends. `keys` are the members' random streams.
    """

    request: GenerateRequest
    limit: int
    stop_ids: tuple[int, ...]
    watch: Callable[[], StopStrings | None]
    deliver: Callable[[Completion], None]
    waiting: deque[int] = field(factory=deque)
    running: list[Member] = field(factory=list)
    followers: list[Member] = field(factory=list)
    keys: np.ndarray = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.keys = stream_keys(self.request.seed, self.request.n)

    @property
    def prompt(self) -> np.ndarray:
        return self.request.tokens

    def begun(self, index: int) -> Completion:
        """What a member goes on from."""
        return self.request.begun[index] if self.request.begun else Completion.empty(index, "abort")


@define(eq=False)
class Member:
    """One completion that runs in `row`. `epoch` counts the weight updates before its prompt was computed."""

    group: Group
    index: int
    row: int
    epoch: int
    watch: StopStrings | None
