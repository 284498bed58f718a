"""Loads a multi-token-prediction checkpoint, with the sizes and the tokenizer's place that were recognised, and the
tensors from the file."""

from __future__ import annotations

import logging
from typing import Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.compat import check_sentencepiece, no_length_limit, quiet
from pytest_touchstone.engines.transformers.devices import choose_device
from pytest_touchstone.engines.transformers.loading import (
    MAKE_ROOM,
    LoadedModel,
    check_vocabulary,
    choose_dtype,
    one_line_errors,
)
from pytest_touchstone.engines.transformers.mtp.model import MtpModel, config_of
from pytest_touchstone.engines.transformers.mtp.weights import read_pt, weights_of

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
            f"{info.path}: --eval-device-map does not spread multi-token-prediction models; leave it out"
        )
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    device = choose_device(settings.device)
    config = config_of(info.params, str(info.path))
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
