from __future__ import annotations


def test_a_run_trains_every_step_and_writes_one_line_each(scene):
    summary = scene.run()
    assert summary.outcome == "done"
    assert [line["step"] for line in scene.lines("metrics.jsonl")] == list(range(1, 21))
