"""Which device, which number type, how many threads."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from harness.checkpoints import CheckpointInfo
from harness.errors import CheckpointError
from harness.models.settings import ModelSettings

if TYPE_CHECKING:
    import torch

_SHORT: Final = {
    **{"fp32": "float32", "float": "float32", "bf16": "bfloat16"},
    **{"fp16": "float16", "half": "float16"},
}
"""Other names of number types."""


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

    On an accelerator it is by default the one that the config in a ``.pt`` file names for its model, if it names one.
    A GGUF file's quantized weights have no such type; they are made float32. Raises ``CheckpointError`` for a name in
    a config that is no type of weights.
    """
    import torch

    types = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if settings.dtype != "auto":
        return types[settings.dtype]
    if device.type == "cpu" or info.format == "gguf":
        return torch.float32
    if info.config_dtype is None or info.config_dtype == "auto":
        return "auto"
    named = info.config_dtype.strip().lower().removeprefix("torch.")
    if (found := _SHORT.get(named, named)) not in types:
        raise CheckpointError(
            f"{info.path}: its config says model.dtype={info.config_dtype[:40]!r}, which is none of "
            f"{', '.join(types)}; choose one with --eval-dtype"
        )
    return types[found]
