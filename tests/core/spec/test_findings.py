"""How findings look."""

from __future__ import annotations

from areal_core.errors import Finding, Location, Severity
from areal_core.spec.findings import count_line, did_you_mean, render, tidy


def finding(line: int = 12, column: int = 3, excerpt: str = "  learning_rte: 1e-6", width: int = 12, **more) -> Finding:
    place = Location("specs/gsm8k.yaml", line, column, excerpt, width)
    given = {"code": "unknown-key", "message": "training.learning_rte", "hint": "did you mean `learning_rate`?"}
    return Finding(**{**given, "location": place, **more})


def test_a_finding_shows_the_place_the_line_and_the_way_out():
    assert render(finding()) == (
        "specs/gsm8k.yaml:12:3: error[unknown-key]: training.learning_rte\n"
        "12 |   learning_rte: 1e-6\n"
        "   |   ^^^^^^^^^^^^ did you mean `learning_rate`?"
    )


def test_carets_stand_under_wide_characters():
    shown = render(finding(column=5, excerpt="名称: 值", width=1, hint=None)).splitlines()
    assert shown[1:] == ["12 | 名称: 值", "   |       ^^"]


def test_tabs_are_kept_so_that_carets_line_up():
    assert render(finding(column=3, excerpt="\t\tx: 1", width=1, hint=None)).splitlines()[2] == "   | \t\t^"


def test_a_long_line_is_cut_to_what_surrounds_the_place():
    line = "a: [" + "x, " * 1000 + "bad]"
    shown = render(finding(column=line.index("bad") + 1, excerpt=line, width=3)).splitlines()
    assert len(shown[1]) < 130
    assert shown[1][shown[2].index("^") :][:3] == "bad"


def test_control_characters_do_not_reach_the_terminal():
    assert "\x1b" not in render(finding(excerpt="name: \x1b[31mx"))


def test_a_finding_without_a_line_shows_its_hint_all_the_same():
    assert render(finding(excerpt="")).splitlines()[1] == "  did you mean `learning_rate`?"


def test_findings_stand_in_the_order_of_the_file_and_once():
    first, second = finding(line=2), finding(line=10)
    assert tidy([second, first, second]) == [first, second]


def test_the_count_names_both_severities():
    unavailable = finding(severity=Severity.UNAVAILABLE)
    assert count_line([finding(), finding(line=1), unavailable]) == "2 errors, 1 unavailable"
    assert count_line([finding()]) == "1 error"
    assert count_line([unavailable]) == "1 unavailable"
    assert count_line([]) == "0 errors"


def test_the_nearest_name_is_suggested_or_all_when_they_are_few():
    assert did_you_mean("aplha", ["alpha", "beta"]) == "did you mean `alpha`?"
    assert did_you_mean("zzz", ["beta", "alpha"]) == "there are: alpha, beta"
    assert did_you_mean("zzz", [f"k{i}" for i in range(40)]) is None


def test_a_message_does_not_act_on_the_terminal():
    assert "\x1b" not in render(Finding("c", "no \x1b[2J", hint="write \x1b[1m"))
