"""The built-in engine keeps the rules for engines, and each rule catches an engine that breaks it."""

from pathlib import Path

import pytest

from areal_core.local import load_file
from areal_plugins.testing.conformance import Conformance, EngineConformance
from areal_plugins.testing.conformance.running import run

PLAIN = Path(__file__).with_name("plain_engine.py")
plain = load_file(PLAIN)


class TestTorch(EngineConformance):
    @pytest.fixture
    def component(self):
        return "engine/torch"


class Impatient(EngineConformance):
    patience = 5.0


NEW_WEIGHTS = {"test_new_weights_answer", "test_a_waiting_request_gets_the_new_weights"}
VERSIONS = {"test_a_running_answer_goes_on_under_new_weights", "test_a_waiting_request_gets_the_new_weights"}
BEGUN = {"test_an_answer_that_was_begun_goes_on"}
BREAKS = {
    "DoubleColumns": {"test_each_token_has_a_logprob_and_a_version"} | BEGUN,
    "ForgetsNucleus": {"test_logprobs_agree_with_the_reference"},
    "SecondBest": {"test_greedy_takes_the_likeliest_token"},
    "Unfair": {"test_draws_follow_the_distribution"},
    "SharedRandomness": {"test_a_seed_fixes_the_draws", "test_memory_is_a_share"},
    "EqualMembers": {"test_there_are_n_completions"},
    "LosesIndices": {"test_there_are_n_completions"} | BEGUN,
    "NeverEnds": {"test_eos_ends_an_answer"},
    "AlwaysEnds": {"test_eos_ends_an_answer"},
    "DropsStopToken": {"test_stop_tokens_end_an_answer"},
    "KeepsStopString": {"test_stop_strings_end_an_answer"},
    "OutgrowsModel": {"test_length_ends_an_answer"},
    "SpellsSpecials": {"test_text_is_the_answer_decoded"},
    "Brief": {"test_no_answer_is_too_short"},
    "AbortsAll": {"test_abort_ends_one_request"},
    "AbortsRunning": {"test_abort_ends_all"},
    "Unstoppable": {"test_leaving_the_stream_ends_the_request"},
    "Restless": {"test_pause_holds_everything", "test_a_waiting_request_gets_the_new_weights"},
    "Forgetful": {"test_a_running_answer_goes_on_under_new_weights"},
    "BeginsAnew": BEGUN,
    "Impatient": {"test_pause_without_keep_finishes_what_runs"},
    "KeepsWeights": NEW_WEIGHTS,
    "BorrowsWeights": NEW_WEIGHTS,
    "KeepsVersion": NEW_WEIGHTS | VERSIONS,
    "StaleCache": {"test_new_weights_answer"},
    "LastVersion": {"test_a_running_answer_goes_on_under_new_weights"} | BEGUN,
    "ArrivalVersion": VERSIONS | BEGUN,
    "OneByOne": {"test_requests_run_side_by_side"},
    "BlocksLoop": {
        *BEGUN,
        "test_requests_run_side_by_side",
        "test_abort_ends_one_request",
        "test_abort_ends_all",
        "test_a_running_answer_goes_on_under_new_weights",
        "test_stats_count",
    },
    "Crowded": {"test_more_requests_than_places_are_all_served"},
    "Unshrinkable": {"test_fewer_places_are_kept_to"},
    "Bursting": {"test_memory_is_a_share"},
    "ShortensPrompts": {"test_a_prompt_that_fills_the_model_is_too_long"},
    "AnswersNonsense": {"test_a_senseless_request_is_refused"},
    "DiesOfNonsense": {"test_a_senseless_request_is_refused"},
    "CountsWrongly": {"test_stats_count"},
    "PrefillsEach": {"test_a_groups_prompt_is_computed_once"},
    "LeavesTask": {"test_close_leaves_nothing"},
    "Hangs": {"test_close_leaves_nothing"},
}
RULES = [name for name in dir(EngineConformance) if name.startswith("test_") and not hasattr(Conformance, name)]


def test_an_engine_of_another_make_keeps_every_rule():
    results = run(EngineConformance, plain.descriptor(plain.PlainEngine), only=RULES)
    assert [r for r in results if r.outcome != "passed"] == []


def test_every_rule_is_broken_by_some_engine():
    assert set.union(*BREAKS.values()) == set(RULES)


@pytest.mark.parametrize("name", BREAKS)
def test_an_engine_that_breaks_a_promise_fails_its_rule_alone(name, asked):
    results = run(Impatient, plain.descriptor(getattr(plain, name)), only=asked(name, BREAKS[name], RULES))
    assert {r.test for r in results if r.outcome == "failed"} == BREAKS[name], results
