import ctypes
import sys

import pytest

from areal_plugins.builtin.trainer import allocator


class Library:
    """A C library that takes note."""

    def __init__(self):
        self.said = {}

    def mallopt(self, parameter, value):
        self.said[parameter] = value


@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc, which is found under Linux only")
def test_freed_memory_is_never_trimmed(monkeypatch):
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    allocator.keep_freed_memory()
    assert library.said == {-1: -1, -3: 32 << 20}


def test_other_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    allocator.keep_freed_memory()
