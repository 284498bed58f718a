"""vLLM and llama.cpp themselves, where PATH has them: ``--run-servers``; CI has neither (``test_recorded``).

vLLM for CPUs needs ``VLLM_CPU_KVCACHE_SPACE=2`` in the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo, resolve
from pytest_touchstone.checkpoints.builtin import builtin_path
from pytest_touchstone.checkpoints.formats.base import CheckpointResources
from pytest_touchstone.core.requests import (
    Answer,
    Generate,
    GenerateAnswer,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
)
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from tests.support.recorded import SCORES

pytestmark = pytest.mark.real_server

PROMPTS = tuple(
    Generate(text, max_new_tokens=16) for text in ("The capital of France is", "def add(a, b):", "2 + 2 =")
)
SETTINGS = ModelSettings(dtype="float32", device="cpu", chat="off")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The builtin GGUF file as a folder of Transformers, in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file, folder = builtin_path("smollm2-135m"), tmp_path_factory.mktemp("unpacked") / "SmolLM2-135M"
    packed = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    config = packed.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = type(packed)(config).to(torch.float32)
    model.load_state_dict(packed.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    return folder


def answers(info: CheckpointInfo, requests: Sequence[Loglikelihood | Generate]) -> list[Answer | Refusal]:
    with closing(open_engine(info, SETTINGS)) as engine:
        return engine.answer(requests)


def started(source: str, lasting: CheckpointResources) -> CheckpointInfo:
    (info,) = resolve(source, seq_len=1024, lasting=lasting)
    return info


def test_vllm_scores_and_continues_as_this_process_does(unpacked: Path) -> None:
    asked = [one for one in SCORES if isinstance(one, Loglikelihood)]
    (local,) = resolve(str(unpacked), seq_len=1024)
    with CheckpointResources(print) as lasting:
        info = started(f"vllm:{unpacked}?args=--enforce-eager --dtype float32", lasting)
        assert Loglikelihood in info.serves
        for one, other in zip(answers(info, asked), answers(local, asked), strict=True):
            assert isinstance(one, LoglikelihoodAnswer)
            assert isinstance(other, LoglikelihoodAnswer)
            assert one.tokens == other.tokens
            assert one.logprob == pytest.approx(other.logprob, abs=1e-3)
        assert info.served["abilities"]["choices"], "one-token choices in one request"
        for text, same in zip(answers(info, PROMPTS), answers(local, PROMPTS), strict=True):
            assert isinstance(text, GenerateAnswer)
            assert isinstance(same, GenerateAnswer)
            assert (text.text, text.prompt_tokens) == (same.text, same.prompt_tokens)


def test_llama_server_says_that_it_gives_no_scores_and_gives_texts() -> None:
    with CheckpointResources(print) as lasting:
        info = started("llama-server:builtin:smollm2-135m", lasting)
        assert info.serves == (Generate,)
        assert "echo" in info.served["lacks"]
        texts = answers(info, PROMPTS)
    assert all(isinstance(one, GenerateAnswer) and one.text for one in texts)
    assert isinstance(texts[0], GenerateAnswer)
    assert "Paris" in texts[0].text
