"""Parents, overrides, and what becomes of the old component's options."""

from __future__ import annotations

from areal_core.spec.findings import Report
from areal_core.spec.merge import Files, override
from areal_core.spec.node import plain


def load(name: str, *overrides: str):
    report = Report()
    tree = Files(report).load(name)
    for text in overrides:
        tree = override(tree, text, report)
    return tree, report.findings


def data(name: str, *overrides: str):
    tree, findings = load(name, *overrides)
    assert not findings
    return plain(tree)


def test_a_child_merges_deeply_and_lists_replace(write):
    write("training: {batch_size: 8, max_steps: 5}\ntrackers: [jsonl, wandb]\n", "base.yaml")
    name = write("extends: base.yaml\ntraining: {max_steps: 9}\ntrackers: [jsonl]\n")
    assert data(name) == {"training": {"batch_size": 8, "max_steps": 9}, "trackers": ["jsonl"]}


def test_of_several_parents_the_later_wins(write):
    write("seed: 1\nname: a\n", "a.yaml")
    write("seed: 2\n", "b.yaml")
    assert data(write("extends: [a.yaml, b.yaml]\n")) == {"seed": 2, "name": "a"}


def test_parents_are_found_beside_the_file_that_names_them(write):
    write("seed: 1\n", "shared/base.yaml")
    write("extends: base.yaml\n", "shared/more.yaml")
    assert data(write("extends: shared/more.yaml\n")) == {"seed": 1}


def test_a_diamond_is_no_cycle(write):
    write("seed: 1\n", "root.yaml")
    write("extends: root.yaml\nname: a\n", "a.yaml")
    write("extends: root.yaml\n", "b.yaml")
    assert data(write("extends: [a.yaml, b.yaml]\n")) == {"seed": 1, "name": "a"}


def test_a_cycle_is_refused_where_it_closes(write):
    write("seed: 1\nextends: spec.yaml\n", "a.yaml")
    _, (finding,) = load(write("extends: a.yaml\n"))
    assert (finding.code, str(finding.location)) == ("extends-cycle", "a.yaml:2:10")
    assert "spec.yaml -> a.yaml -> spec.yaml" in finding.message


def test_a_missing_parent_is_blamed_on_the_line_that_names_it(write):
    _, (finding,) = load(write("name: x\nextends: gone.yaml\n"))
    assert (finding.code, str(finding.location)) == ("no-such-file", "spec.yaml:2:10")


def test_a_parent_whose_name_can_be_no_path_is_unreadable(write):
    _, (finding,) = load(write('extends: "a\\0b"\n'))
    assert (finding.code, str(finding.location)) == ("unreadable-file", "spec.yaml:1:10")


def test_what_a_missing_parent_may_say_is_not_held_against_the_rest(errors):
    text = (
        "extends: gone.yaml\nmodel: {hidden_size: 8}\nobjective: {group_size: 7}\n"
        "environments: [{type: mine}]\ninference: {sampling: {min_new_tokens: 400}, theirs: {}}\n"
    )
    assert errors(text) == ["no-such-file at 1:10"]
    assert errors(text + "seed: x\n", "environments.0.weight=2") == ["no-such-file at 1:10", "bad-type at 6:7"]


def test_what_is_wrong_in_a_parent_is_located_there(write):
    write("seed: 1\nseed: 2\n", "base.yaml")
    _, (finding,) = load(write("extends: base.yaml\n"))
    assert str(finding.location) == "base.yaml:2:1"


def test_extends_takes_files_only(write):
    _, (finding,) = load(write("extends: {a: b}\n"))
    assert finding.code == "bad-type"


def test_an_unknown_version_is_an_error(write):
    _, (finding,) = load(write("apiVersion: areal/v9\n"))
    assert (finding.code, finding.location.line) == ("unknown-version", 1)
    assert data(write("apiVersion: areal/v1\n")) == {}


def test_another_component_drops_the_private_options_of_the_old(write):
    write("objective: {type: grpo, group_size: 4, clip: 0.3}\n", "base.yaml")
    name = write("extends: base.yaml\nobjective: {type: rloo}\n")
    assert data(name) == {"objective": {"type": "rloo", "group_size": 4}}


def test_the_same_component_keeps_its_options(write):
    write("objective: {type: grpo, clip: 0.3}\n", "base.yaml")
    name = write("extends: base.yaml\nobjective: {type: grpo, group_size: 4}\n")
    assert data(name)["objective"] == {"type": "grpo", "clip": 0.3, "group_size": 4}


def test_naming_the_default_component_keeps_its_options(write):
    write("objective: {clip: 0.3}\n", "base.yaml")
    assert data(write("extends: base.yaml\nobjective: {type: grpo}\n"))["objective"] == {"clip": 0.3, "type": "grpo"}


def test_a_bare_name_replaces_the_whole_component(write):
    write("objective: {type: grpo, group_size: 4}\n", "base.yaml")
    assert data(write("extends: base.yaml\nobjective: sft\n")) == {"objective": "sft"}


def test_options_go_on_top_of_a_bare_name(write):
    write("platform: cpu\n", "base.yaml")
    name = write("extends: base.yaml\nplatform: {cpu: {threads: 2}}\n")
    assert data(name) == {"platform": {"type": "cpu", "cpu": {"threads": 2}}}


def test_blocks_survive_a_swap(write):
    name = write("inference: {type: torch, torch: {kv_blocks: 1}, vllm: {x: 2}}\n")
    swapped = data(name, "inference.type=vllm")
    assert swapped["inference"] == {"type": "vllm", "torch": {"kv_blocks": 1}, "vllm": {"x": 2}}


def test_an_override_is_read_as_yaml(write):
    name = write("training: {max_steps: 5}\n")
    overridden = data(name, "training.learning_rate=1e-6", "training.optimizer={type: adamw}", "name='7'")
    assert overridden["training"] == {"max_steps": 5, "learning_rate": 1e-6, "optimizer": {"type": "adamw"}}
    assert overridden["name"] == "7"


def test_an_override_with_nothing_after_the_equals_sign_is_null(write):
    assert data(write("training: {grad_clip: 1.0}\n"), "training.grad_clip=") == {"training": {"grad_clip": None}}


def test_an_override_may_hold_equals_signs(write):
    assert data(write("name: x\n"), "name=a=b") == {"name": "a=b"}


def test_list_items_are_reached_by_index_and_by_name(write):
    name = write("environments:\n  - {name: math, type: gsm8k, weight: 1}\n  - {type: humaneval}\n")
    overridden = data(name, "environments.0.weight=2", "environments.humaneval.weight=3", "environments.math.name=m")
    assert [e.get("weight") for e in overridden["environments"]] == [2, 3]
    assert overridden["environments"][0]["name"] == "m"


def test_an_override_of_the_type_drops_private_options(write):
    name = write("environments:\n  - {name: a, type: jsonl, weight: 2, path: x}\n")
    assert data(name, "environments.0.type=gsm8k") == {"environments": [{"name": "a", "type": "gsm8k", "weight": 2}]}


def test_an_override_goes_into_a_bare_component(write):
    assert data(write("platform: cpu\n"), "platform.type=npu") == {"platform": {"type": "npu"}}


def test_an_override_fills_an_empty_section(write):
    assert data(write("training:\n"), "training.max_steps=3") == {"training": {"max_steps": 3}}


def test_overrides_that_lead_nowhere_are_located_in_their_own_text(write):
    name = write("name: x\nenvironments: [{name: math}]\n")
    for text, column, hint in [
        ("name.first=1", 6, None),
        ("environments.3.weight=1", 14, "items are 0 to 0"),
        ("environments.mth.weight=1", 14, "did you mean `math`?"),
        ("no assignment", 1, "--set section.key=value"),
        ("=5", 1, "--set section.key=value"),
        ("a..b=5", 1, "--set section.key=value"),
    ]:
        _, (finding,) = load(name, text)
        assert (finding.code, str(finding.location)) == ("bad-override", f"--set:1:{column}")
        assert finding.location.excerpt == text
        assert finding.hint == hint or hint in finding.hint


def test_an_override_deeper_than_any_spec_leads_nowhere(check, complete):
    (finding,) = check(complete, "a." * 20_000 + "b=1").errors
    assert (finding.code, finding.location.line) == ("bad-override", 1)


def test_an_override_that_is_no_yaml_points_into_its_value(write):
    _, (finding,) = load(write("name: x\n"), "training.max_steps=[1,")
    assert (finding.code, str(finding.location)) == ("yaml-syntax", "--set:1:23")


def test_an_overridden_value_keeps_the_places_of_its_neighbours(write):
    tree, _ = load(write("training:\n  max_steps: 5\n  batch_size: 8\n"), "training.max_steps=6")
    assert str(tree.nearest(("training", "max_steps"))[0].location) == "--set:1:20"
    assert str(tree.nearest(("training", "batch_size"))[0].location) == "spec.yaml:3:15"
    assert str(tree.nearest(("training",))[0].location) == "spec.yaml:1:1"
