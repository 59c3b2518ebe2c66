import os
import subprocess
import sys

import pytest

from areal_core.workers.__main__ import main
from areal_core.workers.hello import KEY_VARIABLE

ARGUMENTS = ["--connect", "unix:/nowhere/controller.sock", "--name", "engine-0", "--role", "engine"]


def test_a_worker_without_a_key_says_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(SystemExit, match="2"):
        main(ARGUMENTS)
    assert f"the run's key is missing: set {KEY_VARIABLE}" in capsys.readouterr().err


def test_a_worker_without_a_controller_says_so_and_fails() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "areal_core.workers", *ARGUMENTS],
        env={**os.environ, KEY_VARIABLE: "00" * 32},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "worker engine-0: [Errno 2] No such file or directory" in ended.stderr
    assert "Traceback" not in ended.stderr
