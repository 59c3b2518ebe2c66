from __future__ import annotations

import json

import numpy as np
import pytest
from attrs import fields_dict
from hypothesis import given
from hypothesis import strategies as st

from areal_core.data import TaskRef, Trajectory, TrajectoryGroup
from areal_core.errors import CheckpointError
from areal_core.pipeline.checkpoint import PipelineState, abandon, begin, finish, latest, model_directory, newest, read
from areal_core.pipeline.metrics import Dropped, Tally, Totals, Watch
from areal_core.pipeline.tasks import Drawn


def trajectory(length, extra, member=0):
    columns = {"tokens": np.arange(length, dtype=np.int32), "versions": np.arange(length, dtype=np.int64)}
    if extra:
        columns["pixels"] = np.ones((length, 2, 3), dtype=np.float32) * member
    return Trajectory(member, columns, 1, 0.25, "stop", scores={"format": 1.0}, prompt="p", answer="é\n")


groups = st.lists(
    st.builds(
        lambda sequence, lengths, extra: TrajectoryGroup(
            sequence, TaskRef("e", "train", sequence), tuple(trajectory(n, extra, m) for m, n in enumerate(lengths))
        ),
        sequence=st.integers(0, 1000),
        lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3),
        extra=st.booleans(),
    ),
    max_size=4,
)


def _facts(trajectory):
    return trajectory.member, trajectory.reward, trajectory.scores, trajectory.prompt, trajectory.answer


def write(folder, state, keep=5, identity=None):
    fresh = begin(folder, state.step)
    (fresh / "model.safetensors").write_bytes(b"weights" * 100)
    (fresh / "trainer" / "trainer.pt").write_bytes(bytes(range(256)))
    return finish(fresh, state, identity or {"seed": 1}, keep)


def damage(path, name="trainer/trainer.pt"):
    content = bytearray((path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (path / name).write_bytes(content)


@given(buffered=groups)
def test_finished_groups_come_back_as_they_were(buffered, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("c"), PipelineState(step=3, buffered=tuple(buffered)))
    again = read(path, {"seed": 1}).buffered
    assert [group.sequence for group in again] == [group.sequence for group in buffered]
    for left, right in zip([t for g in buffered for t in g], [t for g in again for t in g], strict=True):
        assert (left.member, left.reward, left.scores, left.answer) == (
            right.member,
            right.reward,
            right.scores,
            right.answer,
        )
        assert left.columns.keys() == right.columns.keys()
        for name, column in left.columns.items():
            assert column.dtype == right.columns[name].dtype
            np.testing.assert_array_equal(column, right.columns[name])


def test_counters_come_back_as_they_were(tmp_path):
    state = PipelineState(
        step=7,
        incarnation=2,
        stage="rl",
        drawn=Drawn(40, {"a": 30, "b": 10}),
        under_way=((38, TaskRef("a", "train", 5)),),
        tally=Tally(Totals(100, 90), {"stale": Dropped(1, 4, 20, 9)}),
        scores=((0, {"a/accuracy": 0.1}),),
        elapsed=12.5,
        model="/somewhere",
        filtered=3,
        recent=(True, False),
        norms=(0.5, 1.5),
        alarms={"mismatch": Watch(0.25, True), "lag/mean": Watch()},
    )
    again = read(write(tmp_path, state), {"seed": 1})
    for name in fields_dict(PipelineState):
        if name not in ("buffered", "partial"):
            assert getattr(again, name) == getattr(state, name)


def test_only_the_newest_are_kept(tmp_path):
    for step in (2, 9, 10, 11):
        write(tmp_path, PipelineState(step=step), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-10", "step-11"]


@pytest.mark.parametrize("damaged", [2, 3])
def test_a_damaged_one_is_not_among_those_kept(tmp_path, damaged):
    for step in (1, 2, 3):
        write(tmp_path, PipelineState(step=step))
    damage(tmp_path / f"step-{damaged}")
    write(tmp_path, PipelineState(step=4), keep=2)
    whole = 5 - damaged
    assert {"step-4", f"step-{whole}"} <= {path.name for path in tmp_path.iterdir()} <= {f"step-{s}" for s in (2, 3, 4)}


def test_a_damaged_newest_one_is_passed_over_and_said_so(tmp_path):
    for step in (1, 2, 3):
        write(tmp_path / "checkpoints", PipelineState(step=step))
    damage(tmp_path / "checkpoints" / "step-3")
    (tmp_path / "checkpoints" / "step-2" / "model.safetensors").unlink()
    found, damaged = newest(tmp_path)
    assert found == latest(tmp_path) == tmp_path / "checkpoints" / "step-1"
    assert [problem.path.partition("checkpoints/")[2] for problem in damaged] == [
        "step-3/trainer/trainer.pt",
        "step-2/model.safetensors",
    ]


def test_where_all_are_damaged_the_error_names_the_newest_ones_file(tmp_path):
    for step in (1, 2):
        damage(write(tmp_path / "checkpoints", PipelineState(step=step)))
    with pytest.raises(CheckpointError, match=r"step-2/trainer/trainer\.pt: is damaged.*no whole checkpoint"):
        latest(tmp_path)


def test_where_all_are_damaged_the_abandoned_one_beside_them_is_a_way_out(tmp_path):
    folder = tmp_path / "checkpoints"
    for step in (9, 226):
        folder.mkdir(exist_ok=True)
        write(folder, PipelineState(step=step))
    abandon(folder, 1)
    damage(write(folder, PipelineState(step=5)))
    with pytest.raises(CheckpointError, match=r"\(give .*/checkpoints/abandoned-step-226, or begin a new run\)"):
        latest(tmp_path)


A_MODEL = ["tiny", {"hidden_size": 64, "rope": {"theta": 1.0}, "api_key": "s3cret"}]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": ["tiny", {**A_MODEL[1], "hidden_size": 32}]}, "its model.hidden_size is 64, the spec's 32 "),
        ({"model": ["tiny", {**A_MODEL[1], "rope": {"theta": 2.0}}]}, "its model.rope.theta is 1.0, the spec's 2.0 "),
        ({"model": ["tiny", {**A_MODEL[1], "heads": 2}]}, "its model.heads is not set, the spec's 2 "),
        ({"model": ["tiny", {**A_MODEL[1], "rope": {}}]}, "its model.rope is not set, the spec's {} "),
        ({"model": ["tiny", {**A_MODEL[1], "api_key": "other"}]}, "its model.api_key is ***, the spec's *** "),
        ({"model": ["hf", {"path": "there"}]}, "its model is tiny, the spec's hf "),
        ({"environments": ["sums", "words"]}, "its environments is sums, the spec's sums, words "),
    ],
)
def test_of_another_experiment_the_first_value_that_differs_is_named(tmp_path, changed, said):
    identity = {"seed": 1, "model": A_MODEL, "environments": ["sums"]}
    path = write(tmp_path, PipelineState(step=2), identity=identity)
    assert read(path, identity).step == 2
    with pytest.raises(CheckpointError) as problem:
        read(path, identity | changed)
    assert f"is of another experiment: {said}(give the spec and --set that it was run with" in str(problem.value)


def test_a_damaged_checkpoint_that_is_named_is_an_error_that_names_the_file(tmp_path):
    path = write(tmp_path / "checkpoints", PipelineState(step=2))
    write(tmp_path / "checkpoints", PipelineState(step=3))
    damage(path, "model.safetensors")
    for read_it in (latest, model_directory):
        with pytest.raises(CheckpointError, match=r"step-2/model\.safetensors: is damaged"):
            read_it(path)


def test_the_model_of_a_run_is_its_newest_whole_checkpoints(tmp_path):
    path = write(tmp_path / "checkpoints", PipelineState(step=2))
    damage(write(tmp_path / "checkpoints", PipelineState(step=3)))
    assert model_directory(tmp_path) == model_directory(path) == path


def test_a_model_directory_that_is_no_checkpoint_has_nothing_to_be_compared_with(tmp_path):
    (tmp_path / "config.json").touch()
    assert model_directory(tmp_path) == tmp_path


def test_what_an_interrupted_save_left_is_removed_by_the_next(tmp_path):
    (tmp_path / ".step-1.new").mkdir()
    write(tmp_path, PipelineState(step=2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-2"]


def test_the_same_step_may_be_saved_again(tmp_path):
    write(tmp_path, PipelineState(step=1, elapsed=1.0))
    assert read(write(tmp_path, PipelineState(step=1, elapsed=2.0)), {"seed": 1}).elapsed == 2.0


def test_abandoned_checkpoints_are_set_aside_and_never_the_one_gone_on_from(tmp_path):
    folder = tmp_path / "checkpoints"
    for step in (9, 10, 18, 20):
        folder.mkdir(exist_ok=True)
        write(folder, PipelineState(step=step))
    abandon(folder, 10)
    names = {"step-9", "step-10", "abandoned-step-18", "abandoned-step-20"}
    assert {path.name for path in folder.iterdir()} == names
    assert latest(tmp_path).name == "step-10"


def test_an_abandoned_checkpoint_is_replaced_by_a_newer_one_of_its_step(tmp_path):
    for elapsed in (1.0, 2.0):
        write(tmp_path, PipelineState(step=20, elapsed=elapsed))
        abandon(tmp_path, 10)
    assert [path.name for path in tmp_path.iterdir()] == ["abandoned-step-20"]
    assert read(tmp_path / "abandoned-step-20", {"seed": 1}).elapsed == 2.0


def test_a_damaged_checkpoint_is_set_aside_as_such_and_replaces_no_abandoned_one(tmp_path):
    tmp_path = tmp_path / "checkpoints"
    tmp_path.mkdir()
    write(tmp_path, PipelineState(step=20))
    abandon(tmp_path, 10)
    damage(write(tmp_path, PipelineState(step=20)))
    found, problems = newest(tmp_path.parent)
    assert found is None
    abandon(tmp_path, 10, problems)
    assert read(tmp_path / "abandoned-step-20", {"seed": 1}).step == 20
    assert {path.name for path in tmp_path.iterdir()} == {"abandoned-step-20", "damaged-step-20"}


@pytest.mark.parametrize("name", ["pipeline.json", "buffer.npz", "trainer"])
def test_a_manifest_that_leaves_out_a_part_is_damaged(tmp_path, name):
    file = write(tmp_path, PipelineState(step=1)) / "manifest.json"
    files = json.loads(file.read_text())["files"]
    file.write_text(json.dumps({"files": {n: sealed for n, sealed in files.items() if not n.startswith(name)}}))
    with pytest.raises(CheckpointError, match=rf"manifest\.json: is damaged: it knows of no .*{name}"):
        latest(file.parent)


def test_a_checkpoint_that_was_moved_elsewhere_behind_a_link_is_no_obstacle_and_is_left_there(tmp_path):
    folder, elsewhere = tmp_path / "checkpoints", tmp_path / "elsewhere"
    folder.mkdir()
    write(folder, PipelineState(step=1)).rename(elsewhere)
    (folder / "step-1").symlink_to(elsewhere)
    (folder / ".step-junk").write_text("")
    for step in (2, 3):
        write(folder, PipelineState(step=step), keep=1)
    assert [path.name for path in folder.iterdir()] == ["step-3"]
    assert (elsewhere / "trainer").is_dir()


def test_a_checkpoint_may_be_named_instead_of_its_run(tmp_path):
    path = write(tmp_path, PipelineState(step=1))
    assert latest(path) == path


def test_another_format_is_named(tmp_path):
    path = write(tmp_path, PipelineState(step=1))
    data = json.loads((path / "pipeline.json").read_text()) | {"format": 99}
    (path / "pipeline.json").write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="has format 99; this release reads 2 and 3"):
        read(path, {"seed": 1})


@pytest.mark.parametrize("name", ["pipeline.json", "buffer.npz"])
def test_a_damaged_file_is_an_error_that_names_the_checkpoint(tmp_path, name):
    path = write(tmp_path, PipelineState(step=1))
    (path / name).write_bytes(b"{")
    with pytest.raises(CheckpointError, match="step-1: is damaged"):
        read(path, {"seed": 1})
