"""What a new plugin's things are called, by its kind and name."""

from __future__ import annotations

import re
from difflib import get_close_matches

from attrs import frozen

from areal_core import API_VERSION, installed
from areal_core.descriptors import KINDS
from areal_core.errors import InputError
from areal_core.hookspecs import COMPONENT_HOOKS
from areal_core.known_plugins import KNOWN
from areal_core.manager import Manager
from areal_core.spec.load import scalar

_LONGEST = 64

_FORM = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_ALIASES = {"backend": "trainer", "inference": "engine", "judge": "reward", "env": "environment", "device": "platform"}

_EXTRA = {
    "trainer": "torch",
    "objective": "torch",
    "optimizer": "torch",
    "parallelism": "torch",
    "engine": "torch",
    "model": "torch",
}
"""The extra of areal-plugins that a kind's template and its tests need."""


@frozen
class Names:
    """A component's address, and what follows from it."""

    kind: str
    name: str

    @property
    def distribution(self) -> str:
        """The project's name, and its directory's."""
        return f"areal-plugin-{self.name}"

    @property
    def package(self) -> str:
        """The import package."""
        return self.distribution.replace("-", "_")

    @property
    def stem(self) -> str:
        """What classes are named by, without the kind, which they end in."""
        words = self.name.removesuffix(f"-{self.kind}").split("-")
        return "".join(word.capitalize() for word in words)

    def values(self) -> dict[str, str]:
        """What templates may name."""
        release = installed.version("areal-plugins")
        if release is None:
            problem = "is not installed, so that no project can depend on this version of it"
            raise InputError("areal-plugins", problem, "pip install areal-plugins")
        extra = f"[{_EXTRA[self.kind]}]" if self.kind in _EXTRA else ""
        return {
            "api": str(API_VERSION),
            "axis": self.name.replace("-", "_"),
            "dependency": f"areal-plugins{extra}>={release},<{_next_major(release)}",
            "distribution": self.distribution,
            "extra": extra,
            "kind": self.kind,
            "name": self.name,
            "package": self.package,
            "stem": self.stem,
        }


def checked(kind: str, name: str, manager: Manager) -> Names:
    """Names for a new plugin.

    Raises:
        InputError: there is no such kind, the name is none for a component, or is taken; with what to write instead.
    """
    if kind not in COMPONENT_HOOKS:
        raise InputError(f"--kind {kind}", "there is no such kind of component", _kinds_near(kind))
    if not _FORM.fullmatch(name):
        problem = "a name is made of small letters, digits and single hyphens, and starts with a letter"
        raise InputError(f"name {name!r}", problem, _names_near(name))
    if len(name) > _LONGEST:
        raise InputError(f"name {name[:_LONGEST]!r}...", f"a name has {_LONGEST} characters at most")
    if not isinstance(scalar(name), str):
        raise InputError(f"name {name!r}", "is no text in YAML, where specs name it", f"try `{name}-{kind}`")
    if (bare := re.sub(r"^areal-plugins?-", "", name)) != name:
        raise InputError(f"name {name!r}", "the prefix is added to the distribution by itself", f"try `{bare}`")
    if owner := _owner(kind, name, manager):
        raise InputError(f"name {name!r}", f"{owner} offers {kind}/{name} already", "choose another name")
    return Names(kind, name)


def _kinds_near(kind: str) -> str:
    hooks = {hook: of for of, hook in COMPONENT_HOOKS.items()}
    word = kind.lower()
    near = [hooks.get(word) or _ALIASES.get(word) or next(iter(get_close_matches(word, KINDS, n=1)), "")]
    return f"did you mean `{near[0]}`?" if near[0] else f"kinds are {', '.join(COMPONENT_HOOKS)}"


def _names_near(name: str) -> str:
    """The name as it might have been meant: `MyReward` and `my_reward` are `my-reward`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    near = re.sub(r"[^a-z0-9]+", "-", words).strip("-0123456789")
    return f"try `{near}`" if _FORM.fullmatch(near) else "such as `word-count`"


def _owner(kind: str, name: str, manager: Manager) -> str | None:
    """Who offers `kind/name` already, installed or known."""
    for entry in manager.components(kind):
        if entry.descriptor.name == name:
            return entry.plugin.origin
    return KNOWN.get((kind, name))


def _next_major(release: str) -> int:
    return int(release.split(".")[0]) + 1
