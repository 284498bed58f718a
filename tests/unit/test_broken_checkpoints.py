"""Broken and malicious checkpoints: one line that names the file and the fault, exit code 4, soon, and no code runs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.checkpoints import recognise
from harness.cli import main
from harness.errors import CheckpointError
from harness.models import ModelSettings, load
from tests.tiny import tiny_causal
from tests.unit.pt_files import llama_pt, payload

SOON = 5.0
"""Seconds."""

Breaking = Callable[[Path], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_causal(tmp_path_factory.mktemp("whole") / "checkpoint-7")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A fresh copy to break."""
    return Path(shutil.copytree(whole, tmp_path / "checkpoint-7"))


def refused(capsys: pytest.CaptureFixture[str], path: Path | str, *said: str) -> str:
    """What ``touchstone show`` says of it: one line, exit code 4, soon."""
    began = time.perf_counter()
    code = main(["show", str(path)])
    seconds = time.perf_counter() - began
    shown = capsys.readouterr()
    assert code == 4, shown.out
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    for words in said:
        assert words in line
    assert ";" in line, "it says what to do"
    assert seconds < SOON
    return line


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
    return lambda folder: [(folder / name).unlink() for name in names]


def index(weight_map: dict[str, str]) -> Breaking:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
        text("model.safetensors.index.json", json.dumps({"weight_map": weight_map}))(folder)

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
    "a negative side": (weights({"a": entry([-1, -1], 0, 4)}, bytes(4)), ("'a'", "cannot be")),
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


@pytest.mark.parametrize("name", FOLDERS)
def test_a_broken_folder_is_one_line(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    breaking, said = FOLDERS[name]
    breaking(folder)
    refused(capsys, folder, folder.name, *said)


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


@pytest.mark.parametrize("name", PT_FILES)
def test_a_broken_pt_file_is_one_line(
    name: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = llama_pt(tmp_path / "checkpoint_best.pt")
    shutil.copy(whole / "tokenizer.json", tmp_path)
    assert recognise(str(path), seq_len=None)[0].format == "mtp"
    breaking, said = PT_FILES[name]
    breaking(path)
    refused(capsys, path, "checkpoint_best.pt", *said)


def gguf(tensors: int, pairs: int, rest: bytes, *, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGML" + bytes(99),
        gguf(1, 0, b"", version=1),
        gguf(0, 0, b""),
        gguf(1, 1 << 63, b""),
        gguf(1, 1, struct.pack("<Q", 1 << 62) + b"name"),
        gguf(1, 1, struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, 8, 1 << 62)),
        gguf(1, 1, struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, 4, 1 << 63)),
        gguf(1, 1, struct.pack("<Q", 1) + b"a" + struct.pack("<I", 77)),
    ],
    ids=[
        "empty",
        "other",
        "version 1",
        "no tensors",
        "pairs",
        "long name",
        "long list",
        "long array",
        "type",
    ],
)
def test_a_broken_gguf_file_is_one_line(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    refused(capsys, tmp_path / "model.gguf", "model.gguf: ")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("http://localhost:8000/v1", "served models are not supported yet"),
        ("https://example.org/model", "served models are not supported yet"),
        ("runs/nowhere", "no such file or folder"),
        ("nowhere-*", "matches no folder"),
        ("a" * 5000, "cannot be read"),
        ("nul\0nul", "no path"),
        ("builtin:nothing", "unknown"),
    ],
)
def test_a_source_that_is_none_is_one_line(
    source: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    refused(capsys, source, said)


@pytest.mark.parametrize("kind", ["bin", "pt", "adapter", "bin of old", "setattr"])
def test_a_pickle_that_wants_to_run_code_is_refused_and_its_wish_named(
    kind: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    marker = tmp_path / "it-ran"
    evil = {"weight": payload(marker)}
    if kind == "pt":
        path = llama_pt(folder / "checkpoint_best.pt", optimizer_state_dict=evil)
        refused(capsys, path, "checkpoint_best.pt: its pickle wants posix.system")
    elif kind == "adapter":
        lora = tmp_path / "lora"
        lora.mkdir()
        text(
            "adapter_config.json", json.dumps({"peft_type": "LORA", "base_model_name_or_path": str(folder)})
        )(lora)
        torch.save(evil, lora / "adapter_model.bin")
        refused(capsys, lora, "adapter_model.bin: its pickle wants posix.system")
    elif kind == "setattr":
        # Puts an attribute on a class that the reader knows; whoever uses that class would run it.
        path = llama_pt(folder / "x.pt")
        rewritten(path, record("data.pkl", b"\x80\x02ccollections\nOrderedDict\n}X\x01\x00\x00\x00aNsb."))
        refused(capsys, path, "x.pt: its pickle wants attributes")
    else:
        (folder / "model.safetensors").unlink()
        old = kind == "bin of old"
        torch.save(evil, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not old)
        if old:
            message = load_fault(folder)
            assert "its pickle wants posix.system, which may run code" in message
        else:
            refused(capsys, folder, "pytorch_model.bin: its pickle wants posix.system")
    assert not marker.exists()


def load_fault(folder: Path) -> str:
    (info,) = recognise(str(folder), seq_len=None)
    with pytest.raises(CheckpointError) as caught:
        load(info, ModelSettings(device="cpu", threads=1))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        '{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}',
        '{"model": {"type": "None"}}',
        '{"version": "1.0", "model": {"type": "WordLevel", "vocab": 3}}',
    ],
)
def test_a_tokenizer_that_is_none_is_one_line_at_load(content: str, folder: Path) -> None:
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    assert "its tokenizer cannot be loaded" in load_fault(folder)


def test_code_beside_a_model_that_transformers_knows_is_not_run(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "it-ran"
    (folder / "modeling_mine.py").write_text(
        f"open({str(marker)!r}, 'w')\nclass Mine: ...\n", encoding="utf-8"
    )
    auto_map = {"AutoConfig": "modeling_mine.Mine", "AutoModelForCausalLM": "modeling_mine.Mine"}
    config(auto_map=auto_map)(folder)
    path = folder / "tokenizer_config.json"
    table = {
        **json.loads(path.read_text(encoding="utf-8")),
        "auto_map": {"AutoTokenizer": ["modeling_mine.Mine", None]},
    }
    path.write_text(json.dumps(table), encoding="utf-8")
    (info,) = recognise(str(folder), seq_len=None)
    with contextlib.suppress(CheckpointError):
        load(info, ModelSettings(device="cpu", threads=1)).close()
    assert not marker.exists()


def test_code_is_run_where_the_user_says_so(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "it-ran"
    code = (
        f"open({str(marker)!r}, 'w')\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class MineConfig(LlamaConfig):\n    model_type = 'mine'\n"
        "class MineForCausalLM(LlamaForCausalLM):\n    config_class = MineConfig\n"
    )
    (folder / "modeling_mine.py").write_text(code, encoding="utf-8")
    auto_map = {
        "AutoConfig": "modeling_mine.MineConfig",
        "AutoModelForCausalLM": "modeling_mine.MineForCausalLM",
    }
    config(auto_map=auto_map, model_type="mine", architectures=["MineForCausalLM"])(folder)
    (info,) = recognise(str(folder), seq_len=None, trust_remote_code=True)
    assert info.trust_remote_code
    load(info, ModelSettings(device="cpu", threads=1)).close()
    assert marker.exists()


@pytest.mark.parametrize(
    "name", ["a petabyte in four bytes", "config cut off", "weights linked from elsewhere"]
)
def test_the_command_itself_ends_with_4_and_one_line(name: str, folder: Path) -> None:
    breaking, said = FOLDERS[name]
    breaking(folder)
    began = time.perf_counter()
    command = [sys.executable, "-m", "harness.cli", "show", str(folder)]
    found = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert time.perf_counter() - began < SOON
    assert found.returncode == 4
    assert said[0] in found.stderr
    assert len(found.stderr.splitlines()) == 1
