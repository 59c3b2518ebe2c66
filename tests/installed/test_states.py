"""What becomes of a distribution that is installed: every state, with its cause and the way out."""

from __future__ import annotations

from textwrap import dedent

import pytest

GOOD = """
    from areal_plugins import RewardDescriptor, hookimpl


    class Brief:
        async def score(self, sample):
            from areal_plugins.data import Score

            return Score(float(len(sample.answer) < 20))


    def make(options, context):
        return Brief()


    @hookimpl
    def areal_rewards():
        return [RewardDescriptor(name="NAME", summary="brief answers", factory=f"{__name__}:make")]
"""


def good(name: str, *changes: tuple[str, str]) -> str:
    """The plugin above, with a component of this name, and changed."""
    source = GOOD.replace("NAME", name)
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return dedent(source)


def described(name: str, more: str) -> str:
    return good(name, ("summary=", f"{more}, summary="))


PLUGINS = {
    "is-good": good("brief"),
    "cannot-import": "import no_such_module_anywhere\n",
    "exits": "raise SystemExit(3)\n",
    "returns-text": good("text", ("return [", 'return ["text"] or [')),
    "returns-one": good("one", ("[RewardDescriptor(", "(RewardDescriptor("), ('make")]', 'make"))')),
    "wrong-kind": good("kind", ("RewardDescriptor", "EngineDescriptor")),
    "misspelt": good("misspelt", ("def areal_rewards", "def areal_reward")),
    "twin-a": good("twin"),
    "twin-b": good("twin"),
    "is-older": described("older", "api_version=0"),
    "is-newer": described("newer", "api_version=99"),
    "needs-more": described("needy", 'requires=("no-such-distribution>=2",)'),
    "needs-newer": described("modern", 'requires=("areal-plugins>=1000",)'),
    "is-heavy": "import numpy\n" + good("heavy"),
}


@pytest.fixture(scope="module")
def environment(fresh, wheel):
    made = fresh()
    made.install(*(wheel(name, source) for name, source in PLUGINS.items()))
    return made


@pytest.fixture(scope="module")
def inventory(environment):
    return environment.data("plugins", "list")


@pytest.fixture
def plugin(inventory):
    return {record["name"]: record for record in inventory["plugins"]}


STATES = {
    "is-good": ("ready", "", ""),
    "cannot-import": ("import failed", "No module named 'no_such_module_anywhere'", "-c 'import cannot_import'"),
    "exits": ("import failed", "SystemExit: 3", "see the traceback with"),
    "returns-text": ("API mismatch", "areal_rewards must return RewardDescriptor, not str", "install a version of"),
    "returns-one": ("API mismatch", "must return an iterable of RewardDescriptor", "install a version of returns-one"),
    "wrong-kind": ("API mismatch", "must return RewardDescriptor, not EngineDescriptor", "install a version of"),
    "misspelt": ("API mismatch", "no hook areal_reward; did you mean `areal_rewards`?", "install a version of"),
    "twin-a": ("ready", "", ""),
    "is-older": ("API mismatch", "reward/older is written for plugin API 0, older than", "for plugin API 1"),
    "is-newer": ("API mismatch", "reward/newer is written for plugin API 99, newer than", "for plugin API 1"),
    "needs-more": ("not installed", "no-such-distribution is not installed", "pip install 'no-such-distribution>=2'"),
    "needs-newer": ("not installed", ">=1000 is needed", "pip install 'areal-plugins>=1000'"),
    "is-heavy": ("ready", "", ""),
}


@pytest.mark.parametrize("name", STATES)
def test_a_plugin_has_its_state_with_the_cause_and_the_way_out(plugin, name):
    state, cause, way_out = STATES[name]
    record = plugin[name]
    assert record["state"] == state
    assert cause in record["cause"]
    assert way_out in record["way_out"]
    assert bool(record["cause"]) == bool(record["way_out"]) == (state != "ready")
    assert (record["distribution"], record["version"]) == (name, "1.0")


def test_every_plugin_is_listed_and_the_built_in_one_is_none_the_worse(plugin):
    assert set(PLUGINS) <= set(plugin)
    assert plugin["builtin"]["state"] == "ready"


def test_the_good_ones_component_is_there(inventory):
    (component,) = [c for c in inventory["components"] if c["name"] == "brief"]
    assert (component["state"], component["distribution"]) == ("ready", "is-good")


def test_a_heavy_import_is_a_warning(plugin):
    assert plugin["is-heavy"]["warnings"] == ["imports numpy when it is loaded"]
    assert plugin["is-good"]["warnings"] == []


def test_two_owners_of_a_name_are_a_conflict_that_names_both(inventory):
    assert inventory["conflicts"] == ["reward/twin: offered by twin-a 1.0 and by twin-b 1.0"]


SPEC = """
model: tiny
platform: cpu
environments: [{type: jsonl, path: tasks.jsonl, test_fraction: 0.1, reward: REWARD}]
"""


@pytest.fixture
def check(environment, tmp_path):
    (tmp_path / "tasks.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n' * 10)

    def with_reward(reward: str, **variables: str):
        (tmp_path / "spec.yaml").write_text(SPEC.replace("REWARD", reward))
        return environment.areal("check", "spec.yaml", cwd=tmp_path, **variables)

    return with_reward


def test_broken_plugins_are_no_concern_of_a_spec_that_does_not_name_them(check):
    assert check("brief").returncode == 0


@pytest.mark.parametrize(
    ("reward", "cause"),
    [
        ("twin", "offered by twin-a 1.0 and by twin-b 1.0"),
        ("needy", "no-such-distribution is not installed"),
        ("cannot-import", "No module named 'no_such_module_anywhere'"),
        ("is-newer", "newer than"),
    ],
)
def test_a_spec_that_names_a_broken_plugin_is_told_the_cause(check, reward, cause):
    done = check(reward, AREAL_PLUGINS_DISABLE="")
    shown = done.stdout + done.stderr
    assert cause in shown
    assert "spec.yaml:4" in shown


def test_a_blocked_plugin_takes_its_part_in_a_conflict_away(environment, check):
    inventory = environment.data("plugins", "list", AREAL_PLUGINS_DISABLE="twin-a,is-heavy")
    records = {record["name"]: record for record in inventory["plugins"]}
    assert inventory["conflicts"] == []
    assert records["twin-a"]["state"] == records["is-heavy"]["state"] == "blocked"
    assert records["twin-a"]["cause"] == "AREAL_PLUGINS_DISABLE names twin-a"
    assert records["is-heavy"]["warnings"] == []
    assert check("twin", AREAL_PLUGINS_DISABLE="twin-a").returncode == 0


def test_without_autoload_the_built_ins_alone_are_ready(environment):
    records = environment.data("plugins", "list", AREAL_PLUGINS_AUTOLOAD="0")["plugins"]
    assert [record["name"] for record in records if record["state"] == "ready"] == ["builtin"]
    assert {record["state"] for record in records if record["name"] != "builtin"} == {"blocked"}


def test_a_list_for_people_says_the_same_and_ends_well(environment):
    done = environment.areal("plugins", "list")
    assert done.returncode == 0
    assert "cannot-import  cannot-import 1.0  import failed: ModuleNotFoundError" in done.stdout
    assert "warning: imports numpy when it is loaded" in done.stdout
    assert "error: reward/twin: offered by twin-a 1.0 and by twin-b 1.0" in done.stdout


def test_show_gives_a_broken_plugin_with_cause_and_way_out(environment):
    (record,) = environment.data("plugins", "show", "misspelt")["plugins"]
    assert record["state"] == "API mismatch"
    assert "did you mean `areal_rewards`?" in record["cause"]


def test_a_plugin_of_the_index_that_is_not_installed_has_its_pip_line(environment):
    done = environment.areal("plugins", "show", "engine/vllm")
    assert done.returncode == 2
    assert "pip install areal-plugins-vllm" in done.stderr
