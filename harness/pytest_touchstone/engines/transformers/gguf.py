"""GGUF files as Transformers loads them, with what its reader leaves out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.formats.gguf import GgufHeader, GgufTokenizer, read_gguf, tokenizer_of
from pytest_touchstone.checkpoints.formats.gguf_metadata import (
    ROPE_FREQUENCIES,
    check_complete,
    config_values,
    refusal_error,
)
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import join_names

_SKIPPED: Final = re.compile(r"blk\.\d+\.attn_rot_embd(\.weight)?")
"""Frequencies that old files hold for each layer; llama.cpp computes them from the keys, too."""

_CONTROL: Final = 3
_USER_DEFINED: Final = 4


def gguf_config(path: Path) -> Any:
    """Return the config that a file describes.

    Raises ``CheckpointError`` naming keys and tensors that it cannot express.
    """
    from transformers import AutoConfig, PreTrainedConfig

    header = read_gguf(path)
    values = config_values(path, header.architecture, header.keys, header.tensors)
    check_complete(path, header.architecture, header.keys)
    config, _ = PreTrainedConfig.get_config_dict(path.parent, gguf_file=path.name, local_files_only=True)
    return AutoConfig.for_model(**{"pad_token_id": None} | config | values)


def finish(info: CheckpointInfo, model: Any, report: dict[str, Any]) -> None:
    """Make a model that Transformers has loaded what its file says.

    Biases that the file has for some of the layers' parts are 0 in the others, and no longer missing in the report.
    Raises ``CheckpointError`` naming the tensors of the file that are not in the model.
    """
    import torch

    header = read_gguf(info.path)
    if left := sorted(header.tensors - _placed_tensors(header, model)):
        raise refusal_error(info.path, f"holds {join_names(left, 3)}")
    if getattr(model.config, "attention_bias", False) or getattr(model.config, "mlp_bias", False):
        absent = [name for name in report["missing_keys"] if name.endswith("_proj.bias")]
        with torch.no_grad():
            for name in absent:
                model.get_parameter(name).zero_()
        report["missing_keys"] = [name for name in report["missing_keys"] if name not in absent]
    if ROPE_FREQUENCIES in header.tensors:
        _divide_frequencies(info.path, model)
    # The marks of a quantized model: a file's weights are plain numbers once they are loaded.
    for name in ("hf_quantizer", "is_quantized", "quantization_method"):
        vars(model).pop(name, None)
    vars(model.config).pop("quantization_config", None)


def _divide_frequencies(path: Path, model: Any) -> None:
    """Divide the frequencies of all rotary modules by the numbers that the file holds for them.

    Raises ``CheckpointError`` where the model has not as many of them.
    """
    import gguf
    import torch

    (tensor,) = (tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == ROPE_FREQUENCIES)
    divisors = [float(value) for value in gguf.dequantize(tensor.data, tensor.tensor_type).ravel()]
    if not all(0 < divisor < float("inf") for divisor in divisors):
        raise CheckpointError(
            f"{path}: {ROPE_FREQUENCIES} holds numbers that are none above 0; convert it again"
        )
    modules = [
        module for module in model.modules() if isinstance(getattr(module, "inv_freq", None), torch.Tensor)
    ]
    for module in modules:
        for name in ("inv_freq", "original_inv_freq"):
            if (frequencies := getattr(module, name, None)) is not None:
                if len(frequencies) != len(divisors):
                    raise refusal_error(path, f"holds {ROPE_FREQUENCIES} of {len(divisors)} numbers")
                setattr(module, name, frequencies / torch.tensor(divisors, device=frequencies.device))
    if not modules:
        raise refusal_error(path, f"holds {ROPE_FREQUENCIES} of {len(divisors)} numbers")


def _placed_tensors(header: GgufHeader, model: Any) -> set[str]:
    """Return the names of the file's tensors that Transformers loads, and of those that we load."""
    from transformers import modeling_gguf_pytorch_utils as theirs
    from transformers.integrations.gguf import is_gguf_arch_supported

    if is_gguf_arch_supported(header.architecture):  # its new loader, which reports all others
        return set(header.tensors)
    kind = theirs.TENSOR_PROCESSORS.get(header.architecture, theirs.TensorProcessor)
    names_map = theirs.get_gguf_hf_weights_map(model, kind(config={}))
    return {
        name
        for name in header.tensors
        if name in names_map
        or name == ROPE_FREQUENCIES
        or _SKIPPED.fullmatch(name)
        or (name.endswith("_exps.weight") and name.removesuffix(".weight") in names_map)
    }


def gguf_tokenizer(path: Path) -> Any:
    """Return the tokenizer that a file describes.

    Raises ``CheckpointError`` where it is of another kind, or its tokens do not fit together.
    """
    from transformers import PreTrainedTokenizerFast
    from transformers.integrations.gguf import read_gguf_metadata

    header = read_gguf(path)
    form = tokenizer_of(path, header.architecture, header.keys)
    lists = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")
    metadata, _ = read_gguf_metadata(str(path), lists)
    names = ("tokens", "merges", "scores", "token_type")
    content = {
        name: metadata[f"tokenizer.ggml.{name}"] for name in names if f"tokenizer.ggml.{name}" in metadata
    }
    if not isinstance(tokens := content.get("tokens"), list):
        raise CheckpointError(f"{path}: its header has no {lists[0]}; convert it again")
    if len(set(tokens)) != len(tokens):
        raise CheckpointError(f"{path}: has a token twice; convert it again")
    for name, token in form.tokens.items():
        if not 0 <= token < len(tokens) and name != "pad_token":
            raise CheckpointError(f"{path}: its {name} is none of its {len(tokens)} tokens; convert it again")
    named = {name: tokens[token] for name, token in form.tokens.items() if token < len(tokens)}
    return PreTrainedTokenizerFast(
        tokenizer_object=(_byte_level if form.model == "gpt2" else _sentencepiece)(form, content),
        **dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token")) | named,
        add_bos_token=form.add_bos,
        add_eos_token=form.add_eos,
        chat_template=metadata.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
    )


def _byte_level(form: GgufTokenizer, content: dict[str, Any]) -> Any:
    """Return byte-level BPE with the file's way to cut texts.

    Tokens that stand for themselves are spelled in the file as in texts, and not in the alphabet of bytes.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    tokens = content["tokens"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ", 1)) for merge in content.get("merges", ())]
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=form.whole_words))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(split), "isolated") for split in form.splits),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    types = content.get("token_type") or ()
    for kind in (_CONTROL, _USER_DEFINED):
        of_kind = [token for token, its in zip(tokens, types, strict=False) if its == kind and token]
        special = kind == _CONTROL
        backend.add_tokens([AddedToken(token, normalized=False, special=special) for token in of_kind])
    return backend


def _sentencepiece(form: GgufTokenizer, content: dict[str, Any]) -> Any:
    """Return SentencePiece's BPE as Transformers makes it of a file, with a space before texts or without.

    SentencePiece and llama.cpp put that space before texts that begin with one, too.
    """
    from tokenizers import Tokenizer, decoders, normalizers
    from transformers.integrations.gguf import convert_gguf_tokenizer

    kind = "gemma2" if form.gemma else "llama"
    backend, _ = convert_gguf_tokenizer(kind, {**content, "tokenizer_type": "llama"})
    if form.gemma:
        return backend
    spaces = normalizers.Replace(" ", "▁")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if form.space else spaces
    backend.pre_tokenizer = None
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*parts, decoders.Strip(" ", left=1)] if form.space else parts)
    backend.model.unk_token = content["tokens"][form.tokens["unk_token"]]
    if not form.phi3:
        return backend
    # Special tokens take the space after them, which Phi-3's files cannot say.
    settings = json.loads(backend.to_str())
    for token in settings["added_tokens"]:
        token["rstrip"] = token["special"] and token["content"] not in ("<unk>", "<s>", "<|endoftext|>")
    return Tokenizer.from_str(json.dumps(settings))
