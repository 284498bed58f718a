"""With the door shut nothing of the package is used, and the engine answers equally."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import (
    Answer,
    FillMask,
    GenerateAnswer,
    PseudoLoglikelihood,
    Refusal,
    Request,
)
from pytest_touchstone.engines.settings import Dtype, ModelSettings
from pytest_touchstone.engines.transformers import TransformersFactory, cpu
from pytest_touchstone.engines.transformers.cpu import kernels, packing, processor
from tests.support.engines import ON_CPU
from tests.support.families import causal_of
from tests.support.generating import prompts
from tests.support.scoring import SCORED
from tests.support.tiny import CORPUS, tiny_masked

CAUSAL: list[Request] = [*SCORED, *prompts()]

MASKED: list[Request] = [
    *(FillMask(text.replace(" ", " [MASK] ", 1), top_k=3) for text in CORPUS),
    *(PseudoLoglikelihood(text) for text in CORPUS),
]


def answers(folder: Path, dtype: Dtype, asked: list[Request]) -> list[Answer | Refusal]:
    (info,) = resolve(str(folder), seq_len=None)
    settings = ModelSettings(device="cpu", threads=1, dtype=dtype)
    engine = TransformersFactory().open(info, settings)
    try:
        return engine.answer(asked)
    finally:
        engine.close()


def numbers(given: list[Answer | Refusal]) -> list[float]:
    """The log-probabilities of answers."""
    found = [getattr(answer, "logprob", None) for answer in given]
    found += [one.logprob for answer in given for one in getattr(answer, "candidates", ())]
    return [number for number in found if number is not None]


@ON_CPU
@pytest.mark.parametrize(
    ("kind", "dtype", "bound"),
    [
        *(("llama", dtype, bound) for dtype, bound in (("float32", 1e-4), ("bfloat16", 0.5))),
        *((kind, "float32", 1e-4) for kind in ("qwen3", "gpt2", "masked")),
    ],
)
def test_the_engine_answers_equally_with_the_door_shut(
    kind: str, dtype: Dtype, bound: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_masked(tmp_path / "c") if kind == "masked" else causal_of(tmp_path, kind)
    asked = MASKED if kind == "masked" else CAUSAL
    monkeypatch.setattr(cpu, "Packer", partial(packing.Packer, least=0))
    opened = answers(folder, dtype, asked)

    def never(*_: object, **__: object) -> None:
        pytest.fail("the door is shut")

    monkeypatch.setattr(processor, "OPEN", False)
    for module, name in (
        (kernels, "_load_once"),
        (packing, "_pack"),
        (processor, "_attend_by_onednn"),
    ):
        monkeypatch.setattr(module, name, never)
    assert not cpu.computes_in_float32(torch.bfloat16, torch.device("cpu"))
    shut = answers(folder, dtype, asked)
    assert [type(answer) for answer in shut] == [type(answer) for answer in opened]
    assert len(numbers(shut)) > len(CORPUS)
    assert numbers(shut) == pytest.approx(numbers(opened), abs=bound)
    if dtype == "float32":
        assert [answer for answer in shut if isinstance(answer, GenerateAnswer)] == [
            answer for answer in opened if isinstance(answer, GenerateAnswer)
        ]
