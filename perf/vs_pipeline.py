"""FillMask against Transformers' ``fill-mask`` pipeline, used as a typical study of checkpoints uses it.

    python -m perf vs_pipeline [--limit N] [--pairs 3] [--model tiny base] [--json FILE]

The pipeline goes over the texts twice, once for k = 1 and once for k = 5, with ``top_k=50`` and batches of 64;
ours answers once. The texts are those of ``real_coref``, cut around the mask as the benchmark cuts them. Each
side is a process of its own; seconds are those of answering, without loading. ``tiny`` is
``builtin:ko-mlm-tiny``, ``base`` a BERT of 110 million parameters with random weights.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perf.measure import OURS, ROOT, Cost, in_turn, mebibytes, ratios, run, spread, table
from perf.our_side import threads
from pytest_touchstone.checkpoints import CheckpointInfo, resolve
from pytest_touchstone.core.files import shipped
from pytest_touchstone.core.requests import MASK, FillMask, FillMaskAnswer
from pytest_touchstone.metrics.korean import clip_around_mask
from pytest_touchstone.plugin.batches import DEFAULT_SIZE

PASSES = 2
TOP_K = 50
UNKNOWN = -1e4
"""The bias of the rows without a token in the tokenizer, so that none of them is an answer."""


@dataclass(frozen=True, slots=True)
class Side:
    """One run of one side: its cost, the seconds of answering, and the tokens and log-probabilities it found, text by
    text."""

    cost: Cost
    seconds: float
    tokens: list[list[str]]
    logprobs: list[list[float]]


def main() -> None:
    """Compare, or, as a process of its own, answer for one side."""
    options = _options()
    if options.side:
        answer_as(options)
        return
    found = []
    with tempfile.TemporaryDirectory(prefix="vs-pipeline-") as name:
        for model in options.model:
            folder = tiny() if model == "tiny" else base(Path(name) / "base")
            found.append(compare(model, folder, Path(name), options))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, help="texts (default: all that are shipped)")
    parser.add_argument("--pairs", type=int, default=3, help="how often both run, in turn")
    parser.add_argument("--model", nargs="+", choices=["tiny", "base"], default=["tiny", "base"])
    parser.add_argument("--batch", type=int, default=64, help="the pipeline's batch size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the numbers go, too")
    parser.add_argument("--side", choices=["ours", "pipeline"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


# The models


def tiny() -> Path:
    """Return the folder of the builtin masked model."""
    return resolve("builtin:ko-mlm-tiny", seq_len=None)[0].path


def base(folder: Path) -> Path:
    """Write a BERT of base shape with random weights and the builtin model's tokenizer; return the folder."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

    from pytest_touchstone.engines.transformers.compat import quiet

    tokenizer = AutoTokenizer.from_pretrained(tiny())
    known = max(tokenizer.get_vocab().values()) + 1
    torch.manual_seed(0)
    config = BertConfig(vocab_size=32_000, pad_token_id=tokenizer.pad_token_id)
    model = BertForMaskedLM(config)
    with torch.no_grad():
        # Larger than usual: with nearly flat answers rounding would decide which token comes first.
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.05)
        model.cls.predictions.bias[known:] = UNKNOWN
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


# Both sides


def answer_as(options: argparse.Namespace) -> None:
    """Answer for one side and write what it found, and how long that took."""
    import torch

    torch.set_num_threads(threads())
    (info,) = resolve(str(options.folder), seq_len=None)
    answer = _ours if options.side == "ours" else _pipeline(options.batch)
    seconds, answers = answer(info, texts(info.seq_len, options.limit))
    options.out.write_text(
        json.dumps(
            {
                "seconds": seconds,
                "tokens": [[token for token, _ in answer] for answer in answers],
                "logprobs": [[logprob for _, logprob in answer] for answer in answers],
            }
        ),
        encoding="utf-8",
    )


Answers = list[list[tuple[str, float]]]


def texts(seq_len: int, limit: int | None) -> list[str]:
    """Return the texts of the benchmark, cut around the mask."""
    lines = shipped("data", "real_coref", "wiki.jsonl").read_text(encoding="utf-8").splitlines()
    return [clip_around_mask(json.loads(line)["text"], seq_len) for line in lines[:limit]]


def _ours(info: CheckpointInfo, given: Sequence[str]) -> tuple[float, Answers]:
    from pytest_touchstone.engines.registry import open_engine
    from pytest_touchstone.engines.settings import ModelSettings

    engine = open_engine(info, ModelSettings(dtype="float32", device="cpu", threads=threads()))
    requests = [FillMask(text, top_k=TOP_K) for text in given]
    began = time.perf_counter()
    answers = []
    for start in range(0, len(requests), DEFAULT_SIZE):  # as many at once as in a run
        answers += engine.answer(requests[start : start + DEFAULT_SIZE])
    seconds = time.perf_counter() - began
    found: Answers = []
    for answer in answers:
        assert isinstance(answer, FillMaskAnswer), answer
        found.append([(one.token, one.logprob) for one in answer.candidates])
    return seconds, found


def _pipeline(batch: int) -> Callable[[CheckpointInfo, Sequence[str]], tuple[float, Answers]]:
    def answer(info: CheckpointInfo, given: Sequence[str]) -> tuple[float, Answers]:
        import torch
        from transformers import AutoModelForMaskedLM, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(info.path, local_files_only=True)
        tokenizer.model_max_length = info.seq_len
        model = AutoModelForMaskedLM.from_pretrained(info.path, local_files_only=True, dtype=torch.float32)
        return through_pipeline(model.eval(), tokenizer, given, device="cpu", batch=batch)

    return answer


def through_pipeline(
    model: Any, tokenizer: Any, given: Sequence[str], *, device: str, batch: int, passes: int = PASSES
) -> tuple[float, Answers]:
    """Return the seconds in which the pipeline goes over the texts so many times, and its answers."""
    from transformers import pipeline

    fill = pipeline("fill-mask", model=model, tokenizer=tokenizer, device=device, top_k=TOP_K)
    masked = [text.replace(MASK, tokenizer.mask_token) for text in given]
    began = time.perf_counter()
    for _ in range(passes):
        outputs = fill(masked, batch_size=batch, tokenizer_kwargs={"truncation": True})
    seconds = time.perf_counter() - began
    return seconds, [
        [(tokenizer.convert_ids_to_tokens(one["token"]), math.log(one["score"])) for one in output]
        for output in outputs
    ]


def compare(name: str, folder: Path, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run both sides in turn, print what each took and found, and return the numbers."""

    def side(which: str) -> Callable[[int], Side]:
        def once(number: int) -> Side:
            out = work / f"{name}-{which}-{number}.json"
            words: list[str | Path] = [
                "--side",
                which,
                "--folder",
                folder,
                "--out",
                out,
                "--batch",
                str(options.batch),
            ]
            words += [] if options.limit is None else ["--limit", str(options.limit)]
            command = [sys.executable, "-m", "perf.vs_pipeline", *words]
            cost = run(command, cwd=ROOT, log=work / f"{name}-{which}-{number}.log", env=OURS)
            return Side(cost, **json.loads(out.read_text(encoding="utf-8")))

        return once

    ours, pipeline = in_turn(options.pairs, side("ours"), side("pipeline"))
    count = len(ours[0].tokens)
    print(f"\n{name}, {count} texts, {threads()} threads, {options.pairs} pairs\n")
    rows = []
    for title, values in (
        ("answering, seconds", lambda one: one.seconds),
        ("whole process, seconds", lambda one: one.cost.wall),
    ):
        mine, theirs = [values(one) for one in ours], [values(one) for one in pipeline]
        rows.append([title, spread(mine), spread(theirs), ratios(theirs, mine), ""])
    rates = [[count / one.seconds for one in many] for many in (ours, pipeline)]
    rows.append(["items per second", spread(rates[0], 1), spread(rates[1], 1), "", ratios(*rates)])
    peaks = [[mebibytes(one.cost.peak_tree) for one in many] for many in (ours, pipeline)]
    rows.append(["peak memory, MiB", spread(peaks[0], 0), spread(peaks[1], 0), "", ratios(*peaks)])
    print(table(["", "ours", "pipeline, two passes", "pipeline / ours", "ours / pipeline"], rows))
    agreement = agree(ours[0], pipeline[0])
    for what, value in agreement.items():
        print(f"{what}: {value if isinstance(value, int) else f'{value:.2e}'} ", end="")
        print(f"of {count}" if isinstance(value, int) else "")
    sys.stdout.flush()
    return {
        "model": name,
        "texts": count,
        "agreement": agreement,
        "ours": [{"seconds": one.seconds, **asdict(one.cost)} for one in ours],
        "pipeline": [{"seconds": one.seconds, **asdict(one.cost)} for one in pipeline],
    }


def agree(ours: Side, pipeline: Side) -> dict[str, float]:
    """Return the number of texts whose first tokens are the same, and the largest difference of a log-probability."""
    pairs = list(zip(ours.tokens, pipeline.tokens, strict=True))
    differences = [
        abs(logprob - dict(zip(tokens, logprobs, strict=True))[token])
        for tokens, logprobs, mine, values in zip(
            pipeline.tokens, pipeline.logprobs, ours.tokens, ours.logprobs, strict=True
        )
        for token, logprob in zip(mine, values, strict=True)
        if token in tokens
    ]
    return {
        "the same first token": sum(mine[:1] == theirs[:1] for mine, theirs in pairs),
        "the same first five in order": sum(mine[:5] == theirs[:5] for mine, theirs in pairs),
        f"the same {TOP_K} in any order": sum(set(mine) == set(theirs) for mine, theirs in pairs),
        "largest difference of a log-probability": max(differences, default=math.nan),
    }


if __name__ == "__main__":
    main()
