"""The facts about a checkpoint before it is loaded, and unique names within a run."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pytest_touchstone.checkpoints.config_files import TrainingState
from pytest_touchstone.core.requests import (
    REQUEST_KINDS,
    FillMask,
    Generate,
    Loglikelihood,
    PseudoLoglikelihood,
    Request,
    RollingLoglikelihood,
)

ModelKind: TypeAlias = Literal["causal", "masked"]

SERVES: Final[dict[str, tuple[type[Request], ...]]] = {
    "masked": (FillMask, PseudoLoglikelihood),
    "causal": (Loglikelihood, RollingLoglikelihood, Generate),
}
"""The kinds of request that models of a kind answer."""

LACKS: Final = "no causal model"
"""The key in ``extra`` under which a masked model that was saved as a causal one says why it is none."""


@dataclass(frozen=True, slots=True)
class WeightsInfo:
    """The sizes of a checkpoint's tensors, and of its model.

    ``parameters`` (a count) and ``dtype`` (of most of them) are read from headers; ``config_dtype`` is the type that
    the config in a ``.pt`` file names for its model, as written there. ``overrides`` are values of ``config.json`` that
    the shapes in the weights file contradict (longer position tables): the model is built to the shapes. ``params`` are
    the sizes of an ``mtp`` model under Llama's own names (``dim``, ``n_layers``, ``n_future_tokens`` ...).
    """

    parameters: int | None = None
    dtype: str | None = None
    config_dtype: str | None = None
    overrides: dict[str, int] = field(default_factory=dict, hash=False)
    params: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A resolved checkpoint: everything that people and benchmarks may know about it before it is loaded.

    ``name`` is its name in tables and node ids (unique within a run); ``source`` is the text that the user typed;
    ``path`` is a folder or a file. ``seq_len`` is the number of tokens it takes at most (after ``--eval-seq-len``).

    ``format`` is the name of its ``CheckpointFormat``, ``engine`` of the engine that answers for it, ``serves`` the
    kinds of request that it answers. ``takes_adapters``: it can be the base of a LoRA adapter. ``cacheable``: its
    answers may be taken from the cache, where its fingerprint is known. ``by_peft``: it is an adapter that the PEFT
    library applies.

    ``base`` is the checkpoint that an adapter was trained on, ``tokenizer`` the folder that holds its tokenizer, and
    ``training`` what it says of its training.

    ``engine_facts`` are what an engine's factory knows of the checkpoint, plain values: ``served`` of a server
    (``engines.http.engine``), ``answers`` of a file of answers (``engines.answers.engine``).
    """

    name: str
    source: str
    path: Path
    kind: ModelKind
    format: str
    model_type: str
    architecture: str
    seq_len: int
    serves: tuple[type[Request], ...] = ()
    engine: str = "transformers"
    extra: dict[str, str] = field(default_factory=dict, hash=False)
    weights: WeightsInfo = field(default_factory=WeightsInfo)
    training: TrainingState = field(default_factory=TrainingState)
    base: CheckpointInfo | None = None
    tokenizer: Path | None = None
    trust_remote_code: bool = False
    takes_adapters: bool = False
    by_peft: bool = False
    cacheable: bool = True
    engine_facts: dict[str, dict[str, Any]] = field(default_factory=dict, hash=False)

    @property
    def served(self) -> dict[str, Any]:
        """The facts about the server of a served model; empty for all others."""
        return self.engine_facts.get("served", {})

    @property
    def answers(self) -> dict[str, Any]:
        """The facts about a file of answers; empty for all others."""
        return self.engine_facts.get("answers", {})

    @property
    def step(self) -> float | None:
        """The position in the series, by which benchmarks and charts order checkpoints."""
        return self.training.step

    @property
    def model_key(self) -> tuple[str, ...]:
        """A key that is equal for checkpoints served by one model in memory.

        These are a base and its adapters, or one checkpoint at several lengths. PEFT needs the base's weights as they
        were loaded, apart from those that are packed for speed.
        """
        model = self.base or self
        overrides = [f"{name}={value}" for name, value in sorted(model.weights.overrides.items())]
        return (
            str(model.path.resolve()),
            model.format,
            *overrides,
            str(model.trust_remote_code),
            str(self.by_peft),
        )

    def plain(self) -> dict[str, Any]:
        """Return all fields as a table of plain values; kinds of request by name, a base as such a table."""
        row = {name: getattr(self, name) for name in self.__dataclass_fields__}
        del row["engine_facts"]
        row |= {"served": self.served, "answers": self.answers}
        row |= asdict(row.pop("weights")) | asdict(row["training"])
        row["training"] = row.pop("settings")
        row["path"] = str(self.path)
        row["serves"] = [kind.__name__ for kind in self.serves]
        row["tokenizer"] = None if self.tokenizer is None else str(self.tokenizer)
        row["base"] = None if self.base is None else self.base.plain()
        return row


def info_from_plain(row: dict[str, Any]) -> CheckpointInfo:
    """Return the checkpoint that ``CheckpointInfo.plain`` described, now or in an earlier version."""
    fields = {name: row[name] for name in CheckpointInfo.__dataclass_fields__ if name in row}
    fields["weights"] = WeightsInfo(
        **{name: row[name] for name in WeightsInfo.__dataclass_fields__ if name in row}
    )
    fields["engine_facts"] = {name: row[name] for name in ("served", "answers") if row.get(name)}
    state = {name: row[name] for name in TrainingState.__dataclass_fields__ if name in row}
    fields["training"] = TrainingState(**state, settings=row.get("training", {}))
    names = row.get("serves", [kind.__name__ for kind in SERVES[row["kind"]]])
    fields["serves"] = tuple(kind for kind in REQUEST_KINDS if kind.__name__ in names)
    fields["path"] = Path(row["path"])
    fields["tokenizer"] = None if row.get("tokenizer") is None else Path(row["tokenizer"])
    fields["base"] = None if row.get("base") is None else info_from_plain(row["base"])
    return CheckpointInfo(**fields)


# Names


def clean_name(text: str) -> str:
    """Replace what confuses a node id by ``-``: slashes, brackets, colons, spaces."""
    return re.sub(r"[\s/\\\[\]:;|,]+", "-", text).strip("-") or "checkpoint"


def unique_names(infos: Sequence[CheckpointInfo]) -> list[CheckpointInfo]:
    """Give each checkpoint a unique name; drop duplicates.

    The order is kept.

    Names that clash are prefixed with the folders above them (``nouns-checkpoint-300``), one after the other, until
    they differ. Where there are several series, all of their names are prefixed with the folder.
    """
    distinct: dict[tuple[object, ...], CheckpointInfo] = {}
    for info in infos:
        where = os.path.abspath(info.path)  # noqa: PTH100 -- Path.resolve would follow links
        distinct.setdefault((where, info.seq_len, info.engine, *sorted(info.extra.items())), info)
    kept = list(distinct.values())
    members = Counter(series for info in kept if (series := info.training.series) is not None)
    several = {series for series, count in members.items() if count > 1}
    names = []
    for info in kept:
        name, series = clean_name(info.name), info.training.series
        prefixed = series is not None and len(several) > 1 and series in several and info.path != Path(series)
        names.append(f"{clean_name(Path(series).name)}-{name}" if series is not None and prefixed else name)
    for depth in range(1, max((len(info.path.parts) for info in kept), default=0)):
        clashing = {name for name, count in Counter(names).items() if count > 1}
        if not clashing:
            break
        for index, info in enumerate(kept):
            if names[index] in clashing:
                above = info.path.parts[:-1][-depth:]
                names[index] = "-".join(clean_name(name_part) for name_part in (*above, info.name))
    unique: dict[str, CheckpointInfo] = {}
    for name, info in zip(names, kept, strict=True):  # the same path with two lengths still has one name
        numbered = (f"{name}-{number}" for number in itertools.count(2))
        free = next(candidate for candidate in itertools.chain([name], numbered) if candidate not in unique)
        unique[free] = replace(info, name=free)
    return list(unique.values())
