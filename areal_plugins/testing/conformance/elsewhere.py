"""The same question, asked of the component in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from areal_core.workers.build import build, load
from areal_plugins.testing.conformance.subject import Subject

T = TypeVar("T")

_BOOT = "import pickle, sys; sys.path[:] = {path!r}; from {module} import answer; answer({order!r}, {reply!r})"


def ask(subject: Subject, context: Any, question: Callable[..., T], *args: Any) -> T:
    """`question(component, *args)` in a fresh interpreter whose hashes are seeded otherwise.

    `question` must be a function that can be imported; it, what it is given and its answer are pickled.
    An answer that does not come is an `AssertionError` with the cause.
    """
    load(subject.ref)
    modules = [place.partition(":")[0] for place in (subject.ref.factory, subject.ref.options_type)]
    with tempfile.TemporaryDirectory(prefix="areal-elsewhere-") as folder:
        order, reply = Path(folder, "order"), Path(folder, "reply")
        files = {name: sys.modules[name].__file__ for name in modules}
        order.write_bytes(pickle.dumps((files, subject.files)) + pickle.dumps((subject.ref, context, question, args)))
        path = [str(Path(entry or ".").resolve()) for entry in sys.path]
        code = _BOOT.format(path=path, module=__name__, order=str(order), reply=str(reply))
        environment = {**os.environ, "PYTHONHASHSEED": "1234567"}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603 - ours
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        assert done.returncode == 0, f"another process cannot answer: {lines[-1] if lines else done.returncode}"
        answer: T = pickle.loads(reply.read_bytes())  # noqa: S301 - written by the process above
        return answer


def answer(order: str, reply: str) -> None:
    """In the other process: read the order, and write the answer."""
    with Path(order).open("rb") as file:
        modules, files = pickle.load(file)  # noqa: S301 - written by the process that started this one
        for name, path in modules.items():
            _import(name, path, files)
        ref, context, question, args = pickle.load(file)  # noqa: S301
    Path(reply).write_bytes(pickle.dumps(question(build(ref, context), *args)))


def _import(name: str, path: str, files: tuple[str, ...]) -> None:
    """By its name, or, as a test's module cannot be, from its file under that name."""
    if path in files:
        return  # a local plugin, which the reference imports
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(str(error.name)):
            raise
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
