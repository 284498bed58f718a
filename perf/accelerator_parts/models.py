"""The models of the accelerator's program: made on the device, opened as a run opens a checkpoint, and bare for
others.

Nothing is on disk. The engine is opened by ``pytest_touchstone.engines.registry``, which is given a model in memory in
place of one from files.
"""

from __future__ import annotations

import functools
import platform
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

from perf.accelerator_parts.random_model import GAIN, made
from perf.accelerator_parts.shapes import Kind, Shape, small
from perf.accelerator_parts.timing import begin_peak
from pytest_touchstone.checkpoints import CheckpointInfo, resolve
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import pool
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.compat import no_length_limit, quiet
from pytest_touchstone.engines.transformers.loading import LoadedModel, load_tokenizer, load_tokenizer_at
from pytest_touchstone.engines.transformers.masked import MaskedEngine
from pytest_touchstone.engines.transformers.mtp import load_tokenizer as load_mtp_tokenizer
from pytest_touchstone.engines.transformers.mtp.model import MtpModel, config_of

BUILTIN = "the builtin one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The options of a run that all parts share.

    ``settings`` are further ones of ``ModelSettings``, for our side. With ``plain``, our side is measured a second
    time without its fast ways.
    """

    device: str
    dtype: str
    models: tuple[Shape, ...]
    small: bool = False
    plain: bool = False
    data: str | None = None
    tokenizer: str = BUILTIN
    settings: Mapping[str, Any] = field(default_factory=dict)
    lm_eval_python: Path | None = None
    vllm_python: Path | None = None

    @property
    def itemsize(self) -> int:
        """Return the bytes of a number."""
        return 4 if self.dtype == "float32" else 2

    @property
    def causal(self) -> list[Shape]:
        """Return the models that continue texts."""
        return [one for one in self.models if one.texts]


# Tokenizers


@functools.cache
def tokenizer_of(kind: Kind, given: str = BUILTIN) -> Any:
    """Return a real tokenizer: ``builtin:smollm2-135m``'s where it is fetched, else ``builtin:mtp-tiny``'s.

    ``given`` is a folder with another one for causal models. Multi-token-prediction models and masked ones have those
    of the builtin checkpoints of their kind.
    """
    with quiet():
        if kind == "masked":
            return load_tokenizer(resolve("builtin:ko-mlm-tiny", seq_len=None)[0])
        if kind == "causal" and given != BUILTIN:
            return load_tokenizer_at(given, local_files_only=True)
        if kind == "causal":
            try:
                return load_tokenizer(resolve("builtin:smollm2-135m", seq_len=None)[0])
            except CheckpointError:  # not fetched, or the packages for it are not there
                pass
        return no_length_limit(load_mtp_tokenizer(resolve("builtin:mtp-tiny", seq_len=None)[0]))


def shapes_for(shapes: tuple[Shape, ...], setup_small: bool, tokenizer: str) -> tuple[Shape, ...]:
    """Return the shapes, or small ones with as many embeddings as their tokenizers need."""
    if not setup_small:
        return shapes
    return tuple(small(one, _rows(tokenizer_of(one.kind, tokenizer))) for one in shapes)


def _rows(tokenizer: Any) -> int:
    return int(max(tokenizer.get_vocab().values())) + 1


# Models


def bare_model(shape: Shape, setup: Setup, *, dtype: str | None = None) -> Any:
    """Return the model without anything of ours around it."""
    known = _rows(tokenizer_of(shape.kind, setup.tokenizer))
    dtype = dtype or setup.dtype
    with quiet():
        if shape.kind == "mtp":
            return _mtp_model(shape, known, dtype, setup.device)
        return made(
            shape.kind, shape.model_type, dict(shape.config), dtype=dtype, device=setup.device, known=known
        )


def _mtp_model(shape: Shape, known: int, dtype: str, device: str) -> MtpModel:
    import torch

    numbers = torch.Generator(device).manual_seed(0)

    def put(name: str, into: Any) -> None:
        if into.dim() == 1:
            into.fill_(1.0)
            return
        table = name in ("output.weight", "tok_embeddings.weight")
        into.normal_(0.0, 0.02 if table else GAIN / into.shape[1] ** 0.5, generator=numbers)
        if name == "output.weight":
            into[known:] = 0.0

    config = config_of(shape.config, shape.name)
    to: dict[str, Any] = {"dtype": getattr(torch, dtype), "device": torch.device(device)}
    with torch.no_grad():
        return MtpModel(config, int(shape.config["vocab_size"]), put, drafts=True, **to)


def info_of(shape: Shape) -> CheckpointInfo:
    """Return the facts about the model as those of a checkpoint whose files nobody reads."""
    return CheckpointInfo(
        name=shape.name,
        source=shape.name,
        path=Path(tempfile.gettempdir()) / shape.name,
        kind="masked" if shape.kind == "masked" else "causal",
        format="mtp" if shape.kind == "mtp" else "transformers",
        model_type=shape.model_type,
        architecture=shape.model_type,
        seq_len=shape.seq_len,
    )


def _open(shape: Shape, setup: Setup, plain: bool) -> Any:
    more: dict[str, Any] = {"device": setup.device, "dtype": setup.dtype, "chat": "off", **setup.settings}
    settings = ModelSettings(**more)
    loaded = LoadedModel(bare_model(shape, setup), tokenizer_of(shape.kind, setup.tokenizer))
    info = info_of(shape)
    if plain and shape.texts:
        return CausalEngine(info, loaded, settings, together=False)
    with patch.object(pool, "load_weights", lambda _info, _settings: loaded):
        return open_engine(info, settings)


@contextmanager
def opened(shape: Shape, setup: Setup, *, plain: bool = False) -> Iterator[Any]:
    """Open our engine with the model; ``plain`` without the ways that answer many requests together.

    The peak of the device's memory begins before the model is made. Notes of the engine are printed.
    """
    begin_peak(setup.device)
    engine = _open(shape, setup, plain)
    try:
        yield engine
    finally:
        engine.close()
        del engine
        begin_peak(setup.device)


def causal_engine(engine: Any) -> CausalEngine:
    """Return the engine as one of causal models."""
    assert isinstance(engine, CausalEngine), engine
    return engine


def masked_engine(engine: Any) -> MaskedEngine:
    """Return the engine as one of masked models."""
    assert isinstance(engine, MaskedEngine), engine
    return engine


# The machine


def about(setup: Setup) -> dict[str, Any]:
    """Return the facts that a table of figures is worth nothing without."""
    import torch

    facts: dict[str, Any] = {"device": device_name(setup.device)}
    if setup.device.startswith("cuda"):
        facts["memory"] = f"{torch.cuda.get_device_properties(setup.device).total_memory / 2**30:.0f} GiB"
        facts["cuda"] = str(torch.version.cuda)
    else:
        facts["threads"] = torch.get_num_threads()
    facts |= {"dtype": setup.dtype, "shapes": "small, for a CPU" if setup.small else "as published"}
    facts |= {"torch": version("torch"), "transformers": version("transformers")}
    facts["python"] = platform.python_version()
    facts["tokenizer"] = f"{_rows(tokenizer_of('causal', setup.tokenizer)):,} tokens ({setup.tokenizer})"
    if setup.settings:
        facts["settings"] = dict(setup.settings)
    return facts


def device_name(device: str) -> str:
    """Return the device's own name."""
    import torch

    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    return f"{device}, {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
