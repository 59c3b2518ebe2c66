"""Against a server on this machine that speaks as much of the hub's protocol as a snapshot asks for."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest

from areal_core.contexts import ModelContext
from areal_plugins import InputError
from areal_plugins.builtin.models import HfOptions, TinyOptions
from areal_plugins.builtin.models.hf import HfSource
from areal_plugins.builtin.models.tiny import TinySource

COMMIT = hashlib.sha1(b"commit").hexdigest()
REFUSALS = {"gated": (403, "GatedRepo"), "nowhere": (404, "RepoNotFound"), "tiny": (404, "RevisionNotFound")}


class Hub(BaseHTTPRequestHandler):
    """Serves `org/tiny`, revision `main`, from the class's `files`."""

    files: dict[str, bytes]

    def do_GET(self) -> None:
        _, *parts = self.path.partition("?")[0].split("/")
        if self._refused(parts):
            self._refuse(*REFUSALS["tiny" if "org/tiny" in self.path else parts[-3]])
        elif parts[0] == "api":
            self._answer(self._listing("tree" in parts))
        else:
            self._answer(self.files[parts[-1]], etag=hashlib.sha1(self.files[parts[-1]]).hexdigest())

    do_HEAD = do_GET

    def _refused(self, parts: list[str]) -> bool:
        return "tiny" not in parts or not {"main", COMMIT} & set(parts)

    def _listing(self, tree: bool) -> bytes:
        if tree:
            entries = [{"type": "file", "path": n, "size": len(c), "oid": "0" * 40} for n, c in self.files.items()]
            return json.dumps(entries).encode()
        siblings = [{"rfilename": name} for name in self.files]
        return json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": siblings}).encode()

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, body: bytes, etag: str = "") -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        if etag:
            self.send_header("ETag", f'"{etag}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Keep the test's output clean."""


def point_at(endpoint: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def context(tmp_path: Path) -> ModelContext:
    return ModelContext(cache=tmp_path / "cache", work=tmp_path / "work", seed=0)


@pytest.fixture
def hub(context: ModelContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    directory = TinySource(TinyOptions(), context).materialize()
    files = {file.name: file.read_bytes() for file in directory.iterdir()} | {"pytorch_model.bin": b"pickle"}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("TinyHub", (Hub,), {"files": files}))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    point_at(f"http://127.0.0.1:{server.server_port}", tmp_path / "hub", monkeypatch)
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.server_close()
    point_at(f"http://127.0.0.1:{server.server_port}", tmp_path / "hub", monkeypatch)


def materialize(context: ModelContext, path: str, **options: object) -> Path:
    return HfSource(HfOptions(path=path, **options), context).materialize()


@pytest.mark.usefixtures("hub")
def test_a_hub_id_becomes_a_directory_without_pickles(context: ModelContext) -> None:
    names = {file.name for file in materialize(context, "org/tiny").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert "pytorch_model.bin" not in names


@pytest.mark.usefixtures("hub")
def test_a_snapshot_is_found_again_without_the_hub(context: ModelContext, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = materialize(context, "org/tiny")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert materialize(context, "org/tiny") == directory


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("path", "revision", "message"),
    [
        ("org/nowhere", None, "org/nowhere: neither a directory here nor a repository on the hub"),
        ("org/gated", None, "org/gated: the repository is gated.*hf auth login"),
        ("org/tiny", "v9", "org/tiny@v9: the repository has no such revision"),
        ("a--b", None, "a--b: neither a directory here nor a hub id"),
    ],
)
def test_what_the_hub_refuses_is_said(context: ModelContext, path: str, revision: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        materialize(context, path, revision=revision)


@pytest.mark.usefixtures("unreachable")
def test_a_hub_that_cannot_be_reached_says_what_to_do(context: ModelContext) -> None:
    with pytest.raises(InputError, match=r"org/tiny: not in the hub's cache, and http.*hf download org/tiny"):
        materialize(context, "org/tiny")


@pytest.mark.usefixtures("unreachable")
def test_offline_mode_is_named(context: ModelContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="HF_HUB_OFFLINE forbids"):
        materialize(context, "org/tiny")
