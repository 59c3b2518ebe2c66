"""What one change does to a spec."""

from __future__ import annotations

from io import StringIO

import pytest
from ruamel.yaml import YAML

from areal_plugins.migrate import ChangeValue, MoveKey, Note, RenameKey

SPEC = """\
# the file
name: old  # its name
training:
  # how many
  rounds: 5  # steps
  batch_size: 8
environments:
  - {type: jsonl, file: a.jsonl}
  - {type: jsonl, file: b.jsonl}
stages:
  - name: one
    training: {rounds: 2}
  - name: two
"""


@pytest.fixture
def changed():
    """The text after a change, and what was done."""

    def by(change, text: str = SPEC):
        yaml = YAML()
        yaml.preserve_quotes = True
        yaml.indent(sequence=4, offset=2)
        document = yaml.load(text)
        done = list(change.apply(document))
        out = StringIO()
        yaml.dump(document, out)
        return out.getvalue(), done

    return by


def test_a_key_is_renamed_in_its_place_with_its_comments(changed):
    text, done = changed(RenameKey("training.rounds", "epochs"))
    assert text == SPEC.replace("rounds", "epochs")
    assert [(d.line, d.key) for d in done] == [(5, "training.rounds"), (12, "stages.0.training.rounds")]


def test_a_star_is_every_item_of_a_list(changed):
    text, done = changed(RenameKey("environments.*.file", "path"))
    assert text == SPEC.replace("file:", "path:")
    assert [d.key for d in done] == ["environments.0.file", "environments.1.file"]


def test_a_key_is_moved_into_a_section_that_is_made_for_it(changed):
    text, done = changed(MoveKey("training.batch_size", "pipeline.batch"))
    assert "  batch_size" not in text
    assert "pipeline:\n  batch: 8\n" in text
    assert [(d.line, d.key, d.what) for d in done] == [(6, "training.batch_size", "moved to pipeline.batch")]


def test_a_moved_key_keeps_the_comment_of_its_line(changed):
    text, _ = changed(MoveKey("training.rounds", "max_steps"))
    assert "\nmax_steps: 5 # steps\n" in text


def test_what_a_move_leaves_empty_goes_within_its_stage_too(changed):
    text, done = changed(MoveKey("training.rounds", "steps"))
    assert "training: {" not in text
    assert done[1].what == "moved to stages.0.steps"


def test_a_value_is_changed_where_it_is_another_one(changed):
    text, done = changed(ChangeValue("training.rounds", lambda n: max(n, 4), "at least four"))
    assert text == SPEC.replace("rounds: 2", "rounds: 4")
    assert [d.what for d in done] == ["2 is now 4: at least four"]


def test_a_note_stands_above_the_key(changed):
    text, done = changed(Note("training.batch_size", "it counts tokens now"))
    assert "  # migrated: it counts tokens now\n  batch_size: 8\n" in text
    assert [d.what for d in done] == ["look at it: it counts tokens now"]


def test_what_is_not_there_is_left_alone(changed):
    for change in (RenameKey("a.b", "c"), MoveKey("a.*.b", "c"), ChangeValue("name.x", str, ""), Note("a", "b")):
        assert changed(change) == (SPEC, [])
