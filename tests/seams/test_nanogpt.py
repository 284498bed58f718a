"""The example of a format for files of nanoGPT scores them as plain torch does; without it they are refused by name."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import fingerprint
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.hooks import load_plugins
from pytest_touchstone.core.requests import Generate, Loglikelihood, Request
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import TransformersFactory
from tests.support.installed import install_package
from tests.support.nanogpt_files import ARGS, plain_logits, random_state, save_characters, save_nanogpt
from tests.support.resolved import only
from tests.support.tiny import bytelevel_tokenizer


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(install_package(tmp_path / "site", "nanogpt_checkpoints")))
    importlib.invalidate_caches()
    load_plugins.cache_clear()
    yield
    load_plugins.cache_clear()


def answers(path: Path) -> list[Any]:
    asked: list[Request] = [
        Loglikelihood("The answer", " is 42."),
        Generate("She said", stop=("\n",), max_new_tokens=8),
    ]
    engine = TransformersFactory().open(only(path), ModelSettings(device="cpu", threads=1))
    made = list(engine.answer(asked))
    engine.close()
    return made


def test_without_the_package_a_file_is_refused_by_name(tmp_path: Path) -> None:
    path = save_nanogpt(tmp_path / "ckpt.pt", random_state(ARGS), ARGS)
    with pytest.raises(CheckpointError, match=r"nanoGPT; install .*nanogpt_checkpoints"):
        only(path)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("bias", "prefix"), [(True, ""), (False, "_orig_mod.")])
def test_a_file_scores_as_plain_torch_does(bias: bool, prefix: str, tmp_path: Path) -> None:
    args = {**ARGS, "bias": bias}
    state = random_state(args)
    wrapped = {prefix + name: tensor for name, tensor in state.items()}
    path = save_nanogpt(tmp_path / "out" / "ckpt.pt", wrapped, args)
    tokenizer = bytelevel_tokenizer()
    tokenizer.save_pretrained(path.parent)
    ids = tokenizer("The answer is 42.")["input_ids"]
    start = len(tokenizer("The answer")["input_ids"])
    logits = plain_logits(state, args, ids).log_softmax(-1)
    wanted = sum(float(logits[at - 1, ids[at]]) for at in range(start, len(ids)))
    assert answers(path)[0].logprob == pytest.approx(wanted, abs=1e-4)
    info = only(path)
    assert (info.format, info.seq_len, info.training.global_step) == ("nanogpt", 64, 250)
    before = fingerprint(info)
    save_nanogpt(path, state, args, optimizer={}, iter_num=500)
    assert fingerprint(only(path)) == before


@pytest.mark.usefixtures("installed")
def test_a_model_of_characters_reads_and_writes_characters(tmp_path: Path) -> None:
    characters = "".join(sorted(set("\nThe answer is 42. She said")))
    args = {**ARGS, "vocab_size": len(characters)}
    state = random_state(args)
    path = save_nanogpt(save_characters(tmp_path / "out", characters) / "ckpt.pt", state, args)
    ids = [characters.index(one) for one in "The answer is 42."]
    logits = plain_logits(state, args, ids).log_softmax(-1)
    wanted = sum(float(logits[at - 1, ids[at]]) for at in range(len("The answer"), len(ids)))
    score, text = answers(path)
    assert score.logprob == pytest.approx(wanted, abs=1e-4)
    assert set(text.text) <= set(characters)
