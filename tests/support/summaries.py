"""Made-up runs for the tests of aggregation and reports: many kinds of result, no model."""

from __future__ import annotations

import random
from typing import Any

from pytest_touchstone.core.dataset import DatasetInfo
from pytest_touchstone.results.aggregate import summarize
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.store_entry import DEFAULT_COMPOSITES
from pytest_touchstone.results.summary import CollectedItem, Declaration, Summary

SUBJECTS = ("abstract_algebra", "college_biology", "machine_learning")


def dataset(name: str, rows: int = 32, origin: str = "shipped") -> DatasetInfo:
    return DatasetInfo(
        name=name, origin=origin, path=f"data/{name}.jsonl", rows=rows, sha256=f"{len(name):02x}" * 32
    )


def declaration(name: str, primary: str = "acc", **more: Any) -> Declaration:
    more.setdefault("dataset", dataset(f"{name}/validation"))
    more.setdefault("composites", [one.plain() for one in DEFAULT_COMPOSITES if name in one.benchmarks])
    return Declaration(name=name, version=1, primary=primary, **more)


DECLARATIONS = {
    one.name: one
    for one in (
        declaration(
            "winogrande", few_shot={"num_fewshot": 5, "from": "winogrande/train"}, rule="Partial scoring."
        ),
        declaration("mmlu_stem", grouped=True, few_shot={"num_fewshot": 5, "from": "mmlu/dev"}),
        declaration("lambada_openai", aggregate={"perplexity": {"by": "perplexity", "of": "logprob"}}),
        declaration("real_coref", "real@1", clustered=True),
        declaration("ko_lambada_wiki", "lambada@1"),
    )
}
SCORES = {
    "winogrande": ("acc",),
    "mmlu_stem": ("acc", "acc_norm"),
    "lambada_openai": ("acc", "logprob"),
    "real_coref": ("real@1", "real@1_strict", "real@5", "real@5_strict"),
    "ko_lambada_wiki": ("lambada@1", "lambada@1_strict"),
}


def collect(benchmarks: list[str], checkpoints: list[str], items: int = 24) -> list[CollectedItem]:
    """Items as pytest would collect them."""
    found = []
    for checkpoint in checkpoints:
        for name in benchmarks:
            for index in range(items):
                group = SUBJECTS[index % len(SUBJECTS)] if DECLARATIONS[name].grouped else None
                example = f"{name}/{index}" if group is None else f"{name}/{group}/{index}"
                node = f"evals/test_{name}.py::test_{name}[{checkpoint}-{example}]"
                found.append(CollectedItem(node, name, checkpoint, example, group))
    return found


def record(item: CollectedItem, scores: dict[str, float], **more: Any) -> Record:
    more.setdefault("status", "scored")
    return Record(
        item=item.item,
        benchmark=item.benchmark,
        example=item.example,
        checkpoint=item.checkpoint,
        group=item.group,
        scores=scores,
        **more,
    )


def score(items: list[CollectedItem], seed: int = 0) -> list[Record]:
    """A record for each item, with made-up scores."""
    draw = random.Random(seed)
    records = []
    for index, item in enumerate(items):
        scores = {
            name: -draw.expovariate(0.4) if name == "logprob" else float(draw.random() < 0.6)
            for name in SCORES[item.benchmark]
        }
        records.append(record(item, scores, cluster=f"text{index // 3}", seconds=0.01))
    return records


def checkpoint_row(name: str, step: int, kind: str = "causal") -> dict[str, Any]:
    return {
        "name": name,
        "source": f"runs/{name}",
        "path": f"runs/{name}",
        "kind": kind,
        "format": "folder",
        "model_type": "bert" if kind == "masked" else "llama",
        "seq_len": 512,
        "global_step": step,
        "epoch": step / 100,
        "fingerprint": "0123456789abcdef" * 4,
    }


def sample(checkpoints: int = 1, *, benchmarks: list[str] | None = None, faults: bool = True) -> Summary:
    """A finished run with every kind of result, and with one item of each fault."""
    names = [f"checkpoint-{100 * (n + 1)}" for n in range(checkpoints)]
    items = collect(list(DECLARATIONS) if benchmarks is None else benchmarks, names)
    records = score(items)
    if faults:
        records[1] = record(
            items[1], {}, status="error", message="RequestError: the text has two masks\nmore [/b]"
        )
        records[2] = record(items[2], {}, status="timeout", message="no answer within 60 s")
        records[3] = record(items[3], {}, status="skipped", message="no gold answer")
        del records[4]
    return summarize(
        records,
        DECLARATIONS,
        items,
        run_id="20260102_030405_77",
        directory="results/20260102_030405_77",
        manifest={
            "command": ["evals/", "--checkpoint", "runs/*"],
            "versions": {"python": "3.11.7", "torch": "2.13.0"},
            "machine": {"platform": "Linux", "cpus": 2},
            "commit": {"id": "5b4e13b" * 5, "dirty": True},
            "settings": {"seed": 0, "limit": None},
        },
        checkpoints=[checkpoint_row(name, 100 * (n + 1)) for n, name in enumerate(names)],
        deselected=["humaneval: asks Generate, which checkpoint-100 (causal LM) cannot answer"],
        seconds=83.2,
    )
