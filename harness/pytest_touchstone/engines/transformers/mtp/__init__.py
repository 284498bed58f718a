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
from pytest_touchstone.core.text import count, join_names
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
    name, kind, settings = "tokenizer.json", PreTrainedTokenizerFast, {}
    if not (folder / name).is_file():
        name, kind = "tokenizer.model", LlamaTokenizer
        if not (folder / name).is_file():
            raise CheckpointError(
                f"{folder}: no tokenizer.json or tokenizer.model for {info.path.name}; "
                "copy it from the model that was trained"
            )
        check_sentencepiece(folder / name)
        if not (folder / "tokenizer_config.json").is_file():  # BOS before the text, as in the reference code
            settings["add_bos_token"] = True
    broken = one_line_errors(f"{folder / name}: cannot be loaded", "copy it from the model that was trained")
    with quiet(), broken:
        tokenizer = kind.from_pretrained(folder, local_files_only=True, **settings)
    if tokenizer.bos_token_id is None and tokenizer.eos_token_id is None:
        # The usual spellings, where they are in the vocabulary.
        vocabulary = tokenizer.get_vocab()
        for special, spellings in (("bos_token", _STARTS), ("eos_token", _ENDS)):
            spelling = next((spelling for spelling in spellings if spelling in vocabulary), None)
            if spelling is not None:
                tokenizer.add_special_tokens({special: spelling})
    return tokenizer


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

    tensors: dict[str, StoredTensor]
    vocabulary: int
    low_rank: dict[str, tuple[StoredTensor, StoredTensor]] = field(default_factory=dict)
    scale: float = 1.0
    notes: tuple[str, ...] = ()

    def put(self, name: str, into: torch.Tensor) -> None:
        """Copy one tensor, with its LoRA weights added, into another of its shape."""
        import torch

        if (pair := self.low_rank.get(name.removesuffix(".weight"))) is None:
            put(self.tensors[name][...], into)
            return
        copies = []
        for stored in (self.tensors[name], *pair):
            copies.append(torch.empty(stored.shape, dtype=torch.float32, device=into.device))
            put(stored[...], copies[-1])
        weight, down, up = copies
        into.copy_(weight.addmm_(up, down, alpha=self.scale))


def weights_of(
    path: Path, stored: Mapping[str, StoredTensor], config: MtpConfig, trained: Mapping[str, Any]
) -> MtpWeights:
    """Return the tensors of a file as the model wants them.

    ``trained`` is the ``config`` that the file carries; rank and alpha of LoRA are read from it. Raises
    ``CheckpointError`` naming the tensor that does not fit.
    """
    tensors: dict[str, StoredTensor] = {}
    pairs: dict[str, dict[str, StoredTensor]] = {}
    left_out: list[str] = []
    for given, tensor in stored.items():
        name = PREFIXES.sub("", given)
        if _VALUE_HEAD.match(name):
            left_out.append(name)
            continue
        table, name = tensors, _WRAPPED.sub(r"\1.weight", name)
        if (lora := _LORA.match(name)) is not None:
            table, name = pairs.setdefault(lora[1], {}), lora[2]
        if name in table:
            raise CheckpointError(
                f"{path}: tensor {given!r} is there twice under different prefixes; save one model only"
            )
        table[name] = tensor
    if (frequencies := tensors.pop(_FREQUENCIES, None)) is not None:
        _check_frequencies(path, frequencies[...], config)
    vocabulary = config.vocab_size
    if vocabulary is None:
        embeddings = tensors.get("tok_embeddings.weight")
        if embeddings is None or embeddings.dim() != 2:
            raise CheckpointError(
                f"{path}: tensor 'tok_embeddings.weight' is missing or no table, and the config names no vocab_size"
            )
        vocabulary = int(embeddings.shape[0])
    expected = config.shapes(vocabulary)
    _check(path, tensors, expected)
    scale, low_rank = _low_rank(path, pairs, expected, trained) if pairs else (1.0, {})
    notes = (f"{path}: its value head ({join_names(left_out, 5)}) answers nothing here: left out",)
    return MtpWeights(tensors, vocabulary, low_rank, scale, notes if left_out else ())


def _check(path: Path, tensors: Mapping[str, StoredTensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    wrong = [
        f"{name} {list(tensors[name].shape)} in the file, {list(shape)} by the config"
        for name, shape in expected.items()
        if name in tensors and tuple(tensors[name].shape) != shape
    ]
    if wrong:
        raise CheckpointError(
            f"{path}: shape mismatch: {join_names(wrong, 5)}; give the params.json that belongs to these weights"
        )
    if missing := [name for name in expected if name not in tensors]:
        raise CheckpointError(
            f"{path}: {count(len(missing), 'tensor')} of the model missing: {join_names(missing, 5)}; "
            "save the whole model, or correct n_layers and n_future_tokens"
        )
    if unexpected := [name for name in tensors if name not in expected]:
        raise CheckpointError(
            f"{path}: {count(len(unexpected), 'tensor')} without a place in the model: {join_names(unexpected, 5)}; "
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
    pairs: Mapping[str, Mapping[str, StoredTensor]],
    expected: Mapping[str, tuple[int, ...]],
    trained: Mapping[str, Any],
) -> tuple[float, dict[str, tuple[StoredTensor, StoredTensor]]]:
    """Return alpha / rank, and the two parts of each weight.

    Rank and alpha come from a table ``lora``, or from ``lora_rank`` and ``lora_alpha``, at the top of the config or in
    its tables.
    """
    tables = [trained, *(table for table in trained.values() if isinstance(table, Mapping))]
    # Elsewhere than in these tables ``rank`` is mostly that of a process, and ``alpha`` some other quantity.
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
    low_rank = {}
    for name, pair in pairs.items():
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
        low_rank[name] = (pair["A"], pair["B"])
    return alpha / rank, low_rank


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
    cpu.release_pages(tensor)
