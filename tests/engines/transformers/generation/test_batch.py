"""Generated texts against transformers' ``generate`` for each prompt by itself."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_touchstone.core.requests import (
    Generate,
    GenerateAnswer,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
    earliest_stop,
)
from pytest_touchstone.engines.base import SLOW_WAYS
from pytest_touchstone.engines.settings import Dtype
from pytest_touchstone.engines.transformers import kv_cache
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.split_attention import attach_prefix
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
from tests.support.engines import (
    DEVICE,
    ON_CPU,
    before_each_pass,
    engine_for,
    generates_together,
    out_of_memory,
    short_of_memory,
)
from tests.support.families import MAMBA, SEQ_LEN, SHOTS, causal_of
from tests.support.generating import prompts, texts, with_samples
from tests.support.tiny import CORPUS, metaspace_tokenizer, tiny_causal

TIE = 1e-4


def checked_greedy(engine: CausalEngine, request: Generate) -> list[tuple[str, str, int]]:
    """The engine's text, which is that of ``generate`` as far as the two likeliest tokens are not tied."""
    import torch

    model, tokenizer = engine.loaded.model, engine.loaded.tokenizer
    ids = torch.tensor([tokenizer.encode(request.prompt)], device=model.device)
    with torch.no_grad():
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=request.max_new_tokens,
            do_sample=False,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
    wanted = made.sequences[0, ids.shape[1] :].tolist()
    (found,) = texts(engine, [request])
    text, (ours, _, tokens) = tokenizer.decode(wanted, skip_special_tokens=True), found[0]
    if ours == text:
        assert tokens == len(wanted)
    else:
        gaps = [float(logits[0].topk(2).values.diff().abs()) for logits in made.logits]
        assert min(gaps) < TIE, f"{ours!r} instead of {text!r}"
    return found


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", "gpt_neox", "mistral", "gemma2", "gemma3_text", "qwen2 sliding", "opt"]
)
def test_greedy_texts_are_those_of_transformers_for_each_prompt(family: str, tmp_path: Path) -> None:
    engine = engine_for(causal_of(tmp_path, family))
    assert generates_together(engine)
    assert engine.notes == []
    requests = prompts()[::2]
    together = texts(engine, requests)
    for request, found in zip(requests, together, strict=True):
        assert checked_greedy(engine, request) == found


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_texts_do_not_depend_on_company_order_or_batch(family: str, tmp_path: Path) -> None:
    folder = causal_of(tmp_path, family)
    requests = [*prompts()[::2], *with_samples()[:4]]
    wanted = texts(engine_for(folder), requests)
    for batch in (None, 1, 3):
        engine = engine_for(folder, batch=batch)
        assert texts(engine, requests[::-1]) == wanted[::-1]
        assert texts(engine, requests[3:9]) == wanted[3:9]


def test_both_ways_of_generating_give_the_same(llama: Path) -> None:
    engine, single = engine_for(llama), engine_for(llama, together=False)
    assert not generates_together(single)
    stops = ("e", " a", "42")
    requests = [*prompts(), *with_samples(), Generate(SHOTS, max_new_tokens=30, stop=stops)]
    assert texts(engine, requests) == texts(single, requests)


@ON_CPU
def test_what_generating_one_by_one_costs_is_told(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_for(llama)
    assert generates_together(engine)
    requests = [*prompts(), *with_samples()]
    wanted = texts(engine, requests)
    assert "slow" not in engine.usage
    done = engine.work_done
    monkeypatch.setattr(kv_cache, "attach_prefix", lambda keys, _: attach_prefix(keys, None))
    single = engine_for(llama)
    assert not generates_together(single)
    assert texts(single, requests) == wanted
    (told,) = single.usage["slow"]
    assert (told["way"], told["computed"]) == ("generating", single.work_done.computed)
    assert told["reason"].endswith(" off")
    assert told["enough"] == done.computed - done.padded
    # What was shared before is not computed again.
    texts(single, prompts()[:5])
    again = single.usage["slow"][0]["enough"] - told["enough"]
    assert again < told["enough"] / 2


def test_a_model_that_cannot_share_is_generated_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from pytest_touchstone.checkpoints import resolve
    from pytest_touchstone.engines.registry import open_engine
    from pytest_touchstone.engines.settings import ModelSettings

    folder = tiny_causal(tmp_path / "c", seq_len=SEQ_LEN, **MAMBA)
    (info,) = resolve(str(folder), seq_len=SEQ_LEN)
    with caplog.at_level(logging.WARNING, logger="pytest_touchstone"):
        engine = open_engine(info, ModelSettings(device=DEVICE, threads=1))
        assert isinstance(engine, CausalEngine)
        assert not generates_together(engine)
        for request in prompts()[:3]:
            checked_greedy(engine, request)
    assert len(caplog.records) == 1


@ON_CPU
def test_a_model_whose_probe_differs_is_generated_one_by_one(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = texts(engine_for(llama), prompts())
    monkeypatch.setattr(kv_cache, "attach_prefix", lambda keys, _: attach_prefix(keys, None))
    engine = engine_for(llama)
    assert engine.shares
    assert texts(engine, prompts()) == wanted
    assert not generates_together(engine)
    assert engine._shared is not None
    assert not engine._shared.splits
    assert len(engine.notes) == 2
    assert any(SLOW_WAYS["generating"][0] in note for note in engine.notes)


def test_a_common_prefix_and_a_prompt_with_samples_are_computed_once(llama: Path) -> None:
    engine = engine_for(llama)
    assert generates_together(engine)
    shots = len(TextTokenizer(engine.loaded.tokenizer).prompt(SHOTS))  # type: ignore[arg-type]
    requests = [Generate(f"{SHOTS} {word}", max_new_tokens=2) for word in ("a", "the", "river", "is")]
    engine.answer(requests)
    assert engine.work_done.computed < shots + 50
    for together in (1, 3):
        engine.work_done.reset()
        many = [
            Generate(f"{word} {CORPUS[3]}", max_new_tokens=5, temperature=1.0, samples=20)
            for word in ("one", "2", "x")[:together]
        ]
        engine.answer(many)
        length = sum(len(TextTokenizer(engine.loaded.tokenizer).prompt(one.prompt)) for one in many)  # type: ignore[arg-type,misc]
        assert engine.work_done.computed - engine.work_done.padded - engine.work_done.decoded <= length
        assert engine.work_done.decoded <= together * 20 * 4


def test_texts_do_not_depend_on_the_size_of_computations_and_buffers(llama: Path) -> None:
    requests = [*prompts(), Generate(CORPUS[1], max_new_tokens=170), Generate("a", max_new_tokens=200)]
    wanted = texts(engine_for(llama), requests)
    checked_greedy(engine_for(llama), requests[-1])
    engine = engine_for(llama, batch=4)
    engine.budget.tokens = 16
    assert texts(engine, requests) == wanted


def test_rows_that_end_leave_their_memory_to_rows_that_wait(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory holds 4 of 12 rows, the passes are those of 3 rounds at most, and not of rows one by one."""
    requests = [Generate(prompt=f"{number} " * 3, stop=(), max_new_tokens=8) for number in range(12)]
    engine = engine_for(llama)
    alone = engine.answer(requests)
    row = engine.loaded.model.config.num_hidden_layers * 2 * 4  # bytes of a token: keys and values of float32
    config = engine.loaded.model.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    token = row * config.num_key_value_heads * width
    monkeypatch.setattr(
        "pytest_touchstone.engines.transformers.devices.free_memory", lambda _device: 4 * 4 * 150 * token
    )
    engine = engine_for(llama)
    assert engine.answer(requests) == alone
    assert engine.work_done.steps <= 3 * 8


def test_a_prompt_alone_is_continued_in_one_piece(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_for(llama)
    alone = Generate(SHOTS, max_new_tokens=6)
    wanted = texts(engine, [alone])  # the first call also tries the way that texts are generated
    prefixes: list[Any] = []

    def recorded(keys: Any, prefix: Any) -> Any:
        prefixes.append(prefix)
        return attach_prefix(keys, prefix)

    monkeypatch.setattr(kv_cache, "attach_prefix", recorded)
    assert texts(engine, [alone]) == wanted
    assert set(prefixes) == {None}
    texts(engine, [Generate(SHOTS, max_new_tokens=6, temperature=1.0, samples=3)])
    assert any(prefix is not None for prefix in prefixes)


def test_prefixes_are_kept_from_call_to_call(llama: Path) -> None:
    engine = engine_for(llama)
    shots = len(TextTokenizer(engine.loaded.tokenizer).prompt(SHOTS))  # type: ignore[arg-type]
    wanted = texts(engine, prompts()[:5])
    engine.work_done.reset()
    assert [texts(engine, [request])[0] for request in prompts()[:5]] == wanted
    assert engine.work_done.computed - engine.work_done.decoded < shots


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_generates_together_too(dtype: Dtype, llama: Path) -> None:
    engine = engine_for(llama, dtype=dtype)
    assert generates_together(engine)
    found = texts(engine, prompts())
    assert [sample[0][2] for sample in found] == [request.max_new_tokens for request in prompts()]


def test_samples_differ_and_depend_on_their_seed(llama: Path) -> None:
    engine = engine_for(llama)
    ask = {"max_new_tokens": 8, "temperature": 1.0, "samples": 6}
    one, other, again, more = (
        texts(engine, [Generate(CORPUS[0], seed=seed, **{**ask, **change})])[0]  # type: ignore[arg-type]
        for seed, change in ((1, {}), (2, {}), (1, {}), (1, {"samples": 9}))
    )
    assert len(set(one)) > 3
    assert one == again == more[:6]
    assert one != other
    greedy = texts(engine, [Generate(CORPUS[0], max_new_tokens=8, samples=3)])[0]
    assert greedy == [greedy[0]] * 3


def test_a_text_ends_in_front_of_a_stop_sequence(llama: Path) -> None:
    engine = engine_for(llama)
    for request in prompts():
        ((whole, _, tokens),) = texts(engine, [request])[0]
        for begin in range(0, len(whole), 3):
            stops = (whole[begin : begin + 4], whole[begin + 2 : begin + 9] or "zz", "\0")
            if any("\N{REPLACEMENT CHARACTER}" in stop for stop in stops):
                continue
            asked = Generate(request.prompt, max_new_tokens=request.max_new_tokens, stop=stops)
            ((text, reason, taken),) = texts(engine, [asked])[0]
            assert text == whole[: earliest_stop(whole, stops)]
            assert reason == "stop"
            assert taken <= tokens


def test_the_checkpoints_end_tokens_end_a_text(llama: Path) -> None:
    engine = engine_for(llama)
    request = Generate(CORPUS[0], max_new_tokens=12)
    ((_, reason, tokens),) = texts(engine, [request])[0]
    assert (reason, tokens) == ("length", 12)
    import torch

    model, tokenizer = engine.loaded.model, engine.loaded.tokenizer
    ids = torch.tensor([tokenizer.encode(CORPUS[0])], device=model.device)
    made = model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)[0, ids.shape[1] :].tolist()
    end = made[7]
    engine = engine_for(llama)
    engine.loaded.model.generation_config.eos_token_id = [end, 0]
    ((text, reason, tokens),) = texts(engine, [request])[0]
    assert (reason, tokens) == ("eos", made.index(end) + 1)
    assert text == tokenizer.decode(made[: made.index(end)])


def test_a_long_prompt_is_cut_on_the_left_and_an_impossible_one_refused(llama: Path) -> None:
    engine = engine_for(llama)
    long = " ".join(CORPUS)
    tokens = TextTokenizer(engine.loaded.tokenizer).prompt(long)
    assert not isinstance(tokens, Refusal)
    (answer,) = engine.answer([Generate(long, max_new_tokens=30)])
    assert isinstance(answer, GenerateAnswer)
    assert answer.prompt_tokens == SEQ_LEN - 30
    assert answer.truncated == len(tokens) - SEQ_LEN + 30
    cut = TextTokenizer(engine.loaded.tokenizer).readable(tokens[-(SEQ_LEN - 30) :])
    assert TextTokenizer(engine.loaded.tokenizer).prompt(cut) == tokens[-(SEQ_LEN - 30) :]
    assert texts(engine, [Generate(cut, max_new_tokens=30)]) == [
        [(one.text, one.finish_reason, one.tokens) for one in answer.samples]
    ]
    (refused,) = engine.answer([Generate("a", max_new_tokens=SEQ_LEN)])
    assert isinstance(refused, Refusal)
    assert "--eval-seq-len" in refused.reason


@pytest.mark.parametrize(
    "change",
    [
        {"max_new_tokens": 0},
        {"samples": 0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_k": -1},
        {"stop": ("",)},
    ],
)
def test_a_faulty_request_is_refused(change: dict[str, Any], llama: Path) -> None:
    (answer,) = engine_for(llama).answer([Generate("a", **{"max_new_tokens": 3, **change})])
    assert isinstance(answer, Refusal)


def test_requests_of_all_kinds_are_answered_in_order(llama: Path) -> None:
    engine = engine_for(llama)
    score, text = Loglikelihood("The quick", " brown"), Generate("The quick", max_new_tokens=3)
    found = engine.answer([text, score, Loglikelihood("a", ""), text, score])
    kinds = (GenerateAnswer, LoglikelihoodAnswer, Refusal, GenerateAnswer, LoglikelihoodAnswer)
    assert tuple(map(type, found)) == kinds
    assert found[1] == engine.answer([score])[0]
    assert engine.loaded.model.config._attn_implementation == "sdpa"


def test_a_start_token_stands_in_front_once() -> None:

    tokenizer = TextTokenizer(metaspace_tokenizer())
    start = tokenizer.start
    assert start is not None
    for prompt in ("The fox", "<s>The fox"):
        tokens = tokenizer.prompt(prompt)
        assert not isinstance(tokens, Refusal)
        assert tokens[0] == start
        assert tokens.count(start) == 1
    assert tokenizer.prompt("") == (start,)


@ON_CPU
@pytest.mark.parametrize("kind", ["accelerator", "cpu"])
def test_rows_too_many_for_memory_wait_and_lose_nothing(
    kind: str, llama: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_for(llama)
    requests = [*prompts(), *with_samples()]
    wanted = texts(engine, requests)
    sizes: list[tuple[int, int]] = []
    failed = 0

    def look(cells: torch.Size) -> None:
        nonlocal failed
        # Prompts go in, but after a while so many rows do not go on.
        if (cells[1] == 1 and cells[0] > 3 and len(sizes) > 4) or cells.numel() > 150:
            failed += 1
            raise out_of_memory(kind)
        sizes.append((cells[0], cells[1]))

    before_each_pass(engine, look)
    with caplog.at_level(logging.WARNING, logger="pytest_touchstone"):
        assert texts(engine, requests) == wanted
    assert failed > 2
    assert max(rows for rows, _ in sizes[:5]) > 3 >= max(rows for rows, length in sizes[5:] if length == 1)
    assert sum("out of memory" in record.message for record in caplog.records) == 1


@ON_CPU
def test_a_sample_begins_at_its_prompt_beside_one_that_waits_again_with_tokens(llama: Path) -> None:
    request = Generate("The house", max_new_tokens=8, temperature=1.3, samples=7, seed=1)
    wanted = texts(engine_for(llama), [request])
    engine = engine_for(llama)
    engine._generator()._most = 5  # type: ignore[union-attr]
    steps = 0

    def look(cells: torch.Size) -> None:
        nonlocal steps
        steps += tuple(cells) == (5, 1)
        if steps == 3:
            steps += 1
            raise out_of_memory("cpu")

    before_each_pass(engine, look)
    assert texts(engine, [request]) == wanted
    assert steps == 4


def test_a_batch_that_was_asked_for_or_cannot_get_smaller_fails(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    for batch in (4, None):
        engine = engine_for(llama, batch=batch)
        assert generates_together(engine)
        short_of_memory(engine, 0, out_of_memory("accelerator"))
        with pytest.raises(torch.OutOfMemoryError):
            engine.answer(prompts()[:3])
        assert engine.loaded.model.config._attn_implementation == "sdpa"


def test_broken_weights_are_told(llama: Path) -> None:
    import torch

    engine = engine_for(llama)
    assert generates_together(engine)
    with torch.no_grad():
        engine.loaded.model.get_output_embeddings().weight[5] = float("nan")
    (answer,) = engine.answer([Generate("The", max_new_tokens=4)])
    assert isinstance(answer, Refusal)
    assert "NaN" in answer.reason


@ON_CPU
def test_texts_after_several_prefixes_go_through_the_model_together(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_touchstone.engines.transformers.generation.step import DecodeStep

    requests = [
        Generate(f"{shots} {word}", max_new_tokens=12)
        for shots in (SHOTS, " ".join(reversed(SHOTS.split())), "a")
        for word in ("one", "two", "three", "four")
    ]
    apart = [text for number in (0, 4, 8) for text in texts(engine_for(llama), requests[number : number + 4])]
    engine = engine_for(llama)
    assert generates_together(engine)
    caches: list[int] = []
    right = DecodeStep.decode

    def decode(self: DecodeStep, slots: Any, tokens: Any) -> Any:
        caches.append(len(slots))
        return right(self, slots, tokens)

    monkeypatch.setattr(DecodeStep, "decode", decode)
    assert texts(engine, requests) == apart
    assert max(caches) > 1


def test_a_model_that_cannot_take_several_prefixes_at_once_takes_one(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_touchstone.engines.transformers import split_attention

    wanted = texts(engine_for(llama), prompts())
    right = split_attention.attach_cache_parts
    fault = "pytest_touchstone.engines.transformers.kv_cache.attach_cache_parts"
    monkeypatch.setattr(fault, lambda keys, parts: right(keys, parts[::-1]))
    engine = engine_for(llama)
    assert generates_together(engine)
    assert texts(engine, prompts()) == wanted
    assert engine.notes == []
