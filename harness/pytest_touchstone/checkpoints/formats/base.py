"""The seam of checkpoint formats: a Protocol, and the question that is put to an implementation.

A package adds one by an entry point in the group ``touchstone.checkpoint_formats``: a class, or an instance of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from pytest_touchstone.checkpoints.formats.content import Tensors
from pytest_touchstone.checkpoints.info import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError

GROUP: Final = "touchstone.checkpoint_formats"

ENGINES: Final = "touchstone.engines"
"""The group of engines, some of which have targets of their own (``engines.base``)."""

OWN_ENGINES: Final = (
    "pytest_touchstone.engines.answers.engine:AnswersFactory",
    "pytest_touchstone.engines.http.engine:HttpFactory",
    "pytest_touchstone.engines.http.managed_servers:LocalServers",
    "pytest_touchstone.engines.live:LiveFactory",
)
"""Our own engines that have targets of their own, by name: engines are made of what is here."""


class CheckpointResources(ExitStack):
    """Resources that are opened for checkpoints and closed with this context.

    ``say`` prints a line about slow or failed work. ``logs`` is the folder for the logs of closed resources, if it
    exists then.
    """

    def __init__(self, say: Callable[[str], object] = lambda _: None, logs: Path | None = None) -> None:
        super().__init__()
        self.say, self.logs = say, logs


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """The text that the user typed, and the options that go with it.

    ``seq_len``, ``base_model`` and ``trust_remote_code`` are the values of ``--eval-seq-len`` and so on;
    ``options`` those of ``TARGET?NAME=VALUE&...`` for an engine that declares them. ``resolve_base`` resolves the
    base of an adapter: any target if ``base_model`` is given, else what a file may name
    (``resolve.resolve_from_file``). ``lasting`` holds what is started for the checkpoint; None where nothing may be.
    """

    source: str
    seq_len: int | None = None
    base_model: str | None = None
    trust_remote_code: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    resolve_base: Callable[[str], list[CheckpointInfo]] = lambda _: []
    lasting: CheckpointResources | None = None
    served: bool = False

    def limited(self, path: Path | str, takes: int) -> int:
        """Return ``seq_len``, by default the most that the checkpoint takes; raise ``CheckpointError`` for more."""
        if self.seq_len is not None and self.seq_len > takes:
            raise CheckpointError(
                f"{path}: takes {takes} tokens at most; --eval-seq-len {self.seq_len} is more, "
                f"give {takes} or less"
            )
        return takes if self.seq_len is None else self.seq_len


class CheckpointFormat(Protocol):
    """A kind of checkpoint on disk; nothing in it imports torch before ``load``."""

    @property
    def name(self) -> str:
        """The value of ``CheckpointInfo.format``."""

    def detect(self, path: Path, /) -> bool:
        """Return whether a path, complete or not, is of this format; called for each path of a glob."""

    def inspect(self, path: Path, asked: CheckpointRequest, /) -> CheckpointInfo:
        """Describe the checkpoint from its headers. Raises ``CheckpointError`` naming what is missing or broken."""

    def files(self, info: CheckpointInfo, /) -> list[Path]:
        """Return the files that the fingerprint depends on."""

    def content(self, info: CheckpointInfo, /) -> Iterable[str]:
        """Return the texts that the fingerprint hashes in order (``checkpoints.formats.content``)."""


@runtime_checkable
class SchemeHandler(Protocol):
    """A format or engine with its own scheme, such as ``fake:causal``."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The prefixes of its targets; the first owner of a target describes it."""

    @property
    def options(self) -> Mapping[str, str]:
        """The settings that it takes in ``TARGET?NAME=VALUE&...``, each with a line of help."""

    def inspect(self, path: Path, asked: CheckpointRequest, /) -> CheckpointInfo:
        """Describe ``path``, the target without options; ``CheckpointInfo.serves`` says what it can answer.

        Raises ``CheckpointError`` saying what can be given instead."""


@runtime_checkable
class WeightsOnlyFormat(Protocol):
    """A format of bare tensors; the engine ``transformers`` builds the model.

    The model's config is ``CheckpointInfo.params``, if there are any, else that in the folder of its tokenizer.
    """

    def tensors(self, info: CheckpointInfo, /) -> Tensors:
        """Return the tensors under the model's names. Raises ``CheckpointError``."""


@runtime_checkable
class LoadableFormat(Protocol):
    """A format that brings its own way into memory, for the engine ``transformers``."""

    def load(self, info: CheckpointInfo, settings: Any) -> Any:
        """Load the checkpoint as ``engines.transformers.loading.LoadedModel``."""
