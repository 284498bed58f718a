"""Texts by a vLLM that the run starts: who writes them, what each side is asked, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo, resolve
from pytest_touchstone.checkpoints.formats.base import CheckpointResources
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Generate, GenerateAnswer, Loglikelihood
from pytest_touchstone.engines.registry import EnginePool, VllmTextsPool, choose_text_engine
from pytest_touchstone.engines.settings import ModelSettings, Texts
from pytest_touchstone.engines.transformers import TransformersFactory, causal
from tests.support.engines import engine_for
from tests.support.lines import naming
from tests.support.model_server import gone, install, starts

SETTINGS = ModelSettings(device="cpu", threads=1)

ASKED = (Generate("one two", max_new_tokens=4), Loglikelihood("one", " two"), Generate("a", max_new_tokens=3))


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The notes of a small server called vllm on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    found = install(folder, "vllm")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("MODEL_SERVER_NOTES", str(found))
    return found


@pytest.fixture
def info(whole: Path) -> CheckpointInfo:
    (found,) = resolve(str(whole), seq_len=None)
    return found


def opened(info: CheckpointInfo, run: CheckpointResources) -> Any:
    return VllmTextsPool(SETTINGS, "--seed 7", run).engine(info)


def test_the_server_writes_texts_and_this_process_scores(
    notes: Path, info: CheckpointInfo, tmp_path: Path
) -> None:
    own = TransformersFactory().open(info, SETTINGS)
    passed: dict[int, Any] = {}
    with CheckpointResources(logs=tmp_path) as run:
        engine = opened(info, run)
        answers = engine.answer(ASKED, passed.__setitem__)
        assert passed == dict(enumerate(answers))
        assert answers[1] == own.answer(ASKED[1:2])[0]
        assert all(isinstance(answers[at], GenerateAnswer) for at in (0, 2))
        (start,) = starts(notes)
        given = start["arguments"]
        assert given[:6] == [
            "serve",
            str(info.path),
            "--max-model-len",
            str(info.seq_len),
            "--dtype",
            "float32",
        ]
        assert given[-2:] == ["--seed", "7"]
        assert 0 < float(given[given.index("--gpu-memory-utilization") + 1]) < 0.5
        usage = engine.usage
        assert usage["requests"] > 0
        assert sum("vLLM" in note and "writes the texts" in note for note in usage["notes"]) == 1
        assert engine.progress().tokens >= usage["prompt_tokens"] + usage["completion_tokens"]
        assert engine.too_long([Loglikelihood("one " * 500, " two")]) == [0]
        engine.check()
        engine.close()
        assert gone(start["pids"], 0)


def test_a_server_ends_where_the_weights_cannot_be_loaded(
    notes: Path, info: CheckpointInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: CheckpointInfo) -> Any:
        raise CheckpointError("no weights")

    monkeypatch.setattr(EnginePool, "_opener", lambda _pool, _info: broken)
    with (
        CheckpointResources() as run,
        pytest.raises(CheckpointError, match=r"^--eval-set texts=vllm: no weights$"),
    ):
        opened(info, run)
    (start,) = starts(notes)
    assert gone(start["pids"], 0)


def test_a_server_that_does_not_start_is_an_error_of_one_line(
    notes: Path, info: CheckpointInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_SERVER_FAULT", "dies")
    with (
        CheckpointResources() as run,
        pytest.raises(CheckpointError, match=r"--eval-set texts=vllm: .*last words") as caught,
    ):
        opened(info, run)
    assert "\n" not in str(caught.value)


def by(wanted: str, infos: Sequence[CheckpointInfo], *, alone: bool = True, cuda: bool = True) -> str | None:
    return choose_text_engine(wanted, lambda: infos, alone=alone, cuda=cuda)


@pytest.mark.usefixtures("notes")
def test_vllm_writes_texts_on_cuda_by_itself_and_elsewhere_where_it_is_asked_for(
    info: CheckpointInfo,
) -> None:
    masked, file = replace(info, kind="masked"), replace(info, format="gguf")
    assert by("auto", [info, masked]) == by("vllm", [info], cuda=False) == "vllm"
    assert by("own", [info]) is by("auto", [info], cuda=False) is by("auto", [info], alone=False) is None
    assert by("auto", [info, file]) is by("auto", [masked]) is None
    for infos, alone, why in (
        ([info, file], True, file.source),
        ([masked], True, "no checkpoint"),
        ([info], False, ""),
    ):
        with pytest.raises(
            CheckpointError, match=f"--eval-set texts=vllm: .*{why}.*give --eval-set texts=own"
        ):
            by("vllm", infos, alone=alone)


def test_without_vllm_this_process_writes_the_texts(
    info: CheckpointInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert by("auto", [info]) is None
    with (
        CheckpointResources() as run,
        pytest.raises(CheckpointError, match=naming("vllm", "PATH", "install")),
    ):
        opened(info, run)


def test_on_cuda_a_note_says_that_vllm_is_not_there(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = engine_for(whole)
    engine.answer(ASKED[:1])
    assert engine.notes == []
    monkeypatch.setattr(causal, "VLLM_ON", {"cpu"})
    asked: tuple[tuple[Texts, int], ...] = (("auto", 1), ("own", 0))
    for texts, told in asked:
        engine = engine_for(whole, texts=texts)
        engine.answer(ASKED[:1])
        assert sum(causal.NO_VLLM in note for note in engine.notes) == told
