from collections.abc import Callable
from pathlib import Path

import pytest

from areal_plugins import InputError
from areal_plugins.builtin.rewards.target import find

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(code: str) -> str:
        path = tmp_path / "rewards.py"
        path.write_text(code)
        return str(path)

    return write


def test_a_function_of_a_module_is_found() -> None:
    assert find("os.path:join")("a", "b") == "a/b"


def test_a_function_of_a_file_is_found(write: Write) -> None:
    assert find(f"{write('def double(x): return 2 * x')}:double")(4) == 8


def test_a_method_is_found() -> None:
    assert find("pathlib:Path.home")() == Path.home()


@pytest.mark.parametrize("target", ["os", "os:", ":join", ""])
def test_a_name_without_function_is_refused(target: str) -> None:
    with pytest.raises(InputError, match="names no function"):
        find(target)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"/nowhere/r\.py: no such plugin file"):
        find("/nowhere/r.py:score")


@pytest.mark.parametrize("target", ["no_such_module:f", "os.no_such_module:f"])
def test_a_missing_module_is_named(target: str) -> None:
    with pytest.raises(InputError, match="there is no such module"):
        find(target)


def test_a_missing_function_is_named(write: Write) -> None:
    with pytest.raises(InputError, match="there is no 'score'"):
        find(f"{write('x = 1')}:score")


def test_what_cannot_be_called_is_refused(write: Write) -> None:
    with pytest.raises(InputError, match="'x' is int, which cannot be called"):
        find(f"{write('x = 1')}:x")


def test_what_a_module_lacks_is_not_taken_for_the_module(write: Write) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        find(f"{write('import no_such_dependency')}:score")
