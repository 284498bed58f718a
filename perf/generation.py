"""Generated texts: this harness against lm-evaluation-harness on GSM8K, and against Transformers' ``generate``.

    python -m perf generation gsm8k --data DIR --limit 40 --batches 8,16,32 --lm-eval-python PYTHON
    python -m perf generation equal --data DIR --prompts 100 --tokens 64

``gsm8k`` runs lm-eval once with each of the batch sizes, then both in turn with its fastest; whole processes, 5-shot,
greedy, the same prompts and stops. ``equal`` compares greedy texts of a call with those of ``generate`` for one prompt
at a time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.lm_eval_side import OFFLINE, TASK
from perf.measure import OURS, ROOT, Cost, in_turn, mebibytes, ratios, run, spread, table
from perf.our_side import model_folder, threads
from perf.prompts import SEED, Place, load_benchmark
from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.dataset import apply_limit, load_dataset, load_shots
from pytest_touchstone.core.few_shot_sampling import draw_shots
from pytest_touchstone.core.requests import Generate, GenerateAnswer
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.compat import quiet
from pytest_touchstone.engines.transformers.loading import load_model
from pytest_touchstone.results.journal import read_journal

GSM8K = Place("test_gsm8k", "test_gsm8k")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: its cost, the seconds spent generating, and the texts by item."""

    cost: Cost
    generating: float
    texts: dict[str, str]


def main() -> None:
    """Run the comparison that is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["gsm8k", "equal"])
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the shipped ones)")
    parser.add_argument("--checkpoint", default="builtin:smollm2-135m")
    parser.add_argument("--limit", type=int, default=40, help="items of GSM8K")
    parser.add_argument("--batches", default="8,16,32", help="batch sizes that lm-eval is tried with")
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of a text of equal")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--lm-eval-python", type=Path, default=Path(sys.executable), metavar="PYTHON")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    model = model_folder(options.checkpoint)
    if options.what == "equal":
        found = compare_texts(model, options)
    else:
        with tempfile.TemporaryDirectory(prefix="generation-") as name:
            found = compare_gsm8k(model, options, Path(name))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


# GSM8K


def compare_gsm8k(model: Path, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run both in turn, lm-eval with the fastest of its batch sizes."""
    data = None if options.data is None else str(Path(options.data).resolve())
    write_task(folder, data, options.limit)
    python = options.lm_eval_python.absolute()
    tried = {
        batch: theirs(folder, f"tried-{batch}", python, model, batch).generating
        for batch in options.batches.split(",")
    }
    best = min(tried, key=lambda batch: tried[batch])
    print("lm-eval, seconds by batch size: " + ", ".join(f"{b}: {s:.1f}" for b, s in tried.items()))
    mine, others = in_turn(
        options.pairs,
        lambda number: ours(folder, f"ours-{number}", model, data, options.limit),
        lambda number: theirs(folder, f"lm-eval-{number}", python, model, best),
    )
    rows = []
    for name, values in (
        ("generating, seconds", lambda one: one.generating),
        ("whole process, seconds", lambda one: one.cost.wall),
        ("peak memory, MiB", lambda one: mebibytes(one.cost.peak_tree)),
    ):
        a, b = [values(one) for one in mine], [values(one) for one in others]
        rows.append([name, spread(a), spread(b), ratios(b, a)])
    print(f"\ngsm8k, 5 shots, {options.limit} items, batch {best} (lm-eval), {threads()} threads\n")
    print(table(["", "ours", "lm-eval", "lm-eval / ours"], rows))
    same = sum(mine[0].texts[item] == text for item, text in others[0].texts.items())
    print(f"\nitems with the same text: {same} of {len(others[0].texts)}", flush=True)
    return {
        "tried": tried,
        "ours": [one.generating for one in mine],
        "lm_eval": [one.generating for one in others],
        "same_texts": same,
    }


def write_task(folder: Path, data: str | None, limit: int) -> None:
    """Write a local task for lm-eval with our rendered prompts."""
    spec, _ = load_benchmark(GSM8K)
    dataset, source = load_dataset(spec, data), load_shots(spec, data)
    drawn = draw_shots(spec, spec.shots.count, SEED, dataset, source)
    rows = folder / "rows.jsonl"
    with rows.open("w", encoding="utf-8") as file:
        for example in apply_limit(dataset.examples, limit):
            context = f"{drawn.few_shot(spec, example).text}Question: {example.row['question']}\nAnswer:"
            file.write(
                json.dumps({"item": example.id, "context": context, "answer": example.row["answer"]}) + "\n"
            )
    task = {
        "task": TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(rows)}},
        "test_split": "test",
        "num_fewshot": 0,
        "metadata": {"version": 1.0},
        "output_type": "generate_until",
        "doc_to_text": "context",
        "doc_to_target": "answer",
        "generation_kwargs": {
            "until": ["Question:", "</s>", "<|im_end|>"],
            "do_sample": False,
            "temperature": 0.0,
        },
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    (folder / f"{TASK}.yaml").write_text(json.dumps(task, indent=2) + "\n", encoding="utf-8")


def ours(folder: Path, name: str, model: Path, data: str | None, limit: int) -> Outcome:
    """Run pytest once; the seconds are those of the journal, item by item."""
    words = [GSM8K.nodeid, "--checkpoint", str(model), "--eval-limit", str(limit), "--eval-chat", "off"]
    words += [
        "--eval-dtype",
        "float32",
        "--eval-device",
        "cpu",
        "--eval-no-cache",
        "--eval-output",
        str(folder),
    ]
    words += ["--eval-run-id", name, "-p", "no:cacheprovider", *(["--eval-data", data] if data else [])]
    cost = run([sys.executable, "-m", "pytest", *words], cwd=ROOT, log=folder / f"{name}.log", env=OURS)
    records = read_journal(folder / name)
    texts = {one.example: one.exchanges[0]["answer"]["samples"][0]["text"] for one in records}
    return Outcome(cost, sum(record.seconds for record in records), texts)


def theirs(folder: Path, name: str, python: Path, model: Path, batch: str) -> Outcome:
    """Run lm-eval once; the seconds are those within ``HFLM.generate_until``."""
    output, notes = folder / name, folder / f"{name}.json"
    words = ["--model", "hf", "--model_args", f"pretrained={model},dtype=float32", "--tasks", TASK]
    words += ["--include_path", str(folder), "--num_fewshot", "0", "--batch_size", batch, "--device", "cpu"]
    words += ["--output_path", str(output), "--log_samples"]
    script = ROOT / "perf" / "lm_eval_timed.py"
    environment = {**OFFLINE, "HF_DATASETS_CACHE": str(folder / "datasets"), "PYTHONPATH": ""}
    cost = run(
        [python, script, notes, str(threads()), "run", *words],
        cwd=folder,
        log=folder / f"{name}.log",
        env=environment,
    )
    (path,) = output.rglob(f"samples_{TASK}_*.jsonl")
    samples = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    texts = {sample["doc"]["item"]: sample["resps"][0][0] for sample in samples}
    return Outcome(cost, json.loads(notes.read_text())["seconds"], texts)


# Transformers' generate


def compare_texts(model: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Compare greedy texts of prompts of GSM8K (5-shot for every other one).

    Ours are all at once, against transformers' ``generate`` for one prompt at a time. Where they part, the distance
    of the two best logits is printed.
    """
    import torch

    spec, _ = load_benchmark(GSM8K)
    dataset, source = load_dataset(spec, options.data), load_shots(spec, options.data)
    drawn = draw_shots(spec, spec.shots.count, SEED, dataset, source)
    examples = dataset.examples[: options.prompts]
    prompts = [
        (drawn.few_shot(spec, example).text if number % 2 else "")
        + f"Question: {example.row['question']}\nAnswer:"
        for number, example in enumerate(examples)
    ]
    (info,) = resolve(str(model), seq_len=None)
    settings = ModelSettings(dtype="float32", device="cpu", threads=threads())
    engine, plain = open_engine(info, settings), load_model(info, settings)
    asked = [Generate(prompt, max_new_tokens=options.tokens) for prompt in prompts]
    texts = [found.samples[0].text for found in engine.answer(asked) if isinstance(found, GenerateAnswer)]
    engine.close()
    different: list[dict[str, Any]] = []
    for prompt, text in zip(prompts, texts, strict=True):
        given = plain.tokenizer(prompt, return_tensors="pt")
        with torch.no_grad(), quiet():
            made = plain.model.generate(
                **given,
                max_new_tokens=options.tokens,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        tokens = made.sequences[0, given["input_ids"].shape[1] :]
        expected = plain.tokenizer.decode(tokens, skip_special_tokens=True)
        if text != expected:
            gaps = [float(-logits[0].topk(2).values.diff()) for logits in made.logits]
            different.append({"ours": text, "generate": expected, "least_gap": min(gaps)})
    print(
        f"\n{len(prompts)} prompts, {options.tokens} tokens: {len(prompts) - len(different)} texts are equal"
    )
    for one in different:
        print(f"  smallest distance of the two best logits {one['least_gap']:.2e}")
        print(f"    ours     {one['ours']!r}\n    generate {one['generate']!r}")
    return {"prompts": len(prompts), "different": different}


if __name__ == "__main__":
    main()
