"""The causal engine against a plain forward pass for each request by itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import (
    FillMask,
    Generate,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
    Request,
    RollingAnswer,
    RollingLoglikelihood,
    earliest_stop,
)
from pytest_touchstone.engines.base import SLOW_WAYS
from pytest_touchstone.engines.fake import FakeEngine
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.devices import BatchBudget, choose_device, worker_number
from pytest_touchstone.engines.transformers.scoring import batches
from pytest_touchstone.engines.transformers.token_work import TokenWork, windows
from tests.support.engines import DEVICE
from tests.support.lines import naming
from tests.support.references import plain_answer
from tests.support.tiny import CORPUS, bytelevel_tokenizer, tiny_causal

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "gpt2": {},
    "gpt_neox": {},
    "gemma2": {"head_dim": 8, "final_logit_softcapping": 3.0, "sliding_window": 8},
    "mistral": {"sliding_window": 8},
    "qwen2": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    "opt": {"word_embed_proj_dim": 32, "ffn_dim": 64},
    "cohere": {"logit_scale": 0.25},
}


def some_requests() -> list[Loglikelihood]:
    words = [text.split(" ") for text in CORPUS]
    return [
        Loglikelihood(" ".join(parts[:cut]), " " + " ".join(parts[cut:])[:40])
        for parts in words
        for cut in (0, 1, len(parts) // 2, len(parts) - 1)
    ]


def engine_for(folder: Path, *, seq_len: int | None = None, batch: int | None = None) -> CausalEngine:
    (info,) = resolve(str(folder), seq_len=seq_len)
    engine = open_engine(info, ModelSettings(device=DEVICE, batch=batch, threads=1))
    assert isinstance(engine, CausalEngine)
    return engine


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_causal(tmp_path_factory.mktemp("llama") / "c")


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_a_plain_forward(family: str, tmp_path: Path) -> None:
    folder = tiny_causal(tmp_path / "c", model_type=family, **FAMILIES[family])
    engine = engine_for(folder, batch=8)
    assert engine._needed.gathers
    requests = some_requests()[::3]
    for request, answer in zip(requests, engine.answer(requests), strict=True):
        wanted = plain_answer(folder, request)
        assert isinstance(answer, LoglikelihoodAnswer)
        assert answer.logprob == pytest.approx(wanted.logprob, abs=1e-4)
        assert (answer.is_greedy, answer.tokens) == (wanted.is_greedy, wanted.tokens)
    engine.close()


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_scores_do_not_depend_on_batch_or_order(family: str, tmp_path: Path) -> None:
    folder = tiny_causal(tmp_path / "c", model_type=family, **FAMILIES[family])
    requests = some_requests()
    alone = engine_for(folder, batch=1).answer(requests)
    order = list(range(len(requests)))
    random.Random(3).shuffle(order)
    for batch in (32, None):
        shuffled = engine_for(folder, batch=batch).answer([requests[index] for index in order])
        for index, answer in zip(order, shuffled, strict=True):
            assert isinstance(answer, LoglikelihoodAnswer)
            assert answer.logprob == pytest.approx(alone[index].logprob, abs=1e-4)  # type: ignore[union-attr]


def test_full_logits_are_used_when_the_head_needs_the_whole_batch(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from pytest_touchstone.engines.transformers.logits import SelectiveLogits

    requests = some_requests()[:4]
    wanted = engine_for(llama).answer(requests)
    plain = torch.nn.Linear.forward

    def uneven(self: Any, hidden: Any) -> Any:
        return (
            plain(self, hidden)
            + (0 if hidden.shape[1] >= 5 or self.out_features < 100 else 1.0) * hidden.sum()
        )

    monkeypatch.setattr(torch.nn.Linear, "forward", uneven)
    engine = engine_for(llama, batch=4)
    assert not engine._needed.gathers
    monkeypatch.undo()
    assert isinstance(engine._needed, SelectiveLogits)
    for answer, expected in zip(engine.answer(requests), wanted, strict=True):
        assert answer.logprob == pytest.approx(expected.logprob, abs=1e-4)  # type: ignore[union-attr]
    (told,) = engine.usage["slow"]
    assert (told["way"], told["computed"]) == ("logits", engine.work_done.computed)
    assert told["enough"] == engine.work_done.logits
    (note,) = engine.notes
    assert naming(llama, SLOW_WAYS["logits"][0], told["reason"]).search(note)


def test_a_long_context_is_cut_from_the_left(llama: Path) -> None:
    request = Loglikelihood(" ".join(CORPUS[:2]), " a checkpoint")
    (answer,) = engine_for(llama, seq_len=16).answer([request])
    wanted = plain_answer(llama, request, seq_len=16)
    assert isinstance(answer, LoglikelihoodAnswer)
    assert answer.logprob == pytest.approx(wanted.logprob, abs=1e-4)
    assert answer.truncated == wanted.truncated > 0


def test_what_cannot_be_answered_is_refused_in_its_place(llama: Path) -> None:
    engine = engine_for(llama, seq_len=16)
    answers = engine.answer(
        [
            Loglikelihood("the", ""),
            Loglikelihood("the", " answer"),
            Loglikelihood("the", CORPUS[0] * 3),
            FillMask("a [MASK]"),
            RollingLoglikelihood(""),
        ]
    )
    assert [isinstance(answer, Refusal) for answer in answers] == [True, False, True, True, True]
    assert engine.answer([]) == []


@pytest.mark.parametrize("seq_len", [8, 100])
def test_a_rolling_text_is_scored_token_by_token(llama: Path, seq_len: int) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    text = CORPUS[0]
    (answer,) = engine_for(llama, seq_len=seq_len).answer([RollingLoglikelihood(text)])
    tokenizer = bytelevel_tokenizer()
    ids = tokenizer.encode(text, add_special_tokens=False)
    model = AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32).eval()
    total = 0.0
    end = 0
    while end < len(ids):
        begin, end = end, min(len(ids), end + seq_len)
        inputs = [tokenizer.bos_token_id, *ids[: end - 1]] if begin == 0 else ids[end - seq_len - 1 : end - 1]
        with torch.no_grad():
            rows = (
                model(torch.tensor([inputs], device=model.device)).logits[0].log_softmax(-1)[-(end - begin) :]
            )
        total += sum(float(row[token]) for row, token in zip(rows, ids[begin:end], strict=True))
    assert isinstance(answer, RollingAnswer)
    assert answer.tokens == len(ids)
    assert answer.logprob == pytest.approx(total, abs=1e-3)


@given(length=st.integers(1, 70), seq_len=st.integers(1, 20))
def test_windows_predict_every_token_once_from_its_left_neighbour(length: int, seq_len: int) -> None:
    tokens = list(range(1, length + 1))
    predicted: list[int] = []
    for window in windows(tokens, 0, seq_len):
        assert len(window.inputs) <= seq_len
        begin = len(window.inputs) - len(window.targets)
        assert all(
            token == before + 1 for before, token in zip(window.inputs[begin:], window.targets, strict=True)
        )
        predicted += window.targets
    assert predicted == tokens


@given(
    lengths=st.lists(st.integers(1, 50), max_size=40),
    size=st.none() | st.integers(1, 9),
    most=st.integers(1, 300),
)
def test_batches_hold_every_sequence_once_within_the_budget(
    lengths: list[int], size: int | None, most: int
) -> None:
    works = [TokenWork(tuple(range(length)), (0,)) for length in lengths]
    made = list(batches(works, BatchBudget(most, 70, vocabulary=10, batch=size)))
    assert sorted(index for batch in made for index in batch) == list(range(len(works)))
    for batch in made:
        longest = max(lengths[index] for index in batch)
        assert len(batch) <= size if size else len(batch) == 1 or longest * len(batch) <= most
        assert size is not None or len(batch) <= 7


def test_workers_are_numbered_and_cpu_is_always_there() -> None:
    assert [worker_number({"PYTEST_XDIST_WORKER": name}) for name in ("gw3", "")] == [3, 0]
    assert choose_device("cpu").type == "cpu"


def test_half_precision_is_loaded_when_asked(llama: Path) -> None:
    import torch

    (info,) = resolve(str(llama), seq_len=None)
    engine = open_engine(info, ModelSettings(device=DEVICE, dtype="bfloat16", threads=1))
    assert isinstance(engine, CausalEngine)
    assert engine.loaded.model.dtype is torch.bfloat16
    (answer,) = engine.answer([Loglikelihood("the", " answer")])
    (exact,) = engine_for(llama).answer([Loglikelihood("the", " answer")])
    assert answer.logprob == pytest.approx(exact.logprob, abs=0.5)  # type: ignore[union-attr]


def test_the_fake_engine_answers_the_same_every_time() -> None:
    requests: list[Request] = [
        Loglikelihood("a", " b c"),
        RollingLoglikelihood("a b"),
        FillMask("x"),
        Loglikelihood("a", ""),
        Generate("a b", max_new_tokens=5),
        Generate("a", max_new_tokens=0),
    ]
    (info,) = resolve("fake:causal", seq_len=None)
    engine = open_engine(info, ModelSettings())
    assert isinstance(engine, FakeEngine)
    first, second = engine.answer(requests), FakeEngine(info).answer(requests[::-1])[::-1]
    assert first == second
    assert [type(answer).__name__ for answer in first] == [
        "LoglikelihoodAnswer",
        "RollingAnswer",
        "Refusal",
        "Refusal",
        "GenerateAnswer",
        "Refusal",
    ]
    engine.close()


def test_the_fake_engine_generates_as_it_is_asked() -> None:
    (info,) = resolve("fake:causal", seq_len=None)
    engine = FakeEngine(info)
    how: dict[str, Any] = {"max_new_tokens": 30, "samples": 20}
    plain = Generate("a b c", temperature=1.0, **how)
    answers = engine.answer(
        [plain, Generate("a b c", stop=("\n", "house"), temperature=1.0, **how), Generate("a b c", **how)]
    )
    whole, cut, greedy = (
        [(one.text, one.finish_reason, one.tokens) for one in answer.samples]  # type: ignore[union-attr]
        for answer in answers
    )
    assert {reason for _, reason, _ in whole} == {"eos", "length"}
    assert len(set(greedy)) == 1
    assert len(set(whole)) == 20
    for (text, reason, tokens), (short, why, fewer) in zip(whole, cut, strict=True):
        at = earliest_stop(text, ("\n", "house"))
        assert (short, why) == ((text, reason) if at is None else (text[:at], "stop"))
        assert fewer <= tokens <= 30


def test_the_fake_masked_engine_ranks_its_words() -> None:
    (info,) = resolve("fake:masked", seq_len=None)
    (answer, two) = FakeEngine(info).answer([FillMask("a [MASK]", 5, "학교"), FillMask("[MASK] [MASK]")])
    logprobs = [candidate.logprob for candidate in answer.candidates]  # type: ignore[union-attr]
    assert logprobs == sorted(logprobs, reverse=True)
    assert len(logprobs) == 5
    assert isinstance(two, Refusal)
