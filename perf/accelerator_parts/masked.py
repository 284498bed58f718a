"""Masked models: the texts of Real@k through our engine and through Transformers' ``fill-mask`` pipeline.

The texts are cut around the mask as the benchmark cuts them for the model's length. Since few of them fill 2048
tokens, another case fills them up with texts of other items. The pipeline goes over the texts once for k = 1 and once
for k = 5, as in studies of checkpoints; ours answers once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from perf.accelerator_parts.attempt import attempt
from perf.accelerator_parts.budget import Budget, as_many
from perf.accelerator_parts.findings import OURS, Figure, Row
from perf.accelerator_parts.limits import peaks
from perf.accelerator_parts.models import Setup, bare_model, masked_engine, opened, tokenizer_of
from perf.accelerator_parts.shapes import Shape, Sizes, sizes
from perf.accelerator_parts.timing import peak_mebibytes, timed
from perf.measure import Cost
from perf.vs_pipeline import PASSES, TOP_K, Answers, Side, agree, texts, through_pipeline
from pytest_touchstone.core.files import shipped
from pytest_touchstone.core.requests import MASK, FillMask, FillMaskAnswer
from pytest_touchstone.engines.transformers.compat import quiet
from pytest_touchstone.plugin.batches import DEFAULT_SIZE

PART = "masked"

PIPELINE = "fill-mask pipeline, two passes"

BATCH = 64
"""The pipeline's batch size."""

NOBODY = Cost(0.0, 0.0, 0, 0)
"""The cost of a side that is no process."""


def measure(setup: Setup, budget: Budget) -> Iterator[Row]:
    """Yield the rows of all masked models."""
    models = [one for one in setup.models if one.kind == "masked"]
    for number, shape in enumerate(models):
        share = budget.split(len(models) - number)
        cases = {f"real_coref at {shape.seq_len}": texts(shape.seq_len, None)}
        if shape.seq_len > 512:
            cases[f"the same, filled to {shape.seq_len}"] = filled(cases, shape.seq_len)
        for place, (case, some) in enumerate(cases.items()):
            part = share.split(len(cases) - place)
            work = partial(_case, shape, setup, case, some, part)
            yield from attempt(work, part=PART, model=shape.name, device=setup.device, case=case)


def filled(cases: dict[str, list[str]], seq_len: int) -> list[str]:
    """Return each text with whole texts of other items around it, and about twice as many characters as tokens.

    The model's own limit cuts what is too much, around the mask.
    """
    (given,) = cases.values()
    lines = shipped("data", "real_coref", "wiki.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    whole = " ".join(row["text"].replace(MASK, row["target"]) for row in rows)
    half = seq_len
    longer = []
    for number, text in enumerate(given):
        at = (number * 997) % max(1, len(whole) - 2 * half)
        longer.append(f"{whole[at : at + half]} {text} {whole[at + half : at + 2 * half]}")
    return longer


def _case(shape: Shape, setup: Setup, case: str, given: Sequence[str], budget: Budget) -> list[Row]:
    if not budget.enough():
        return [Row(PART, shape.name, case, note="left out: no time")]
    with opened(shape, setup) as engine:
        pilot = given[-8:]
        _answered(engine, pilot)
        each = timed(setup.device, lambda: _answered(engine, pilot))[0] / len(pilot)
        most = min(len(given), 64 if setup.small else len(given))
        some = list(given[: max(len(pilot), as_many(most, each, budget.left / 10))])
        seconds, answers = timed(setup.device, lambda: _answered(engine, some))
        lengths = [len(_ids(masked_engine(engine), text)) for text in some]
        memory = peak_mebibytes(setup.device)
    ours = Side(NOBODY, seconds, *_columns(answers))
    figures = _figures(setup, sizes(shape), lengths, seconds)
    rows = [Row(PART, shape.name, case, OURS, {**figures, "ours / it": 1.0, "peak MiB": memory})]
    work = partial(_pipeline, shape, setup, case, some, ours=ours, lengths=lengths, budget=budget)
    how: dict[str, Any] = {"part": PART, "model": shape.name, "device": setup.device, "case": case}
    return rows + attempt(work, **how, side=PIPELINE)


def _pipeline(
    shape: Shape,
    setup: Setup,
    case: str,
    given: Sequence[str],
    *,
    ours: Side,
    lengths: Sequence[int],
    budget: Budget,
) -> list[Row]:
    """Ask the pipeline the same, if that fits into the time."""
    model, tokenizer = bare_model(shape, setup), tokenizer_of(shape.kind)
    tokenizer.model_max_length = shape.seq_len
    how: dict[str, Any] = {"device": setup.device, "batch": BATCH}
    with quiet():
        through_pipeline(model, tokenizer, given[:4], **how, passes=1)
        begun, _ = through_pipeline(model, tokenizer, given[:4], **how, passes=1)
        if PASSES * begun / 4 * len(given) > budget.left:
            return [Row(PART, shape.name, case, PIPELINE, note="left out: no time")]
        seconds, found = through_pipeline(model, tokenizer, given, **how)
    agreement = agree(ours, Side(NOBODY, seconds, *_columns(found)))
    figures = _figures(setup, sizes(shape), lengths, seconds)
    figures |= {
        "ours / it": seconds / ours.seconds,
        "same first token": f"{agreement['the same first token']} of {len(given)}",
        "logprob apart, largest": agreement["largest difference of a log-probability"],
    }
    return [Row(PART, shape.name, case, PIPELINE, figures)]


def _answered(engine: Any, given: Sequence[str]) -> Answers:
    found: Answers = []
    for first in range(0, len(given), DEFAULT_SIZE):  # as many at once as in a run
        asked = [FillMask(text, top_k=TOP_K) for text in given[first : first + DEFAULT_SIZE]]
        for answer in engine.answer(asked):
            assert isinstance(answer, FillMaskAnswer), answer
            found.append([(one.token, one.logprob) for one in answer.candidates])
    return found


def _ids(engine: Any, text: str) -> Sequence[int]:
    found: Sequence[int] = engine._ahead.made([FillMask(text)])[0].ids
    return found


def _columns(answers: Answers) -> tuple[list[list[str]], list[list[float]]]:
    return (
        [[token for token, _ in one] for one in answers],
        [[logprob for _, logprob in one] for one in answers],
    )


def _figures(setup: Setup, found: Sizes, lengths: Sequence[int], seconds: float) -> dict[str, Figure]:
    operations = found.operations(sum(lengths), len(lengths))
    most = peaks(setup.device, setup.dtype, setup.small).matrix
    return {
        "texts": len(lengths),
        "tokens of a text": round(sum(lengths) / len(lengths)),
        "texts/s": len(lengths) / seconds,
        "tokens/s": sum(lengths) / seconds,
        "share of peak": operations / seconds / most,
    }
