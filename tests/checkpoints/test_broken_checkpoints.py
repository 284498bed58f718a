"""Broken and malicious checkpoints: one line that names the file and the fault, exit code 4, soon, and no code runs."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.cli import main
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from tests.support.breaking import FOLDERS, GGUF, PT_FILES, config, record, rewritten, text
from tests.support.forking import python
from tests.support.lines import naming
from tests.support.places import ROOT
from tests.support.pt_files import llama_pt, payload

SOON = 5.0
"""Seconds."""


def refused(capsys: pytest.CaptureFixture[str], path: Path | str, *said: str) -> str:
    """What ``touchstone checkpoint show`` says of it: one line, exit code 4, soon."""
    began = time.process_time()
    code = main(["checkpoint", "show", str(path)])
    seconds = time.process_time() - began
    shown = capsys.readouterr()
    assert code == 4, shown.out
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    for words in said:
        assert words in line
    assert ";" in line, "it says what to do"
    assert seconds < SOON
    return line


@pytest.mark.parametrize("name", FOLDERS)
def test_a_broken_folder_is_one_line(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    breaking, said = FOLDERS[name]
    breaking(folder)
    refused(capsys, folder, folder.name, *said)


@pytest.mark.parametrize("name", PT_FILES)
def test_a_broken_pt_file_is_one_line(
    name: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = llama_pt(tmp_path / "checkpoint_best.pt")
    shutil.copy(whole / "tokenizer.json", tmp_path)
    assert resolve(str(path), seq_len=None)[0].format == "mtp"
    breaking, said = PT_FILES[name]
    breaking(path)
    refused(capsys, path, "checkpoint_best.pt", *said)


@pytest.mark.parametrize("name", GGUF)
def test_a_broken_gguf_file_is_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.gguf").write_bytes(GGUF[name])
    refused(capsys, tmp_path / "model.gguf", "model.gguf: ")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("ftp://h/model", "builtin:, fake:, http://, https://, hub:, llama-server:, sglang:, vllm:"),
        ("http://127.0.0.1:9/v1", "start the server, or check the address"),
        ("https://", "no address of a server; write http://HOST:PORT/v1"),
        ("runs/nowhere", "no such file or folder"),
        ("foo:bar", "nothing here takes 'foo:'"),
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
            assert naming("pickle", "posix.system").search(load_fault(folder))
        else:
            refused(capsys, folder, "pytorch_model.bin: its pickle wants posix.system")
    assert not marker.exists()


def load_fault(folder: Path) -> str:
    (info,) = resolve(str(folder), seq_len=None)
    with pytest.raises(CheckpointError) as caught:
        open_engine(info, ModelSettings(device="cpu", threads=1))
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
    (info,) = resolve(str(folder), seq_len=None)
    with contextlib.suppress(CheckpointError):
        open_engine(info, ModelSettings(device="cpu", threads=1)).close()
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
    (info,) = resolve(str(folder), seq_len=None, trust_remote_code=True)
    assert info.trust_remote_code
    open_engine(info, ModelSettings(device="cpu", threads=1)).close()
    assert marker.exists()


@pytest.mark.parametrize(
    "name", ["a petabyte in four bytes", "config cut off", "weights linked from elsewhere"]
)
def test_the_command_itself_ends_with_4_and_one_line(name: str, folder: Path) -> None:
    breaking, said = FOLDERS[name]
    breaking(folder)
    began = time.perf_counter()
    command = [python(), "-m", "pytest_touchstone.cli", "checkpoint", "show", str(folder)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert time.perf_counter() - began < SOON
    assert found.returncode == 4
    assert said[0] in found.stderr
    assert len(found.stderr.splitlines()) == 1
