from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import areal_plugin_ascend
import pytest
from areal_plugin_ascend import VISIBLE, areal_platforms, software
from areal_plugin_ascend.platform import SETTINGS, Npu

from areal_plugins.protocols import Place


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SETTINGS, VISIBLE, "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def machine(tmp_path: Path) -> Npu:
    """Four NPUs as the driver shows them."""
    for name in ("davinci0", "davinci1", "davinci2", "davinci3", "davinci_manager", "devmm_svm", "hisi_hdc"):
        (tmp_path / name).touch()
    return Npu(tmp_path)


@pytest.fixture
def cann(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CANN as its set_env.sh leaves it."""
    library = tmp_path / "Ascend" / "ascend-toolkit" / "lib64"
    library.mkdir(parents=True)
    (library / "libhccl.so").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/usr/lib:{library}")
    return library


def pretend_versions(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(name: str) -> str:
        try:
            return versions[name.replace("-", "_")]
        except KeyError:
            raise metadata.PackageNotFoundError(name) from None

    monkeypatch.setattr(software.metadata, "version", version)


# --- devices ---------------------------------------------------------------------------------------


def test_npus_are_counted_by_device_file(machine: Npu) -> None:
    assert machine.count() == 4


def test_hidden_npus_do_not_count(machine: Npu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "2,3")
    assert machine.count() == 2


def test_a_machine_without_npus_has_none(tmp_path: Path) -> None:
    assert Npu(tmp_path).count() == 0


# --- what is missing -------------------------------------------------------------------------------


def test_a_complete_machine_lacks_nothing(machine: Npu, cann: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_versions(monkeypatch, torch="2.13.0", torch_npu="2.13.0.post1")
    assert machine.missing() is None


@pytest.mark.usefixtures("cann")
def test_a_machine_without_a_driver_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_versions(monkeypatch, torch="2.13.0", torch_npu="2.13.0")
    assert Npu(tmp_path).missing().startswith("no NPU device (/dev/davinci0): load the driver")


@pytest.mark.usefixtures("cann")
def test_a_container_without_the_manager_says_so(machine: Npu, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_versions(monkeypatch, torch="2.13.0", torch_npu="2.13.0")
    (machine.devices / "davinci_manager").unlink()
    assert "--device=/dev/davinci_manager" in machine.missing()


@pytest.mark.usefixtures("cann")
def test_hidden_npus_are_named(machine: Npu, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_versions(monkeypatch, torch="2.13.0", torch_npu="2.13.0")
    monkeypatch.setenv(VISIBLE, "")
    assert machine.missing() == f"{VISIBLE} hides every NPU"


def test_missing_cann_is_named(machine: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_versions(monkeypatch, torch="2.13.0", torch_npu="2.13.0")
    monkeypatch.setattr(software, "INSTALLED", tmp_path / "nowhere")
    assert machine.missing().startswith("CANN is missing (libhccl.so cannot be found)")


def test_cann_that_is_not_active_names_the_script(
    machine: Npu, cann: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_versions(monkeypatch, torch="2.13.0", torch_npu="2.13.0")
    monkeypatch.delenv("LD_LIBRARY_PATH")
    monkeypatch.setattr(software, "INSTALLED", tmp_path / "Ascend")
    script = cann.parent / "set_env.sh"
    script.touch()
    assert machine.missing() == f"CANN is installed but not active: source {script}"


@pytest.mark.usefixtures("cann")
@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({}, "torch is missing: pip install 'areal-plugins[torch]'"),
        ({"torch": "2.13.0+cpu"}, "torch_npu is missing: pip install 'torch-npu==2.13.*' (once CANN is active)"),
        (
            {"torch": "2.14.1", "torch_npu": "2.13.0"},
            "torch_npu 2.13 does not go with torch 2.14: pip install 'torch-npu==2.14.*'",
        ),
    ],
)
def test_missing_software_comes_with_its_pip_line(
    machine: Npu, monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], message: str
) -> None:
    pretend_versions(monkeypatch, **versions)
    assert machine.missing() == message


def test_everything_that_is_missing_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_versions(monkeypatch, torch="2.13.0")
    lack = Npu(tmp_path).missing()
    assert all(word in lack for word in ("/dev/davinci0", "CANN", "torch_npu"))
    assert "\n" not in lack


# --- workers ---------------------------------------------------------------------------------------


def test_a_worker_sees_its_own_devices_only(machine: Npu) -> None:
    assert machine.environment(Place(device="npu", devices=(1, 2)))[VISIBLE] == "1,2"


def test_indices_count_among_the_visible_devices(machine: Npu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "4, 7")
    assert machine.environment(Place(device="npu", devices=(1,)))[VISIBLE] == "7"


def test_a_worker_without_devices_hides_none(machine: Npu) -> None:
    assert machine.environment(Place()) == SETTINGS


def test_the_users_own_settings_are_kept(machine: Npu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "60")
    environment = machine.environment(Place(device="npu", devices=(0,)))
    assert "HCCL_CONNECT_TIMEOUT" not in environment
    assert environment["HCCL_EXEC_TIMEOUT"] == "14400"


def test_two_workers_meet_over_hccl_on_a_device_called_npu(machine: Npu, tmp_path: Path) -> None:
    program = [sys.executable, str(Path(__file__).with_name("stand_in.py"))]
    workers = [
        subprocess.Popen(
            [*program, str(rank), "2", str(tmp_path / "meeting")],
            env={**os.environ, **machine.environment(Place(rank, 2, "npu", devices=(rank,)))},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    found = [json.loads(worker.communicate()[0]) for worker in workers]
    common = {"device": "npu:0", "devices": 1, "backend": "hccl", "sum": 3.0, "timeout": "7200"}
    assert found == [{**common, "visible": str(rank)} for rank in range(2)]


# --- the plugin ------------------------------------------------------------------------------------


def test_the_entry_point_names_the_plugin() -> None:
    (entry,) = metadata.entry_points(group="areal_plugins", name="ascend")
    assert entry.load() is areal_plugin_ascend


def test_it_is_preferred_to_other_platforms() -> None:
    from areal_plugins.builtin import platforms

    (npu,) = areal_platforms()
    others = [descriptor.capabilities.priority for descriptor in platforms.DESCRIPTORS]
    assert npu.capabilities.priority > max(others)


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, areal_plugin_ascend.platform; print({'torch', 'torch_npu'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
