"""Which ways of computing are admitted: right ones of every number type, and none with a fault in it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.checkpoints.info import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import (
    Answer,
    FillMask,
    FillMaskAnswer,
    Loglikelihood,
    LoglikelihoodAnswer,
    PseudoLoglikelihood,
    Refusal,
    Request,
    RollingAnswer,
)
from pytest_touchstone.engines.base import SLOW_WAYS
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import Dtype, ModelSettings
from pytest_touchstone.engines.transformers import (
    agreement,
    causal,
    kv_cache,
    logits,
    scoring,
    split_attention,
)
from pytest_touchstone.engines.transformers.agreement import (
    BOUND,
    FACTOR,
    BatchingConstraint,
    LoadedState,
    VerifiedKernels,
    difference,
    folder_for,
    largest_difference,
    length_boundary,
)
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.generation import batch, step
from pytest_touchstone.engines.transformers.generation.batch import BatchGenerator
from pytest_touchstone.engines.transformers.kv_cache import KeyValues
from pytest_touchstone.engines.transformers.loading import LoadedModel
from pytest_touchstone.engines.transformers.masked import MaskedEngine
from pytest_touchstone.engines.transformers.pool import load_weights
from pytest_touchstone.engines.transformers.split_attention import slot_mask
from pytest_touchstone.engines.transformers.token_work import WorkDone
from tests.support.engines import DEVICE, ON_CPU, engine_for, generates_together
from tests.support.families import CAUSAL, MASKED, causal_of
from tests.support.lines import naming
from tests.support.tiny import CORPUS, tiny_causal, tiny_masked

ROOT = Path(__file__).resolve().parents[3]

DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16", "float16")

QUICK = ("llama", "gemma2")

FAMILIES = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in CAUSAL if name not in QUICK)]
"""Families in which faults are planted."""

Change = Callable[[pytest.MonkeyPatch], None]

Models = Callable[[str, Dtype], tuple[CheckpointInfo, LoadedModel]]


def weights(folder: Path, dtype: Dtype) -> tuple[CheckpointInfo, LoadedModel]:
    (info,) = resolve(str(folder), seq_len=None)
    return info, load_weights(info, ModelSettings(device=DEVICE, threads=1, dtype=dtype))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    @functools.cache
    def model(family: str, dtype: Dtype) -> tuple[CheckpointInfo, LoadedModel]:
        return weights(causal_of(tmp_path_factory.mktemp("model"), family), dtype)

    return model


def columns_seen(change: Callable[[Sequence[int]], list[int]]) -> Change:
    """Rows of branches whose tokens are seen by others than they should be."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = split_attention.additive_mask

        def mask(seen: torch.Tensor, **how: Any) -> Any:
            changed = [change(row) for row in seen.tolist()]
            return right(torch.tensor(changed, device=seen.device), **how)

        patch.setattr(scoring, "additive_mask", mask)

    return plant


def first_hidden(patch: pytest.MonkeyPatch) -> None:
    """The first token of a prefix is seen by no token behind it."""
    right = split_attention.additive_mask

    def mask(seen: Any, *, past: int, dtype: Any, **how: Any) -> Any:
        made = right(seen, past=past, dtype=dtype, **how)
        made[..., : min(past, 1)] = torch.finfo(dtype).min
        return made

    patch.setattr(scoring, "additive_mask", mask)


def position_off(patch: pytest.MonkeyPatch) -> None:
    right = scoring.PrefixTreeScorer._inputs

    def inputs(self: Any, layout: Any, cache: Any, *sent: Any) -> dict[str, Any]:
        made = right(self, layout, cache, *sent)
        made["position_ids"] = made["position_ids"] + (1 if cache.past or layout.branches else 0)
        return made

    patch.setattr(scoring.PrefixTreeScorer, "_inputs", inputs)


def stale_stem(patch: pytest.MonkeyPatch) -> None:
    """Stems have the keys and values of other tokens."""
    right = scoring.PrefixTreeScorer._run_on

    def run_on(self: Any, pass_: Any, past: KeyValues, whole: tuple[int, ...], places: Any) -> KeyValues:
        other = tuple((token + 1) % 300 for token in whole)
        made = right(self, pass_, KeyValues(other[: len(past.tokens)], past.layers), other, places)
        return KeyValues(whole, made.layers)

    patch.setattr(scoring.PrefixTreeScorer, "_run_on", run_on)


def slots_seen(more: int) -> Change:
    """Tokens that are generated see a column too many, or not the first."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = slot_mask

        def mask(window: int | None, *, columns: Any, past: int, until: int, dtype: Any) -> Any:
            made = right(window, columns=columns + max(0, more), past=past, until=until, dtype=dtype)
            if more < 0 and until > 1:
                made[..., made.shape[-1] - until] = torch.finfo(dtype).min
            return made

        patch.setattr(step, "slot_mask", mask)

    return plant


def slot_position_off(patch: pytest.MonkeyPatch) -> None:
    plain = step.DecodeStep.prefill

    def prefill(self: Any, *how: Any) -> Any:
        logits = self._needed.logits

        def moved(inputs: dict[str, Any], *places: Any) -> Any:
            return logits({**inputs, "position_ids": inputs["position_ids"] + 1}, *places)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self._needed, "logits", moved)
            return plain(self, *how)

    patch.setattr(step.DecodeStep, "prefill", prefill)


def no_prefix(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kv_cache, "attach_prefix", lambda keys, _: split_attention.attach_prefix(keys, None))


def stale_prefix(patch: pytest.MonkeyPatch) -> None:
    right = scoring.PrefixTreeScorer.prefix

    def prefix(self: Any, tokens: tuple[int, ...]) -> KeyValues:
        return KeyValues(tokens, right(self, tuple((token + 1) % 300 for token in tokens)).layers)

    patch.setattr(scoring.PrefixTreeScorer, "prefix", prefix)


def rows_exchanged(patch: pytest.MonkeyPatch) -> None:
    """Keys and values go to the slot of another row."""
    right = kv_cache.SlotCache.store

    def store(self: Any, keys: Any, values: Any, layer: int) -> Any:
        return right(self, keys.roll(1, 0), values.roll(1, 0), layer)

    patch.setattr(kv_cache.SlotCache, "store", store)


def nothing_hidden(patch: pytest.MonkeyPatch) -> None:
    """Let all tokens see all others where attention is split, when scoring."""
    right = scoring.PrefixTreeScorer._inputs

    def inputs(self: Any, layout: Any, cache: Any, *sent: Any) -> Any:
        found = right(self, layout, cache, *sent)
        masks = found["attention_mask"]
        if self._split_after(cache.past):
            whole = isinstance(masks, dict)
            found["attention_mask"] = {k: 0 * mask for k, mask in masks.items()} if whole else 0 * masks
        return found

    patch.setattr(scoring.PrefixTreeScorer, "_inputs", inputs)


def past_before_last(patch: pytest.MonkeyPatch) -> None:
    """Attend after a prefix that lacks its last token."""
    right = split_attention.attach_prefix

    def put_behind(keys: Any, prefix: Any) -> Any:
        return right(keys, prefix and tuple(part[:, :, :-1] for part in prefix))

    patch.setattr(kv_cache, "attach_prefix", put_behind)


SCORING: dict[str, Change] = {
    "one token too many is seen": columns_seen(lambda row: [min(until + 1, len(row)) for until in row]),
    "one token too few is seen": columns_seen(lambda row: [max(u - 1, at + 1) for at, u in enumerate(row)]),
    "branches see each other": columns_seen(lambda row: [len(row)] * len(row)),
    "the first token is not seen": first_hidden,
    "positions are off by one": position_off,
    "keys of another prefix": stale_stem,
}

GENERATING: dict[str, Change] = {
    "one token too many is seen": slots_seen(1),
    "one token too few is seen": slots_seen(-1),
    "positions are off by one": slot_position_off,
    "the prefix is dropped": no_prefix,
    "keys of another prefix": stale_prefix,
    "keys of another row": rows_exchanged,
}


SPLIT: dict[str, Change] = {
    "tokens see those after them": nothing_hidden,
    "the prefix is dropped": no_prefix,
    "the prefix lacks a token": past_before_last,
}


@pytest.mark.parametrize("fault", SCORING)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_fault_in_scoring_is_found(
    family: str, dtype: Dtype, fault: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    SCORING[fault](monkeypatch)
    engine = CausalEngine(*models(family, dtype))
    assert not engine.shares
    assert SLOW_WAYS["scoring"][0] in engine.notes[0]
    engine.close()


@pytest.mark.parametrize("fault", GENERATING)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_fault_in_generating_is_found(
    family: str, dtype: Dtype, fault: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    GENERATING[fault](monkeypatch)
    engine = CausalEngine(*models(family, dtype))
    assert engine.shares
    assert not generates_together(engine)
    assert any(SLOW_WAYS["generating"][0] in note for note in engine.notes)
    engine.close()


@ON_CPU
@pytest.mark.parametrize("fault", SPLIT)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_fault_in_split_scoring_is_found(
    family: str, dtype: Dtype, fault: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    SPLIT[fault](monkeypatch)
    engine = CausalEngine(*models(family, dtype))
    assert engine._shared is not None
    assert not engine._shared.splits
    assert engine.notes
    engine.close()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_logits_of_another_place_are_found(
    kind: str, dtype: Dtype, models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = logits.SelectiveLogits._gathered

    def gathered(self: Any, inputs: Any, where: Any) -> Any:
        return right(self, inputs, (where[0], (where[1] - 1).clamp(min=0)))

    monkeypatch.setattr(logits.SelectiveLogits, "_gathered", gathered)
    if kind == "masked":
        engine: CausalEngine | MaskedEngine = MaskedEngine(*weights(tiny_masked(tmp_path / "m"), dtype))
    else:
        engine = CausalEngine(*models("llama", dtype))
    assert not engine._needed.gathers
    assert SLOW_WAYS["logits"][0] in engine.notes[0]
    engine.close()


@ON_CPU
@pytest.mark.parametrize(("family", "seed"), [("qwen3_moe", 0), ("mixtral", 5)])
def test_a_token_that_rounding_sends_to_another_expert_is_no_fault(
    family: str, seed: int, tmp_path: Path
) -> None:
    """With these weights one token of the probe goes to another expert in the fast way than in the plain one."""
    engine = engine_for(causal_of(tmp_path, family, seed), dtype="bfloat16")
    assert generates_together(engine)
    assert engine.notes == []
    engine.close()


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("family", MASKED)
def test_every_masked_family_gathers_logits_in_half_precision(
    family: str, dtype: Dtype, tmp_path: Path
) -> None:
    engine = MaskedEngine(*weights(tiny_masked(tmp_path / "m", **MASKED[family]), dtype))
    assert engine._needed.gathers
    assert engine.notes == []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", [None, "one token too many is seen"])
def test_large_logits_are_judged_by_their_own_rounding(
    dtype: Dtype, fault: str | None, half: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of real models are: two right ways are further apart than any bound, but for products in float32."""
    found: list[float] = []
    info, loaded = weights(causal_of(tmp_path, "llama"), dtype)
    with torch.no_grad():
        loaded.model.get_output_embeddings().weight.mul_(32)

    def noted(one: torch.Tensor, other: torch.Tensor) -> float:
        found.append(largest_difference(one, other))
        return found[-1]

    monkeypatch.setattr(
        batch, "difference", lambda model, plain, other: difference(model, plain, other, apart=noted)
    )
    if fault:
        GENERATING[fault](monkeypatch)
    engine = CausalEngine(info, loaded)
    assert generates_together(engine) is (fault is None)
    if half == "by itself":
        assert found[0] > (BOUND[f"torch.{dtype}"] if dtype != "float32" or fault else 0)


class Toy:
    """A weight, and what a probe computes with it."""

    def __init__(self, dtype: Any) -> None:
        make = torch.Generator().manual_seed(1)
        self.dtype = dtype
        self.weight = torch.randn(64, 200, generator=make).to(dtype)
        self.hidden = torch.randn(9, 64, generator=make)

    def plain(self) -> torch.Tensor:
        return (self.hidden.to(self.dtype) @ self.weight).float()

    def coarse(self) -> torch.Tensor:
        """The same sums, rounded after each addition."""
        hidden = self.hidden.to(self.dtype)
        total = hidden[:, :1] * self.weight[:1]
        for at in range(1, 64):
            total = total + hidden[:, at : at + 1] * self.weight[at]
        return total.float()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_way_that_rounds_more_than_the_plain_one_is_not_admitted(dtype: Any) -> None:
    toy = Toy(dtype)
    assert difference(toy, toy.plain, toy.plain) is None
    why = difference(toy, toy.plain, toy.coarse)
    assert why is not None
    assert FACTOR < float(why.split(", ")[1].split()[0]) < 100
    assert difference(toy, toy.coarse, toy.plain) is None
    exact = Toy(torch.float32)
    assert difference(exact, exact.plain, exact.coarse) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_that_float32_arithmetic_is_nothing_for_is_held_to_a_bound(dtype: Any) -> None:
    toy = Toy(dtype)

    def packed(off: float) -> Callable[[], torch.Tensor]:
        def logits() -> torch.Tensor:
            if toy.weight.dtype != dtype:  # within in_float32
                raise RuntimeError("expected another type")
            return toy.plain() + off

        return logits

    bound = BOUND[str(dtype)]
    assert difference(toy, packed(0.0), packed(bound / 2)) is None
    why = difference(toy, packed(0.0), packed(bound * 2))
    assert why is not None
    assert "float32 arithmetic raised RuntimeError" in why


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_different(dtype: Any, value: float) -> None:
    toy = Toy(dtype)

    def broken() -> torch.Tensor:
        found = toy.plain()
        found[3, 7] = value
        return found

    assert difference(toy, toy.plain, broken) is not None
    masked = toy.plain().index_fill(1, torch.tensor([5]), float("-inf"))
    assert difference(toy, lambda: masked, masked.clone) is None


def test_running_out_of_memory_is_not_taken_for_a_difference() -> None:
    toy = Toy(torch.bfloat16)

    def full() -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        difference(toy, toy.plain, full)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_of_a_probe_is_left(dtype: Dtype, tmp_path: Path) -> None:
    info, loaded = weights(causal_of(tmp_path, "llama"), dtype)
    before = {name: one.clone() for name, one in loaded.model.state_dict().items()}
    hooks = [len(one._forward_hooks) + len(one._forward_pre_hooks) for one in loaded.model.modules()]
    engine = CausalEngine(info, loaded)
    assert generates_together(engine)
    assert engine.work_done == WorkDone()
    assert engine._shared is not None
    assert engine._shared._kept._entries == []
    assert engine.loaded.model.config._attn_implementation == "sdpa"
    after = loaded.model.state_dict()
    assert all(
        after[name].dtype is one.dtype and torch.equal(after[name], one) for name, one in before.items()
    )
    engine.close()
    assert hooks == [len(one._forward_hooks) + len(one._forward_pre_hooks) for one in loaded.model.modules()]


pytestmark = ON_CPU


@pytest.fixture
def probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The probes that are run, in their order; the cache is a folder of the test's own."""
    found: list[str] = []
    tried = VerifiedKernels.tried

    def noted(self: VerifiedKernels, way: str, probe: Callable[[], str | None]) -> str | None:
        def run() -> str | None:
            found.append(way)
            return probe()

        return tried(self, way, run)

    monkeypatch.setattr(VerifiedKernels, "tried", noted)
    monkeypatch.setattr(causal, "folder_for", lambda _model: tmp_path / "ways")
    return found


def start(folder: Path, dtype: Dtype = "float32", *, remembers: bool = True) -> CausalEngine:
    (info,) = resolve(str(folder), seq_len=None)
    settings = ModelSettings(device="cpu", dtype=dtype, threads=1)
    engine = CausalEngine(info, load_weights(info, settings), settings, remembers=remembers)
    generates_together(engine)
    return engine


ALL = [
    *("without the future of 24 tokens", "beside any rows"),
    *("logits", "scores", "split scores", "texts", "lanes"),
]


def test_the_second_start_needs_no_probe(llama: Path, probes: list[str]) -> None:
    for engine in (start(llama), start(llama)):
        assert engine._needed.gathers
        assert engine.shares
        assert generates_together(engine)
    assert probes == ALL


def test_other_weights_of_the_same_model_need_none_and_another_model_or_type_does(
    llama: Path, tmp_path: Path, probes: list[str]
) -> None:
    start(llama)
    start(causal_of(tmp_path / "seed", "llama", seed=7))
    assert probes == ALL
    start(llama, "bfloat16")
    start(causal_of(tmp_path / "tied", "llama tied"))
    assert probes == 3 * ALL


def test_other_code_is_tried_again(llama: Path, probes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    start(llama)
    monkeypatch.setattr(agreement, "hash_code", lambda: "edited")
    start(llama)
    assert probes == 2 * ALL


def test_what_was_refused_is_tried_again(
    llama: Path, probes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(BatchGenerator, "verify", lambda *_, **__: "a logit is 7 off")
        assert "a logit is 7 off" in start(llama).notes[0]
    tried = [*ALL[: ALL.index("texts") + 1], "generate"]
    assert probes == tried
    assert start(llama).notes == []
    assert probes == [*tried, *ALL[ALL.index("texts") :]]


def test_nothing_is_remembered_unless_asked_for(llama: Path, tmp_path: Path, probes: list[str]) -> None:
    start(llama, remembers=False)
    start(llama, remembers=False)
    assert probes == 2 * ALL
    assert not (tmp_path / "ways").exists()


@pytest.mark.parametrize("content", ["", "{", "7", '{"scores": true}', "[1, 2]"])
def test_a_damaged_file_is_as_good_as_none(
    content: str, llama: Path, tmp_path: Path, probes: list[str]
) -> None:
    start(llama)
    (file,) = (tmp_path / "ways").iterdir()
    assert json.loads(file.read_text()) == sorted(ALL)
    file.write_text(content)
    start(llama)
    assert probes == 2 * ALL


def test_a_small_model_is_always_tried(llama: Path) -> None:
    assert folder_for(start(llama, remembers=False).loaded.model) is None


_XLNET = {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}

BIDIRECTIONAL: dict[str, tuple[dict[str, Any], str]] = {
    "llama": ({"is_causal": False}, "is_causal is false"),
    "gemma3_text": (
        {"head_dim": 8, "use_bidirectional_attention": True},
        "use_bidirectional_attention is true",
    ),
    "xlnet": (_XLNET, "attn_type is 'bi'"),
    "bert-generation": ({}, "is_decoder is false"),
}
"""Models that are loaded as causal ones and see later tokens: settings, and what the refusal names."""


@pytest.mark.parametrize("family", BIDIRECTIONAL)
def test_a_model_that_sees_later_tokens_is_refused_and_the_field_named(family: str, tmp_path: Path) -> None:
    settings, named = BIDIRECTIONAL[family]
    folder = tiny_causal(tmp_path / "m", model_type=family, **settings)
    with pytest.raises(CheckpointError, match=f"tokens see later ones.* {named}") as raised:
        engine_for(folder)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_a_decoder_that_sees_later_tokens_is_a_masked_model(family: str, tmp_path: Path) -> None:
    causal = tiny_causal(tmp_path / "causal", model_type=family, is_decoder=True)
    assert resolve(str(causal), seq_len=None)[0].kind == "causal"
    folder = tiny_causal(tmp_path / "masked", model_type=family)
    (info,) = resolve(str(folder), seq_len=None)
    assert info.kind == "masked"
    assert "is_decoder is not true" in info.extra["no causal model"]
    scored, refused = open_engine(info, ModelSettings(threads=1)).answer(
        [PseudoLoglikelihood("no token is the mask here"), Loglikelihood("a", " b")]
    )
    assert isinstance(scored, Refusal)  # its tokenizer has no mask token
    assert isinstance(refused, Refusal)


@pytest.mark.parametrize("family", ["xlm", "flaubert"])
def test_xlm_is_a_masked_model_unless_it_is_causal(family: str, tmp_path: Path) -> None:
    settings = {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "pad_index": 0, "n_words": 500}
    folder = tiny_masked(tmp_path / "m", model_type=family, vocab_size=500, **settings)
    assert resolve(str(folder), seq_len=None)[0].kind == "masked"


MIXING: dict[str, dict[str, Any]] = {
    "fnet": {},
    "funnel": {"block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64},
    "convbert": {"embedding_size": 32},
    "mobilebert": {"embedding_size": 16, "true_hidden_size": 32, "intra_bottleneck_size": 32},
    "big_bird": {"block_size": 4, "num_random_blocks": 1},
}
"""Masked models whose answers change with padding, or with the texts that were answered before."""

TEXTS = (
    f"[MASK] {CORPUS[0]} {CORPUS[1]}",
    "a [MASK]",
    f"{CORPUS[2]} [MASK]",
    "The quick brown [MASK] jumps",
)


def numbers(answers: Sequence[Answer | Refusal]) -> list[float]:
    """What is compared of answers."""
    found = []
    for answer in answers:
        assert isinstance(answer, FillMaskAnswer | RollingAnswer | LoglikelihoodAnswer), answer
        found.append(answer.candidates[0].logprob if isinstance(answer, FillMaskAnswer) else answer.logprob)
    return found


def by_itself(folder: Path, request: Request) -> float:
    """The answer of an engine that is asked nothing else."""
    (info,) = resolve(str(folder), seq_len=None)
    return numbers(open_engine(info, ModelSettings(threads=1)).answer([request]))[0]


@pytest.mark.parametrize("family", MIXING)
def test_what_is_answered_together_does_not_matter_to_a_model_that_mixes_padding(
    family: str, tmp_path: Path
) -> None:
    folder = tiny_masked(tmp_path / "m", model_type=family, **MIXING[family])
    requests: list[Request] = [FillMask(text, 1) for text in TEXTS]
    requests += [PseudoLoglikelihood("The boat was small"), PseudoLoglikelihood("a a a a a a a")]
    alone = [by_itself(folder, request) for request in requests]
    (info,) = resolve(str(folder), seq_len=None)
    engine = open_engine(info, ModelSettings(threads=1))
    assert numbers(engine.answer(requests)) == pytest.approx(alone, abs=1e-4)
    assert numbers(engine.answer(requests[::-1])) == pytest.approx(alone[::-1], abs=1e-4)
    (told,) = (told for told in engine.usage["slow"] if told["way"] == "batching")
    assert told["computed"] > told["enough"]
    assert told["reason"]


_OF_LENGTH = 40

BY_LENGTH: dict[str, dict[str, Any]] = {
    "longrope": {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4},
    "dynamic": {"factor": 4.0},
}


def of_length(folder: Path, kind: str) -> Path:
    """A model whose positions are computed otherwise in texts of more than ``_OF_LENGTH`` tokens."""
    rope = {"rope_type": kind, "rope_theta": 10000.0, "original_max_position_embeddings": _OF_LENGTH}
    length = _OF_LENGTH if kind == "dynamic" else 256
    return tiny_causal(folder, seq_len=length, head_dim=8, rope_parameters={**rope, **BY_LENGTH[kind]})


@pytest.mark.parametrize("order", [1, -1])
def test_one_long_row_changes_no_shorter_ones(order: int, tmp_path: Path) -> None:
    folder = of_length(tmp_path / "m", "longrope")
    contexts = ("She said", CORPUS[2], CORPUS[0] + CORPUS[1], "A question:", CORPUS[1][:30])[::order]
    requests: list[Request] = [Loglikelihood(context, " the boat was small") for context in contexts]
    alone = [by_itself(folder, request) for request in requests]
    engine = engine_for(folder)
    assert numbers(engine.answer(requests)) == pytest.approx(alone, abs=1e-4)
    assert numbers(engine.answer(requests[1:2])) == pytest.approx(alone[1:2], abs=1e-4)
    assert engine.company == BatchingConstraint(boundary=_OF_LENGTH, reason=engine.company.reason)
    assert f"{_OF_LENGTH} tokens" in engine.company.reason


def test_the_rope_of_a_longer_row_is_forgotten(tmp_path: Path) -> None:
    """Dynamic scaling stays at the longest row so far, until a short one comes."""
    (info,) = resolve(str(of_length(tmp_path / "m", "dynamic")), seq_len=None)
    info = replace(info, seq_len=200)

    def engine() -> CausalEngine:
        return CausalEngine(info, load_weights(info, ModelSettings()), ModelSettings(threads=1))

    requests: list[Request] = [
        Loglikelihood(text, " the boat was small")
        for text in (CORPUS[0] + CORPUS[1], CORPUS[0] + "They", "a")
    ]
    alone = [numbers(engine().answer([request]))[0] for request in requests]
    shared = engine()
    for _ in range(2):
        for request, expected in zip(requests, alone, strict=True):
            assert numbers(shared.answer([request])) == pytest.approx([expected], abs=1e-4)
    assert numbers(shared.answer(requests)) == pytest.approx(alone, abs=1e-4)


def test_a_model_is_tried_beyond_the_window_that_its_config_names(tmp_path: Path) -> None:
    engine = engine_for(tiny_causal(tmp_path / "m", model_type="mistral", sliding_window=40))
    assert any("41 tokens" in way for way in engine._ways._known)


def test_rows_stay_apart_by_what_the_model_makes_of_lengths() -> None:
    assert len({BatchingConstraint().group(length) for length in (1, 50, 200)}) == 1
    assert [BatchingConstraint(boundary=50).group(length) for length in (1, 50, 51, 200)] == [0, 0, 1, 1]
    assert [BatchingConstraint(boundary=50, by_length=True).group(length) for length in (50, 51, 52)] == [
        0,
        51,
        52,
    ]
    assert [BatchingConstraint("equal").group(length) for length in (1, 2)] == [1, 2]


def test_the_boundary_is_found_in_the_rope_of_each_kind_of_layer() -> None:
    def boundary(**rope: Any) -> tuple[int | None, bool]:
        config = SimpleNamespace(max_position_embeddings=64, rope_parameters=rope)
        config.get_text_config = lambda: config
        return length_boundary(SimpleNamespace(config=config))

    long = {"rope_type": "longrope", "original_max_position_embeddings": 32}
    assert boundary(full_attention=long, sliding_attention={"rope_type": "default"}) == (32, False)
    assert boundary(rope_type="dynamic", factor=2.0) == (64, True)
    assert boundary(rope_type="yarn", original_max_position_embeddings=32) == (None, False)


def test_a_state_puts_attributes_buffers_and_parts_back() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model.register_buffer("table", torch.zeros(1), persistent=False)
    state, first = LoadedState(model), model[0]
    assert not state.changed
    model[0], model.table, model.longest = torch.nn.Linear(2, 2), torch.ones(1), 8  # type: ignore[assignment]
    assert state.changed
    state.restore()
    assert not state.changed
    assert model[0] is first
    assert float(model.table) == 0.0
    assert not hasattr(model, "longest")


def test_a_model_with_one_logit_for_all_tokens_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_causal(tmp_path / "m")
    weights = folder / "model.safetensors"
    save_file({name: one * 0 for name, one in load_file(weights).items()}, weights, {"format": "pt"})
    with pytest.raises(CheckpointError, match=naming("logits", 0)):
        engine_for(folder)


def test_a_model_that_draws_its_logits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    folder = tiny_causal(tmp_path / "m")
    plain = torch.nn.Linear.forward
    monkeypatch.setattr(
        torch.nn.Linear, "forward", lambda self, hidden: plain(self, hidden) + torch.rand(self.out_features)
    )
    with pytest.raises(CheckpointError, match="drawn by chance"):
        engine_for(folder)
