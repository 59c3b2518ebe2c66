"""Stop strings, watched for while the tokens of an answer appear one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""What a decoder writes for the first bytes of a character that later tokens complete."""


class StopStrings:
    """Says at which token of one answer a stop string is complete.

    Only a few last tokens are decoded each time: text grows by the difference between decoding
    them with and without the newest, because a token's text depends on those before it.
    """

    def __init__(self, stops: Sequence[str], decode: Decode) -> None:
        self._stops, self._decode = tuple(stops), decode
        self._reach = max(map(len, stops)) - 1
        self._tokens: list[int] = []
        self._shown = ""
        self._settled = 0
        self._tail = ""

    def complete(self, token: int) -> bool:
        """Whether the answer, now that `token` is its next, holds a stop string."""
        self._tokens.append(token)
        text = self._decode(self._tokens)
        if text.endswith(_INCOMPLETE):
            return False
        tail = self._tail + text[len(self._shown) :]
        self._tail = tail[-self._reach :] if self._reach else ""
        self._tokens = self._tokens[self._settled :]
        self._settled = len(self._tokens)
        self._shown = self._decode(self._tokens)
        return any(stop in tail for stop in self._stops)


def cut(text: str, stops: Sequence[str]) -> str:
    """`text` up to the first of the stop strings it holds."""
    ends = [text.find(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else text
