"""What is known of a checkpoint before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from harness.requests import FillMask, Generate, Loglikelihood, Request, RollingLoglikelihood

Kind: TypeAlias = Literal["causal", "masked"]
Format: TypeAlias = Literal["folder", "gguf", "mtp", "fake"]


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A recognised checkpoint: everything people and benchmarks may know of it before it is loaded.

    ``name`` is what tables and node ids call it (unique within a run); ``source`` is what the user typed;
    ``seq_len`` is the number of tokens it takes at most (after ``--eval-seq-len``). ``overrides`` are values
    of ``config.json`` that the shapes in the weights file contradict (longer position tables); the model is
    built to the shapes. ``params`` are the sizes of an ``mtp`` model under Llama's own names (``dim``, ``n_layers``,
    ``n_future_tokens`` ...), ``tokenizer`` is the folder that holds its tokenizer.
    """

    name: str
    source: str
    path: Path
    kind: Kind
    format: Format
    model_type: str
    architecture: str
    seq_len: int
    global_step: int | None = None
    epoch: float | None = None
    extra: dict[str, str] = field(default_factory=dict, hash=False)
    overrides: dict[str, int] = field(default_factory=dict, hash=False)
    params: dict[str, Any] = field(default_factory=dict, hash=False)
    tokenizer: Path | None = None

    @property
    def serves(self) -> tuple[type[Request], ...]:
        """The kinds of request this checkpoint can answer."""
        return (FillMask,) if self.kind == "masked" else (Loglikelihood, RollingLoglikelihood, Generate)
