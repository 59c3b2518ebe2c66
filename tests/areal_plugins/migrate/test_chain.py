"""A spec through a made-up chain of versions."""

from __future__ import annotations

import subprocess
import sys

import pytest

from areal_core.errors import SpecError
from areal_core.spec import merge
from areal_plugins import migrate as package
from areal_plugins.migrate import MIGRATIONS, ChangeValue, Migration, RenameKey, migrate

CHAIN = (
    Migration("areal/v1", "areal/v2", (RenameKey("training.rounds", "steps"),)),
    Migration("areal/v2", "areal/v3", (RenameKey("training.steps", "max_steps"), ChangeValue("seed", abs, "no sign"))),
)

OLD = """\
# made by hand
apiVersion: areal/v1   # the old one
name:   'quoted'

training:   # how
    rounds: 5
    learning_rate: 1.0e-3
environments:
-   {type: jsonl, path: a.jsonl}   # tasks
"""


@pytest.fixture
def migrated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def of(text: str):
        (tmp_path / "spec.yaml").write_text(text)
        return migrate("spec.yaml", CHAIN, "areal/v3")

    return of


def test_every_version_on_the_way_is_gone_through(migrated):
    found = migrated(OLD)
    assert found.versions == ("areal/v1", "areal/v2", "areal/v3")
    assert [done.key for done in found.done] == ["training.rounds", "training.steps"]


def test_comments_quotes_numbers_and_indentation_are_kept(migrated):
    new = migrated(OLD).text
    assert "# made by hand\napiVersion: areal/v3   # the old one\n" in new
    assert "'quoted'\n\ntraining:   # how\n    max_steps: 5\n    learning_rate: 1.0e-3\n" in new
    assert "-   {type: jsonl, path: a.jsonl}   # tasks\n" in new


def test_the_chain_is_entered_in_the_middle(migrated):
    found = migrated("apiVersion: areal/v2\nseed: -1\ntraining: {steps: 2, rounds: 1}\n")
    assert found.text == "apiVersion: areal/v3\nseed: 1\ntraining: {max_steps: 2, rounds: 1}\n"


@pytest.mark.parametrize("text", ["apiVersion: areal/v3\nname:   x\n", "name:    'x'  # no version\n"])
def test_a_current_spec_stays_as_it_is_to_the_byte(migrated, text):
    found = migrated(text)
    assert (found.text, found.is_new, found.done) == (text, False, ())


@pytest.mark.parametrize(
    ("version", "said"),
    [("areal/v4", "newer areal-plugins"), ("areal/v0", "write areal/v3"), ("other", "write areal/v3"), ("3", "write")],
)
def test_an_unknown_version_is_a_located_error(migrated, version, said):
    with pytest.raises(SpecError) as error:
        migrated(f"name: x\napiVersion: {version}\n")
    (finding,) = error.value.findings
    assert (finding.code, finding.location.line, finding.location.column) == ("unknown-version", 2, 13)
    assert said in finding.hint


def test_a_file_that_is_no_spec_is_an_error(migrated):
    with pytest.raises(SpecError, match="not-a-mapping"):
        migrated("- 1\n")


def test_migrating_twice_changes_nothing_more(migrated):
    once = migrated(OLD).text
    assert migrated(once).text == once


def test_the_shipped_migrations_lead_from_every_older_version_to_the_current_one():
    assert tuple(step.old for step in MIGRATIONS) == merge.OLDER_VERSIONS
    for version in merge.OLDER_VERSIONS:
        for step in MIGRATIONS:
            version = step.new if step.old == version else version
        assert version == merge.API_VERSION_OF_SPECS


def test_the_diagnostic_of_an_old_spec_names_the_command(migrated, monkeypatch, tmp_path):
    from areal_core.spec import examine

    monkeypatch.setattr(merge, "OLDER_VERSIONS", ("areal/v0",))
    (tmp_path / "old one.yaml").write_text("apiVersion: areal/v0\n")
    (finding, *_) = examine("old one.yaml").errors
    assert finding.hint == "areal-plugins migrate 'old one.yaml'"
    assert finding.location.line == 1


def test_everything_that_is_public_is_named():
    assert all(hasattr(package, name) for name in package.__all__)


def test_check_does_not_import_it():
    code = "import sys, areal_plugins.cli.check, areal_core.spec.resolve; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"areal_plugins.migrate", "areal_plugins.convert", "areal_plugins.explain"} & set(run.stdout.split())
