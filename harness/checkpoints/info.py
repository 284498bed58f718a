"""What is known of a checkpoint before it is loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from harness.core.requests import FillMask, Generate, Loglikelihood, Request, RollingLoglikelihood

Kind: TypeAlias = Literal["causal", "masked"]
Format: TypeAlias = Literal["folder", "adapter", "mtp", "gguf", "fake"]


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A recognised checkpoint: everything people and benchmarks may know of it before it is loaded.

    ``name`` is what tables and node ids call it (unique within a run); ``source`` is what the user typed;
    ``path`` is a folder, or the file of a GGUF or ``mtp`` checkpoint; ``seq_len`` is the number of tokens it takes
    at most (after ``--eval-seq-len``). ``overrides`` are values of ``config.json`` that the shapes in the weights
    file contradict (longer position tables); the model is built to the shapes.

    ``parameters`` (a count) and ``dtype`` (of most of them) are read from headers. ``val_loss`` and ``training``
    are what the checkpoint itself says of its training, plain values; ``config_dtype`` is the type that the config in
    a ``.pt`` file names for its model, as written there. ``base`` is the checkpoint that an adapter
    was trained on. ``params`` are the sizes of an ``mtp`` model under Llama's own names (``dim``, ``n_layers``,
    ``n_future_tokens`` ...), ``tokenizer`` is the folder that holds its tokenizer. ``series`` is the folder of the
    checkpoints of one training, ``step`` how far this one is: the trainer's step, else the number at the end of its
    name, else its epoch; set for a run by ``harness.checkpoints.find``.
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
    parameters: int | None = None
    dtype: str | None = None
    val_loss: float | None = None
    training: dict[str, Any] = field(default_factory=dict, hash=False)
    base: CheckpointInfo | None = None
    params: dict[str, Any] = field(default_factory=dict, hash=False)
    tokenizer: Path | None = None
    trust_remote_code: bool = False
    series: str | None = None
    step: float | None = None
    config_dtype: str | None = None

    @property
    def serves(self) -> tuple[type[Request], ...]:
        """The kinds of request this checkpoint can answer."""
        return (FillMask,) if self.kind == "masked" else (Loglikelihood, RollingLoglikelihood, Generate)

    @property
    def model_key(self) -> tuple[str, ...]:
        """Equal for checkpoints that one model in memory serves: a base and its adapters, or one checkpoint at
        several lengths."""
        one = self.base or self
        overrides = [f"{name}={value}" for name, value in sorted(one.overrides.items())]
        return str(one.path.resolve()), one.format, *overrides, str(one.trust_remote_code)

    def plain(self) -> dict[str, Any]:
        """The fields as plain values, a base among them as its own such table."""
        row = asdict(self)
        row["path"] = str(self.path)
        row["tokenizer"] = None if self.tokenizer is None else str(self.tokenizer)
        row["base"] = None if self.base is None else self.base.plain()
        return row


def info_from_plain(row: dict[str, Any]) -> CheckpointInfo:
    """The checkpoint that ``CheckpointInfo.plain`` described."""
    known = {name: row[name] for name in CheckpointInfo.__dataclass_fields__ if name in row}
    known["path"] = Path(row["path"])
    known["tokenizer"] = None if row.get("tokenizer") is None else Path(row["tokenizer"])
    known["base"] = None if row.get("base") is None else info_from_plain(row["base"])
    return CheckpointInfo(**known)
