"""The private spec keys of the environments. Light: attrs alone."""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen

PromptStyle = Literal["plain", "chat"]

INSTRUCTION = "Solve it step by step, and end with a line that holds #### and the answer as a number."


def _doc(text: str, default: Any = None, *, factory: Any = None, **limits: Any) -> Any:
    metadata = {"doc": text, **limits}
    return field(factory=factory, metadata=metadata) if factory else field(default=default, metadata=metadata)


def _test_path() -> Any:
    return _doc("JSON Lines file of held-out tasks.", path=True)


def _test_fraction() -> Any:
    return _doc(
        "Share of the tasks in `path` that is held out instead; a task's prompt alone decides, whatever the seed.",
        0.0,
        ge=0,
        lt=1,
    )


def _prompt(default: PromptStyle) -> Any:
    return _doc("Send the prompt as it is, or as a user's message through the model's chat template.", default)


def _system() -> Any:
    return _doc("System message before it; needs `prompt: chat`.")


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class Fields:
    """Names of a record's fields."""

    prompt: str = _doc("Text, or messages as [{role: ..., content: ...}, ...].", "prompt")
    answer: str | None = _doc("What a reward compares with; null: records have none.", "answer")
    demonstration: str | None = _doc("An answer to imitate; null: records have none.")


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class JsonlOptions:
    """Options of `jsonl`: one JSON object a line; all of it is the task's metadata."""

    path: str = field(metadata={"doc": "JSON Lines file of tasks to train on.", "path": True})
    test_path: str | None = _test_path()
    test_fraction: float = _test_fraction()
    fields: Fields = _doc("Names of the fields to read.", factory=Fields)
    template: str | None = _doc("Python format string of the prompt, over a record's fields; replaces fields.prompt.")
    prompt: PromptStyle = _prompt("plain")
    system: str | None = _system()

    def __attrs_post_init__(self) -> None:
        _one_way_to_hold_out(self.test_path, self.test_fraction)
        _system_needs_chat(self.system, self.prompt)


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class Gsm8kOptions:
    """Options of `gsm8k`: records of `question`, and `answer` ending in `#### N`."""

    path: str | None = _doc("JSON Lines file of tasks to train on, such as the data set's train.jsonl.", path=True)
    test_path: str | None = _test_path()
    test_fraction: float = _test_fraction()
    prompt: PromptStyle = _prompt("chat")
    system: str | None = _system()
    instruction: str | None = _doc("Written after the question.", INSTRUCTION)

    def __attrs_post_init__(self) -> None:
        _one_way_to_hold_out(self.test_path, self.test_fraction)
        _system_needs_chat(self.system, self.prompt)


def _one_way_to_hold_out(test_path: str | None, test_fraction: float) -> None:
    if test_path is not None and test_fraction:
        raise ValueError("test_path and test_fraction are two ways to hold tasks out: give one")


def _system_needs_chat(system: str | None, prompt: PromptStyle) -> None:
    if system is not None and prompt == "plain":
        raise ValueError("system is a message, which needs `prompt: chat`")
