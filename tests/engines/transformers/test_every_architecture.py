"""Every causal and masked architecture of the installed Transformers, tiny and random, against plain loops over it.

``exact`` computes each row by itself with the model's own forward pass, ``incremental`` each token from a pass that
ends before it. In half precision the engine may be as far from float32 as those loops are in the same type.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import (
    Generate,
    GenerateAnswer,
    Loglikelihood,
    LoglikelihoodAnswer,
    PseudoLoglikelihood,
    Request,
    RollingAnswer,
)
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import Dtype, ModelSettings
from tests.support.every_architecture import (
    CAUSAL_LEFT_OUT,
    CAUSAL_SETTINGS,
    MASKED_LEFT_OUT,
    MASKED_SETTINGS,
    SEES_LATER_TOKENS,
    make,
)
from tests.support.tiny import CORPUS

PAIRS = (
    ("The", " fox"),
    ("The quick brown fox", " jumps over the lazy dog"),
    (CORPUS[2], " She said"),
    (f"{CORPUS[2]} {CORPUS[0]}", " what is the answer"),
    (CORPUS[4][:12], CORPUS[4][12:20]),
)
TEXTS = ("The quick brown fox jumps", "a the", CORPUS[1], CORPUS[4])
PROMPTS = ("She said that", CORPUS[0], "def add(a, b):")
NEW_TOKENS = 5

_DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each type, which are listed only where slow tests run: listing them imports Transformers."""
    for name, kind in (("causal", "CAUSAL_LM"), ("masked", "MASKED_LM")):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, types(kind) if metafunc.config.getoption("run_slow") else [])


def types(kind: str) -> list[str]:
    from transformers.models.auto import modeling_auto

    left_out = {"CAUSAL_LM": CAUSAL_LEFT_OUT, "MASKED_LM": MASKED_LEFT_OUT}[kind]
    names = getattr(modeling_auto, f"MODEL_FOR_{kind}_MAPPING_NAMES")
    return sorted({*names} - {*left_out, *(SEES_LATER_TOKENS if kind == "CAUSAL_LM" else ())})


def opened(folder: Path, dtype: Dtype) -> Engine:
    (info,) = resolve(str(folder), seq_len=None)
    return open_engine(info, ModelSettings(threads=1, dtype=dtype))


class Plain:
    """The model as Transformers loads it, one row at a time."""

    def __init__(self, auto: Any, folder: Path, dtype: Dtype) -> None:
        import torch
        from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

        self._how = {"use_cache": False} if auto is AutoModelForCausalLM else {}
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        self._load = lambda: auto.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
        self._model = self._load()

    def logprobs(self, ids: list[int]) -> Any:
        """The log-probabilities [tokens, vocabulary] after each token."""
        import torch

        inputs = torch.tensor([ids])
        with torch.inference_mode():
            found = self._model(inputs, attention_mask=torch.ones_like(inputs), **self._how)
            return found.logits[0].float().log_softmax(-1)

    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        whole = self.tokenizer(context + continuation)["input_ids"]
        length = len(self.tokenizer(context)["input_ids"])
        return whole[:length], whole[length:]

    def exact(self, context: str, continuation: str) -> float:
        first, rest = self.pair(context, continuation)
        found = self.logprobs([*first, *rest[:-1]])[len(first) - 1 :]
        return sum(float(found[at, token]) for at, token in enumerate(rest))

    def incremental(self, context: str, continuation: str) -> float:
        first, rest = self.pair(context, continuation)
        return sum(float(self.logprobs([*first, *rest[:at]])[-1, token]) for at, token in enumerate(rest))

    def pseudo(self, text: str) -> float:
        """The sum over the tokens of a text, each masked in turn, by a model that has computed nothing before."""
        self._model = self._load()
        ids = self.tokenizer(text)["input_ids"]
        found = 0.0
        for at, token in enumerate(ids[1:-1], start=1):
            masked = [*ids[:at], self.tokenizer.mask_token_id, *ids[at + 1 :]]
            found += float(self.logprobs(masked)[at, token])
        return found

    def greedy(self, prompt: str) -> str:
        """The likeliest text of ``NEW_TOKENS`` tokens, each computed from all before it."""
        ids = self.tokenizer(prompt)["input_ids"]
        first = len(ids)
        for _ in range(NEW_TOKENS):
            ids = [*ids, int(self.logprobs(ids)[-1].argmax())]
            if ids[-1] == self.tokenizer.eos_token_id:
                break
        return str(self.tokenizer.decode(ids[first:], skip_special_tokens=True))

    def likely(self, prompt: str, within: float) -> set[str]:
        """The texts of the tokens that are nearly as likely as the likeliest one, in nats."""
        found = self.logprobs(self.tokenizer(prompt)["input_ids"])[-1]
        tokens = (found >= found.max() - within).nonzero().flatten().tolist()
        return {self.tokenizer.decode([token], skip_special_tokens=True) for token in tokens}


def texts(engine: Engine, tokens: int) -> list[list[str]]:
    """The greedy texts after the prompts, asked together and one by one."""
    asked = [Generate(prompt, max_new_tokens=tokens, stop=()) for prompt in PROMPTS]
    found = []
    for answers in (engine.answer(asked), [engine.answer([request])[0] for request in asked]):
        assert all(isinstance(answer, GenerateAnswer) for answer in answers), answers
        found.append([answer.text for answer in answers if isinstance(answer, GenerateAnswer)])
    return found


def scores(engine: Engine, requests: list[Request]) -> list[float]:
    found = []
    for answer in engine.answer(requests):
        assert isinstance(answer, LoglikelihoodAnswer | RollingAnswer), answer
        found.append(answer.logprob)
    return found


def error(found: list[float], exact: list[float]) -> float:
    return max(abs(one - other) for one, other in zip(found, exact, strict=True))


def allowed(plain: list[float], exact: list[float], tokens: int, *, experts: bool = False) -> float:
    """The error that a right way of computing may have: three times that of a plain loop in the same type, since
    roundings differ, and a little for each token. With experts it is ten times: rounding sends tokens to others."""
    return (10 if experts else 3) * error(plain, exact) + 1e-4 * tokens


def refused(folder: Path, dtype: Dtype, request: Request) -> None:
    """Assert that a model whose own code cannot compute in half precision is refused, or fails as that code does."""
    assert dtype != "float32"
    with pytest.raises((CheckpointError, RuntimeError), match=r"fails when it is tried|dtype|scalar type"):
        opened(folder, dtype).answer([request])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", _DTYPES)
def test_a_causal_model_scores_and_writes_as_its_own_code_does(
    causal: str, dtype: Dtype, tmp_path: Path
) -> None:
    """The first tokens of texts are compared too, but for models with experts in half precision."""
    from transformers import AutoModelForCausalLM

    folder = make(tmp_path / "m", AutoModelForCausalLM, causal, CAUSAL_SETTINGS.get(causal, {}))
    exactly, plain = (
        Plain(AutoModelForCausalLM, folder, "float32"),
        Plain(AutoModelForCausalLM, folder, dtype),
    )
    exact = [exactly.exact(*pair) for pair in PAIRS]
    assert error([exactly.incremental(*pair) for pair in PAIRS], exact) < 1e-3
    try:
        in_its_type = [plain.exact(*pair) for pair in PAIRS]
    except RuntimeError:
        refused(folder, dtype, Loglikelihood(*PAIRS[3]))
        return
    experts = "expert" in (folder / "config.json").read_text(encoding="utf-8")
    most = allowed(in_its_type, exact, 10, experts=experts)
    engine = opened(folder, dtype)
    requests: list[Request] = [Loglikelihood(*pair) for pair in PAIRS]
    together, alone = scores(engine, requests), [scores(engine, [request])[0] for request in requests[::-1]]
    assert error(together, exact) <= most, (together, exact)
    assert error(alone[::-1], exact) <= most, (alone[::-1], exact)
    if dtype == "float32":
        assert texts(engine, NEW_TOKENS) == [[exactly.greedy(prompt) for prompt in PROMPTS]] * 2
    for answers in texts(engine, 1) if dtype == "float32" or not experts else ():
        for prompt, text in zip(PROMPTS, answers, strict=True):
            assert text in exactly.likely(prompt, within=2 * most)
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", _DTYPES)
def test_a_masked_model_answers_as_its_own_code_does(masked: str, dtype: Dtype, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM

    folder = make(tmp_path / "m", AutoModelForMaskedLM, masked, MASKED_SETTINGS.get(masked, {}))
    exactly, plain = (
        Plain(AutoModelForMaskedLM, folder, "float32"),
        Plain(AutoModelForMaskedLM, folder, dtype),
    )
    exact = [exactly.pseudo(text) for text in TEXTS]
    try:
        most = allowed([plain.pseudo(text) for text in TEXTS], exact, 40)
    except RuntimeError:
        refused(folder, dtype, PseudoLoglikelihood(TEXTS[0]))
        return
    engine = opened(folder, dtype)
    requests: list[Request] = [PseudoLoglikelihood(text) for text in TEXTS]
    assert error(scores(engine, requests), exact) <= most
    assert error([scores(engine, [request])[0] for request in requests[::-1]][::-1], exact) <= most
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("family", SEES_LATER_TOKENS)
def test_a_causal_type_whose_tokens_see_later_ones_is_refused(family: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = make(tmp_path / "m", AutoModelForCausalLM, family, {})
    with pytest.raises(CheckpointError, match="tokens see later ones"):
        opened(folder, "float32")


@pytest.mark.slow
def test_what_is_left_out_is_there_to_be_left_out() -> None:
    from transformers.models.auto import modeling_auto as auto

    assert {*CAUSAL_LEFT_OUT, *CAUSAL_SETTINGS, *SEES_LATER_TOKENS} <= {
        *auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    }
    assert {*MASKED_LEFT_OUT, *MASKED_SETTINGS} <= {*auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES}
