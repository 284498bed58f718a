"""Checkpoints on the Hugging Face Hub, downloaded only when the user names one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from harness.checkpoints.formats.content import TOKENIZER
from harness.core.errors import CheckpointError

_FILES: Final = (
    *("config.json", "generation_config.json", "adapter_config.json"),
    *("*.safetensors", "*.safetensors.index.json"),
    *TOKENIZER,
)
"""Config, safetensors and tokenizer: no pickled weights, no code."""

_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def hub_id(source: str) -> str | None:
    """``org/name`` of ``hub:org/name`` or of a bare ``org/name`` that cannot be a local path; None for
    anything else.

    A bare id whose first part is a local folder is taken for a mistyped path, so that no typing error reaches
    the network.
    """
    if source.startswith("hub:"):
        name = source.removeprefix("hub:")
        if not _ID.fullmatch(name):
            raise CheckpointError(f"{source}: no Hub id; write hub:ORGANISATION/NAME")
        return name
    return source if _ID.fullmatch(source) and not Path(source.split("/", maxsplit=1)[0]).exists() else None


def download(name: str, *, code: bool = False) -> Path:
    """The local folder with the snapshot of ``org/name``; only files not yet there are fetched, Python files only
    with ``code``."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=[*_FILES, *(["*.py"] if code else [])]))


def fetch_from_hub(name: str, *, code: bool = False) -> Path:
    """``download``, with every failure as a one-line ``CheckpointError``."""
    try:
        return download(name, code=code) if code else download(name)
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"{name}: no such local path, and the Hub does not give it ({reason}); "
            "check the name, the network and HF_TOKEN"
        ) from error
