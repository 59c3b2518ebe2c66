"""Snapshots of a hub's repositories."""

from __future__ import annotations

import os
from pathlib import Path

import huggingface_hub
from huggingface_hub import errors

from areal_plugins import InputError

_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors")


def snapshot(repository: str, revision: str | None, *, code: bool = False, pickle: bool = False) -> Path:
    """The directory of `repository` in the hub's cache; only what is missing there is downloaded.

    Raises:
        InputError: the repository or revision does not exist, needs a login, or cannot be reached and
            is not in the cache.

    """
    patterns = [*_FILES, *(["*.py"] if code else []), *(["pytorch_model*.bin"] if pickle else [])]
    where = f"{repository}@{revision}" if revision else repository
    try:
        directory = huggingface_hub.snapshot_download(
            repository, revision=revision, allow_patterns=patterns, endpoint=_endpoint()
        )
        return Path(directory)
    except errors.GatedRepoError as error:
        way_out = "accept its terms on the hub and log in with `hf auth login`"
        raise InputError(where, "the repository is gated and this login may not read it", way_out) from error
    except errors.RevisionNotFoundError as error:
        raise InputError(where, "the repository has no such revision") from error
    except errors.RepositoryNotFoundError as error:
        way_out = "check the spelling, or log in with `hf auth login` if it is private"
        raise InputError(where, "neither a directory here nor a repository on the hub", way_out) from error
    except errors.HFValidationError as error:
        raise InputError(where, f"neither a directory here nor a hub id: {error}") from error
    except (errors.LocalEntryNotFoundError, ConnectionError) as error:
        raise InputError(where, _unreachable(), _offline_way_out(repository)) from error
    except errors.HfHubHTTPError as error:
        raise InputError(where, f"the hub refused: {error}", _offline_way_out(repository)) from error


def _unreachable() -> str:
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        return "not in the hub's cache, and HF_HUB_OFFLINE forbids to download it"
    return f"not in the hub's cache, and {_endpoint()} cannot be reached"


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or str(huggingface_hub.constants.ENDPOINT)


def _offline_way_out(repository: str) -> str:
    return (
        f"on a machine with access run `hf download {repository} --local-dir DIR` and set the path to DIR, "
        "or set HF_ENDPOINT to a mirror"
    )
