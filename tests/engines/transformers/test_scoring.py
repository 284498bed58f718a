"""Scores with shared prefixes computed once, against those of every sequence by itself."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import Answer, Loglikelihood, Refusal, Request, RollingLoglikelihood
from pytest_touchstone.engines.base import SLOW_WAYS
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import Dtype, ModelSettings
from pytest_touchstone.engines.transformers import split_attention
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.kv_cache import KeyValues, PrefixCache
from pytest_touchstone.engines.transformers.split_attention import additive_mask, attention_of
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
from tests.support.engines import DEVICE, ON_CPU, engine_for
from tests.support.families import CAUSAL, MAMBA, SEQ_LEN, SHOTS, causal_of
from tests.support.references import plain_answer
from tests.support.tiny import CORPUS, tiny_causal


def questions() -> list[Request]:
    asked: list[Request] = []
    for text in CORPUS:
        words = text.split(" ")
        context = f"{SHOTS}\n\n{' '.join(words[:4])}"
        asked += [Loglikelihood(context, f" {choice}") for choice in ("the answer", "the river", "학교", "a")]
    # Without the shots, a prefix of another request, and one twice.
    asked += [Loglikelihood("The", " quick"), Loglikelihood(SHOTS[:50], SHOTS[50:80]), asked[0]]
    return asked


def logprobs(answers: list[Answer | Refusal]) -> list[float]:
    return [answer.logprob for answer in answers]  # type: ignore[union-attr]


def one_by_one(engine: CausalEngine, requests: list[Request]) -> list[Answer | Refusal]:
    """Each request by itself, in the plain way."""
    alone = CausalEngine(engine.info, engine.loaded, together=False)
    return [alone.answer([request])[0] for request in requests]


@pytest.mark.parametrize("family", CAUSAL)
def test_scores_are_those_of_every_sequence_by_itself(family: str, tmp_path: Path) -> None:
    engine = engine_for(causal_of(tmp_path, family))
    assert engine.shares
    assert engine.notes == []
    requests = questions()
    found, wanted = engine.answer(requests), one_by_one(engine, requests)
    assert logprobs(found) == pytest.approx(logprobs(wanted), abs=1e-4)
    assert [answer.is_greedy for answer in found] == [  # type: ignore[union-attr]
        answer.is_greedy  # type: ignore[union-attr]
        for answer in wanted
    ]


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 0.05), ("bfloat16", 0.5)])
def test_half_precision_scores_are_as_near_as_their_type_allows(
    family: str, dtype: Dtype, tolerance: float, tmp_path: Path
) -> None:
    engine = engine_for(causal_of(tmp_path, family), dtype=dtype)
    assert engine.shares
    requests = questions()
    assert logprobs(engine.answer(requests)) == pytest.approx(
        logprobs(one_by_one(engine, requests)), abs=tolerance
    )


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2"])
def test_scores_do_not_depend_on_company_order_or_batch(family: str, tmp_path: Path) -> None:
    folder = causal_of(tmp_path, family)
    requests = questions()
    wanted = logprobs(engine_for(folder).answer(requests))
    for batch in (None, 1, 3):
        engine = engine_for(folder, batch=batch)
        order = list(range(len(requests)))
        for seed in range(3):
            random.Random(seed).shuffle(order)
            part = order[: 5 + 8 * seed]
            found = logprobs(engine.answer([requests[index] for index in part]))
            assert found == pytest.approx([wanted[index] for index in part], abs=1e-4)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_both_kinds_of_attention_give_the_same(attention: str, llama: Path) -> None:
    engine = engine_for(llama)
    wanted = logprobs(engine.answer(questions()))
    engine.loaded.model.set_attn_implementation(attention)
    assert logprobs(engine.answer(questions())) == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(("room", "saving"), [(1, 0), (20, 0), (60, 30), (10**6, 10**6)])
def test_scores_do_not_depend_on_how_the_tree_is_cut(room: int, saving: int, llama: Path) -> None:
    engine = engine_for(llama)
    wanted = logprobs(engine.answer(questions()))
    assert engine._shared is not None
    engine._shared._room, engine._shared._saving = room, saving
    engine._shared._kept.clear()
    assert logprobs(engine.answer(questions())) == pytest.approx(wanted, abs=1e-4)


def test_a_shared_prefix_is_computed_once_and_kept(llama: Path) -> None:
    engine = engine_for(llama)
    requests = questions()[:28]  # all with the shots
    engine.answer(requests)
    first = engine.work_done.computed - engine.work_done.padded
    assert first < 1.2 * engine.work_done.distinct
    assert engine.work_done.padded < 0.1 * engine.work_done.computed
    engine.answer(requests)  # finds that the shots come again, and keeps them
    engine.work_done.reset()
    engine.answer(requests)
    shots = len(TextTokenizer(engine.loaded.tokenizer).text(SHOTS))  # type: ignore[arg-type]
    assert engine.work_done.computed - engine.work_done.padded <= first - shots + 2


def test_the_prefix_of_items_asked_one_by_one_is_computed_once(llama: Path) -> None:
    engine = engine_for(llama)
    requests = questions()[:24]
    wanted = logprobs(one_by_one(engine, requests))
    engine.work_done.reset()
    found = [answer for at in range(0, 24, 4) for answer in engine.answer(requests[at : at + 4])]
    assert logprobs(found) == pytest.approx(wanted, abs=1e-4)
    shots = len(TextTokenizer(engine.loaded.tokenizer).text(SHOTS))  # type: ignore[arg-type]
    assert engine.work_done.computed < 3.5 * shots + sum(4 * 20 for _ in range(6))


def test_a_long_text_is_scored_in_parts(llama: Path) -> None:
    engine = engine_for(llama)
    requests: list[Request] = [RollingLoglikelihood(" ".join(CORPUS)), RollingLoglikelihood(CORPUS[0])]
    wanted = logprobs(one_by_one(engine, requests))
    engine.budget.tokens = 50
    assert logprobs(engine.answer(requests)) == pytest.approx(wanted, abs=1e-3)
    assert engine.work_done.computed > 0


def test_a_model_that_ignores_masks_is_scored_one_a_row(
    llama: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from transformers.models.llama import modeling_llama

    wanted = logprobs(engine_for(llama).answer(questions()))
    plain = modeling_llama.LlamaAttention.forward

    def heedless(self: Any, *args: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
        return plain(self, *args, attention_mask=None, **kwargs)

    monkeypatch.setattr(modeling_llama.LlamaAttention, "forward", heedless)
    with caplog.at_level(logging.WARNING, logger="pytest_touchstone"):
        engine = engine_for(llama)
        assert not engine.shares
        engine.answer(questions())
        assert logprobs(engine.answer(questions())) == pytest.approx(wanted, abs=1e-4)
    assert len(engine.notes) == 1
    assert SLOW_WAYS["scoring"][0] in engine.notes[0]
    assert [record.getMessage() for record in caplog.records] == engine.notes
    asked = 2 * sum(len(work.inputs) for request in questions() for work in engine._plans([request])[0].work)  # type: ignore[union-attr, misc]
    (told,) = engine.usage["slow"]
    assert (told["way"], told["computed"]) == ("scoring", asked)
    assert told["enough"] == engine.work_done.distinct < asked / 4


def test_a_model_without_a_cache_that_can_be_shared_is_scored_one_a_row(tmp_path: Path) -> None:
    folder = tiny_causal(tmp_path / "c", seq_len=SEQ_LEN, **MAMBA)
    (info,) = resolve(str(folder), seq_len=SEQ_LEN)
    engine = open_engine(info, ModelSettings(device=DEVICE, threads=1))
    assert isinstance(engine, CausalEngine)
    assert not engine.shares
    assert len(engine.notes) == 1
    request = Loglikelihood(CORPUS[0], " the answer")
    (answer,) = engine.answer([request])
    assert answer.logprob == pytest.approx(plain_answer(folder, request, SEQ_LEN).logprob, abs=1e-4)  # type: ignore[union-attr]


def test_models_that_attend_in_ways_of_their_own_are_told(llama: Path) -> None:
    model = engine_for(llama)._model
    config = model.config
    assert not isinstance(attention_of(model), str)
    for name, value in (
        ("attention_chunk_size", 8),
        ("layer_types", ["chunked_attention"]),
        ("rope_parameters", {"rope_type": "dynamic"}),
    ):
        before = getattr(config, name, None)
        setattr(config, name, value)
        assert isinstance(attention_of(model), str)
        setattr(config, name, before)
    config._attn_implementation = "flash_attention_2"
    assert isinstance(attention_of(model), str)


def test_a_window_counts_positions_and_not_columns() -> None:
    import torch

    # Columns: a run of two tokens at positions 2 and 3, then a branch at 3 that does not see column 1.
    mask = additive_mask(
        torch.tensor([[3, 2, 3]]), positions=torch.tensor([[2, 3, 3]]), past=2, window=3, dtype=torch.float32
    )
    assert (mask[0, 0] == 0).tolist() == [
        [True, True, True, False, False],
        [False, True, True, True, False],
        [False, True, True, False, True],
    ]


def test_kept_prefixes_are_found_by_their_tokens_and_bounded() -> None:
    import torch

    def made(tokens: tuple[int, ...]) -> KeyValues:
        part = torch.tensor(tokens, dtype=torch.float32)[None, None, :, None]
        return KeyValues(tokens, ((part, part),))

    kept = PrefixCache(most_bytes=4 * 8 * 40, most=3)
    one, other = tuple(range(40)), tuple(range(100, 140))
    kept.keep(made(one))
    assert kept.find((*one[:35], 7)).tokens == one[:35]
    assert kept.find((*one[:35], 7)).layers[0][0].flatten().tolist() == list(one[:35])
    assert kept.find((1,)) == KeyValues()
    kept.keep(made((*one, 40)))
    assert kept.find((*one, 40)).tokens == (*one, 40)
    for number in range(3, 7):
        kept.keep(made(tuple(range(100 * number, 100 * number + 40))))
    assert kept.find(one) == KeyValues()
    kept.keep(made(other[:5]))
    assert kept.find(other) == KeyValues()
    kept.keep(made(tuple(range(10**4))))
    assert kept.find(tuple(range(10**4))) == KeyValues()


@ON_CPU
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention_that_is_split_wrongly_is_found_and_left_to_the_model(
    dtype: Dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = causal_of(tmp_path, "llama")
    right = split_attention.attend_cache
    seen: list[int] = []

    def faulty(query: Any, own: Any, mask: Any, *more: Any, **how: Any) -> Any:
        seen.append(query.shape[2])
        return right(query, own, mask * 0, *more, **how)  # tokens see those after them

    wanted = logprobs(engine_for(folder, dtype=dtype).answer(questions()))
    monkeypatch.setattr(split_attention, "attend_cache", faulty)
    engine = engine_for(folder, dtype=dtype)
    assert seen
    assert engine._shared is not None
    assert not engine._shared.splits
    assert len(engine.notes) == 1
    seen.clear()
    assert logprobs(engine.answer(questions())) == pytest.approx(
        wanted, abs=1e-4 if dtype == "float32" else 0.5
    )
    assert not seen
