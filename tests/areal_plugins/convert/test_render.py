"""Every value as YAML that means the same, and comments that stay comments."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_core.spec.findings import Report
from areal_core.spec.load import compose, scalar
from areal_core.spec.node import Source, plain
from areal_plugins.convert.render import Value, render
from areal_plugins.convert.render import scalar as written


@given(st.text(st.characters(exclude_categories=())))
def test_a_text_is_read_as_itself(text):
    assert scalar(written(text)) == text


@pytest.mark.parametrize("text", [".inf", ".nan", ".5", "...", "no", "~", "a: b", "a #b", "{{x}}", "'", '"', "é", "-x"])
def test_a_text_that_yaml_would_take_for_something_else_is_quoted(text):
    assert written(text).startswith('"')
    assert scalar(written(text)) == text


@given(st.floats())
def test_a_number_is_read_as_itself(number):
    read = scalar(written(number))
    assert isinstance(read, float)
    assert read == number or (math.isnan(read) and math.isnan(number))


@given(st.text(st.characters(exclude_categories=())))
def test_no_note_ends_its_comment(tmp_path_factory, note):
    text = render(["x"], [Value(("name",), "n", "theirs", f"{note}\nplugins: [theirs.py]")])
    tree = compose(Source("spec.yaml", text, tmp_path_factory.getbasetemp()), Report())
    assert plain(tree) == {"apiVersion": "areal/v1", "name": "n"}
