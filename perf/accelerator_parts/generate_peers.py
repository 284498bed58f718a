"""Other ways of generating the texts of ``perf.accelerator_parts.generate``, and where their texts part from ours.

Transformers generates in one padded batch, and, where its version has that, by its continuous batching. vLLM runs in a
process of its own. All have the same random weights; vLLM only where they are small enough to be written for it.
"""

from __future__ import annotations

import json
import re
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from perf.accelerator_parts.budget import Budget
from perf.accelerator_parts.models import Setup, bare_model, tokenizer_of
from perf.accelerator_parts.other_process import run_side
from perf.accelerator_parts.shapes import Shape
from perf.accelerator_parts.timing import begin_peak, timed
from pytest_touchstone.engines.transformers.compat import is_out_of_memory, quiet
from pytest_touchstone.engines.transformers.cpu import in_float32

if TYPE_CHECKING:
    from perf.accelerator_parts.generate import Asked

Write: TypeAlias = "Callable[[Any, Asked, int], list[list[int]]]"
"""Gives new tokens of each text."""

GENERATE = "generate, one padded batch"
CONTINUOUS = "generate_batch (continuous)"
VLLM = "vLLM"
PEERS = (GENERATE, CONTINUOUS, VLLM)

SHORT = 8
"""The new tokens of short texts, whose time is that of prompts and a few steps."""

COMPARED = 16
"""The texts of a case that are compared."""

EXPLAINED = 6
"""The texts that part from ours of which it is asked why."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The seconds of one side, the tokens of its texts, and the seconds of a step where they are known."""

    seconds: float
    tokens: int
    step: float | None
    note: str = ""


def in_transformers(
    shape: Shape, setup: Setup, asked: Sequence[Asked], found: dict[str, dict[str, Timing]], budget: Budget
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Add the timings of Transformers' ways to those found.

    Return why a way is missing, and by case and way how its texts compare with ours.
    """
    ways: dict[str, Write] = {
        GENERATE: _padded,
        CONTINUOUS: _continuous,
    }
    if shape.kind == "mtp":
        return dict.fromkeys(ways, "not there: Transformers has no such model"), {}
    begin_peak(setup.device)
    model, tokenizer = bare_model(shape, setup), tokenizer_of(shape.kind, setup.tokenizer)
    missing: dict[str, str] = {}
    texts: dict[str, dict[str, str]] = {}
    if not hasattr(model, "generate_batch"):
        missing[CONTINUOUS] = "not there: this version has no generate_batch"
    for number, one in enumerate(asked):
        part = budget.split(len(asked) - number)
        for way, write in ways.items():
            if way in missing or not part.enough(found[one.case.name]["ours"].seconds):
                continue
            try:
                made = _timed(setup, write, model, one, part.left)
            except Exception as error:  # whatever its parts raise: an attention that is not there, no memory
                failed = "out of memory" if is_out_of_memory(error) else f"{type(error).__name__}: {error}"
                found[one.case.name].pop(way, None)
                if not is_out_of_memory(error):
                    missing[way] = f"not there: it failed with {failed[:150]}"
                begin_peak(setup.device)
                continue
            if made is None:  # left out
                continue
            timing, ids = made
            found[one.case.name][way] = timing
            if one.case.samples == 1:
                said = compared(model, tokenizer, one, ids, setup)
                texts.setdefault(one.case.name, {})[way] = said
    return missing, texts


def _timed(
    setup: Setup, write: Write, model: Any, asked: Asked, seconds: float
) -> tuple[Timing, list[list[int]]] | None:
    """Return the timing and the texts; None where prompts alone, three times over, are beyond the time."""
    with quiet():
        first, _ = timed(setup.device, lambda: write(model, asked, 2))
        if 2 * first > seconds:
            return None
        short, _ = timed(setup.device, lambda: write(model, asked, SHORT))
        long, ids = timed(setup.device, lambda: write(model, asked, asked.tokens))
    return Timing(long, sum(map(len, ids)), (long - short) / (asked.tokens - SHORT)), ids


def _settings(asked: Asked, tokens: int) -> Any:
    from transformers import GenerationConfig

    request = asked.prompts[0].request
    sampled: dict[str, Any] = {"do_sample": False}
    if request.temperature > 0:
        sampled = {"do_sample": True, "temperature": request.temperature, "top_p": request.top_p, "top_k": 0}
    return GenerationConfig(
        max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=0, eos_token_id=1, **sampled
    )


def _padded(model: Any, asked: Asked, tokens: int) -> list[list[int]]:
    """Generate all texts in one batch, its prompts filled up on the left."""
    import torch

    rows = [list(one.tokens) for one in asked.prompts]
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows], device=model.device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=model.device)
    with torch.inference_mode():
        made = model.generate(
            ids,
            attention_mask=mask,
            generation_config=_settings(asked, tokens),
            num_return_sequences=asked.case.samples,
        )
    found: list[list[int]] = made[:, longest:].tolist()
    return found


def _continuous(model: Any, asked: Asked, tokens: int) -> list[list[int]]:
    """Generate them by continuous batching, a request for each sample; on a CPU within some of the memory."""
    more: dict[str, Any] = {}
    if model.device.type == "cpu":
        from transformers.generation import ContinuousBatchingConfig

        more["continuous_batching_config"] = ContinuousBatchingConfig(max_memory_percent=0.05)
    rows = [list(one.tokens) for one in asked.prompts for _ in range(asked.case.samples)]
    made = model.generate_batch(
        inputs=rows, generation_config=_settings(asked, tokens), progress_bar=False, **more
    )
    ended = sorted(made.values(), key=lambda one: int(re.sub(r"\D", "", one.request_id) or 0))
    if faults := [str(one.error) for one in ended if one.error]:
        raise RuntimeError(faults[0])
    found = [list(one.generated_tokens) for one in ended]
    if len(found) != len(rows) or not all(found):
        raise RuntimeError(f"{sum(map(bool, found))} of {len(rows)} texts came")
    return found


# vLLM


def in_vllm(
    shape: Shape, setup: Setup, asked: Sequence[Asked], found: dict[str, dict[str, Timing]], seconds: float
) -> dict[str, str] | str:
    """Add vLLM's timings to those found, and return by case how its texts compare with ours; or why there are
    none."""
    if shape.kind == "mtp":
        return "not there: vLLM has no such model"
    if setup.vllm_python is None and find_spec("vllm") is None:
        return "not there: vLLM is not installed"
    if seconds < (10 if setup.small else 60):
        return "left out: no time"
    with tempfile.TemporaryDirectory(prefix="accelerator-") as name:
        folder = Path(name)
        tokenizer = tokenizer_of(shape.kind, setup.tokenizer)
        tokenizer.save_pretrained(folder)
        given = {
            "model": [shape.kind, shape.model_type, dict(shape.config)],
            "how": {"dtype": setup.dtype, "device": setup.device},
            "known": int(max(tokenizer.get_vocab().values())) + 1,
            "length": shape.seq_len,
            "short": SHORT,
            "cases": [
                {
                    "name": one.case.name,
                    "prompts": [list(prompt.tokens) for prompt in one.prompts],
                    "tokens": one.tokens,
                    "samples": one.case.samples,
                    "temperature": one.prompts[0].request.temperature,
                    "top_p": one.prompts[0].request.top_p,
                }
                for one in asked
            ],
        }
        (folder / "asked.json").write_text(json.dumps(given), encoding="utf-8")
        begin_peak(setup.device)
        made = run_side("perf.accelerator_parts.vllm_texts", setup.vllm_python, folder, seconds)
    if isinstance(made, str):
        return made
    same = made.pop("same weights")
    note = "" if same else "vLLM has random weights of its own: texts are not compared"
    model = bare_model(shape, setup) if same else None
    said: dict[str, str] = {}
    for one in asked:
        short, long, steps, ids = made[one.case.name]
        found[one.case.name][VLLM] = Timing(long, sum(map(len, ids)), (long - short) / steps, note)
        if same and one.case.samples == 1:
            said[one.case.name] = compared(model, tokenizer, one, ids, setup)
    return said


# Texts


def compared(model: Any, tokenizer: Any, asked: Asked, ids: Sequence[Sequence[int]], setup: Setup) -> str:
    """Return how many texts are those of our side, and of the others how many part where rounding explains it.

    It does where the two best tokens are no farther apart, in float32, than the number type's own error there: twice
    the largest error of a logit.
    """
    equal, told, within = 0, 0, 0
    least: list[float] = []
    some = list(zip(asked.prompts, asked.texts, ids, strict=False))[:COMPARED]
    for prompt, text, theirs in some:
        place = parted(text, theirs, lambda part: tokenizer.decode(part, skip_special_tokens=True))
        if place is None:
            equal += 1
        elif told < EXPLAINED:
            margin, error = _apart(model, [*prompt.tokens, *theirs[:place]], setup)
            told += 1
            within += margin <= 2 * error
            least.append(margin)
    if equal == len(some):
        return f"{equal} of {len(some)}"
    return f"{equal} of {len(some)}; {within} of {told} part by rounding (margins to {max(least):.2g})"


def parted(text: str, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> int | None:
    """Return how many tokens come before the place where a text parts from ours; None where it does not.

    What one has beyond the other's end does not count. Broken characters count as one.
    """

    def plain(one: str) -> str:
        return re.sub("\ufffd+", "\ufffd", one)

    ours = plain(text)

    def differs(count: int) -> bool:
        its = plain(decode(ids[:count])).rstrip("\ufffd")
        return its[: len(ours)] != ours[: len(its)]

    if not differs(len(ids)):
        return None
    return bisect_left(range(1, len(ids) + 1), True, key=differs)


def _apart(model: Any, ids: Sequence[int], setup: Setup) -> tuple[float, float]:
    """Return how far apart the two best logits after some tokens are in float32, and the largest error of a logit in
    the number type."""
    import torch

    given = torch.tensor([list(ids)], device=model.device)
    with torch.inference_mode():
        half = model(input_ids=given).logits[0, -1].float()
        if setup.dtype == "float32":
            exact, error = half, 1e-4
        else:
            with in_float32():
                exact = model(input_ids=given).logits[0, -1].float()
            error = float((exact - half).abs().max())
    best = exact.topk(2).values
    return float(best[0] - best[1]), error
