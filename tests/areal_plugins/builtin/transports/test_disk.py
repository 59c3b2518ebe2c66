from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from areal_core.contexts import Place, TransportContext
from areal_core.data import WeightOffer, WeightVersion
from areal_plugins import TransportError
from areal_plugins.builtin.transports import DiskOptions
from areal_plugins.builtin.transports.disk import DiskTransport

Make = Callable[..., Any]
V1, V2 = WeightVersion(0, 1), WeightVersion(0, 2)


def no_weights() -> Iterator[tuple[str, torch.Tensor]]:
    raise AssertionError("hf-dir saves, it does not gather")
    yield


def save(directory: Path) -> None:
    (directory / "config.json").write_text("{}")
    (directory / "empty").touch()
    save_file({"weight": torch.arange(100.0)}, directory / "model.safetensors")


@pytest.fixture
def trainer(make: Make) -> DiskTransport:
    return make("disk", "trainer")


@pytest.fixture
def engine(make: Make) -> DiskTransport:
    return make("disk", "engine")


@pytest.fixture
def offer(trainer: DiskTransport) -> WeightOffer:
    return trainer.publish(V1, no_weights(), save)


def directory(offer: WeightOffer) -> Path:
    return Path(offer.payload["directory"])


def test_an_engine_gets_what_the_trainer_saved(engine: DiskTransport, offer: WeightOffer) -> None:
    source = engine.receive(offer)
    assert (source.mechanism, (source.path() / "config.json").read_text()) == ("hf-dir", "{}")
    ((name, tensor),) = source.tensors()
    assert (name, tensor.tolist()) == ("weight", list(range(100)))


def test_the_directory_carries_the_version(offer: WeightOffer) -> None:
    assert directory(offer).name == "0.1"


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


DAMAGE = [
    (lambda d: flip(d / "model.safetensors"), r"model\.safetensors is damaged"),
    (lambda d: os.truncate(d / "model.safetensors", 100), r"model\.safetensors holds 100 of 472 bytes"),
    (lambda d: (d / "model.safetensors").unlink(), r"model\.safetensors is missing"),
    (lambda d: (d / "empty").write_text("no longer"), r"empty holds 9 of 0 bytes"),
    (lambda d: (d / "checksums.json").write_text("{}"), r"checksums\.json is not the one that was published"),
    (lambda d: (d / "checksums.json").unlink(), r"0\.1 is missing or not whole"),
    (lambda d: d.rename(d.with_name("elsewhere")), r"0\.1 is missing or not whole"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_damage_is_named(engine: DiskTransport, offer: WeightOffer, damage, message: str) -> None:
    damage(directory(offer))
    with pytest.raises(TransportError, match=rf"version 0\.1: .*{message}"):
        engine.receive(offer)


@pytest.mark.parametrize(("damage", "message"), DAMAGE[1:])
def test_without_verify_only_bytes_go_unread(make: Make, offer: WeightOffer, damage, message: str) -> None:
    damage(directory(offer))
    with pytest.raises(TransportError, match=message):
        make("disk", "engine", verify=False).receive(offer)


def test_without_verify_a_flipped_bit_goes_unseen(make: Make, offer: WeightOffer) -> None:
    flip(directory(offer) / "model.safetensors")
    assert make("disk", "engine", verify=False).receive(offer).path() == directory(offer)


def test_a_file_that_breaks_while_it_is_read_is_named(engine: DiskTransport, offer: WeightOffer) -> None:
    source = engine.receive(offer)
    os.truncate(directory(offer) / "model.safetensors", 100)
    with pytest.raises(TransportError, match=r"version 0\.1: .*model\.safetensors"):
        list(source.tensors())


def test_release_removes_the_directory(trainer: DiskTransport, offer: WeightOffer) -> None:
    later = trainer.publish(V2, no_weights(), save)
    trainer.release(V1)
    assert (directory(offer).exists(), directory(later).exists()) == (False, True)


def test_an_engine_removes_nothing(engine: DiskTransport, offer: WeightOffer) -> None:
    engine.release(V1)
    engine.close()
    assert directory(offer).is_dir()


def test_a_save_that_fails_leaves_no_directory(trainer: DiskTransport, tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        save(directory)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        trainer.publish(V1, no_weights(), fail)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_everything_is_on_the_disk_before_the_directory_appears(
    trainer: DiskTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def flushed(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        events.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "rename", renamed)
    root = directory(trainer.publish(V1, no_weights(), save)).parent
    before, after = events[: events.index("rename")], events[events.index("rename") + 1 :]
    assert set(before) == {"config.json", "empty", "model.safetensors", "checksums.json", ".0.1.partial"}
    assert after == [root.name]


def test_a_trainer_begins_by_removing_what_a_killed_one_left(make: Make, offer: WeightOffer) -> None:
    partial = directory(offer).with_name(".0.2.partial")
    partial.mkdir()
    make("disk", "trainer")
    assert (directory(offer).exists(), partial.exists()) == (False, False)


def test_every_rank_saves_and_the_first_one_publishes(make: Make, tmp_path: Path) -> None:
    saved: list[Path] = []
    make("disk", "trainer", rank=1).publish(V1, no_weights(), saved.append)
    assert [path.name for path in saved] == [".0.1.partial"]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_bare_tensors_are_written_a_bucket_a_file(make: Make) -> None:
    trainer, engine = (make("disk", side, mechanism="tensors", bucket=4000) for side in ("trainer", "engine"))
    weights = {f"p{i}": torch.full((300,), float(i)) for i in range(7)}
    offer = trainer.publish(V1, iter(weights.items()), save)
    assert len(list(directory(offer).glob("*.safetensors"))) == 3
    assert {name: tensor[0].item() for name, tensor in engine.receive(offer).tensors()} == {
        name: tensor[0].item() for name, tensor in weights.items()
    }


def test_runs_that_share_a_directory_keep_apart(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()

    def start(run: str) -> DiskTransport:
        context = TransportContext("trainer", Place(), tmp_path / run, verify=True, bucket_bytes=1)
        return DiskTransport(DiskOptions(str(shared)), context)

    offer = start("one").publish(V1, no_weights(), save)
    start("two").close()
    assert directory(offer).is_dir()
    start("one").close()
    assert list(shared.iterdir()) == []


def test_the_manifest_lists_every_file(offer: WeightOffer) -> None:
    listed = json.loads((directory(offer) / "checksums.json").read_text())
    assert set(listed) == {"config.json", "empty", "model.safetensors"}
