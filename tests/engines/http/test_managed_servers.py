"""Servers that are started for a run: found, started, waited for, and ended whatever happens."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo, resolve
from pytest_touchstone.checkpoints.fingerprint import WEAK
from pytest_touchstone.checkpoints.formats.base import CheckpointResources
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.keys import redact_value
from pytest_touchstone.core.requests import Generate, Loglikelihood
from pytest_touchstone.engines.http import managed_servers, parent_watch
from pytest_touchstone.engines.http.managed_servers import ManagedServer, free_port
from pytest_touchstone.engines.registry import identity
from tests.support.gguf_files import model_keys, write
from tests.support.lines import naming
from tests.support.model_server import gone, install, starts

STARTS = """
import sys, time
from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.checkpoints.formats.base import CheckpointResources

with CheckpointResources() as lasting:
    resolve(sys.argv[1], seq_len=None, lasting=lasting)
    print("started", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The notes of a small server called vllm on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    found = install(folder, "vllm")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("MODEL_SERVER_NOTES", str(found))
    monkeypatch.setenv("TMPDIR", str(folder))  # for the logs of processes that are killed
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that only the server knows to be a model."""
    folder = tmp_path / "model"
    folder.mkdir()
    return folder


def started(source: str, lasting: CheckpointResources | None, seq_len: int | None = None) -> CheckpointInfo:
    (info,) = resolve(source, seq_len=seq_len, lasting=lasting)
    return info


def test_a_server_is_started_asked_and_ended_with_all_that_it_has_started(
    notes: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdef")
    with CheckpointResources(logs=tmp_path) as lasting:
        info = started(f"vllm:{model}?args=--seed 7", lasting, seq_len=512)
        (start,) = starts(notes)
        port = start["arguments"][start["arguments"].index("--port") + 1]
        assert start["arguments"] == (
            [
                "serve",
                str(model),
                "--max-model-len",
                "512",
                "--host",
                "127.0.0.1",
                "--port",
                port,
                "--seed",
                "7",
            ]
        )
        assert start["keys"] is None
        assert (info.name, info.path, info.seq_len, info.serves) == (
            *("model-vllm", model, 512),
            (Loglikelihood, Generate),
        )
        assert (identity(info) or "").startswith(WEAK)
        assert not gone(start["pids"], 0)
    assert gone(start["pids"], 0)
    (log,) = tmp_path.glob("vllm-*.log")
    assert "loading the model" in log.read_text(encoding="utf-8")


def test_sglang_is_started_by_the_python_on_path_that_has_it(notes: Path, model: Path) -> None:
    python = notes.parent / "python3"
    python.write_text(
        f'#!/bin/sh\nif [ "$1" = -c ]; then echo 0.5.9; exit; fi\necho "$1 $2 $3" >{python}.told\nshift 3\n'
        f'exec {notes.parent / "vllm"} serve "$@"\n'
    )
    python.chmod(0o755)
    with CheckpointResources() as lasting:
        info = started(f"sglang:{model}?dtype=bfloat16&args=--tensor-parallel-size 2", lasting, seq_len=512)
        (start,) = starts(notes)
    assert Path(f"{python}.told").read_text() == "-m sglang.launch_server --model-path\n"
    assert start["arguments"][:6] == ["serve", str(model), "--context-length", "512", "--dtype", "bfloat16"]
    assert start["arguments"][-2:] == ["--tensor-parallel-size", "2"]
    assert (info.name, info.served["version"], info.served["child"]) == ("model-sglang", "0.1", "sglang")


def test_the_fingerprint_of_a_server_of_known_weights_is_theirs_and_its_own(notes: Path, whole: Path) -> None:
    with CheckpointResources() as lasting:
        info = started(f"vllm:{whole}", lasting)
        (local,) = resolve(str(whole), seq_len=None)
        assert info.name == f"{local.name}-vllm"
        own, other = identity(info), identity(local)
        assert own is not None
        assert own != other
        assert not own.startswith(WEAK)
        assert own == identity(started(f"vllm:{whole}", lasting))
        assert own != identity(started(f"vllm:{whole}?args=--seed 7", lasting))


def test_a_server_loads_a_file_that_this_process_refuses_and_its_fingerprint_is_of_the_weights(
    notes: Path, tmp_path: Path
) -> None:
    keys = {**model_keys("llama"), "llama.attention.scale": 0.1, "tokenizer.ggml.model": "bert"}
    tensors = {"token_embd.weight": [[0.0] * 64], "blk.0.x": [0.0], "blk.1.x": [0.0]}
    path = write(tmp_path / "x.gguf", keys, tensors)
    with pytest.raises(CheckpointError, match=naming("llama-server", "llama.attention.scale")):
        resolve(str(path), seq_len=None)
    with CheckpointResources() as lasting:
        info = started(f"vllm:{path}", lasting)
        assert not (identity(info) or WEAK).startswith(WEAK)


def test_a_server_that_ends_at_its_start_is_an_error_with_its_last_words(
    notes: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_SERVER_FAULT", "dies")
    with CheckpointResources() as lasting, pytest.raises(CheckpointError) as raised:
        started(f"vllm:{model}", lasting)
    before, _, log = str(raised.value).rpartition(" (all of them: ")
    words = ("loading the model", "RuntimeError: not enough memory")
    assert naming(f"vllm:{model}", "exit code 3", *words).search(before)
    Path(log.removesuffix(")")).unlink()


KEY = "hunter2-of-the-server"


@pytest.mark.parametrize("logs", [True, False])
def test_the_key_of_a_server_is_in_none_of_its_words(logs: bool, tmp_path: Path) -> None:
    words = f"args: api_key={KEY}\n\x1b[31mI ask for {KEY}\x1b[0m at http://me:{KEY}@host/"
    program = f"print({words!r}); exit(3)"
    said: list[str] = []
    with CheckpointResources(said.append, tmp_path if logs else None) as lasting:
        one = ManagedServer("vllm", (sys.executable, "-c", program, "--api-key", KEY), free_port())
        lasting.callback(one.end, lasting)
        with pytest.raises(CheckpointError, match=r"api_key=.* / I ask for") as raised:
            one.wait(lasting)
    text = one.log.read_text(encoding="utf-8")
    one.log.unlink()
    assert KEY not in f"{raised.value} {said} {text}"
    assert "I ask for" in text


@pytest.mark.parametrize(
    "args", [f"--api-key {KEY}", f"--api-key={KEY}", f"--api-key+{KEY}", f"--api-key%20{KEY}"]
)
def test_the_key_in_a_servers_arguments_is_not_described(args: str, notes: Path, model: Path) -> None:
    with CheckpointResources() as lasting:
        info = started(f"vllm:{model}?args={args}", lasting)
        (start,) = starts(notes)
    assert KEY in " ".join(start["arguments"])
    assert KEY not in str(redact_value(info.plain()))
    assert KEY not in str(info.served) + str(info.extra)


def test_a_server_that_does_not_answer_in_time_is_an_error_and_is_ended(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_SERVER_FAULT", "hangs")
    monkeypatch.setattr(managed_servers, "SILENT_SECONDS", 0.1)
    said: list[str] = []
    with CheckpointResources(said.append) as lasting:
        port = free_port()
        one = ManagedServer("vllm", (str(notes.parent / "vllm"), "serve", "x", "--port", str(port)), port)
        lasting.callback(one.end, lasting)
        with pytest.raises(CheckpointError, match=naming("vllm", "2 s")):
            one.wait(lasting, seconds=2)
        (start,) = starts(notes)
    assert gone(start["pids"], 0)
    assert said == [f"vllm is starting; its log: {one.log}"]
    one.log.unlink()


def test_a_server_that_does_not_want_to_end_is_killed_with_helpers_that_have_left_it(
    notes: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_SERVER_FAULT", "stubborn")
    source = Path(parent_watch.__file__).read_text(encoding="utf-8")
    quick = notes.parent / "parent_watch.py"
    quick.write_text(source.replace("GRACE: Final = 10.0", "GRACE: Final = 0.3"), encoding="utf-8")
    monkeypatch.setattr(parent_watch, "__file__", str(quick))
    with CheckpointResources() as lasting:
        started(f"vllm:{model}", lasting)
        (start,) = starts(notes)
    assert gone(start["pids"], 0)


def test_a_server_that_ends_by_itself_is_told_of(notes: Path, model: Path, tmp_path: Path) -> None:
    said: list[str] = []
    with CheckpointResources(said.append, tmp_path) as lasting:
        started(f"vllm:{model}", lasting)
        (start,) = starts(notes)
        subprocess.run(["kill", "-9", str(start["pids"][0])], check=True)
        assert gone(start["pids"])
        time.sleep(0.5)
    assert naming("vllm", "signal 9").search(said[-1])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_does_not_outlive_the_process_that_started_it(
    notes: Path, model: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STARTS, f"vllm:{model}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    (start,) = starts(notes)
    assert not gone(start["pids"], 0)
    process.send_signal(number)
    process.wait()
    process.stdout.close()
    assert gone(start["pids"])


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("vllm:{model}", "no vllm on PATH; install it"),
        ("sglang:{model}", "no sglang in the Python on PATH; install it"),
        ("llama-server:{model}", "no llama-server on PATH, nor llama_cpp.server in the Python there"),
        ("vllm:nowhere", "nowhere: no such file or folder"),
        ("llama-server:{whole}", "is no GGUF file, which is all that llama.cpp takes"),
        ("vllm:{model}?argss=1", "no option 'argss'"),
    ],
)
def test_what_cannot_be_started_is_said_in_one_line(
    source: str, why: str, *, model: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(model))
    with CheckpointResources() as lasting, pytest.raises(CheckpointError) as raised:
        started(source.format(model=model, whole=whole), lasting)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


def test_nothing_is_started_where_nobody_would_end_it(notes: Path, model: Path) -> None:
    with pytest.raises(CheckpointError, match=naming(f"the checkpoint {model}")):
        started(f"vllm:{model}", None)
    assert starts(notes) == []
