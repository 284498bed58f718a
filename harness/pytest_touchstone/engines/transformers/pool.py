"""Engines that share one model in memory: a base and its adapters.

Before an engine answers, its own adapter is put on, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pytest_touchstone.checkpoints import CheckpointInfo, LoadableFormat, format_of
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.adapters import Adapters, apply_peft_adapter, check_peft
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.compat import collector_paused, heard, import_libraries
from pytest_touchstone.engines.transformers.fused_layers import fuse, fuse_steps
from pytest_touchstone.engines.transformers.loading import (
    LoadedModel,
    check_vocabulary,
    load_model,
    one_line_errors,
    read_tokenizer,
)
from pytest_touchstone.engines.transformers.masked import MaskedEngine
from pytest_touchstone.engines.transformers.mtp import load_mtp

_LOADERS: Final[dict[str, Callable[[CheckpointInfo, ModelSettings], LoadedModel]]] = {"mtp": load_mtp}
"""Formats whose models are not transformers' own."""

_NO_ROOM: Final = (
    "this processor has no products of {} numbers, and there is no memory to compute them in float32, which is about "
    "ten times as fast; --eval-dtype float32 needs as much"
)

_TRIED: Final = "its config does not fit its weights, or it is no language model of the usual kind"


def load_weights(info: CheckpointInfo, settings: ModelSettings) -> LoadedModel:
    """Load model and tokenizer of a checkpoint that is a complete model, as its format says.

    What libraries warn of is among its notes. Raises ``CheckpointError`` when its files do not make that model.
    """
    form = format_of(info)
    loaded: LoadedModel
    with heard() as warnings:
        if isinstance(form, LoadableFormat):
            loaded = form.load(info, settings)
        else:
            loaded = _LOADERS.get(info.format, load_model)(info, settings)
    loaded = replace(loaded, notes=(*loaded.notes, *warnings.notes(info.path)))
    if cpu.computes_in_float32(loaded.model.dtype, loaded.model.device):
        cpu.widen_attention()
    return loaded


def load_fused(info: CheckpointInfo, settings: ModelSettings) -> LoadedModel:
    """Load a checkpoint; fuse its layers and steps, and on a CPU pack its weights.

    Weights that there is no memory to pack stay as they are, and a note says so. A quantized model is left alone: its
    layers may have tensors or functions of another library, or round activations, by which other roundings grow.
    """
    cpu.keep_few_kernels()
    loaded = load_weights(info, settings)
    if getattr(loaded.model, "hf_quantizer", None) is not None:
        return loaded
    if cpu.has_room_to_pack(loaded.model, processes=settings.processes):
        packer = cpu.Packer(loaded.model)
        fuse(loaded.model, then=packer.pack)
        packer.pack(loaded.model)
    else:
        fuse(loaded.model)
        name = str(loaded.model.dtype).removeprefix("torch.")
        loaded = replace(loaded, notes=(*loaded.notes, f"{info.path}: {_NO_ROOM.format(name)}"))
    fuse_steps(loaded.model)
    cpu.trim_heap(loaded.model.device)  # the plain weights' memory lies in pieces between what is kept
    return loaded


def engine_of(
    info: CheckpointInfo, loaded: LoadedModel, settings: ModelSettings, *, remembers: bool = True
) -> CausalEngine | MaskedEngine:
    """Return the engine of a model that is loaded; ``remembers``: fast ways that a probe admits.

    Raises ``CheckpointError`` where the model cannot answer.
    """
    kind = MaskedEngine if info.kind == "masked" else CausalEngine
    with heard() as warnings, one_line_errors(f"{info.path}: fails when it is tried", _TRIED):
        engine = kind(info, loaded, settings, remembers=remembers)
    engine.note_all(warnings.notes(info.path))
    return engine


class SharedModel:
    """Opens checkpoints of one ``model_key``: a model, and adapters of it where it takes any."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._shared: tuple[LoadedModel, Adapters] | None = None
        self._plain: LoadedModel | None = None

    def __call__(self, info: CheckpointInfo) -> Engine:
        """Return the checkpoint, ready to answer.

        Raises ``CheckpointError`` when its files do not make that model.
        """
        import_libraries()
        with collector_paused():
            base = info.base or info
            if info.by_peft:
                if self._plain is None:
                    check_peft(info)
                    self._plain = load_weights(base, self._settings)
                loaded = with_own_tokenizer(info, self._plain)
                with heard() as warnings:
                    loaded = apply_peft_adapter(info, loaded)
                loaded = replace(loaded, notes=(*loaded.notes, *warnings.notes(info.path)))
                check_vocabulary(info, loaded.model, loaded.tokenizer)
                engine = engine_of(info, loaded, self._settings, remembers=False)
                engine.has_neighbours = True
                return engine
            if not base.takes_adapters:
                return engine_of(info, load_fused(info, self._settings), self._settings)
            if self._shared is None:
                loaded = load_fused(base, self._settings)
                self._shared = loaded, Adapters(loaded.model)
            return self._switched(info, *self._shared)

    def _switched(self, info: CheckpointInfo, loaded: LoadedModel, adapters: Adapters) -> Engine:
        name = None
        if info.base is not None:
            name = adapters.add(info)
            loaded = with_own_tokenizer(info, loaded)
            check_vocabulary(info, loaded.model, loaded.tokenizer)
        adapters.put_on(name)
        try:
            engine = engine_of(info, loaded, self._settings)
            engine.adapters, engine.adapter = adapters, name
            return engine
        except BaseException:
            if name is not None:
                adapters.drop(name)
            raise


def with_own_tokenizer(info: CheckpointInfo, loaded: LoadedModel) -> LoadedModel:
    """Return a model with the tokenizer of an adapter, where that has one."""
    if info.tokenizer != info.path:
        return loaded
    with heard() as warnings:
        tokenizer, notes = read_tokenizer(info)
    return replace(loaded, tokenizer=tokenizer, notes=(*loaded.notes, *notes, *warnings.notes(info.path)))
