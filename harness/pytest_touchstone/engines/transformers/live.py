"""A model in memory as a checkpoint, possibly in the middle of its training.

``LiveModel`` describes it by a folder that has all of a saved checkpoint but the numbers: config, tokenizer, and a
safetensors file that is a header before a hole. So what is checked of a saved checkpoint is checked of it, its
tokenizer is read as that of a checkpoint, and the trainer's own is left alone.

Its fingerprint is that of the checkpoint that ``save_pretrained`` would write now: whoever has saved it finds its
scores again, and the reverse. That of a model with PEFT's adapters is one of its own: how the base's files look, on
which a saved adapter's fingerprint depends, nobody can tell from the base in memory.

While it answers it is ``at_rest``. Afterwards everything that a training goes on with is as before: the attributes of
each module, hooks and flags among them, configs, the states of random numbers, and whether gradients are recorded.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo, CheckpointRequest
from pytest_touchstone.checkpoints.config_files import step_in_name
from pytest_touchstone.checkpoints.fingerprint import digest_of
from pytest_touchstone.checkpoints.formats.content import Tensor, table_line
from pytest_touchstone.checkpoints.formats.torch_pickle import DTYPES
from pytest_touchstone.checkpoints.formats.transformers import TransformersFormat
from pytest_touchstone.checkpoints.formats.weights import WEIGHTS
from pytest_touchstone.checkpoints.info import clean_name
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.live import TARGET
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.compat import collector_paused, quiet
from pytest_touchstone.engines.transformers.loading import (
    LoadedModel,
    check_vocabulary,
    one_line_errors,
    read_tokenizer,
)
from pytest_touchstone.engines.transformers.pool import engine_of

if TYPE_CHECKING:
    import torch

_PIECE: Final = 1 << 26
"""The bytes of an accelerator's tensor that are copied to the host at once."""

_WRAPPERS: Final = ("_orig_mod", "module")
"""Attributes under which ``torch.compile`` and ``DistributedDataParallel`` hold the model itself."""

_WHOLE: Final = "gather it on one process, or score its saved checkpoint"


class LiveModel(ExitStack[bool | None]):
    """A model in memory, ready to be described, fingerprinted and asked.

    ``close``, or the end of a ``with`` block, puts the model back as it was, and removes the folder.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str | None = None, state: Any = None) -> None:
        """Describe the model under a name, which may be the path where it will be saved.

        ``state`` is the ``TrainerState``, if there is a Trainer. Raises ``CheckpointError`` in one line for what
        cannot be scored.
        """
        super().__init__()
        self._outer = unwrap(model)
        self._model, self._adapters = _without_peft(self._outer)
        named = Path(name or type(self._model).__name__)
        named = named if named.parent != Path() else named.absolute()
        if tokenizer is None:
            raise CheckpointError(f"{named.name}: a model is scored with its tokenizer; give tokenizer=")
        self._folder = Path(tempfile.mkdtemp(prefix="touchstone-live-"))
        self.callback(shutil.rmtree, self._folder, ignore_errors=True)
        try:
            with (
                quiet(),
                one_line_errors(f"{named.name}: cannot be scored", "save it, and score the checkpoint"),
            ):
                self._describe(tokenizer, state)
            self._saved = TransformersFormat().inspect(
                self._folder, CheckpointRequest(str(named), trust_remote_code=True)
            )
        except BaseException as error:
            self.close()
            if isinstance(error, CheckpointError):
                raise CheckpointError(str(error).replace(str(self._folder), named.name)) from None
            raise
        training = self._saved.training
        if training.global_step is None:
            training = replace(training, global_step=step_in_name(named.name))
        self.info = replace(
            self._saved,
            name=clean_name(named.name),
            source=f"{TARGET}{named.name}",
            path=named,
            engine="live",
            trust_remote_code=False,
            training=training,
            takes_adapters=False,
            by_peft=bool(self._adapters),
            architecture=self._saved.architecture
            + ("" if not self._adapters else " with adapters (by PEFT)"),
        )

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        device: torch.device = self._model.device
        return device

    @property
    def dtype(self) -> str:
        """The type of its numbers, as ``--eval-dtype`` names it."""
        return str(self._model.dtype).removeprefix("torch.")

    def fingerprint(self) -> str:
        """Return the fingerprint of the model's current weights, which are all read, by several threads."""
        state = _saved_tensors(self._model)
        tensors = {
            name: Tensor(entry["dtype"], tuple(entry["shape"]), Path(name), 0, 0)
            for name, entry in _header(state).items()
        }
        content = TransformersFormat().content(
            self._saved, tensors, lambda stored: hash_tensor(state[str(stored.file)])
        )
        return digest_of(
            [*(table_line(name, table) for name, table in sorted(self._adapters.items())), *content]
        )

    def open(self, info: CheckpointInfo, settings: ModelSettings) -> Engine:
        """Return the engine; the model is ``at_rest`` until ``close``. Raises ``CheckpointError``."""
        tokenizer, notes = read_tokenizer(self._saved)
        check_vocabulary(info, self._model, tokenizer)
        self.enter_context(at_rest(self._outer))
        with collector_paused():
            loaded = LoadedModel(self._model, tokenizer, notes)
            engine = engine_of(info, loaded, settings, remembers=is_plain(self._model))
        engine.has_neighbours = bool(self._adapters)
        return engine

    def _describe(self, tokenizer: Any, state: Any) -> None:
        """Write the folder."""
        import torch

        config = copy.deepcopy(self._model.config)
        config.dtype = self.dtype  # these two as save_pretrained sets them
        config.architectures = [type(self._model).__name__]
        config.save_pretrained(self._folder)
        if self._model.can_generate():
            self._model.generation_config.save_pretrained(self._folder)
        tokenizer.save_pretrained(self._folder)
        if state is not None:
            state.save_to_json(str(self._folder / "trainer_state.json"))
        model = self._model
        if self._adapters:  # a model of the same config without them, and without numbers
            with torch.device("meta"):
                model = type(model)(copy.deepcopy(model.config)).to(model.dtype)
        header = _header(_saved_tensors(model))
        text = json.dumps(header).encode()
        with (self._folder / WEIGHTS).open("wb") as file:  # of which only the header takes room on the disk
            file.write(len(text).to_bytes(8, "little") + text)
            size = max((entry["data_offsets"][1] for entry in header.values()), default=0)
            file.truncate(8 + len(text) + size)


def unwrap(model: Any) -> Any:
    """Return the model inside wrappers of ``torch.compile`` and data parallelism.

    Raises ``CheckpointError`` for a model that is not here, or not wholly, and for anything but a model of
    Transformers.
    """
    import torch

    kind = type(model).__name__
    if not isinstance(model, torch.nn.Module):
        raise CheckpointError(f"model is a {kind}, which is no model; give a loaded one, or checkpoint=PATH")
    if any("FullyShardedDataParallel" in type(module).__name__ for module in model.modules()):
        raise CheckpointError(f"{kind}: sharded by FSDP; {_WHOLE}")
    while type(model).__module__.startswith("torch.") and any(hasattr(model, name) for name in _WRAPPERS):
        model = next(getattr(model, name) for name in _WRAPPERS if hasattr(model, name))
        kind = type(model).__name__
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise CheckpointError(
                f"{kind}: {name} is on the meta device, without numbers; load the model first"
            )
        if (
            hasattr(tensor, "ds_status")
            or "FlatParameter" in type(tensor).__name__
            or hasattr(tensor, "full_tensor")
        ):
            raise CheckpointError(f"{kind}: {name} is sharded ({type(tensor).__name__}); {_WHOLE}")
    if not hasattr(model, "config") or not hasattr(model, "get_input_embeddings"):
        raise CheckpointError(
            f"{kind} is no model of Transformers or PEFT, with a config; give one, or save it and score the checkpoint"
        )
    return model


def _without_peft(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the model that computes, and the settings of the adapters that are active within it."""
    if not hasattr(model, "get_base_model") or not hasattr(model, "peft_config"):
        return model, {}
    adapters = {}
    for name in model.active_adapters:
        config = model.peft_config[name]
        if getattr(config, "is_prompt_learning", False):
            raise CheckpointError(
                f"{type(model).__name__}: {config.peft_type} puts virtual tokens before every text, which is not "
                "supported; give an adapter that changes the model's layers"
            )
        adapters[name] = config.to_dict()
    layers = [module for module in model.modules() if hasattr(module, "disable_adapters")]
    adapters["layers"] = [
        [list(getattr(layer, "merged_adapters", ())), bool(getattr(layer, "disable_adapters", False))]
        for layer in layers
    ]
    return model.get_base_model(), adapters


def is_plain(model: Any) -> bool:
    """Return whether the model is unmodified: modules of Transformers and torch only, without hooks.

    What an earlier probe verified of such a model holds, and is not probed again.
    """
    return all(
        type(module).__module__.startswith(("torch.", "transformers."))
        and not (module._forward_hooks or module._forward_pre_hooks)
        and ("forward" not in vars(module) or "_original_forward" in vars(module))
        for module in model.modules()
    )


# Weights


def _saved_tensors(model: Any) -> dict[str, Any]:
    """Return the tensors that ``save_pretrained`` writes, by the names that they have there."""
    from transformers.core_model_loading import revert_weight_conversion
    from transformers.modeling_utils import remove_tied_weights_from_state_dict

    with quiet():
        state = model.state_dict()
        for name in model._keys_to_ignore_on_save or ():
            state.pop(name, None)
        state = remove_tied_weights_from_state_dict(state, model)
        saved: dict[str, Any] = revert_weight_conversion(model, state)
    return saved


def _header(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the header of a safetensors file with these tensors."""
    header: dict[str, Any] = {}
    at = 0
    for name, tensor in state.items():
        end = at + tensor.numel() * tensor.element_size()
        kind = str(tensor.dtype).removeprefix("torch.")
        if kind not in DTYPES:
            raise CheckpointError(
                f"{name} has numbers of type {kind}; save the model, and score the checkpoint"
            )
        header[name] = {"dtype": DTYPES[kind], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    return header


def hash_tensor(tensor: torch.Tensor) -> str:
    """Return the SHA-256 of a tensor's numbers, in the order in which a file has them."""
    import torch

    digest = hashlib.sha256()
    numbers = tensor.detach().contiguous().flatten().view(torch.uint8)
    size = numbers.numel() if numbers.device.type == "cpu" else _PIECE
    for begin in range(0, numbers.numel(), max(1, size)):
        digest.update(numbers[begin : begin + size].cpu().numpy().data)  # outside Python's lock
    return digest.hexdigest()


# Processes


class FirstProcess:
    """Broadcasts results of the first process of a distributed training; the others wait without limit."""

    def __init__(self) -> None:
        """Create a group for the broadcasts; every process must call it."""
        from torch import distributed

        several = (
            distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
        )
        # A group of its own, since others give up after minutes.
        self._group = distributed.new_group(backend="gloo", timeout=timedelta(days=30)) if several else None

    def broadcast(self, value: Any) -> Any:
        """Return the value that the first process gives."""
        if self._group is None:
            return value
        from torch import distributed

        values = [value]
        distributed.broadcast_object_list(values, src=0, group=self._group)
        return values[0]


# Rest


@contextmanager
def at_rest(model: Any) -> Iterator[None]:
    """Put the model into evaluation mode within the block, uncompiled and without ``autocast``."""
    import numpy as np
    import torch

    with ExitStack() as undo:
        undo.enter_context(_restore_attributes(model))
        # What comes afterwards draws the random numbers that it would have drawn without the block.
        undo.callback(random.setstate, random.getstate())
        undo.callback(np.random.set_state, np.random.get_state())
        on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        undo.enter_context(torch.random.fork_rng(range(torch.cuda.device_count()) if on_gpu else ()))
        undo.enter_context(torch.no_grad())
        for kind in {"cpu", model.device.type}:
            undo.enter_context(torch.autocast(kind, enabled=False))
        for module in model.modules():
            module.training = False
            module.__dict__.pop("_compiled_call_impl", None)
            if "_original_forward" in module.__dict__:  # accelerate has put autocast around it
                module.forward = module._original_forward
        undo.callback(_free_caches)
        _free_caches()
        yield


def _free_caches() -> None:
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


@contextmanager
def _restore_attributes(model: Any) -> Iterator[None]:
    """Give each module and config of the model the attributes back that it had before the block."""
    kept: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
    for module in model.modules():
        tables = [vars(module)]
        for value in vars(module).values():
            if isinstance(value, dict):  # of hooks, buffers, parameters
                tables.append(value)
            elif hasattr(value, "to_dict") and hasattr(value, "__dict__"):  # a config
                tables.append(vars(value))
        for table in tables:
            if id(table) not in kept:
                kept[id(table)] = table, dict(table)
    try:
        yield
    finally:
        for table, before in kept.values():
            table.clear()
            table.update(before)
