"""Loads model and tokenizer with transformers, quietly and strictly, and chooses device, number type and threads.

Strictly means that every tensor of the model comes from the file, and every tensor of the file goes into the model.
Two rules make exceptions, so that honest checkpoints load. Tied tensors count as present, since transformers ties
them. Tensors in ``_LEFT_OVER`` may be in the file without being used: heads of other training objectives and constant
buffers. Tensors in files that no library reads are ``StoredTensor``.
"""

from __future__ import annotations

import copy
import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo, WeightsOnlyFormat, format_of
from pytest_touchstone.checkpoints.config_files import readable
from pytest_touchstone.checkpoints.formats.content import Tensor
from pytest_touchstone.checkpoints.formats.torch_pickle import DTYPES
from pytest_touchstone.checkpoints.formats.transformers import TEXT_LENGTHS
from pytest_touchstone.checkpoints.formats.weights import (
    PICKLED,
    PICKLED_INDEX,
    check_types,
    differing_weights,
    weights_of,
    wrappers_of,
)
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import count, join_names
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import gguf
from pytest_touchstone.engines.transformers.compat import (
    MISMATCHES,
    gguf_parsed_once,
    is_panic,
    no_length_limit,
    pages_let_go,
    quiet,
    refused_global,
)
from pytest_touchstone.engines.transformers.cpu import HALF
from pytest_touchstone.engines.transformers.devices import check_device_map, choose_device
from pytest_touchstone.engines.transformers.tokenizer_files import load_matching_tokenizer

if TYPE_CHECKING:
    import torch


_LEFT_OVER: Final = re.compile(
    r"""
      (^|\.)pooler\.                     # sentence pooler: language-model heads do not read it
    | (^|\.)seq_relationship\.           # next-sentence head of BertForPreTraining
    | (^|\.)sop_classifier\.             # sentence-order head of AlbertForPreTraining
    | (^|\.)mask_predictions\.           # DeBERTa's second pre-training head
    | (^|\.)(position_ids|token_type_ids)$            # counting buffers that older versions saved
    | (^|\.)rotary_emb\.(inv_freq|cos_cached|sin_cached)$   # computed from the config
    | (^|\.)attn\.(masked_)?bias$ | (^|\.)attention\.(masked_)?bias$   # causal masks saved as buffers
    """,
    re.VERBOSE,
)

MAKE_ROOM: Final = "free memory there, or choose another --eval-device or a smaller --eval-dtype"

_NOT_OF_TEXTS: Final = re.compile(r"(^|\.)\w*(vision|visual|image|audio|multi_modal|vq)\w*\.")
"""Tensors of a multimodal model beside its language model."""

_UNQUANTIZED: Final = "give the unquantized checkpoint, or use a machine that supports this quantization"

_PACKAGES: Final = {
    **{"awq": "gptqmodel accelerate", "gptq": "gptqmodel optimum accelerate", "fp8": "accelerate"},
    **{"bitsandbytes": "bitsandbytes accelerate", "compressed-tensors": "compressed-tensors"},
    **{"torchao": "torchao accelerate", "mxfp4": "accelerate", "quanto": "optimum-quanto accelerate"},
}
"""What Transformers needs for a quantization; it names one missing package after the other."""

_MOST_LARGER: Final = 2
_SMALL: Final = 1 << 27
"""A model may have ``_MOST_LARGER`` times the numbers of its file, and this many more for tables of positions."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in evaluation mode on its device, and its tokenizer.

    Both are transformers' objects, or have the same interface. ``notes`` say what of the checkpoint is not used, or is
    read otherwise than its config says, and what libraries warned of when it was loaded.
    """

    model: Any
    tokenizer: Any
    notes: tuple[str, ...] = ()


def load_model(info: CheckpointInfo, settings: ModelSettings) -> LoadedModel:
    """Return the loaded checkpoint, on its device.

    Raises ``CheckpointError`` when the checkpoint cannot be loaded exactly as it is.
    """
    import torch

    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    device = choose_device(settings.device)
    dtype = choose_dtype(info, settings, device)
    if settings.device_map is not None:
        check_device_map(device)
    return _load(info, dtype, device, settings.device_map)


def _load(
    info: CheckpointInfo,
    dtype: torch.dtype | str,
    device: torch.device,
    device_map: str | dict[str, str] | None = None,
) -> LoadedModel:
    import torch
    from transformers.quantizers import AutoHfQuantizer

    with quiet(), gguf_parsed_once() if _is_gguf(info) else nullcontext():
        config = _config(info)
        tokenizer, notes = read_tokenizer(info)  # first, since it is the smaller part that may be broken
        again = "fetch or convert it again" if _is_gguf(info) else "save the checkpoint again"
        missing = "install what is missing"
        quantization = getattr(config, "quantization_config", None)
        if quantization is not None:
            again = _UNQUANTIZED
            if packages := _PACKAGES.get(quantization.get("quant_method", "bitsandbytes")):
                missing = f"run: pip install {packages}"
            if device_map is None and find_spec("accelerate") is not None:
                device_map = {"": str(device)}  # kernels of most kinds prepare the weights on their device
        with (
            one_line_errors(f"{info.path}: cannot be loaded", again, missing),
            explain_unknown_rope(info, config),
            pages_let_go(),
        ):
            if not _is_gguf(info):
                _check_room(info, config)
            model, report = _model(info, config, dtype, device_map)
        if _is_gguf(info):
            gguf.finish(info, model, report)
        check_report(info, report)
        if quantization is not None and not AutoHfQuantizer.supports_quant_method(quantization):
            check_types(
                info.path, weights_of(info.path)
            )  # Transformers passes over a kind that it does not know
        check_vocabulary(info, model, tokenizer)
        if device_map is None:
            with one_line_errors(f"{info.path}: cannot be put on {device}", MAKE_ROOM):
                if device.type == "cuda":  # where streams, events and graphs of this process belong
                    torch.cuda.set_device(device)
                model = model.to(device)
        model.eval()
        if quantization is not None:
            _finish_quantized(info, model, quantization, dtype)
        return LoadedModel(model, tokenizer, (*notes, *_notes(info)))


def _finish_quantized(info: CheckpointInfo, model: Any, quantization: dict[str, Any], dtype: Any) -> None:
    """Run a first pass of a quantized model, since a hook may decompress its weights then.

    A model that Transformers dequantizes on load may have weights of several types, which it cannot multiply: where
    float32 is asked for, all become that, which changes no number. Raises ``CheckpointError`` where the pass fails.
    """
    import torch

    if dtype == torch.float32 and getattr(model, "hf_quantizer", None) is None:
        for tensor in (*model.parameters(), *model.buffers()):
            if str(tensor.dtype) in HALF:
                tensor.data = tensor.data.float()
    kind = quantization.get("quant_method", "bitsandbytes")
    what = f"{info.path}: Transformers cannot compute its quantization ({kind}) in {model.dtype} on {model.device}"
    remedy = f"choose another --eval-dtype or --eval-device, or {_UNQUANTIZED}"
    with one_line_errors(what, remedy), torch.no_grad():
        model(input_ids=torch.zeros((1, 1), dtype=torch.long, device=model.device))


def load_tokenizer(info: CheckpointInfo) -> Any:
    """Return the checkpoint's tokenizer. Raises ``CheckpointError`` where it cannot be loaded."""
    return read_tokenizer(info)[0]


def read_tokenizer(info: CheckpointInfo) -> tuple[Any, tuple[str, ...]]:
    """Return the checkpoint's tokenizer, and what to say of it.

    Raises ``CheckpointError`` where it cannot be loaded.
    """
    if _is_gguf(info):
        with quiet(), one_line_errors(f"{info.path}: its tokenizer cannot be loaded", "convert it again"):
            return no_length_limit(gguf.gguf_tokenizer(info.path)), ()
    folder, how = _source(info)
    if info.base is not None and not _is_gguf(info.base):
        how["config"] = _config(info.base)  # an adapter's folder has none, and it decides how files are read
    return _load_tokenizer(folder, info.path, how)


def load_tokenizer_at(name_or_path: Path | str, **how: Any) -> Any:
    """Return the tokenizer of a folder or Hub id. Raises ``CheckpointError`` where it cannot be loaded."""
    return _load_tokenizer(name_or_path, name_or_path, how)[0]


def _load_tokenizer(
    name_or_path: Path | str, who: Path | str, how: dict[str, Any]
) -> tuple[Any, tuple[str, ...]]:
    what = f"{who}: its tokenizer cannot be loaded"
    with quiet(), one_line_errors(what, "copy it from the model that was trained"):
        tokenizer, notes = load_matching_tokenizer(name_or_path, how)
        return no_length_limit(tokenizer), notes


@contextmanager
def one_line_errors(what: str, remedy: str, missing: str = "install what is missing") -> Iterator[None]:
    """Turn exceptions within the block into a one-line ``CheckpointError``.

    ``missing`` is the remedy for a missing package, ``remedy`` that for all else.
    """
    try:
        yield
    except (CheckpointError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # transformers raises whatever its parts raise.
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if (name := refused_global(error)) is not None:
            reason = f"its pickle wants {name}, which may run code"
        elif lines and "during automatic conversion" in lines[0]:  # whose reason is a report in the log
            reason = "tensors that are one in the model, as those of experts, are not all there or not of one shape"
        else:
            more = 2 if lines and lines[0].endswith(":") else 1
            reason = ": ".join([type(error).__name__, " ".join(lines[:more])])[:300].removesuffix(": ")
        remedy = missing if isinstance(error, ImportError) else remedy
        raise CheckpointError(f"{what} ({reason}); {remedy}") from error


@contextmanager
def explain_unknown_rope(info: CheckpointInfo, config: Any) -> Iterator[None]:
    """Raise a ``CheckpointError`` that names the config's ``rope_type`` where the block does not know it."""
    try:
        yield
    except KeyError as error:
        rope = getattr(config, "rope_parameters", None) or {}
        types = [table.get("rope_type") for table in (rope, *rope.values()) if isinstance(table, dict)]
        if error.args[0] not in types:
            raise
        raise CheckpointError(
            f"{info.path / 'config.json'}: rope_type is {error.args[0]!r}, which Transformers does not know; write the "
            "type that stands in the newest config of this model"
        ) from error


def check_report(info: CheckpointInfo, report: dict[str, Any]) -> None:
    """Raise ``CheckpointError`` listing the tensors that do not fit, are missing, or are left over."""
    if mismatched := sorted(report["mismatched_keys"]):
        named = [
            f"{name} {list(file)} in the file, {list(model)} by the config"
            for name, file, model in mismatched
        ]
        raise CheckpointError(
            f"{info.path}: shape mismatch: {join_names(named, 5)}; save the checkpoint again with its own config"
        )
    if missing := sorted(report["missing_keys"]):
        raise CheckpointError(
            f"{info.path}: {count(len(missing), 'tensor')} of {info.architecture} missing from the weights: "
            f"{join_names(missing, 5)}; save the whole model, with its language-model head"
        )
    left_over = [_LEFT_OVER, _NOT_OF_TEXTS] if info.model_type in TEXT_LENGTHS else [_LEFT_OVER]
    names = (
        name for name in report["unexpected_keys"] if not any(pattern.search(name) for pattern in left_over)
    )
    if unexpected := sorted(names):
        raise CheckpointError(
            f"{info.path}: {count(len(unexpected), 'tensor')} in the weights without a place in {info.architecture}: "
            f"{join_names(unexpected, 5)}; save the checkpoint again with its own config"
        )


def check_vocabulary(info: CheckpointInfo, model: Any, tokenizer: Any) -> None:
    """Raise ``CheckpointError`` when the tokenizer's own tokens go beyond the model's embeddings.

    Tokens added later (mostly a padding token) may go beyond. They do no harm as long as no text holds them, and the
    engine refuses a text that does.
    """
    what = f"{info.path}: {info.architecture} has no plain table of embeddings"
    with one_line_errors(what, "only models that read tokens can be scored"):
        rows = model.get_input_embeddings().weight.shape[0]
    added = set(tokenizer.added_tokens_decoder)
    highest = max((token for token in tokenizer.get_vocab().values() if token not in added), default=-1)
    if highest >= rows:
        raise CheckpointError(
            f"{info.path}: the tokenizer has token id {highest}, the model only {rows} embeddings; "
            "copy the tokenizer that the model was trained with"
        )


def _is_gguf(info: CheckpointInfo) -> bool:
    """Return whether transformers is to read a single file, which only a GGUF checkpoint is."""
    return info.path.suffix == ".gguf"


def _source(info: CheckpointInfo) -> tuple[Path, dict[str, Any]]:
    """Return the folder and the options for transformers; a GGUF file is named in the options."""
    how = {"local_files_only": True, "trust_remote_code": info.trust_remote_code}
    if _is_gguf(info):
        return info.path.parent, {**how, "gguf_file": info.path.name}
    return (info.path if _weights_only_format(info) is None else info.tokenizer or info.path), how


def _weights_only_format(info: CheckpointInfo) -> WeightsOnlyFormat | None:
    """Return the format of a checkpoint that holds tensors alone; None for one that transformers reads."""
    form = format_of(info)
    return form if isinstance(form, WeightsOnlyFormat) else None


def _config(info: CheckpointInfo) -> Any:
    """Return the config of a folder or GGUF file.

    Sizes that the weights contradict are corrected in it, so that no mismatch needs to be ignored.
    """
    import transformers
    from transformers import CONFIG_MAPPING, AutoConfig

    if _is_gguf(info):
        with one_line_errors(f"{info.path}: no config of {info.architecture}", "convert it again"):
            return gguf.gguf_config(info.path)
    folder, how = _source(info)
    where = folder / "config.json"
    with one_line_errors(f"{where}: no config of {info.architecture}", "save the checkpoint again"):
        if info.weights.params:
            return AutoConfig.for_model(**info.weights.params)
        if info.model_type not in CONFIG_MAPPING and not info.trust_remote_code:
            raise CheckpointError(
                f"{where}: Transformers {transformers.__version__} does not know the model type {info.model_type!r}; "
                "update transformers: pip install -U transformers"
            )
        return AutoConfig.from_pretrained(folder, **how, **info.weights.overrides, return_dict=True)


def _model(info: CheckpointInfo, config: Any, dtype: Any, device_map: Any) -> tuple[Any, dict[str, Any]]:
    """Return the model with the checkpoint's tensors, and Transformers' report on them."""
    import torch
    from transformers import GenerationConfig

    folder, how = _source(info)
    options = {"config": config, "output_loading_info": True, "device_map": device_map, **MISMATCHES}
    if (form := _weights_only_format(info)) is None:
        if not _is_gguf(info):
            pickled = [name for name in (PICKLED, PICKLED_INDEX) if (info.path / name).is_file()]
            options["use_safetensors"] = None if pickled else True
            options["key_mapping"] = dict.fromkeys(wrappers_of(info.path), "") or None
        model, report = _auto_class(info).from_pretrained(
            folder, dtype=dtype, weights_only=True, **how, **options
        )
        return model, report
    # A checkpoint that has nothing but tensors: its model is made by the config.
    if dtype == "auto":
        dtype = getattr(torch, info.weights.dtype or "float32", torch.float32)
    with torch.device("meta"):
        kind = type(_auto_class(info).from_config(copy.deepcopy(config)))
    tensors = {name: StoredTensor(tensor) for name, tensor in form.tensors(info).items()}
    model, report = kind.from_pretrained(None, state_dict=tensors, dtype=dtype, **options)
    if (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model, report


def _notes(info: CheckpointInfo) -> tuple[str, ...]:
    """Return a note on files of weights that hold other numbers than those that are read."""
    if _is_gguf(info) or _weights_only_format(info) is not None:
        return ()
    weights, others = differing_weights(info.path)
    if not others:
        return ()
    return (
        f"{info.path}: weights are those of {weights}; {join_names(others, 3)} holds others, and is not read",
    )


def _auto_class(info: CheckpointInfo) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    return AutoModelForMaskedLM if info.kind == "masked" else AutoModelForCausalLM


def _check_room(info: CheckpointInfo, config: Any) -> None:
    """Raise ``CheckpointError`` where the config describes a model far larger than the weights, before memory is
    taken.

    Quantized weights are packed, and not compared.
    """
    import torch

    if info.weights.parameters is None or getattr(config, "quantization_config", None) is not None:
        return
    with torch.device("meta"):
        model = _auto_class(info).from_config(copy.deepcopy(config), trust_remote_code=info.trust_remote_code)
    wanted = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    if wanted > _MOST_LARGER * info.weights.parameters + _SMALL:
        raise CheckpointError(
            f"{info.path / 'config.json'}: describes a model of {wanted:,} numbers, but the weights have "
            f"{info.weights.parameters:,}; save the checkpoint again with its own config"
        )


_SHORT: Final = {
    **{"fp32": "float32", "float": "float32", "bf16": "bfloat16"},
    **{"fp16": "float16", "half": "float16"},
}
"""Other names of number types."""


def choose_dtype(info: CheckpointInfo, settings: ModelSettings, device: torch.device) -> torch.dtype | str:
    """Return the type of the weights; "auto" stands for the type that the checkpoint is stored in.

    On an accelerator the default is the type that the config in a ``.pt`` file names for its model, if it names one.
    A GGUF file's quantized weights have no such type; they become float32. Raises ``CheckpointError`` for a name in a
    config that is no type of weights.
    """
    import torch

    types = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if settings.dtype != "auto":
        return types[settings.dtype]
    if device.type == "cpu" or _is_gguf(info):
        return torch.float32
    if info.weights.config_dtype is None or info.weights.config_dtype == "auto":
        return "auto"
    named = info.weights.config_dtype.strip().lower().removeprefix("torch.")
    if (name := _SHORT.get(named, named)) not in types:
        raise CheckpointError(
            f"{info.path}: its config says model.dtype={info.weights.config_dtype[:40]!r}, which is none of "
            f"{', '.join(types)}; choose one with --eval-dtype"
        )
    return types[name]


_TYPES: Final = {stored: name for name, stored in DTYPES.items()}
"""Number types by safetensors' names, with those of torch."""

_ALIGNED: Final = 64
"""Bytes: numbers that begin elsewhere are read, since products of matrices want theirs aligned."""


class StoredTensor:
    """A tensor in files, read when all of it is taken (``stored[...]``), as safetensors' slices are.

    What lies aligned in one place is mapped; all else is read into memory.
    """

    def __init__(self, tensor: Tensor) -> None:
        import torch

        self._tensor = tensor
        self.shape = torch.Size(tensor.shape)
        self.dtype: torch.dtype = getattr(torch, _TYPES[tensor.dtype])

    def dim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    def __getitem__(self, _: EllipsisType) -> torch.Tensor:
        """Return the whole tensor, on the CPU."""
        import torch

        if not self._tensor.parts:
            return self._held(self._tensor)
        whole = torch.empty(self.shape, dtype=self.dtype)
        for offsets, shard in self._tensor.parts:
            target = whole[tuple(slice(at, at + side) for at, side in zip(offsets, shard.shape, strict=True))]
            if target.is_contiguous():
                self._read(shard, target)
            else:
                target.copy_(self._read(shard, torch.empty(shard.shape, dtype=self.dtype)))
        return whole

    def _held(self, tensor: Tensor) -> torch.Tensor:
        import torch

        if tensor.begin == tensor.end:
            return torch.zeros(tensor.shape, dtype=self.dtype)
        size = (tensor.end - tensor.begin) // self.dtype.itemsize
        if tensor.begin % _ALIGNED:
            flat = self._read(tensor, torch.empty(size, dtype=self.dtype))
        else:
            with tensor.file.open("rb") as file:  # its own copy of a page that someone writes to
                pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            flat = torch.frombuffer(pages, dtype=self.dtype, count=size, offset=tensor.begin)
        if tensor.strides is None:
            return flat.reshape(tensor.shape)
        *strides, offset = tensor.strides
        return flat.as_strided(tensor.shape, strides, offset)

    def _read(self, tensor: Tensor, into: torch.Tensor) -> torch.Tensor:
        """Read a tensor into another, which is contiguous, and return that. Pages that were mapped would count."""
        import torch

        buffer = into.view(-1).view(torch.uint8).numpy().data
        with readable(tensor.file), tensor.file.open("rb", buffering=0) as file:
            file.seek(tensor.begin)
            while buffer:
                if not (size := file.readinto(buffer)):
                    raise CheckpointError(
                        f"{tensor.file}: became shorter while it was read; copy the checkpoint again"
                    )
                buffer = buffer[size:]
        return into
