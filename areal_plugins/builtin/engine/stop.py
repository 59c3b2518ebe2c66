"""Stop strings, watched for while the tokens of an answer appear one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""What a decoder writes for the first bytes of a character that later tokens complete."""


class StopStrings:
    """Says at which token of one answer a stop string is complete; `end` is then where it starts in the text.

    Only a few last tokens are decoded each time: text grows by the difference between decoding
    them with and without the newest, because a token's text depends on those before it.
    """

    def __init__(self, stops: Sequence[str], decode: Decode) -> None:
        self.end: int | None = None
        self._stops, self._decode = tuple(stops), decode
        self._reach = max(map(len, stops)) - 1
        self._tokens: list[int] = []
        self._settled = 0
        self._shown = self._tail = ""
        self._length = 0

    def complete(self, token: int) -> bool:
        """Whether `token`, the next of the answer, completes a stop string."""
        self._tokens.append(token)
        text = self._decode(self._tokens)
        if text.endswith(_INCOMPLETE):
            return False
        fresh = text[len(self._shown) :]
        self._tokens = self._tokens[self._settled :]
        self._settled = len(self._tokens)
        self._shown = self._decode(self._tokens)
        return self._search(fresh)

    def _search(self, fresh: str) -> bool:
        """Look for a stop string that ends in `fresh`, the newest text."""
        old, tail = len(self._tail), self._tail + fresh
        found = [tail.find(stop, max(0, old - len(stop) + 1)) for stop in self._stops]
        starts = [start for start in found if start >= 0]
        if starts:
            self.end = self._length - old + min(starts)
        self._length += len(fresh)
        self._tail = tail[-self._reach :] if self._reach else ""
        return bool(starts)
