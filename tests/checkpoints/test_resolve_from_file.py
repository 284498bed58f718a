"""A text in a checkpoint's files never makes this process speak to anybody but the Hub."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.cli import main
from pytest_touchstone.core.errors import CheckpointError
from tests.support.lines import naming


class Ear:
    """A socket that keeps the first bytes of everything that connects."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.heard: list[bytes] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                self.heard.append(connection.recv(4096))


@pytest.fixture
def ear() -> Iterator[Ear]:
    listening = Ear()
    yield listening
    listening.socket.close()


def adapter(folder: Path, base: str) -> Path:
    folder.mkdir(parents=True)
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": base}))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    tensors = {name.format("A"): np.ones((2, 4), "float32"), name.format("B"): np.ones((4, 2), "float32")}
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


@pytest.mark.parametrize(
    "base",
    [
        "http://127.0.0.1:{port}/x",
        "HTTP://127.0.0.1:{port}/x",
        "http://127.0.0.1:{port}/v1?model=m&tokenizer=t",
        "https://127.0.0.1:{port}/x",
        "vllm:/anything",
        "llama-server:/anything.gguf",
        "fake:causal",
        "hub:http://127.0.0.1:{port}",
        "file://127.0.0.1/x",
    ],
)
def test_an_address_or_an_engine_in_a_file_is_refused_and_nothing_connects(
    base: str,
    ear: Ear,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-key-that-nobody-may-hear")
    folder = adapter(tmp_path / "a", base.format(port=ear.port))
    assert main(["checkpoint", "show", str(folder)]) == 4
    assert naming("its base model", "--eval-base-model PATH").search(capsys.readouterr().err)
    assert ear.heard == []


def test_what_a_person_names_may_be_anything(ear: Ear, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a", "org/name")
    with pytest.raises(CheckpointError, match=naming("'fake:causal'", "--eval-base-model PATH")):
        resolve(str(folder), seq_len=None, base_model="fake:causal")


def test_a_pattern_or_a_folder_of_checkpoints_in_a_file_is_not_expanded(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    inner = adapter(runs / "checkpoint-1", str(runs))
    for base in (str(runs), f"{tmp_path}/*", str(inner)):
        folder = adapter(tmp_path / f"outer{len(base)}", base)
        with pytest.raises(CheckpointError):
            resolve(str(folder), seq_len=None)
    with pytest.raises(CheckpointError):
        resolve(str(inner), seq_len=None)


@pytest.mark.parametrize("base", ["x" * 5000, "~nobody-of-this-name/x", "a\0b", "../" * 2000])
def test_a_name_that_no_file_can_have_is_one_line(base: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        resolve(str(adapter(tmp_path / "a", base)), seq_len=None)
    assert "\n" not in str(caught.value)


def test_an_adapter_on_the_hub_that_names_itself_is_no_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = adapter(tmp_path / "a", "org/name")
    asked = []

    def download(name: str, **_: object) -> str:
        asked.append(name)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(CheckpointError, match=naming("'org/name'", "--eval-base-model PATH")):
        resolve(str(folder), seq_len=None)
    assert asked == ["org/name"]
