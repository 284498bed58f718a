"""What PEFT's own models of an adapter answer, straight from their logits; the requests that tests of adapters ask."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.requests import Generate, Loglikelihood, LoglikelihoodAnswer
from pytest_touchstone.engines.base import Engine

ASKED: Final = [Loglikelihood("The answer is", f" {word}") for word in ("42", "the river", "a dog", "small")]
WRITTEN: Final = [Generate(f"{word} was", max_new_tokens=12) for word in ("The river", "She", "A question")]
MASKED: Final = "the answer is [MASK] ."


def logprobs(engine: Engine) -> list[float]:
    """An engine's log-probabilities of what is asked."""
    answers = engine.answer(ASKED)
    assert all(isinstance(answer, LoglikelihoodAnswer) for answer in answers)
    return [answer.logprob for answer in answers if isinstance(answer, LoglikelihoodAnswer)]


def loaded(base: Path, *, masked: bool = False) -> Any:
    """The base's model."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    return (AutoModelForMaskedLM if masked else AutoModelForCausalLM).from_pretrained(base)


def by_peft(base: Path, adapter: Path, *, masked: bool = False) -> Any:
    """PEFT's model."""
    from peft import PeftModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT's: it uses what transformers calls old
        return PeftModel.from_pretrained(loaded(base, masked=masked), str(adapter)).eval()


def expected(base: Path, adapter: Path) -> list[float]:
    """The log-probabilities of what is asked by PEFT's model."""
    import torch
    from transformers import PreTrainedTokenizerFast

    # A type's own class may change what the file says.
    model, tokenizer = by_peft(base, adapter), PreTrainedTokenizerFast.from_pretrained(base)
    found = []
    for asked in ASKED:
        context, whole = map(tokenizer.encode, (asked.context, asked.context + asked.continuation))
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([whole])).logits[0].log_softmax(-1)
        places = range(len(context), len(whole))
        found.append(sum(float(logits[place - 1, whole[place]]) for place in places))
    return found


def best_filling(base: Path, adapter: Path) -> float:
    """The highest log-probability at the mask by PEFT's masked model."""
    import torch
    from transformers import AutoTokenizer

    model, tokenizer = by_peft(base, adapter, masked=True), AutoTokenizer.from_pretrained(base)
    inputs = tokenizer(MASKED, return_tensors="pt")
    place = inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    with torch.inference_mode():
        return float(model(**inputs).logits[0, place].log_softmax(-1).max())
