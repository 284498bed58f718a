"""Options that pytest does not know: which of ours is meant, also by the names that other programs have for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from pytest_touchstone.core.settings import Setting, settings_table
from pytest_touchstone.core.text import alike

PREFIX: Final = "--eval-"

ELSEWHERE: Final[dict[str, tuple[str, ...]]] = {
    "checkpoint": (
        *("model", "pretrained", "peft", "model-path", "model-name-or-path", "checkpoint-path", "ckpt"),
        *("endpoint", "base-url", "model-base-url", "api-base"),
    ),
    "shots": ("num-fewshot", "few-shot", "n-shot", "num-shots", "k-shot"),
    "batch": ("batch-size", "eval-batch-size", "per-device-eval-batch-size", "max-num-seqs"),
    "limit": ("max-samples", "max-examples", "num-examples", "num-questions", "sample-limit"),
    "output": ("output-path", "output-dir", "out-dir", "log-dir", "save-dir", "results-dir"),
    "chat": ("apply-chat-template", "use-chat-template", "chat-template"),
    "max_new_tokens": ("max-tokens", "max-gen-toks", "max-gen-len", "max-output-tokens"),
    "seq_len": ("max-length", "max-model-len", "max-seq-len", "max-seq-length", "context-length"),
    "samples": ("n-samples", "num-samples", "num-generations", "num-return-sequences", "epochs"),
    "concurrency": ("max-connections", "num-concurrent", "max-concurrency", "parallel"),
    "server_args": ("tensor-parallel-size", "pipeline-parallel-size", "gpu-memory-utilization"),
    "device": ("gpu", "gpus", "cuda-device"),
    "dtype": ("torch-dtype", "precision"),
    "data": ("data-dir", "dataset-path", "data-path"),
    "tasks": ("task", "benchmark", "benchmarks", "evals"),
    "item_timeout": ("time-limit", "timeout"),
    "base_model": ("base", "lora-base"),
    "wandb": ("wandb-args",),
}
"""The names that other programs have for our options."""

PARTS: Final = ("model-args", "gen-kwargs", "generation-kwargs")
"""Options of others whose values are options, ``NAME=VALUE,...``."""

KEPT: Final = {
    "log-samples": "prompts and answers are always kept",
    "use-cache": "scores of earlier runs are always taken",
    "confirm-run-unsafe-code": "programs run in a sandbox",
}
"""Options of others whose effect we always have."""

NO_PATHS: Final = (
    "hf",
    "hf-auto",
    "vllm",
    "openai",
    "local-completions",
    "local-chat-completions",
    "gguf",
    "sglang",
)
"""The kinds of model that others name where we take a path."""


def about_unknown(unknown: Sequence[str], words: Sequence[str], *, ours_alone: bool) -> str | None:
    """Return what is said of the ``unknown`` options among the ``words`` of a command line; None where pytest is to
    refuse them.

    ``ours_alone`` is whether ``touchstone run`` was typed: then nothing is left to pytest.
    """
    found: dict[str, str] = {}
    nobodys = ""
    for word in (one for one in unknown if one.startswith("--")):
        name, sign, value = word.partition("=")
        if not sign:
            value = next((one for one in words[words.index(word) + 1 :][:1] if not one.startswith("-")), "")
        plain = name.removeprefix("--").replace("_", "-").removeprefix("eval-")
        if plain in KEPT:
            found[name] = f"{name}: no such option; leave it out: {KEPT[plain]}"
        elif meant := list(_meant(plain, value)):
            found[name] = (
                f"{name}: no such option; {' '.join(meant)} {'do' if len(meant) > 1 else 'does'} that"
            )
        elif near := _near(name):
            found[name] = f"unknown option {name}: did you mean {near}?"
        elif name.startswith(PREFIX) or ours_alone:
            nobodys = nobodys or name
    if found:
        return "; ".join(found.values())
    if nobodys:
        return f"unknown option {nobodys}; `pytest --help` has ours under 'benchmarks of language models'"
    return None


def _meant(name: str, value: str) -> Iterator[str]:
    """Yield our options for one of another program."""
    if name in PARTS:
        for key, _, text in (part.partition("=") for part in value.split(",")):
            yield from _meant(key.replace("_", "-"), text)
        return
    rows = settings_table()
    own = name.replace("-", "_")
    key = next((key for key, names in ELSEWHERE.items() if name in names), own)
    if key not in rows or not rows[key].option:
        return
    yield _with_value(rows[key], name, value)


def _with_value(row: Setting, name: str, value: str) -> str:
    flag = row.flag
    if row.action == "switch":
        return flag
    if flag == "--checkpoint" and (not value or value in NO_PATHS):
        value = "PATH"
    elif name.startswith("gpu") and value.isdigit():
        value = f"cuda:{value}"
    elif row.long_flag.endswith("chat") and not value:
        value = "on"
    elif row.long_flag.endswith("server-args"):
        value = f"'--{name} {value or 'N'}'"
    elif not re.fullmatch(r"[\w./:,@%+-]+", value):
        value = row.metavar or "VALUE"
    return f"{flag} {value}"


def _near(name: str) -> str:
    """Return the option of ours that is most like it; an empty text where none is."""
    flags = [flag for row in settings_table().values() if row.option for flag in (row.flag, row.long_flag)]
    if name.startswith(PREFIX):  # what all of them begin with says nothing of which is meant
        rest = [flag.removeprefix(PREFIX) for flag in flags if flag.startswith(PREFIX)]
        return "".join(f"{PREFIX}{one}" for one in alike(name.removeprefix(PREFIX), rest))
    return "".join(alike(name, flags, cutoff=0.75))
