"""Whether prompts and answers have room in a model, or in an engine's cache."""

from __future__ import annotations

from collections.abc import Iterator

from areal_plugins import CheckContext, Finding


def room(context: CheckContext, tokens: int, path: tuple[str | int, ...]) -> Iterator[Finding]:
    """An answer of full length leaves at least one of `tokens` to its prompt."""
    longest = context.spec.inference.sampling.max_new_tokens
    if longest >= tokens:
        message = f"answers of {longest} tokens leave no room for a prompt in {tokens}"
        yield Finding("answers-too-long", message, path, "lower inference.sampling.max_new_tokens, or raise it")
