import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from attrs import evolve, field, frozen

from areal_core.contexts import ModuleRef
from areal_core.descriptors import RewardDescriptor
from areal_core.errors import ComponentError, InputError, PluginError
from areal_core.local import load_file
from areal_core.spec.experiment import Selected
from areal_core.workers.build import build, import_files, make_ref

TOYS = Path(__file__).with_name("toys.py")
toys = load_file(TOYS)


class Shade(enum.Enum):
    DARK = "dark"


@frozen
class Inner:
    n: int = 1


@frozen
class Everything:
    """One field a kind of type that options are made of."""

    size: int | Literal["auto"] = 3
    number: float | str | None = 2.0
    words: str | tuple[str, ...] = ("a", "b")
    paths: tuple[Path, ...] = (Path("/a/b"),)
    shares: dict[str, float] | None = field(factory=lambda: {"x": 1.0})
    inner: Inner | Literal["auto"] = Inner(4)
    many: tuple[Inner, ...] = (Inner(), Inner(2))
    named: Mapping[str, Inner] = field(factory=lambda: {"q": Inner(9)})
    plain: Mapping[str, Any] = field(factory=lambda: {"k": [1, {"deep": None}]})
    shade: Shade = Shade.DARK
    members: frozenset[str] = frozenset({"m"})
    betas: Sequence[float] = (0.9, 0.95)
    nothing: Path | None = None


def ref(factory: str = "make_pair", **options: Any) -> ModuleRef:
    name = toys.__name__
    return ModuleRef("reward", "toy", f"{name}:{factory}", f"{name}:Options", options, (str(TOYS),))


def test_a_factory_is_called_with_its_options_and_the_context() -> None:
    assert build(ref(fail="x"), "context") == (toys.Options("x"), "context")


def test_every_kind_of_option_survives_the_way_to_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toys, "Everything", Everything, raising=False)
    monkeypatch.setattr(Everything, "__module__", toys.__name__)
    descriptor = RewardDescriptor(name="x", summary="", factory=f"{toys.__name__}:make_pair", options=Everything)
    sent = make_ref(Selected(descriptor, Everything()), [str(TOYS)])
    arrived = msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=ModuleRef)
    assert build(arrived, None)[0] == Everything()


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"fial": "x"}, "fial"), ({"fail": 5}, r"expected str @ options\.fail"), ({"fail": None}, "expected str")],
)
def test_options_that_do_not_fit_are_refused_by_name(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(PluginError, match=rf"reward/toy: its options do not fit .*{problem}"):
        build(ref(**options), None)


def test_an_integer_is_a_float_but_nothing_else_is_coerced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toys, "Everything", Everything, raising=False)
    wanted = evolve(ref(betas=[1, 0.5]), options_type=f"{toys.__name__}:Everything")
    betas = build(wanted, None)[0].betas
    assert list(map(type, betas)) == [float, float]
    with pytest.raises(PluginError, match="betas"):
        build(evolve(wanted, options={"betas": ["1"]}), None)


def test_a_factory_that_raises_is_blamed_by_name() -> None:
    with pytest.raises(ComponentError, match="reward/toy: build: ZeroDivisionError: in the factory"):
        build(ref("crash"), None)


def test_a_factory_that_returns_nothing_is_blamed_by_name() -> None:
    with pytest.raises(ComponentError, match=r"reward/toy: build: TypeError: its factory .*:nothing' returned None"):
        build(ref("nothing"), None)


def test_an_input_error_passes_as_it_is() -> None:
    with pytest.raises(InputError, match=r"model/config\.json: is not JSON"):
        build(ref("refuse"), None)


@pytest.mark.parametrize(
    ("factory", "problem"),
    [
        ("no_such_package.mod:make", "No module named 'no_such_package'.*install what provides 'no_such_package'"),
        ("areal_core.data:missing", "has no attribute 'missing'"),
        ("areal_core.data", "is not of the form module:attr"),
        ("areal_core.data:NO_VERSION", "cannot be called"),
    ],
)
def test_a_factory_that_cannot_be_imported_says_why_and_what_helps(factory: str, problem: str) -> None:
    with pytest.raises(PluginError, match=f"plugin reward/toy: .*{problem}"):
        build(evolve(ref(), factory=factory), None)


def test_a_local_file_that_raises_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("1 / 0")
    with pytest.raises(PluginError, match=r"broken\.py: cannot be imported: ZeroDivisionError"):
        import_files([str(file)])


def test_a_missing_local_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.py"):
        import_files([str(tmp_path / "nowhere.py")])
