"""Which device, which number type, how many threads."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.checkpoints import CheckpointInfo
from harness.errors import CheckpointError
from harness.models.settings import ModelSettings

if TYPE_CHECKING:
    import torch


def worker_number(environ: Mapping[str, str] = os.environ) -> int:
    """The number N of the xdist worker ``gwN`` that this process is, 0 in any other process."""
    named = re.fullmatch(r"gw(\d+)", environ.get("PYTEST_XDIST_WORKER", ""))
    return int(named[1]) if named else 0


def choose_device(wanted: str, environ: Mapping[str, str] = os.environ) -> torch.device:
    """The device to load onto; workers of one run are spread over the GPUs when no index is asked for.

    Raises ``CheckpointError`` when the machine does not have the device asked for.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mps = torch.backends.mps.is_available()
    if wanted == "auto":
        wanted = "cuda" if gpus else "mps" if mps else "cpu"
    if wanted.startswith("cuda"):
        index = int(wanted[5:]) if wanted[5:] else worker_number(environ) % max(1, gpus)
        if index >= gpus:
            raise CheckpointError(
                f"--eval-device {wanted}: torch sees {gpus} GPUs here; use cpu or a lower index"
            )
        return torch.device("cuda", index)
    if wanted == "mps" and not mps:
        raise CheckpointError("--eval-device mps: torch does not see it on this machine; use cpu or auto")
    return torch.device(wanted)


def choose_dtype(info: CheckpointInfo, settings: ModelSettings, device: torch.device) -> torch.dtype | str:
    """The type of the weights: "auto" stands for the type that the checkpoint is stored in.

    A GGUF file's quantized weights have no such type; they are made float32.
    """
    import torch

    types = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if settings.dtype != "auto":
        return types[settings.dtype]
    return torch.float32 if device.type == "cpu" or info.format == "gguf" else "auto"
