"""Loads a multi-token-prediction checkpoint, with the sizes and the tokenizer's place that were recognised.

The tensors of its ``.pt`` file are mapped to those of the model: names, shapes, LoRA, and what is left out. Names may
carry the prefixes that wrappers add, several at once. LoRA weights A [rank, in] and B [out, rank] accompany wq, wk, wv
and wo. The model computes with W + alpha / rank * B A (Hu et al. 2021), added in float32 when a tensor is copied. A
value head is no part of the language model: it is left out, with a note. ``rope.freqs``, which older reference code
saves, is computed from the config and only compared. Any other tensor that is missing, left over or of another shape is
an error.

Training scripts save a dict with ``model_state_dict``, ``optimizer_state_dict``, ``epoch``, ``train_metrics``,
``val_metrics`` and ``config``; a file may also hold nothing but the tensors. Only tensors and plain values are read,
and nothing of the optimizer. The file is mapped into memory, so that a tensor is read only when it is copied.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.formats.dcp import read_distributed
from pytest_touchstone.checkpoints.formats.llama import PREFIXES, tensors_of
from pytest_touchstone.checkpoints.formats.torch_pickle import read_pickled
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import count, listed
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.compat import check_sentencepiece, no_length_limit, quiet
from pytest_touchstone.engines.transformers.devices import choose_device
from pytest_touchstone.engines.transformers.loading import (
    MAKE_ROOM,
    LoadedModel,
    StoredTensor,
    check_vocabulary,
    choose_dtype,
    one_line_errors,
)
from pytest_touchstone.engines.transformers.mtp.model import MtpConfig, MtpModel, config_of

if TYPE_CHECKING:
    import torch


_LOG: Final = logging.getLogger(__name__)

_STARTS: Final = ("<s>", "<|begin_of_text|>", "<|endoftext|>")
_ENDS: Final = ("</s>", "<|end_of_text|>", "<|endoftext|>")


def load_mtp(info: CheckpointInfo, settings: ModelSettings) -> LoadedModel:
    """Return the loaded checkpoint. Raises ``CheckpointError`` when it cannot be loaded exactly as it is.

    Without ``speculative`` the extra heads are compared with the config like all tensors, but not read.
    """
    import torch

    if settings.device_map is not None:
        raise CheckpointError(
            f"{info.path}: --eval-set device_map does not spread multi-token-prediction models; leave it out"
        )
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    device = choose_device(settings.device)
    config = config_of(info.weights.params, str(info.path))
    tokenizer = load_tokenizer(info)
    file = read_pt(info.path)
    weights = weights_of(info.path, file.tensors, config, file.config)
    dtype: Any = choose_dtype(info, settings, device)
    to = {"dtype": weights.tensors["output.weight"].dtype if dtype == "auto" else dtype, "device": device}
    with torch.no_grad(), one_line_errors(f"{info.path}: cannot be put on {device}", MAKE_ROOM):
        drafts = settings.speculative == "auto"
        model = MtpModel(config, weights.vocabulary, weights.put, drafts=drafts, **to)
    check_vocabulary(info, model, tokenizer)
    for note in weights.notes:
        _LOG.warning("%s", note)
    return LoadedModel(model, no_length_limit(tokenizer), weights.notes)


def load_tokenizer(info: CheckpointInfo) -> Any:
    """Return transformers' tokenizer from ``tokenizer.json``, or from sentencepiece's ``tokenizer.model``.

    The latter is what Llama's reference code has; it puts BOS before texts, as that code does.
    """
    from transformers import LlamaTokenizer, PreTrainedTokenizerFast

    folder = info.tokenizer or info.path.parent
    fast = (folder / "tokenizer.json").is_file()
    if not fast and not (folder / "tokenizer.model").is_file():
        raise CheckpointError(
            f"{folder}: no tokenizer.json or tokenizer.model for {info.path.name}; "
            "copy it from the model that was trained"
        )
    kind = PreTrainedTokenizerFast if fast else LlamaTokenizer
    name = "tokenizer.json" if fast else "tokenizer.model"
    if not fast:
        check_sentencepiece(folder / name)
    # Where no settings say otherwise, as in the reference code: BOS before the text.
    plain = not fast and not (folder / "tokenizer_config.json").is_file()
    settings = {"add_bos_token": True} if plain else {}
    broken = one_line_errors(f"{folder / name}: cannot be loaded", "copy it from the model that was trained")
    with quiet(), broken:
        tokenizer = kind.from_pretrained(folder, local_files_only=True, **settings)
    _name_ends(tokenizer)
    return tokenizer


def _name_ends(tokenizer: Any) -> None:
    """Name BOS and EOS where the files name neither, by the usual spellings that are in the vocabulary."""
    if tokenizer.bos_token_id is not None or tokenizer.eos_token_id is not None:
        return
    known = tokenizer.get_vocab()
    for kind, names in (("bos_token", _STARTS), ("eos_token", _ENDS)):
        found = next((name for name in names if name in known), None)
        if found is not None:
            tokenizer.add_special_tokens({kind: found})


_LORA: Final = re.compile(r"^(.+\.attention\.w[qkvo])\.lora_([AB])(?:\.default)?(?:\.weight)?$")

_WRAPPED: Final = re.compile(r"^(.+\.attention\.w[qkvo])\.(?:base_layer|base|linear|original)\.weight$")
"""The name of the weight itself, in layers that add LoRA to another one."""

_TABLES: Final = ("lora", "lora_config")
"""Tables of a config that hold LoRA's rank and alpha."""

_VALUE_HEAD: Final = re.compile(r"^(?:.+\.)?value_head\.")

_FREQUENCIES: Final = "rope.freqs"

_FLOATS: Final = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")


@dataclass(frozen=True, slots=True)
class MtpWeights:
    """Tensors by the model's names, checked; ``put`` hands them over ready to compute with.

    ``notes`` say which parts of the file are not used.
    """

    path: Path
    tensors: dict[str, StoredTensor]
    vocabulary: int
    low_rank: dict[str, tuple[StoredTensor, StoredTensor]] = field(default_factory=dict)
    scale: float = 1.0
    notes: tuple[str, ...] = ()

    def put(self, name: str, into: torch.Tensor) -> None:
        """Copy one tensor, with its LoRA weights added, into another of its shape."""
        import torch

        if (pair := self.low_rank.get(f"{name.removesuffix('.weight')}")) is None:
            put(self.tensors[name][...], into)
            return
        whole, down, up = (
            torch.empty(part.shape, dtype=torch.float32, device=into.device)
            for part in (self.tensors[name], *pair)
        )
        for part, copy in zip((self.tensors[name], *pair), (whole, down, up), strict=True):
            put(part[...], copy)
        into.copy_(whole.addmm_(up, down, alpha=self.scale))


def weights_of(
    path: Path, found: Mapping[str, StoredTensor], config: MtpConfig, trained: Mapping[str, Any]
) -> MtpWeights:
    """Return the tensors of a file as the model wants them.

    ``trained`` is the ``config`` that the file carries; rank and alpha of LoRA are read from it. Raises
    ``CheckpointError`` naming the tensor that does not fit.
    """
    tensors: dict[str, StoredTensor] = {}
    parts: dict[str, dict[str, StoredTensor]] = {}
    left_out: list[str] = []
    for given, tensor in found.items():
        name = PREFIXES.sub("", given)
        if _VALUE_HEAD.match(name):
            left_out.append(name)
        elif (lora := _LORA.match(name)) is not None:
            _put(path, parts.setdefault(lora[1], {}), lora[2], tensor, given)
        else:
            _put(path, tensors, _WRAPPED.sub(r"\1.weight", name), tensor, given)
    if (saved := tensors.pop(_FREQUENCIES, None)) is not None:
        _check_frequencies(path, saved[...], config)
    vocabulary = _vocabulary(path, tensors, config)
    expected = config.shapes(vocabulary)
    _check(path, tensors, expected)
    scale, low_rank = _low_rank(path, parts, expected, trained) if parts else (1.0, {})
    notes = (
        [f"{path}: its value head ({listed(left_out, 5)}) answers nothing here: left out"] if left_out else []
    )
    return MtpWeights(path, tensors, vocabulary, low_rank, scale, tuple(notes))


def _put(path: Path, into: dict[str, StoredTensor], name: str, tensor: StoredTensor, given: str) -> None:
    if name in into:
        raise CheckpointError(
            f"{path}: tensor {given!r} is there twice under different prefixes; save one model only"
        )
    into[name] = tensor


def _vocabulary(path: Path, tensors: Mapping[str, StoredTensor], config: MtpConfig) -> int:
    if config.vocab_size is not None:
        return config.vocab_size
    rows = tensors.get("tok_embeddings.weight")
    if rows is None or rows.dim() != 2:
        raise CheckpointError(
            f"{path}: tensor 'tok_embeddings.weight' is missing or no table, and the config names no vocab_size"
        )
    return int(rows.shape[0])


def _check(path: Path, tensors: Mapping[str, StoredTensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    wrong = [
        f"{name} {list(tensors[name].shape)} in the file, {list(shape)} by the config"
        for name, shape in expected.items()
        if name in tensors and tuple(tensors[name].shape) != shape
    ]
    if wrong:
        raise CheckpointError(
            f"{path}: shape mismatch: {listed(wrong, 5)}; give the params.json that belongs to these weights"
        )
    if missing := [name for name in expected if name not in tensors]:
        raise CheckpointError(
            f"{path}: {count(len(missing), 'tensor')} of the model missing: {listed(missing, 5)}; "
            "save the whole model, or correct n_layers and n_future_tokens"
        )
    if unexpected := [name for name in tensors if name not in expected]:
        raise CheckpointError(
            f"{path}: {count(len(unexpected), 'tensor')} without a place in the model: {listed(unexpected, 5)}; "
            "its config belongs to another model"
        )


def _check_frequencies(path: Path, saved: torch.Tensor, config: MtpConfig) -> None:
    import torch

    steps = torch.arange(0, config.head_dim, 2)[: config.head_dim // 2].double() / config.head_dim
    wanted = config.rope_theta**-steps
    if saved.shape != wanted.shape or not torch.allclose(saved.double(), wanted, rtol=1e-2, atol=0.0):
        raise CheckpointError(
            f"{path}: tensor {_FREQUENCIES!r} is not that of rope_theta={config.rope_theta:g}; correct the config"
        )


def _low_rank(
    path: Path,
    parts: Mapping[str, Mapping[str, StoredTensor]],
    expected: Mapping[str, tuple[int, ...]],
    trained: Mapping[str, Any],
) -> tuple[float, dict[str, tuple[StoredTensor, StoredTensor]]]:
    """Return alpha / rank, and the two parts of each weight."""
    rank, alpha = _settings(path, trained)
    found = {}
    for name, pair in parts.items():
        shape = expected.get(f"{name}.weight")
        if shape is None:
            raise CheckpointError(
                f"{path}: LoRA weights of {name!r}, which the model does not have; "
                "its config belongs to another model"
            )
        for letter, wanted in (("A", (rank, shape[1])), ("B", (shape[0], rank))):
            if letter not in pair:
                raise CheckpointError(
                    f"{path}: tensor '{name}.lora_{letter}' is missing; save the whole model"
                )
            if tuple(pair[letter].shape) != wanted:
                raise CheckpointError(
                    f"{path}: shape mismatch: {name}.lora_{letter} {list(pair[letter].shape)} in the file, "
                    f"{list(wanted)} by rank {rank}; correct the rank in its config"
                )
        found[name] = (pair["A"], pair["B"])
    return alpha / rank, found


def _settings(path: Path, trained: Mapping[str, Any]) -> tuple[int, float]:
    """Return rank and alpha, from a table ``lora`` or from ``lora_rank`` and ``lora_alpha``, at the top of the config
    or in its tables.

    Elsewhere ``rank`` is mostly that of a process, and ``alpha`` some other quantity.
    """
    tables = [trained, *(part for part in trained.values() if isinstance(part, Mapping))]
    named = [table[name] for table in tables for name in _TABLES if isinstance(table.get(name), Mapping)]
    rank = _first(named, "rank", "r", "lora_rank", "lora_r") or _first(tables, "lora_rank", "lora_r")
    alpha = _first(named, "alpha", "lora_alpha") or _first(tables, "lora_alpha")
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise CheckpointError(
            f"{path}: has LoRA weights, but lora rank {rank!r} in its config is no whole number from 1 up; "
            "save rank and alpha in config['lora']"
        )
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < float("inf"):
        raise CheckpointError(
            f"{path}: has LoRA weights, but lora alpha {alpha!r} in its config is no number above 0; "
            "save rank and alpha in config['lora']"
        )
    return rank, float(alpha)


def _first(tables: list[Any], *names: str) -> Any:
    return next((table[name] for name in names for table in tables if table.get(name) is not None), None)


class PtFile(NamedTuple):
    """The tensors under the names that the file has for them, and its ``config``, perhaps empty."""

    tensors: Mapping[str, StoredTensor]
    config: dict[str, Any]


def read_pt(path: Path) -> PtFile:
    """Return the content of the file, or the tensors of a distributed checkpoint.

    Raises ``CheckpointError`` where it is broken, needs more than tensors and plain values, or holds no model.
    """
    content = {} if path.is_dir() else read_pickled(path)
    tensors = read_distributed(path) if path.is_dir() else tensors_of(path, content)
    for name, tensor in tensors.items():
        if tensor.dtype not in _FLOATS:
            raise CheckpointError(
                f"{path}: tensor {name!r} is {tensor.dtype}, which are no floating-point weights; save the model "
                "unquantized"
            )
    config = content.get("config")
    stored = {name: StoredTensor(tensor) for name, tensor in tensors.items()}
    return PtFile(stored, config if isinstance(config, dict) else {})


def put(tensor: torch.Tensor, into: torch.Tensor) -> None:
    """Copy a tensor's numbers into another of its shape.

    The mapped pages of the file are released, so that both are never in memory as a whole.
    """
    into.copy_(tensor)
    cpu.let_go(tensor)
