from pathlib import Path

import pytest
import torch

from areal_plugins import InputError
from areal_plugins.builtin import dtypes


def test_a_named_format_is_taken_as_it_is():
    assert dtypes.resolve_dtype("bfloat16", "cpu") is torch.bfloat16


def test_an_unknown_format_names_the_known_ones():
    with pytest.raises(InputError, match=r"'int8' is no number format.*float32"):
        dtypes.resolve_dtype("int8", "cpu")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flags\t\t: fpu avx2 fma", torch.float32),
        ("flags\t\t: fpu avx2 avx512_bf16", torch.bfloat16),
        ("flags\t\t: fpu amx_bf16 amx_tile", torch.bfloat16),
        ("Features\t: fp asimd bf16", torch.bfloat16),
        ("model name\t: none", torch.float32),
    ],
)
def test_auto_on_a_cpu_follows_its_instruction_set(line: str, expected: object, tmp_path: Path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}\n")
    flags = dtypes.cpu_flags(str(tmp_path / "cpuinfo"))
    monkeypatch.setattr(dtypes, "cpu_flags", lambda: flags)
    assert dtypes.resolve_dtype("auto", "cpu") is expected


def test_a_system_without_cpuinfo_has_no_flags(tmp_path: Path):
    assert dtypes.cpu_flags(str(tmp_path / "missing")) == frozenset()
