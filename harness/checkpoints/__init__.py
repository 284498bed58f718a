"""What a checkpoint is, found out without loading it and without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from harness.requests import FillMask, Loglikelihood, Request, RollingLoglikelihood

Kind: TypeAlias = Literal["causal", "masked"]


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A recognised checkpoint: everything people and benchmarks may know of it before it is loaded.

    ``name`` is what tables and node ids call it (unique within a run); ``source`` is what the user typed; ``seq_len`` is the number of
    tokens it takes at most (after ``--eval-seq-len``).
    """

    name: str
    source: str
    path: Path
    kind: Kind
    format: Literal["folder", "gguf"]
    model_type: str
    architecture: str
    seq_len: int
    global_step: int | None = None
    epoch: float | None = None
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def serves(self) -> tuple[type[Request], ...]:
        """The kinds of request this checkpoint can answer."""
        return (FillMask,) if self.kind == "masked" else (Loglikelihood, RollingLoglikelihood)
