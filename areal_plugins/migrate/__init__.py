"""Specs of an older `apiVersion`, rewritten to the current one: `areal-plugins migrate`.

A version of the format that renames or moves something adds one `Migration` to `MIGRATIONS`, from the version before
it, and the old version to `areal_core.spec.merge.OLDER_VERSIONS`, by which `check` knows whom to send here.
"""

from __future__ import annotations

from areal_plugins.migrate.chain import Migrated, Migration, migrate
from areal_plugins.migrate.changes import Change, ChangeValue, Document, Done, MoveKey, Note, RenameKey

__all__ = [
    "MIGRATIONS",
    "Change",
    "ChangeValue",
    "Document",
    "Done",
    "Migrated",
    "Migration",
    "MoveKey",
    "Note",
    "RenameKey",
    "migrate",
]

MIGRATIONS: tuple[Migration, ...] = ()
"""Every step from a version to the next. There is one version so far."""
