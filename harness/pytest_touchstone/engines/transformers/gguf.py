"""GGUF files as Transformers loads them, with what its reader leaves out, and their unpacked form in the user's cache.

A GGUF file is unpacked by Python code, which takes most of the start of a small model. What comes of it is written
once, as a folder such as trainers save: weights in the type that they run in, config, tokenizer. Later starts map them
from there, and processes share them. The folder's name holds the file's fingerprint, the type, and the versions of the
packages that unpacked it.

A folder is renamed into place once it is whole, after its config and tokenizer were read back and found the same.
Where that fails, nothing is kept, and the file is unpacked each time. All folders together stay below a limit; the one
unused for longest goes first.

One that is no longer as it was written is deleted, and the file unpacked again. ``seal.json`` has the folder's name,
and of each file its size, its time of change and a SHA-256. That is of the whole content up to 4 MiB; of a larger file
it is of 64 blocks of 16 KiB: the first, the last, and others at equal distances. So a file that was written to after
the seal is found by its time, and a shortened one by its size. Another one put in its place, with the same time and
size, is found by its blocks. What is not found is a change between the blocks that leaves time and size as they were: a
disk that returns other bytes than were written, or a time that is set back.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo, fingerprint
from pytest_touchstone.checkpoints.builtin import cache_folder
from pytest_touchstone.checkpoints.formats.gguf import GgufHeader, GgufTokenizer, read_gguf, tokenizer_of
from pytest_touchstone.checkpoints.formats.gguf_keys import (
    ROPE_FREQUENCIES,
    check_complete,
    config_values,
    refusal,
)
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import read_json
from pytest_touchstone.core.text import listed

if TYPE_CHECKING:
    import torch

_DIVISORS: Final = "gguf_rope_freqs"
"""The name in the config for what the frequencies are divided by. Transformers knows no such value, and keeps it."""

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
    said, _ = PreTrainedConfig.get_config_dict(path.parent, gguf_file=path.name, local_files_only=True)
    if ROPE_FREQUENCIES in header.tensors:
        values[_DIVISORS] = _rope_freqs(path)
    return AutoConfig.for_model(**{"pad_token_id": None} | said | values)


def _rope_freqs(path: Path) -> list[float]:
    import gguf

    (tensor,) = (each for each in gguf.GGUFReader(path).tensors if each.name == ROPE_FREQUENCIES)
    divisors = [float(each) for each in gguf.dequantize(tensor.data, tensor.tensor_type).ravel()]
    if not all(0 < each < float("inf") for each in divisors):
        raise CheckpointError(
            f"{path}: {ROPE_FREQUENCIES} holds numbers that are none above 0; convert it again"
        )
    return divisors


def divide_frequencies(path: Path, model: Any) -> None:
    """Divide the frequencies of all rotary modules by what the file says, if it says anything.

    Raises ``CheckpointError`` where the model has not as many of them.
    """
    import torch

    divisors = getattr(model.config, _DIVISORS, None)
    if divisors is None:
        return
    modules = [
        module for module in model.modules() if isinstance(getattr(module, "inv_freq", None), torch.Tensor)
    ]
    for module in modules:
        for name in ("inv_freq", "original_inv_freq"):
            if (frequencies := getattr(module, name, None)) is not None:
                if len(frequencies) != len(divisors):
                    modules = []
                    break
                setattr(module, name, frequencies / torch.tensor(divisors, device=frequencies.device))
    if not modules:
        raise refusal(path, f"holds {ROPE_FREQUENCIES} of {len(divisors)} numbers")


def check_tensors(info: CheckpointInfo, model: Any, report: dict[str, Any]) -> None:
    """Raise ``CheckpointError`` naming the tensors of a file that are not in the model.

    Biases that the file has for some of the layers' parts are 0 in the others, and no longer missing in the report.
    """
    import torch

    header = read_gguf(info.path)
    if left := sorted(header.tensors - _placed(header, model)):
        raise refusal(info.path, f"holds {listed(left, 3)}")
    switches = [name for name in ("attention_bias", "mlp_bias") if getattr(model.config, name, False)]
    if absent := {name for name in report["missing_keys"] if switches and name.endswith("_proj.bias")}:
        with torch.no_grad():
            for name in absent:
                model.get_parameter(name).zero_()
        report["missing_keys"] = [name for name in report["missing_keys"] if name not in absent]


def _placed(header: GgufHeader, model: Any) -> set[str]:
    """Return the names of the file's tensors that Transformers puts into the model, and of those that we do."""
    from transformers import modeling_gguf_pytorch_utils as theirs
    from transformers.integrations.gguf import is_gguf_arch_supported

    if is_gguf_arch_supported(header.architecture):  # its new loader, which reports all others
        return set(header.tensors)
    kind = theirs.TENSOR_PROCESSORS.get(header.architecture, theirs.TensorProcessor)
    known = theirs.get_gguf_hf_weights_map(model, kind(config={}))
    return {
        name
        for name in header.tensors
        if name in known
        or name == ROPE_FREQUENCIES
        or _SKIPPED.fullmatch(name)
        or (name.endswith("_exps.weight") and name.removesuffix(".weight") in known)
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
    said, _ = read_gguf_metadata(str(path), lists)
    content = {
        name: said[key]
        for name in ("tokens", "merges", "scores", "token_type")
        if (key := f"tokenizer.ggml.{name}") in said
    }
    if not isinstance(tokens := content.get("tokens"), list):
        raise CheckpointError(f"{path}: its header has no {lists[0]}; convert it again")
    if len(set(tokens)) != len(tokens):
        raise CheckpointError(f"{path}: has a token twice; convert it again")
    wrong = [
        name for name, token in form.tokens.items() if not 0 <= token < len(tokens) and name != "pad_token"
    ]
    if wrong:
        raise CheckpointError(f"{path}: its {wrong[0]} is none of its {len(tokens)} tokens; convert it again")
    named = {name: tokens[token] for name, token in form.tokens.items() if token < len(tokens)}
    return PreTrainedTokenizerFast(
        tokenizer_object=(_byte_level if form.model == "gpt2" else _sentencepiece)(form, content),
        **dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token")) | named,
        add_bos_token=form.add_bos,
        add_eos_token=form.add_eos,
        chat_template=said.get("tokenizer.chat_template"),
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
        special = kind == _CONTROL
        backend.add_tokens(
            [
                AddedToken(token, normalized=False, special=special)
                for token, its in zip(tokens, types, strict=False)
                if its == kind and token
            ]
        )
    return backend


def _sentencepiece(form: GgufTokenizer, content: dict[str, Any]) -> Any:
    """Return SentencePiece's BPE as Transformers makes it of a file, with a space before texts or without.

    SentencePiece and llama.cpp put that space before texts that begin with one, too.
    """
    from tokenizers import decoders, normalizers
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
    return _stripping(backend) if form.phi3 else backend


def _stripping(backend: Any) -> Any:
    """Return a tokenizer whose special tokens take the space after them, as Phi-3's do; its files cannot say it."""
    from tokenizers import Tokenizer

    said = json.loads(backend.to_str())
    for token in said["added_tokens"]:
        token["rstrip"] = token["special"] and token["content"] not in ("<unk>", "<s>", "<|endoftext|>")
    return Tokenizer.from_str(json.dumps(said))


_LOG: Final = logging.getLogger(__name__)

_FORM: Final = 3
"""Raised when folders are written in another way, or files unpacked otherwise."""

_MADE_BY: Final = ("transformers", "tokenizers", "gguf", "torch")

_LEAST: Final = 1 << 20
"""The bytes of weights from which a model is worth keeping."""

_MOST: Final = 16 << 30
"""The bytes of all folders together; never more than half of what the disk has free."""

_ABANDONED: Final = 24 * 3600.0
"""The seconds after which an unfinished folder is taken for one whose process has died."""

_TYPES: Final = {
    **{"torch.float32": "F32", "torch.bfloat16": "BF16", "torch.float16": "F16", "torch.float64": "F64"},
    **{
        "torch.int64": "I64",
        "torch.int32": "I32",
        "torch.int8": "I8",
        "torch.uint8": "U8",
        "torch.bool": "BOOL",
    },
}

_ALIGNED: Final = 64
"""Weights begin at a multiple of it, as torch's own memory does."""


class UnpackedModels:
    """A folder of unpacked models of one number type."""

    def __init__(
        self, dtype: torch.dtype | str, folder: Path | None = None, *, least: int = _LEAST, most: int = _MOST
    ) -> None:
        """``folder`` is the user's cache by default; ``least`` and ``most`` are bytes."""
        self._dtype = str(dtype).removeprefix("torch.")
        self._folder = cache_folder("unpacked") if folder is None else folder
        self._least, self._most = least, most

    def find(self, info: CheckpointInfo) -> CheckpointInfo | None:
        """Return the checkpoint as a folder; None where it is not known, or not as it was kept."""
        path = self._path(info)
        if not path.is_dir():
            return None
        if (fault := broken(path)) is not None:
            _LOG.info("%s: %s; it is unpacked again", path, fault)
            shutil.rmtree(path, ignore_errors=True)
            return None
        with contextlib.suppress(OSError):  # it is used all the same, and may go earlier
            os.utime(path)
        return replace(info, path=path)

    def drop(self, found: CheckpointInfo) -> None:
        """Delete a folder that ``find`` returned."""
        shutil.rmtree(found.path, ignore_errors=True)

    def keep(self, info: CheckpointInfo, model: Any, tokenizer: Any) -> bool:
        """Keep what the file was unpacked to; return whether it is kept."""
        weights = _weights(model)
        size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
        path = self._path(info)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not self._least <= size <= min(self._most, shutil.disk_usage(self._folder).free // 2):
                return False
            unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=self._folder))
            try:
                if not _written(unfinished, model, tokenizer):
                    return False
                write_safetensors(unfinished / "model.safetensors", weights)
                seal(unfinished, path.name)
                unfinished.rename(path)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
            self._prune(path)
        except Exception as error:
            # No room, no right to write, another process was first, or whatever transformers raises.
            _LOG.debug("%s: not kept unpacked (%s: %s)", info.path, type(error).__name__, error)
            return False
        return True

    def _path(self, info: CheckpointInfo) -> Path:
        versions = [f"{name} {version(name)}" for name in _MADE_BY]
        named = json.dumps([_FORM, fingerprint(info), self._dtype, versions])
        return (
            self._folder
            / f"{info.path.stem[:60]}-{self._dtype}-{hashlib.sha256(named.encode()).hexdigest()[:24]}"
        )

    def _prune(self, newest: Path) -> None:
        """Delete unfinished folders whose process has died, and those used least lately beyond the limit."""
        for path in self._folder.glob(".unfinished-*"):
            if time.time() - path.stat().st_mtime > _ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
        others = [path for path in self._folder.iterdir() if path.name[0] != "." and path != newest]
        left = self._most - _bytes_of(newest)
        for path in sorted(others, key=lambda path: -path.stat().st_mtime_ns):
            left -= _bytes_of(path)
            if left < 0:
                shutil.rmtree(path, ignore_errors=True)


def _bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _weights(model: Any) -> dict[str, torch.Tensor]:
    """Return the model's tensors by name, those that are tied to another one once."""
    found: dict[str, torch.Tensor] = {}
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in model.state_dict().items():
        place = (tensor.data_ptr(), tuple(tensor.shape))
        if place not in seen:
            seen.add(place)
            found[name] = tensor
    return found


def _written(folder: Path, model: Any, tokenizer: Any) -> bool:
    """Write config and tokenizer; return whether they are the same when read back."""
    from transformers import AutoConfig, AutoTokenizer

    said = model.config.to_dict()
    said.pop("quantization_config", None)
    type(model.config).from_dict(said).save_pretrained(folder)
    if model.can_generate():
        model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    again = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return _told(config.to_dict()) == _told(said) and same_tokenizer(tokenizer, again)


def _told(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a config decides the model's answers."""
    names = ("_name_or_path", "_model_name_or_path", "architectures", "dtype", "transformers_version")
    return {name: value for name, value in config.items() if name not in names}


def same_tokenizer(one: Any, other: Any) -> bool:
    """Return whether two fast tokenizers are the same in all that decides about tokens and texts."""
    mine, its = (getattr(each, "backend_tokenizer", None) for each in (one, other))
    if mine is None or its is None or mine.to_str() != its.to_str():
        return False
    named = (
        *("special_tokens_map", "all_special_ids", "chat_template", "padding_side", "truncation_side"),
        *("clean_up_tokenization_spaces", "split_special_tokens"),
    )
    return all(getattr(one, name, None) == getattr(other, name, None) for name in named)


def write_safetensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a safetensors file, one tensor at a time; the package's own function copies all of them first."""
    import torch

    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        kind = _TYPES[str(tensor.dtype)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNED)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            plain = tensor.detach().cpu().contiguous().view(-1)
            file.write(plain.view(torch.uint8).numpy().data)


_SEAL: Final = "seal.json"

_WHOLE: Final = 4 << 20
"""The bytes up to which a file is read in full."""

_BLOCKS: Final = 64

_BLOCK: Final = 16 << 10


def seal(folder: Path, name: str) -> None:
    """Seal a folder that is to have that name. Nothing may be written to its files afterwards."""
    text = json.dumps({"name": name, "files": _files(folder)}, indent=1)
    (folder / _SEAL).write_text(text, encoding="utf-8")


def broken(folder: Path) -> str | None:
    """Return how a folder differs from what was sealed; None where it does not."""
    try:
        said: Any = read_json(folder / _SEAL)
        name, files, now = said["name"], dict(said["files"]), _files(folder)
    except FileNotFoundError:
        return "it has no seal"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"its seal cannot be read ({type(error).__name__})"
    if name != folder.name:
        return f"it was written as {name}"
    different = sorted(name for name in files.keys() | now.keys() if files.get(name) != now.get(name))
    return f"{different[0]} is not as it was written" if different else None


def _files(folder: Path) -> dict[str, list[Any]]:
    return {path.name: _stamp(path) for path in sorted(folder.iterdir()) if path.name != _SEAL}


def _stamp(path: Path) -> list[Any]:
    """Return size, time of change and digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        size = file.seek(0, 2)
        parts = [(0, size)]
        if size > _WHOLE:
            parts = [((size - _BLOCK) * number // (_BLOCKS - 1), _BLOCK) for number in range(_BLOCKS)]
        for first, count in parts:
            file.seek(first)
            digest.update(file.read(count))
    return [size, path.stat().st_mtime_ns, digest.hexdigest()]
