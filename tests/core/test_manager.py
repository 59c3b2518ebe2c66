"""Discovery: each plugin is judged on its own, and a broken one takes nothing else down."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from areal_core import hookspecs, installed
from areal_core import manager as managing
from areal_core.descriptors import EngineDescriptor, RewardDescriptor
from areal_core.errors import PluginError
from areal_core.hookspecs import hookimpl
from areal_core.installed import Distribution
from areal_core.manager import Manager, State


def _entry(name: str, load, distribution: str = "") -> SimpleNamespace:
    """An installed entry point."""
    return SimpleNamespace(
        name=name,
        value=f"{name}_module",
        load=load,
        distribution=Distribution(distribution or f"dist-{name}", "1.0", Path()),
    )


def reward(name: str = "mine", **more) -> RewardDescriptor:
    return RewardDescriptor(name=name, summary="a reward", factory="x:y", **more)


def plugin(**hooks) -> ModuleType:
    module = ModuleType("a_plugin")
    for name, returned in hooks.items():

        def implementation(returned=returned):
            return returned() if callable(returned) else returned

        setattr(module, name, hookimpl(implementation))
    return module


@pytest.fixture
def discover(monkeypatch):
    def with_entries(*entries: SimpleNamespace) -> Manager:
        monkeypatch.setattr(installed, "entry_points", lambda group: iter(entries))
        return Manager.discover()

    return with_entries


def ready(name: str, *components) -> SimpleNamespace:
    return _entry(name, lambda: plugin(areal_rewards=components))


def test_a_good_plugin_is_ready_and_its_component_is_found(discover):
    manager = discover(ready("good", reward()))
    assert manager.plugins[0].state is State.READY
    assert manager.find("reward", "mine").plugin.distribution == "dist-good"
    assert manager.find("reward", "reward/mine") is manager.find("reward", "mine")


@pytest.mark.parametrize("kind", ["wrapper", "hookwrapper"])
def test_a_hook_that_is_a_wrapper_would_never_run_and_is_refused(discover, kind):
    module = plugin()

    def areal_step_finished(step):
        yield

    module.areal_step_finished = hookimpl(**{kind: True})(areal_step_finished)
    record = discover(_entry("wraps", lambda: module)).plugins[0]
    assert record.state is State.API_MISMATCH
    assert record.cause.startswith("areal_step_finished is a wrapper")


def test_an_import_error_is_the_plugins_own_with_its_root_cause(discover):
    def load():
        try:
            import no_such_module_anywhere  # noqa: F401
        except ImportError as error:
            raise RuntimeError("wrapped") from error

    manager = discover(_entry("broken", load), ready("good", reward()))
    assert [p.state for p in manager.plugins] == [State.IMPORT_FAILED, State.READY]
    assert "no_such_module_anywhere" in manager.plugins[0].cause
    assert manager.find("reward", "mine") is not None


def test_a_plugin_that_exits_at_import_does_not_end_the_process(discover):
    assert discover(_entry("rude", lambda: sys.exit(3))).plugins[0].state is State.IMPORT_FAILED


def test_a_misspelt_hook_names_the_nearest_one(discover):
    record = discover(_entry("typo", lambda: plugin(areal_reward=[reward()]))).plugins[0]
    assert record.state is State.API_MISMATCH
    assert "did you mean `areal_rewards`" in record.cause


def test_a_hook_that_raises_is_that_plugins_fault(discover):
    record = discover(_entry("raises", lambda: plugin(areal_rewards=lambda: 1 / 0))).plugins[0]
    assert record.state is State.IMPORT_FAILED
    assert "ZeroDivisionError" in record.cause


@pytest.mark.parametrize(
    "returned", [[EngineDescriptor(name="e", summary="", factory="a:b")], ["text"], "text", 5, None]
)
def test_wrong_return_types_are_refused_by_name(discover, returned):
    record = discover(_entry("wrong", lambda: plugin(areal_rewards=returned))).plugins[0]
    assert record.state is State.API_MISMATCH
    assert "areal_rewards must return" in record.cause


def test_a_factory_that_is_no_address_is_refused_when_the_plugin_is_loaded(discover):
    nowhere = RewardDescriptor(name="mine", summary="a reward", factory="make")
    record = discover(ready("nowhere", nowhere)).plugins[0]
    assert record.state is State.API_MISMATCH
    assert record.cause == "the factory of reward/mine, 'make', is no `module:attribute`"


@pytest.mark.parametrize(("version", "word"), [(0, "older"), (99, "newer")])
def test_another_api_version_is_a_mismatch(discover, version, word):
    record = discover(ready("other", reward(api_version=version))).plugins[0]
    assert record.state is State.API_MISMATCH
    assert word in record.cause


def test_two_plugins_with_one_name_are_an_error_naming_both_distributions(discover):
    manager = discover(ready("one", reward()), ready("two", reward()))
    assert "dist-one 1.0" in manager.conflicts[0]
    with pytest.raises(PluginError, match=r"dist-one 1\.0 and by dist-two 1\.0"):
        manager.find("reward", "mine")


def test_the_same_name_of_two_kinds_is_no_conflict(discover):
    engine = EngineDescriptor(name="mine", summary="", factory="a:b")
    manager = discover(_entry("both", lambda: plugin(areal_rewards=[reward()], areal_inference_engines=[engine])))
    assert manager.conflicts == []


def test_unmet_requirements_say_what_to_install(discover):
    record = discover(ready("needy", reward(requires=("no-such-dist>=2",)))).plugins[0]
    assert record.state is State.NOT_INSTALLED
    assert record.way_out == "pip install 'no-such-dist>=2'"


def test_a_disabled_plugin_is_blocked_and_not_imported(discover, monkeypatch):
    monkeypatch.setenv("AREAL_PLUGINS_DISABLE", "other, bad")
    record = discover(_entry("bad", lambda: pytest.fail("imported"))).plugins[0]
    assert record.state is State.BLOCKED


def test_autoload_off_leaves_the_built_ins(discover, monkeypatch):
    monkeypatch.setenv("AREAL_PLUGINS_AUTOLOAD", "0")
    builtin = _entry("builtin", lambda: plugin(areal_rewards=[reward()]), "areal-plugins")
    states = {p.name: p.state for p in discover(builtin, ready("theirs", reward("b"))).plugins}
    assert states == {"builtin": State.READY, "theirs": State.BLOCKED}


def test_a_heavy_import_at_load_is_a_warning(discover, monkeypatch):
    def load():
        monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
        return plugin(areal_rewards=[reward()])

    record = discover(_entry("heavy", load)).plugins[0]
    assert record.state is State.READY
    assert record.warnings == ("imports vllm when it is loaded",)


def test_a_deprecated_hook_goes_on_working_and_whoever_has_it_is_told(discover, monkeypatch):
    warning = DeprecationWarning("areal_rewards is deprecated: areal_judges takes its place")
    deprecated = hookspecs.hookspec(warn_on_impl=warning)(lambda: None)
    monkeypatch.setattr(hookspecs, "areal_rewards", deprecated)
    manager = discover(ready("good", reward()))
    assert manager.plugins[0].warnings == (str(warning),)
    assert manager.find("reward", "mine") is not None


def test_a_known_component_that_is_not_installed_names_its_distribution(discover):
    missing = discover().missing("engine", "vllm")
    assert missing.state is State.NOT_INSTALLED
    assert missing.way_out == "pip install areal-plugins-vllm"


def test_a_known_component_whose_plugin_is_broken_gives_the_cause(discover):
    entry = _entry("vllm", lambda: 1 / 0, "areal-plugins-vllm")
    missing = discover(entry).missing("engine", "vllm")
    assert missing.state is State.IMPORT_FAILED
    assert "ZeroDivisionError" in missing.message


def test_an_unknown_name_gets_the_nearest_one(discover):
    missing = discover(ready("good", reward("exact"))).missing("reward", "exat")
    assert missing.state is None
    assert missing.way_out == "did you mean `exact`?"


def test_an_unknown_name_is_reported_with_the_plugins_that_are_broken(discover):
    missing = discover(_entry("broken", lambda: 1 / 0)).missing("reward", "mine")
    assert "plugin broken is broken (import failed: ZeroDivisionError" in missing.message


def test_a_local_file_is_a_plugin(tmp_path):
    file = tmp_path / "my_reward.py"
    file.write_text(
        "from areal_plugins import RewardDescriptor, hookimpl\n"
        "@hookimpl\ndef areal_rewards():\n"
        "    return [RewardDescriptor(name='local', summary='', factory=f'{__name__}:make')]\n"
    )
    found = Manager.discover([str(file)]).find("reward", "local")
    assert found.plugin.origin == str(file)
    assert found.descriptor.factory.partition(":")[0] in sys.modules


def test_a_local_file_that_does_not_exist_is_an_import_failure(tmp_path):
    record = Manager.discover([str(tmp_path / "none.py")]).plugins[-1]
    assert record.state is State.IMPORT_FAILED
    assert record.cause.endswith("no such plugin file")
    assert record.way_out.startswith("write ")


def test_a_syntax_error_is_placed_in_the_file_that_has_it(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("\n1 +\n")
    assert Manager.discover([str(file)]).plugins[-1].cause == f"SyntaxError: invalid syntax ({file}:2)"


def test_who_names_a_file_that_breaks_the_api_mends_it(tmp_path):
    file = tmp_path / "bare.py"
    file.write_text("def areal_rewards():\n    return []\n")
    record = Manager.discover([str(file)]).plugins[-1]
    assert record.state is State.API_MISMATCH
    assert record.cause == "areal_rewards is never called: it has no @hookimpl"
    assert record.way_out == f"mend {file}"


def test_discovery_imports_nothing_heavy():
    assert managing.HEAVY[0] == "torch"
    assert all(not plugin.warnings for plugin in Manager.discover().plugins if plugin.name == "builtin")


def test_what_a_plugin_prints_is_no_part_of_our_output(tmp_path, capsys):
    file = tmp_path / "loud.py"
    file.write_text("print('hello')\n")
    Manager.discover([str(file)])
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "hello\n")
