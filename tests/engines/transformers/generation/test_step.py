"""Speculative decoding by extra heads: texts are those without it, whatever is drawn and in whatever batch."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.requests import Generate
from pytest_touchstone.engines.settings import Dtype
from pytest_touchstone.engines.transformers.generation import step
from pytest_touchstone.engines.transformers.generation.step import DecodeStep, SpeculativeStepper
from pytest_touchstone.engines.transformers.kv_cache import SlotCache
from pytest_touchstone.engines.transformers.split_attention import slot_mask, use_split_attention
from pytest_touchstone.engines.transformers.token_work import Acceptance
from tests.support.engines import generates_together, out_of_memory
from tests.support.generating import texts
from tests.support.tiny_mtp import LETTERS, head_logits, letters_info, mtp_engine


def prompts(count: int = 40, seed: int = 0) -> list[Generate]:
    """Random texts of letters, half of them behind the same prefix, some greedy and some drawn."""
    letters = random.Random(seed)
    asked = []
    for number in range(count):
        begin = LETTERS * 12 if number % 2 else ""
        text = begin + "".join(letters.choices(LETTERS, k=1 + number % 23))
        asked.append(
            Generate(
                text,
                max_new_tokens=1 + 5 * (number % 7),
                temperature=(0.0, 0.0, 0.7, 1.5)[number % 4],
                top_p=(1.0, 0.9)[number % 2],
                samples=1 + number % 3,
                seed=number,
            )
        )
    return asked


@pytest.fixture(autouse=True)
def proposing_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads of random weights are hardly worth asking."""
    monkeypatch.setattr(SpeculativeStepper, "proposes", lambda _, rows: True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("letters")


@pytest.fixture(scope="module")
def wanted(folder: Path) -> list[list[tuple[str, str, int]]]:
    engine = mtp_engine(letters_info(folder), speculative="off")
    assert engine.loaded.model.drafts == 0
    found = texts(engine, prompts())
    assert "speculative" not in engine.usage
    return found


@pytest.mark.parametrize("batch", [None, 1, 3])
def test_texts_are_those_of_head_0_alone_in_any_batch_and_order(
    batch: int | None, folder: Path, wanted: list[list[tuple[str, str, int]]]
) -> None:
    engine = mtp_engine(letters_info(folder), batch=batch)
    assert generates_together(engine)
    assert engine.notes == []
    assert texts(engine, prompts()) == wanted
    assert texts(engine, prompts()[::-1]) == wanted[::-1]
    assert engine.work_done.accepted.mean_length > 1.1


@pytest.mark.parametrize("seed", range(1, 5))
def test_other_models_and_numbers_of_heads_give_head_0s_texts(seed: int, tmp_path: Path) -> None:
    info = letters_info(tmp_path, seed, n_future_tokens=seed, n_kv_heads=4 if seed % 2 else 1)
    plain, speculative = (mtp_engine(info, speculative=how, batch=8) for how in ("off", "auto"))
    assert speculative.loaded.model.drafts == seed - 1
    assert texts(speculative, prompts(seed=seed)) == texts(plain, prompts(seed=seed))


def test_stop_sequences_end_a_text_within_what_was_proposed(folder: Path) -> None:
    requests = [
        Generate(one.prompt, max_new_tokens=30, stop=stops)
        for one, stops in product(prompts(12), ((LETTERS[0],), ("bc", "ff"), ("gg", "e", "da")))
    ]
    plain, speculative = (mtp_engine(letters_info(folder), speculative=how) for how in ("off", "auto"))
    assert texts(speculative, requests) == texts(plain, requests)


def test_heads_read_from_the_slots_what_they_would_read_from_the_whole_text(folder: Path) -> None:
    import torch

    engine = mtp_engine(letters_info(folder))
    assert generates_together(engine)
    model, shared = engine.loaded.model, engine._shared
    assert shared is not None
    prefix = (1, 2, 3, 4, 5, 6, 7) * 6
    tails = [[3, 1, 2], [5], [7, 7, 1, 2, 4, 6]]
    after = ([3, 1, 2, 4], [3, 1, 2, 5], [7, 7, 1, 2, 4, 6, 6])
    stepper = DecodeStep(
        model, engine._needed, _attention(model), budget=engine.budget, done=engine.work_done
    )
    for past in ((), prefix):
        with torch.inference_mode():
            slots = SlotCache(shared.prefix(past))
            with use_split_attention(model):
                stepper.prefill(slots, tails)
                # A row that leaves, a copy that comes, and a step behind all of them.
                slots.add(slots.take(0))
                slots.drop(1)
                stepper.decode([slots], [[4, 5, 6]])
                columns = torch.tensor([len(row) - 1 for row in after])
                slots.set_write_target(0, 3, columns[:, None], 7)
                mask = slot_mask(None, columns=columns[:, None], past=slots.past, until=7, dtype=model.dtype)
                found = model.draft(slots, mask, torch.arange(3), columns)
            for number, row in enumerate(after):
                for head in range(3):
                    alone = head_logits(model, head + 1, torch.tensor([[*past, *row]]))[0, -1]
                    assert torch.allclose(found[number, head], alone, atol=1e-4)


def test_drawn_texts_have_head_0s_distribution(folder: Path) -> None:
    import torch
    from scipy.stats import chisquare

    engine = mtp_engine(letters_info(folder), batch=16)
    model, size, count = engine.loaded.model, len(LETTERS) + 1, 4000
    prompt = [4, 3]
    # The first token comes of the prompt; the second and the third of proposals.
    request = Generate(
        "".join(LETTERS[token - 1] for token in prompt),
        max_new_tokens=3,
        temperature=1.0,
        samples=count,
        seed=7,
    )
    drawn: list[tuple[int, ...]] = []
    generator = engine._generator()
    made = engine._plans([request])
    for ended in generator.run(made):  # type: ignore[arg-type]
        samples = ended if isinstance(ended, list) else ended.samples
        drawn += [tuple((*sample.tokens, 0, 0)[:3]) for sample in samples]
    assert engine.work_done.accepted.passes > count / 2
    assert engine.work_done.accepted.lengths[2] > count / 20
    expected: dict[tuple[int, ...], float] = {}
    with torch.no_grad():
        for first, second in product(range(size), repeat=2):
            shares = model(torch.tensor([[*prompt, first, second]])).logits[0, -3:].double().softmax(-1)
            for third in range(size):
                # Token 0 ends a text.
                key = (first, *((second, third) if second and first else (second * bool(first), 0)))
                part = shares[0, first]
                if first:
                    part = part * shares[1, second] * (shares[2, third] if second else 1 / size)
                else:
                    part = part / size**2
                expected[key] = expected.get(key, 0.0) + float(part) * count
    assert sum(expected.values()) == pytest.approx(count, rel=1e-6)
    found = Counter(drawn)
    often = [key for key, number in expected.items() if number >= 5]
    rest = count - sum(expected[key] for key in often)
    seen = [found[key] for key in often]
    tested = chisquare([*seen, count - sum(seen)], [*(expected[key] for key in often), rest])
    assert len(often) > 50
    assert tested.pvalue > 0.001


def test_a_row_that_waits_for_memory_goes_on_with_the_same_texts(
    folder: Path, wanted: list[list[tuple[str, str, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = mtp_engine(letters_info(folder))
    assert generates_together(engine)
    plain, calls = engine._needed.logits, Counter[str]()

    def limited(inputs: dict[str, Any], rows: Any, positions: Any) -> Any:
        cells = inputs["input_ids"].shape
        calls["all"] += 1
        if calls["all"] > 9 and cells[0] > 3:
            calls["failed"] += 1
            raise out_of_memory("cpu")
        return plain(inputs, rows, positions)

    monkeypatch.setattr(engine._needed, "logits", limited)
    assert texts(engine, prompts()) == wanted
    assert calls["failed"] > 1


def test_passes_with_proposals_and_without_may_alternate(
    folder: Path, wanted: list[list[tuple[str, str, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = random.Random(5)
    monkeypatch.setattr(SpeculativeStepper, "proposes", lambda _, rows: numbers.random() < 0.5)
    engine = mtp_engine(letters_info(folder), batch=5)
    assert texts(engine, prompts()) == wanted
    counts = engine.usage
    assert 0 < sum(counts["speculative"]["lengths"]) < counts["decoded"]


def test_what_is_decoded_is_every_token_but_each_texts_first(folder: Path) -> None:
    for how in ("off", "auto"):
        engine = mtp_engine(letters_info(folder), speculative=how)
        found = texts(engine, prompts())
        made = {(number, *one) for number, some in enumerate(found) for one in enumerate(some)}
        # Samples that are the same by their settings are computed once.
        greedy = {number for number, one in enumerate(prompts()) if one.temperature == 0}
        kept = [one for one in made if one[0] not in greedy or one[1] == 0]
        assert engine.usage["decoded"] == sum(one[2][2] - 1 for one in kept)


def test_broken_weights_are_told(folder: Path) -> None:
    import torch

    engine = mtp_engine(letters_info(folder))
    assert generates_together(engine)
    with torch.no_grad():
        engine.loaded.model._heads.wo.fill_(float("nan"))
    wanted = texts(mtp_engine(letters_info(folder)), prompts(8))
    assert texts(engine, prompts(8)) == wanted  # heads whose proposals are all wrong do no harm
    with torch.no_grad():
        engine.loaded.model.get_output_embeddings().weight[5] = float("nan")
    (answer,) = engine.answer([Generate("abc", max_new_tokens=4)])
    assert "NaN" in answer.reason  # type: ignore[union-attr]


def test_proposals_are_counted_by_head_and_by_length() -> None:
    counts = Acceptance()
    # At tokens 1, 4 and 5 of "5 6 7 8 9 9 9"; what lies beyond the end is neither right nor wrong, and no token.
    assert counts.judge([(1, [6, 7, 0]), (4, [8, 9, 9]), (5, [9, 9, 1])], [5, 6, 7, 8, 9, 9, 9]) == 6
    assert counts.mean_length == 2.0
    assert counts.counts() == {
        "lengths": [1, 1, 1],
        "asked": [3, 3, 2],
        "right": [2, 3, 1],
        "mean_length": 2.0,
        "accuracy": [0.6667, 1.0, 0.5],
    }
    assert counts.judge([(3, [1])], [5, 6, 7]) == 0  # no number came of this pass
    assert Acceptance().mean_length == 0.0


def test_what_proposals_brought_is_among_the_engines_counts(folder: Path) -> None:
    engine = mtp_engine(letters_info(folder))
    found = texts(engine, [Generate("a", max_new_tokens=40)])
    counts = engine.usage["speculative"]
    tokens = sum(length * number for length, number in enumerate(counts["lengths"], 1))
    ((_, _, made),) = found[0]
    assert tokens == made - 1
    assert engine.usage["decoded"] == tokens
    assert len(counts["asked"]) == len(counts["right"]) == 3
    assert all(
        right <= asked <= sum(counts["lengths"])
        for asked, right in zip(counts["asked"], counts["right"], strict=True)
    )


def _attention(model: Any) -> Any:
    from pytest_touchstone.engines.transformers.split_attention import attention_of

    return attention_of(model)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("fault", [False, True])
def test_several_tokens_at_once_are_tried_in_every_type(
    dtype: Dtype, fault: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: in a pass over several tokens of a row each sees the one behind it."""
    right = slot_mask

    def mask(window: int | None, *, columns: Any, **how: Any) -> Any:
        several = fault and bool((columns[:, 0] != columns[0, 0]).any()) and columns.shape[1] == 2
        return right(window, columns=columns + several, **how)

    monkeypatch.setattr(step, "slot_mask", mask)
    engine = mtp_engine(letters_info(folder), dtype=dtype)
    assert engine.loaded.model.drafts
    assert engine.shares
    assert generates_together(engine) is not fault
    assert bool(engine.notes) is fault
