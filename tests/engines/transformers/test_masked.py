"""The masked engine against a plain forward pass for each text by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import (
    FillMask,
    FillMaskAnswer,
    Loglikelihood,
    PseudoLoglikelihood,
    Refusal,
    RollingAnswer,
)
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.masked import MaskedEngine, MaskedText, window_around
from tests.support.engines import DEVICE
from tests.support.families import MASKED
from tests.support.tiny import bytelevel_tokenizer, metaspace_tokenizer, tiny_masked

TEXTS = (
    "서울은 대한민국의 [MASK]이며 한강이 흐른다",
    "[MASK] quick brown fox jumps over the lazy dog",
    "language models are trained on [MASK]",
    "학교에서 학생들이 책을 읽고 [MASK] 역사와 과학을 가르친다. 학교는 언덕 위에 있다.",
)


def engine_for(folder: Path, *, seq_len: int | None = None, batch: int | None = None) -> MaskedEngine:
    (info,) = resolve(str(folder), seq_len=seq_len)
    engine = open_engine(info, ModelSettings(device=DEVICE, batch=batch, threads=1))
    assert isinstance(engine, MaskedEngine)
    return engine


def answers(engine: MaskedEngine, requests: list[FillMask]) -> list[FillMaskAnswer]:
    found = [answer for answer in engine.answer(requests) if isinstance(answer, FillMaskAnswer)]
    assert len(found) == len(requests)
    return found


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_masked(tmp_path_factory.mktemp("bert") / "m")


@pytest.mark.parametrize("family", MASKED)
def test_candidates_are_those_of_a_plain_forward(family: str, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    folder = tiny_masked(tmp_path / "m", **MASKED[family])
    engine = engine_for(folder, batch=3)
    assert engine._needed.gathers
    model = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text, answer in zip(TEXTS, answers(engine, [FillMask(text, 8) for text in TEXTS]), strict=True):
        ids = tokenizer.encode(text)
        with torch.no_grad():
            logits = model(torch.tensor([ids], device=model.device)).logits[
                0, ids.index(tokenizer.mask_token_id)
            ]
        top = logits.log_softmax(-1).topk(8)
        assert [candidate.token for candidate in answer.candidates] == tokenizer.convert_ids_to_tokens(
            top.indices.tolist()
        )
        found = [candidate.logprob for candidate in answer.candidates]
        assert found == pytest.approx(top.values.tolist(), abs=1e-4)


@pytest.mark.parametrize("family", ["roberta", "deberta-v2 legacy", "modernbert"])
def test_answers_do_not_depend_on_batch_or_order(family: str, tmp_path: Path) -> None:
    folder = tiny_masked(tmp_path / "m", **MASKED[family])
    requests = [FillMask(text, 3, "학교") for text in TEXTS]
    alone = answers(engine_for(folder, batch=1), requests)
    together = answers(engine_for(folder, batch=32), requests[::-1])[::-1]
    for one, other in zip(alone, together, strict=True):
        assert [candidate.token for candidate in one.candidates] == [
            candidate.token for candidate in other.candidates
        ]
        assert one.target_logprob == pytest.approx(other.target_logprob, abs=1e-4)


def test_a_target_is_reachable_when_some_token_reads_so(bert: Path) -> None:
    engine = engine_for(bert)
    targets = ["the", "nosuchword", "answer", None]
    found = answers(engine, [FillMask("a [MASK] b", 500, target) for target in targets])
    assert [answer.reachable for answer in found] == [True, False, True, None]
    assert found[1].target_logprob is None
    best = max(candidate.logprob for candidate in found[0].candidates if candidate.text == "the")
    assert found[0].target_logprob == pytest.approx(best, abs=1e-6)


def test_marks_are_stripped_from_candidates(bert: Path) -> None:
    (answer,) = answers(engine_for(bert), [FillMask("the [MASK]", 500)])
    by_token = {candidate.token: candidate.text for candidate in answer.candidates}
    assert by_token["##e"] == "e"
    assert by_token["the"] == "the"


@pytest.mark.parametrize(
    ("tokenizer", "marked"), [(bytelevel_tokenizer, "Ġthe"), (metaspace_tokenizer, "▁the")]
)
def test_byte_level_and_sentencepiece_marks_are_stripped(tokenizer: Any, marked: str, tmp_path: Path) -> None:
    folder = tiny_masked(tmp_path / "m", model_type="roberta", vocab_size=700)
    inner = tokenizer()
    inner.add_special_tokens({"mask_token": "<mask>", "pad_token": inner.pad_token})
    inner.save_pretrained(folder)
    (answer,) = answers(engine_for(folder), [FillMask("the [MASK]", 500)])
    assert {candidate.token: candidate.text for candidate in answer.candidates}[marked] == "the"


@pytest.mark.parametrize("text", ["no mask", "[MASK] and [MASK]"])
def test_any_other_number_of_masks_is_refused(bert: Path, text: str) -> None:
    refused, answered = engine_for(bert).answer([FillMask(text), FillMask("a [MASK]")])
    assert isinstance(refused, Refusal)
    assert isinstance(answered, FillMaskAnswer)


def test_half_of_a_character_is_refused_and_leaves_the_texts_beside_it_alone(bert: Path) -> None:
    engine = engine_for(bert)
    fill, score = FillMask(TEXTS[0]), PseudoLoglikelihood("the answer")
    half, also_half = FillMask("\ud83d [MASK]"), PseudoLoglikelihood("the \ud83d")
    first, refused, second, also = engine.answer([fill, half, score, also_half])
    assert [first, second] == engine.answer([fill, score])
    assert all(isinstance(one, Refusal) and "half of a character" in one.reason for one in (refused, also))


def test_other_kinds_are_refused(bert: Path) -> None:
    assert isinstance(engine_for(bert).answer([Loglikelihood("a", "b")])[0], Refusal)


@pytest.mark.parametrize("before", [0, 3, 100, 200])
def test_a_long_text_is_cut_around_the_mask(bert: Path, before: int) -> None:
    engine = engine_for(bert, seq_len=16)
    tokenized = engine._ahead.made([FillMask("a " * before + "[MASK]" + " b" * (200 - before))])[0]
    assert isinstance(tokenized, MaskedText)
    assert (len(tokenized.ids), tokenized.truncated) == (16, 201 - 14)
    assert tokenized.ids[tokenized.position] == engine.loaded.tokenizer.mask_token_id
    left, right = tokenized.position - 1, 14 - tokenized.position
    assert left == before or right == 200 - before or abs(left - right) <= 1


@given(length=st.integers(1, 60), room=st.integers(1, 30), data=st.data())
def test_the_nearest_tokens_are_kept(length: int, room: int, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, length - 1))
    begin, end = window_around(position, length, room)
    assert end - begin == min(length, room)
    kept = [abs(index - position) for index in range(begin, end)]
    cut = [abs(index - position) for index in range(length) if not begin <= index < end]
    assert position in range(begin, end)
    assert not cut or max(kept) <= min(cut)


@pytest.mark.parametrize("family", ["roberta", "deberta-v2 legacy"])
def test_a_pseudo_log_likelihood_is_a_plain_loop_over_masked_tokens(family: str, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    folder = tiny_masked(tmp_path / "m", **MASKED[family])
    model = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [text.replace("[MASK]", "the") for text in TEXTS]
    found = engine_for(folder, batch=5).answer([PseudoLoglikelihood(text) for text in texts])
    for text, answer in zip(texts, found, strict=True):
        ids = tokenizer.encode(text, add_special_tokens=False)
        whole = tokenizer.encode(text)
        first = next(at for at in range(len(whole)) if whole[at : at + len(ids)] == ids)
        total = 0.0
        for place, token in enumerate(ids, first):
            masked = [*whole[:place], tokenizer.mask_token_id, *whole[place + 1 :]]
            with torch.no_grad():
                logits = model(torch.tensor([masked], device=model.device)).logits[0, place]
            total += float(logits.log_softmax(-1)[token])
        assert isinstance(answer, RollingAnswer)
        assert (answer.tokens, answer.truncated) == (len(ids), 0)
        assert answer.logprob == pytest.approx(total, abs=1e-3)


def test_pseudo_log_likelihoods_stand_beside_masks_in_one_call(bert: Path) -> None:
    engine = engine_for(bert)
    mixed = engine.answer([PseudoLoglikelihood("the a"), FillMask("a [MASK]", 3), PseudoLoglikelihood("")])
    assert isinstance(mixed[0], RollingAnswer)
    assert mixed[0] == engine.answer([PseudoLoglikelihood("the a")])[0]
    assert isinstance(mixed[1], FillMaskAnswer)
    assert isinstance(mixed[2], Refusal)
    assert "empty" in mixed[2].reason


def test_of_a_long_text_each_token_is_read_with_those_nearest_to_it(bert: Path) -> None:
    engine = engine_for(bert, seq_len=16)
    (answer,) = engine.answer([PseudoLoglikelihood("a b " * 50)])
    assert isinstance(answer, RollingAnswer)
    assert (answer.tokens, answer.truncated) == (100, 100 - 14)
    assert engine.too_long([PseudoLoglikelihood("a b " * 50), PseudoLoglikelihood("a b")]) == [0]
