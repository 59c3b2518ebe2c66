"""Environment variables in specs."""

from __future__ import annotations

from pathlib import Path

import pytest

from areal_core.errors import Severity
from areal_core.spec.findings import Report
from areal_core.spec.interpolate import interpolate
from areal_core.spec.load import parse
from areal_core.spec.node import UNKNOWN, Source


@pytest.fixture
def value(monkeypatch):
    """What `a` is in the text, with variables set; findings in `report`."""

    def of(text: str, report: Report | None = None, **variables: str):
        for name in ("NAME", "OTHER"):
            monkeypatch.delenv(name, raising=False)
        for name, content in variables.items():
            monkeypatch.setenv(name, content)
        report = report or Report()
        root = parse(Source("x.yaml", text, Path()), report)
        return interpolate(root, report).value["a"]

    return of


def test_a_plain_value_takes_the_variable_as_yaml(value):
    assert value("a: ${env:NAME}", NAME="1e-5").value == 1e-5
    assert value("a: ${env:NAME}", NAME="true").value is True
    assert [n.value for n in value("a: ${env:NAME}", NAME="[1, 2]").value] == [1, 2]


def test_a_quoted_value_stays_a_text(value):
    assert value("a: '${env:NAME}'", NAME="5").value == "5"


def test_a_variable_that_is_no_yaml_is_a_text(value):
    assert value("a: ${env:NAME}", NAME="*x").value == "*x"


def test_part_of_a_text_is_replaced_as_it_is(value):
    assert value("a: /data/${env:NAME}/${env:OTHER}.jsonl", NAME="1e-5", OTHER="x").value == "/data/1e-5/x.jsonl"


def test_a_default_stands_in_for_an_unset_or_empty_variable(value):
    assert value("a: ${env:NAME:-7}").value == 7
    assert value("a: ${env:NAME:-7}", NAME="").value == 7
    assert value("a: x${env:NAME:-}y").value == "xy"


def test_a_doubled_dollar_is_a_dollar(value):
    assert value("a: $${env:NAME} costs $5").value == "${env:NAME} costs $5"


def test_a_missing_variable_is_unavailable_and_its_value_unknown(value):
    report = Report()
    assert value("a: ${env:NAME}", report).value is UNKNOWN
    (finding,) = report.findings
    assert (finding.code, finding.severity, finding.location.line) == ("missing-variable", Severity.UNAVAILABLE, 1)


@pytest.mark.parametrize("text", ["${NAME}", "${env:}", "${env:1A}", "${env:NAME", "${env:NAME-x}", "${}"])
def test_what_refers_to_nothing_is_an_error(value, text):
    report = Report()
    assert value(f"a: x {text}", report).value is UNKNOWN
    assert [f.code for f in report.findings] == ["bad-reference"]


def test_a_value_remembers_its_variable(value):
    assert value("a: ${env:NAME}", NAME="5").provenance == "env:NAME"
    assert value("a: b ${env:NAME}", NAME="5").provenance == "env:NAME"


def test_what_is_wrong_with_a_variables_value_is_reported_where_it_is_named(value):
    report = Report()
    assert value("a: ${env:NAME}", report, NAME="010").value is UNKNOWN
    (finding,) = report.findings
    assert (finding.code, finding.location.line, finding.location.column) == ("ambiguous-number", 1, 4)
    assert finding.message.startswith("env:NAME: ")
