"""Ways to break a checkpoint, each with words of the line that the user should then see.

Every table is keyed by what is wrong. ``FOLDERS`` are faults that files' headers give away, of a folder as Transformers
saves a causal model; ``LOADED`` those that only loading it finds; ``ADAPTERS``, ``PT_FILES`` and ``GGUF`` those of such
checkpoints.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.pt_files import llama_pt, payload

Breaking = Callable[[Path], object]


def text(name: str, content: str) -> Breaking:
    return lambda folder: (folder / name).write_text(content, encoding="utf-8")


def config(**values: object) -> Breaking:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(
            json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8"
        )

    return change


def weights(header: object, data: bytes = b"", *, length: int | None = None) -> Breaking:
    """A safetensors file with that header."""
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(content) if length is None else length
    return lambda folder: (folder / "model.safetensors").write_bytes(struct.pack("<Q", size) + content + data)


def entry(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def gone(*names: str) -> Breaking:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def index(weight_map: dict[str, str]) -> Breaking:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
        text("model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": weight_map}))(folder)

    return change


def link(name: str, target: str) -> Breaking:
    def change(folder: Path) -> None:
        outside = folder.parent / "outside"
        shutil.move(folder / name, outside)
        (folder / name).symlink_to(outside if target == "outside" else target)

    return change


def pickled(content: Callable[[], Any]) -> Breaking:
    def change(folder: Path) -> None:
        import torch

        (folder / "model.safetensors").unlink()
        torch.save(content(), folder / "pytorch_model.bin")

    return change


def tensors() -> dict[str, Any]:
    import torch

    return {"a": torch.zeros(4, 4)}


FOLDERS: dict[str, tuple[Breaking, tuple[str, ...]]] = {
    "no config": (gone("config.json"), ("config.json: missing",)),
    "config cut off": (text("config.json", '{"model_type": "lla'), ("config.json", "not valid JSON")),
    "config is a list": (text("config.json", "[]"), ("config.json",)),
    "config nested without end": (text("config.json", '{"a":' * 90_000), ("config.json", "not valid JSON")),
    "config is binary": (
        lambda folder: (folder / "config.json").write_bytes(os.urandom(99)),
        ("config.json",),
    ),
    "unknown model": (config(model_type="llema", architectures=None), ("model type 'llema' is unknown",)),
    "encoder-decoder": (config(architectures=["T5ForConditionalGeneration"]), ("encoder-decoder",)),
    "no head": (config(architectures=["LlamaModel"]), ("no language-model head",)),
    "other vocabulary": (config(vocab_size=5), ("shape mismatch", "vocab_size=5")),
    "code in the config": (
        config(model_type="mine", auto_map={"AutoModelForCausalLM": "modeling_mine.Mine"}),
        ("config.json", "modeling_mine.Mine", "--eval-trust-remote-code"),
    ),
    "attention from the Hub": (config(attn_implementation="some-org/kernel"), ("'some-org/kernel'",)),
    "code for the tokenizer": (
        lambda folder: [
            gone("tokenizer.json")(folder),
            text("vocab.txt", "a\nb\n")(folder),
            text("tokenizer_config.json", '{"auto_map": {"AutoTokenizer": ["tok.Mine", null]}}')(folder),
        ],
        ("tokenizer_config.json", "code of its own"),
    ),
    "no tokenizer": (gone("tokenizer.json"), ("no tokenizer files",)),
    "tokenizer cut off": (text("tokenizer.json", '{"model": {"vocab'), ("tokenizer.json: cut off",)),
    "tokenizer empty": (text("tokenizer.json", ""), ("tokenizer.json: cut off",)),
    "trainer state broken": (text("trainer_state.json", "{"), ("trainer_state.json", "not valid JSON")),
    "trainer state without a step": (text("trainer_state.json", "{}"), ("'global_step' is missing",)),
    "no weights": (gone("model.safetensors"), ("no weights",)),
    "weights empty": (
        lambda folder: (folder / "model.safetensors").write_bytes(b""),
        ("no safetensors file",),
    ),
    "header longer than the file": (weights({}, length=9999), ("model.safetensors: cut off",)),
    "header of an exabyte": (weights({}, length=1 << 60), ("a header of 1152921504606846976 bytes",)),
    "header no JSON": (weights(b"\xff\xfe nothing"), ("not a table of tensors",)),
    "header nested without end": (weights(b'{"a":' * 90_000), ("not a table of tensors",)),
    "header a list": (weights([1, 2]), ("not a table of tensors",)),
    "a tensor of a petabyte": (
        weights({"a": entry([1 << 25, 1 << 23], 0, 1 << 50)}),
        ("cut off", "of 1125899906"),
    ),
    "a petabyte in four bytes": (
        weights({"a": entry([1 << 48], 0, 4)}, b"0000"),
        ("'a'", "needs 1125899906842624"),
    ),
    "negative offsets": (weights({"a": entry([1], -4, 0)}, b"0000"), ("'a'", "its place is -4 to 0")),
    "end before the beginning": (weights({"a": entry([1], 4, 0)}, b"0000"), ("'a'", "4 to 0")),
    "tensors over each other": (
        weights({"a": entry([2], 0, 8), "b": entry([1], 4, 8)}, bytes(8)),
        ("'b' begins at byte 4",),
    ),
    "a gap": (weights({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, bytes(12)), ("'b' begins at byte 8",)),
    "a negative side": (weights({"a": entry([-1, -1], 0, 4)}, bytes(4)), ("'a'", "impossible")),
    "an unknown type": (weights({"a": entry([1], 0, 4, "F33")}, bytes(4)), ("'F33'",)),
    "bytes behind the last tensor": (weights({"a": entry([1], 0, 4)}, bytes(9)), ("5 bytes follow",)),
    "a shard that is missing": (
        index({"a": "model-00002-of-00002.safetensors"}),
        ("model-00002-of-00002", "missing"),
    ),
    "a shard elsewhere": (index({"a": "../../etc/model.safetensors"}), ("not in its folder",)),
    "an absolute shard": (index({"a": "/etc/passwd"}), ("'/etc/passwd'", "not in its folder")),
    "an index of other tensors": (
        index({"b": "model-00001-of-00001.safetensors"}),
        ("names the tensor 'b'",),
    ),
    "an index without a map": (
        lambda folder: [
            gone("model.safetensors")(folder),
            text("model.safetensors.index.json", "{}")(folder),
        ],
        ("'weight_map' is missing",),
    ),
    "weights linked from elsewhere": (
        link("model.safetensors", "outside"),
        ("a link out of the checkpoint's",),
    ),
    "a config linked from elsewhere": (link("config.json", "/etc/hostname"), ("config.json: a link out of",)),
    "a link to nothing": (link("tokenizer.json", "nothing.json"), ("tokenizer.json: a link to nothing",)),
    "a model and an adapter": (text("adapter_config.json", "{}"), ("a whole model and an adapter",)),
    "pickle empty": (
        lambda folder: [gone("model.safetensors")(folder), (folder / "pytorch_model.bin").write_bytes(b"")],
        ("pytorch_model.bin: an empty file",),
    ),
    "pickle of something else": (
        pickled(lambda: [1, 2, 3]),
        ("pytorch_model.bin: holds no table of tensors",),
    ),
    "pickle of more than tensors": (
        pickled(lambda: {**tensors(), "step": 3}),
        ("'step', which is no tensor",),
    ),
    "no pickle": (
        lambda folder: [
            gone("model.safetensors")(folder),
            text("pytorch_model.bin", "version https")(folder),
        ],
        ("no file of torch.save",),
    ),
}


def rewritten(path: Path, change: Callable[[str, bytes], bytes | None], *, packed: bool = False) -> Path:
    """A zip archive written again with its records changed, or left out."""
    with zipfile.ZipFile(path) as archive:
        records = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, content in records.items():
            changed = change(name, content)
            if changed is not None:
                archive.writestr(name, changed)
    return path


def record(ending: str, content: bytes | None) -> Callable[[str, bytes], bytes | None]:
    return lambda name, before: content if name.endswith(ending) else before


PT_FILES: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-300]), ("cut off or broken",)),
    "cut off early": (lambda path: path.write_bytes(path.read_bytes()[:20]), ("cut off or broken",)),
    "a text": (lambda path: path.write_text("version https://git-lfs"), ("no file of torch.save",)),
    "empty": (lambda path: path.write_bytes(b""), ("an empty file",)),
    "packed": (
        lambda path: rewritten(path, lambda _, content: content, packed=True),
        ("compressed records",),
    ),
    "no pickle in it": (lambda path: rewritten(path, record("data.pkl", None)), ("no data.pkl",)),
    "a pickle cut off": (lambda path: rewritten(path, record("data.pkl", b"\x80\x02}q\x00")), ("broken",)),
    "a pickle of protocol 4": (
        lambda path: rewritten(path, record("data.pkl", b"\x80\x04\x95" + bytes(8) + b"N.")),
        ("broken",),
    ),
    "an unknown opcode": (lambda path: rewritten(path, record("data.pkl", b"\x80\x02(i.")), ("broken",)),
    "a memo of 32 GiB": (
        lambda path: rewritten(path, record("data.pkl", b"\x80\x02Nr\xff\xff\xff\xff.")),
        ("model_state_dict",),
    ),
    "a text of 4 GiB": (
        lambda path: rewritten(path, record("data.pkl", b"\x80\x02X\xff\xff\xff\xffabc.")),
        ("broken",),
    ),
    "a storage that is missing": (lambda path: rewritten(path, record("/data/0", None)), ("broken",)),
    "a storage that is too short": (lambda path: rewritten(path, record("/data/0", b"1234")), ("holds 4",)),
    "big-endian": (lambda path: rewritten(path, record("byteorder", b"big")), ("big-endian",)),
    "no model in it": (lambda path: llama_pt(path, model_state_dict=None), ("'model_state_dict'",)),
    "another model": (
        lambda path: llama_pt(path, change=lambda state: state.pop("tok_embeddings.weight")),
        ("'tok_embeddings.weight' is missing",),
    ),
    "no sizes": (
        lambda path: llama_pt(path, config={"model": {"path": "nowhere"}}),
        ("does not say the model's sizes",),
    ),
    "sizes of another model": (
        lambda path: llama_pt(path, params={"n_layers": 9}),
        ("n_layers is 9", "the weights have 5"),
    ),
    "sizes that are none": (lambda path: llama_pt(path, params={"dim": "wide"}), ("dim='wide'",)),
    "no tokenizer": (lambda path: (path.parent / "tokenizer.json").unlink(), ("no tokenizer beside it",)),
    "a NumPy number in the metrics": (
        lambda path: llama_pt(path, val_metrics={"val_loss": numpy_number()}),
        ("its pickle wants numpy.", "may run code"),
    ),
}


def numpy_number() -> Any:
    import numpy

    return numpy.float64(1.5)


def gguf(tensors: int, pairs: int, rest: bytes, *, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest


def pair(count: int, name: bytes, rest: bytes) -> bytes:
    """A key of that name, with the bytes after it."""
    return struct.pack("<Q", count) + name + rest


GGUF: dict[str, bytes] = {
    "empty": b"",
    "of another kind": b"GGML" + bytes(99),
    "version 1": gguf(1, 0, b"", version=1),
    "no tensors": gguf(0, 0, b""),
    "more keys than bytes": gguf(1, 1 << 63, b""),
    "a long name": gguf(1, 1, struct.pack("<Q", 1 << 62) + b"name"),
    "a long list": gguf(1, 1, pair(1, b"a", struct.pack("<IIQ", 9, 8, 1 << 62))),
    "a long array": gguf(1, 1, pair(1, b"a", struct.pack("<IIQ", 9, 4, 1 << 63))),
    "an unknown type": gguf(1, 1, pair(1, b"a", struct.pack("<I", 77))),
}


def stored(change: Callable[[dict[str, Any]], object]) -> Breaking:
    """Changes the tensors of the folder's weights."""

    def breaking(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        held = load_file(folder / "model.safetensors")
        change(held)
        save_file(held, folder / "model.safetensors", metadata={"format": "pt"})

    return breaking


def zeros(*shape: int) -> Any:
    import torch

    return torch.zeros(shape)


def old_pickle(folder: Path) -> None:
    import torch

    (folder / "model.safetensors").unlink()
    evil = {"weight": payload(folder.parent / "it-ran")}
    torch.save(evil, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def tokenizer_table(**model: object) -> Breaking:
    return text("tokenizer.json", json.dumps({"version": "1.0", "added_tokens": [], "model": model}))


UP = "model.layers.1.mlp.up_proj.weight"

LOADED: dict[str, tuple[Breaking, tuple[str, ...]]] = {
    "a tensor is missing": (stored(lambda held: held.pop(UP)), ("1 tensor of", "missing", UP)),
    "a layer is missing": (config(num_hidden_layers=3), ("missing", "model.layers.2.")),
    "tensors left over": (
        stored(lambda held: held.update({"model.extra.weight": zeros(2)})),
        ("model.extra",),
    ),
    "a layer left over": (config(num_hidden_layers=1), ("without a place", "model.layers.1.")),
    "a wrong shape": (stored(lambda held: held.update({UP: zeros(3, 3)})), ("shape mismatch", UP, "[3, 3]")),
    "another width": (config(hidden_size=64, head_dim=8), ("shape mismatch", "[64]")),
    "a negative width": (config(hidden_size=-32), ("config.json", "hidden_size")),
    "no heads": (config(num_attention_heads=0), ("config.json", "num_attention_heads")),
    "heads that do not divide": (config(num_attention_heads=5, head_dim=None), ("",)),
    "a negative number of layers": (config(num_hidden_layers=-1), ("config.json", "num_hidden_layers")),
    "a billion layers": (config(num_hidden_layers=10**9), ("config.json", "num_hidden_layers")),
    "a width of a billion": (config(hidden_size=10**9), ("config.json",)),
    "an inner width of a trillion": (config(intermediate_size=10**12), ("config.json",)),
    "a width that is a text": (config(hidden_size="wide"), ("hidden_size",)),
    "an unknown activation": (config(hidden_act="nonsense"), ("nonsense",)),
    "an unknown dtype": (config(dtype="float33", torch_dtype="float33"), ("float33",)),
    "a quantization without its package": (
        config(quantization_config={"quant_method": "gptq", "bits": 4}),
        ("GPTQ", "pip install"),
    ),
    "rope that is none": (config(rope_parameters={"rope_type": "wrong"}), ("wrong",)),
    "a tokenizer without a model": (text("tokenizer.json", "{}"), ("its tokenizer cannot be loaded",)),
    "a tokenizer of negative ids": (
        tokenizer_table(type="BPE", vocab={"a": -1}, merges=[]),
        ("its tokenizer cannot be loaded",),
    ),
    "a tokenizer of an unknown type": (tokenizer_table(type="None"), ("its tokenizer cannot be loaded",)),
    "a tokenizer whose vocabulary is a number": (
        tokenizer_table(type="WordLevel", vocab=3),
        ("its tokenizer cannot be loaded",),
    ),
    "a tokenizer config that is no JSON": (text("tokenizer_config.json", "{"), ("tokenizer_config.json",)),
    "a tokenizer of another model": (
        tokenizer_table(type="WordLevel", vocab={"a": 0, "b": 4000}, unk_token="a"),
        ("token id 4000",),
    ),
    "a generation config that is no JSON": (text("generation_config.json", "{"), ("generation_config.json",)),
    "an old pickle that wants more": (old_pickle, ("its pickle wants posix.system, which may run code",)),
    "a tensor that no shard has": (
        lambda folder: [
            stored(lambda held: held.pop(UP))(folder),
            index({"lm_head.weight": "model-00001-of-00001.safetensors"})(folder),
        ],
        ("model",),
    ),
}


def adapter_config(**values: object) -> Breaking:
    def change(lora: Path) -> None:
        path = lora / "adapter_config.json"
        table = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**table, **values}), encoding="utf-8")

    return change


ADAPTERS: dict[str, tuple[Breaking, tuple[str, ...]]] = {
    "no base": (
        adapter_config(base_model_name_or_path="../gone"),
        ("its base model", "no such file or folder"),
    ),
    "a base that is not named": (adapter_config(base_model_name_or_path=None), ("names no base model",)),
    "another rank": (adapter_config(r=8), ("its rank is 8",)),
    "no weights": (
        lambda lora: (lora / "adapter_model.safetensors").unlink(),
        ("no weights of the adapter",),
    ),
    "weights cut off": (
        lambda lora: os.truncate(lora / "adapter_model.safetensors", 3000),
        ("adapter_model.safetensors: cut off",),
    ),
    "config no JSON": (text("adapter_config.json", "{"), ("adapter_config.json", "not valid JSON")),
    "another method": (adapter_config(peft_type="POLY"), ("peft_type 'POLY' is not supported",)),
    "whole modules": (
        adapter_config(modules_to_save=["lm_head"]),
        ("missing from the adapter's weights", "lm_head.weight"),
    ),
    "targets without tensors": (
        adapter_config(target_modules=["q_proj", "v_proj", "k_proj"]),
        ("targets 2 modules for which there are no tensors",),
    ),
    "a rank that is a text": (adapter_config(r="four"), ("r='four'",)),
}
