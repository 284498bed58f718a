"""Options that only some checkpoints take, checked against those of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.plugin.options import Settings

WITHOUT_BASE: Final = ("folder", "gguf", "fake", "served")
"""The checkpoint formats that take no ``--eval-base-model``."""


def check_base(base: str | None, infos: Sequence[CheckpointInfo], *, some_failed: bool) -> None:
    """Raise ``CheckpointError`` for a base model that no checkpoint takes; one that failed to load may be meant."""
    takes = any(info.base is not None or info.format not in WITHOUT_BASE for info in infos)
    if base is not None and infos and not takes and not some_failed:
        raise CheckpointError(
            f"--eval-base-model {base}: no checkpoint of this run is a LoRA adapter or a .pt file, which take one; "
            "leave it out, or check --checkpoint"
        )


def check_served(settings: Settings, infos: Sequence[CheckpointInfo], *, some_failed: bool) -> None:
    """Raise ``CheckpointError`` for an option of served models where there is none that takes it."""
    if not infos or some_failed:
        return
    served = [info for info in infos if info.served]
    started = [info for info in served if info.served.get("child")]
    for flag, value, takes, what in (
        ("--eval-model-name", settings.model_name, served, "--checkpoint http://HOST:PORT/v1"),
        ("--eval-tokenizer", settings.tokenizer, served, "--checkpoint http://HOST:PORT/v1"),
        ("--eval-server-args", settings.server_args, started, "--checkpoint vllm:PATH or llama-server:PATH"),
    ):
        if value is not None and not takes:
            kind = "a served model" if takes is served else "at a server that this run starts"
            raise CheckpointError(
                f"{flag} {value}: no checkpoint of this run is {kind}, which takes it; "
                f"leave it out, or give {what}"
            )
