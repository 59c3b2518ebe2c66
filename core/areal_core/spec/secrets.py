"""What may be written down or shown of a spec and a command: everything but secrets.

A secret is what stands under a key that is named like one, a password inside a URL, and whatever came
from the environment: there the reference is shown, `${env:NAME}`, so that the spec still loads where
the variable is set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(
    r"(^|_)(api_?keys?|private_?keys?|secrets?(_?keys?)?|passw(or)?ds?|credentials?|auth(orization)?"
    r"|((access|api|auth|bearer)_?)?token)$",
    re.IGNORECASE,
)

_IN_URL = re.compile(r"(?<=://)([^/\s:@]*):(?!\$\{env:)[^/\s]+(?=@)")
"""A user and a password, with nothing masked where it is a reference to the environment."""

_NONE = ("", "auto")
"""Values that say how to come by a secret, and are none."""

_MASK = "***"


def shown(resolved: Mapping[str, Any], origins: Mapping[str, str]) -> dict[str, Any]:
    """The resolved spec as it may be shown; `origins` as in `Experiment`."""
    return {key: without_secrets(_by_reference(value, key, origins), key) for key, value in resolved.items()}


def without_secrets(value: Any, key: str = "") -> Any:
    """`value` with everything masked that stands under a key that names a secret."""
    if isinstance(value, Mapping):
        return {name: without_secrets(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [
            _assignment(item) if isinstance(item, str) and not _named(key) else without_secrets(item, key)
            for item in value
        ]
    if not isinstance(value, str) or value in _NONE or value.startswith("${env:"):
        return value
    return _MASK if _named(key) else _IN_URL.sub(rf"\1:{_MASK}", value)


def _named(key: str) -> bool:
    return bool(_SECRET.search(key.rpartition(".")[2].replace("-", "_")))


def _assignment(text: str) -> str:
    """An override `a.b=value` or `--set=a.b=value`, masked where a key names a secret: its own, or one inside."""
    option, rest = ("--set=", text[6:]) if text.startswith("--set=") else ("", text)
    key, equals, value = rest.partition("=")
    inside = re.findall(r"[\w-]+(?=[\"']?\s*:)", value) if value.lstrip().startswith(("{", "[")) else []
    masked = equals and any(map(_named, (key, *inside)))
    return f"{option}{key}={_MASK}" if masked else _IN_URL.sub(rf"\1:{_MASK}", text)


def _by_reference(value: Any, path: str, origins: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _by_reference(item, f"{path}.{key}", origins) for key, item in value.items()}
    if isinstance(value, list):
        return [_by_reference(item, f"{path}.{index}", origins) for index, item in enumerate(value)]
    names = [name.removeprefix("env:") for name in origins.get(path, "").split(", ") if name.startswith("env:")]
    for name in names:
        held = os.environ.get(name)
        if held:
            whole = str(value).lower() == held.lower()
            value = f"${{env:{name}}}" if whole else str(value).replace(held, f"${{env:{name}}}")
    return value
