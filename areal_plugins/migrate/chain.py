"""From any older version to the current one, a migration at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from typing import Any

from attrs import frozen
from ruamel.yaml import YAML
from ruamel.yaml.util import load_yaml_guess_indent

from areal_core.errors import SpecError
from areal_core.spec.findings import Report
from areal_core.spec.load import Unreadable, parse, read_source
from areal_core.spec.merge import API_VERSION_OF_SPECS, version_finding
from areal_core.spec.node import Node, Source
from areal_plugins.migrate.changes import Change, Done

KEY = "apiVersion"


@frozen
class Migration:
    """What changed from version `old` of the format to `new`, the one after it."""

    old: str
    new: str
    changes: tuple[Change, ...]


@frozen
class Migrated:
    """A spec in the current format; `versions` are those it went through, the first being its own."""

    text: str
    versions: tuple[str, ...]
    done: tuple[Done, ...]

    @property
    def is_new(self) -> bool:
        """Whether anything had to be rewritten."""
        return len(self.versions) > 1


def migrate(file: str, migrations: Sequence[Migration], current: str = API_VERSION_OF_SPECS) -> Migrated:
    """The text of `file` in the `current` format; one that is current already stays as it is, to the byte.

    Raises:
        SpecError: the file is no spec, or of a version that no migration leads on from.
    """
    report = Report()
    try:
        source = read_source(file, report)
        node = parse(source, report)
    except Unreadable:
        raise SpecError(report.findings) from None
    version = _version(node, current)
    path = _path(version, migrations, current)
    if path is None:
        raise SpecError([version_finding(node.value[KEY], current, older=())])
    return _rewritten(source, version, path)


def _version(root: Node, current: str) -> str:
    written = root.value.get(KEY)
    return current if written is None else str(written.value)


def _path(version: str, migrations: Sequence[Migration], current: str) -> list[Migration] | None:
    """The migrations to go through, in order; None when they do not lead there."""
    by_old = {migration.old: migration for migration in migrations}
    path: list[Migration] = []
    while version != current:
        step = by_old.get(version)
        if step is None or step in path:
            return None
        path.append(step)
        version = step.new
    return path


def _rewritten(source: Source, version: str, path: Sequence[Migration]) -> Migrated:
    if not path:
        return Migrated(source.text, (version,), ())
    document, indent, offset = load_yaml_guess_indent(source.text, yaml=_yaml())
    done: list[Done] = []
    for migration in path:
        for change in migration.changes:
            done += change.apply(document)
    document[KEY] = path[-1].new
    out = StringIO()
    yaml = _yaml()
    yaml.indent(mapping=_mapping_indent(source.text), sequence=indent or 2, offset=offset or 0)
    yaml.dump(document, out)
    return Migrated(out.getvalue(), (version, *(step.new for step in path)), tuple(done))


def _yaml() -> Any:
    yaml = YAML()  # the round-trip loader
    yaml.preserve_quotes = True
    yaml.width = 1_000_000  # long lines stay long
    return yaml


def _mapping_indent(text: str) -> int:
    """How far the first mapping below a key is indented."""
    found = re.search(r"^[\w-]+:[ \t]*(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*( +)[\w-]+:", text, re.MULTILINE)
    return len(found[1]) if found else 2
