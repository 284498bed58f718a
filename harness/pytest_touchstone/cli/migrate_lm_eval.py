"""Options of lm-evaluation-harness in our words, and what all translations of ``touchstone migrate`` share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from pytest_touchstone.cli.lm_eval_task import read_yaml
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.lm_eval_names import NEW_TOKENS, ZERO_SHOT, translated
from pytest_touchstone.core.text import alike

YAML: Final = (".yaml", ".yml")
RUN: Final = ("touchstone", "run")

Words: TypeAlias = tuple[str, ...]
Rule: TypeAlias = Callable[[str], Words]
Given: TypeAlias = Mapping[str, Sequence[str]]
"""The options of a command line with their values, by name, with underscores."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """Our ``commands``, with ``lines`` about what differs."""

    commands: tuple[Words, ...]
    lines: Words = ()


SWITCHES: Final = (
    *("list_benchmarks", "validate_config", "dry_run", "log_samples", "trust_remote_code", "write_out"),
    *("apply_chat_template", "show_config", "predict_only", "check_integrity", "fewshot_as_multiturn"),
    *("confirm_run_unsafe_code", "no_mlflow", "mlflow", "wandb"),
)
"""Options that may stand without a value."""

SHORT: Final = {
    "m": "model", "a": "model_args", "t": "tasks", "f": "num_fewshot", "b": "batch_size", "L": "limit",
    "o": "output_path", "s": "log_samples", "c": "use_cache",
}  # fmt: skip
"""The short options of lm_eval."""


def options_of(words: Sequence[str], short: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the options with their values, none for switches; what stands before them has the name ''."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            written, equals, value = word.partition("=")
            plain = written.lstrip("-")
            name = short.get(plain, plain) if not written.startswith("--") else plain.replace("-", "_")
            found.setdefault(name, []).extend([value] if equals else [])
        else:
            found.setdefault("" if name in SWITCHES and name != "apply_chat_template" else name, []).append(
                word
            )
    return found


def unknown(flag: str, known: Iterable[str]) -> str:
    """Return the line about an option that has no counterpart, with the nearest of those that have one."""
    near = alike(flag, list(known))
    return f"no counterpart: {flag}" + (f" (is it {near[0]}?)" if near else "")


def tasks_of(
    names: Iterable[str], known: Collection[str], *, shots: bool, theirs: bool = True
) -> tuple[list[str], list[str]]:
    """Return what ``--tasks`` takes for names of lm-evaluation-harness, and lines about those that it lacks; with
    ``shots`` the command gives a number of few-shot examples for all."""
    found: list[str] = []
    lines: list[str] = []
    for name in names:
        terms = translated(name, known, theirs=theirs)
        if all(term.partition("/")[0] in known or set("*?[") & set(term) for term in terms):
            found += terms
        else:
            near = alike(name, known)
            lines.append(f"no counterpart: task {name}" + (f" (nearest: {near[0]})" if near else ""))
    found = list(dict.fromkeys(found))
    for benchmark in () if shots or not theirs else ZERO_SHOT:
        first = next((at for at, term in enumerate(found) if term.partition("/")[0] == benchmark), None)
        if first is not None:  # one term says it for the whole benchmark
            found[first] += " 0-shot"
    return found, lines


def _rows() -> Words:
    """Return the options for whole sets: those of the folder that is set, else the published ones."""
    return () if os.environ.get("TOUCHSTONE_DATA") else ("--eval-data", "hub")


HUB: Final = (
    "--eval-data hub: whole published sets (pip install 'pytest-touchstone[hub]'); or a folder of your copies"
)
SHIPPED_WHOLE: Final = "humaneval"
NO_CHECKPOINT: Final = "PATH: your checkpoint's folder or file, or a server's http://HOST:PORT/v1"


def command_of(*parts: Iterable[str], whole: bool = True) -> tuple[Words, Words]:
    """Return the command of these parts, with rows and a checkpoint, and the lines about what it adds, and about
    items that it leaves out."""
    words = [word for part in parts for word in part]
    lines = []
    if "--checkpoint" not in words:
        words += ["--checkpoint", "PATH"]
        lines.append(NO_CHECKPOINT)
    shipped = "--tasks" in words and words[words.index("--tasks") + 1] == SHIPPED_WHOLE
    if whole and not shipped and (rows := _rows()):
        words += rows
        lines.append(HUB)
    if "--eval-limit" in words and (limit := words[words.index("--eval-limit") + 1]) != "all":
        lines.append(f"--eval-limit {limit}: a sample, and results say so; without it, whole sets")
    return (*RUN, *words), tuple(lines)


# lm-evaluation-harness


def _to(flag: str) -> Rule:
    return lambda value: (flag, value)


LM_EVAL: Final[Mapping[str, Rule]] = {
    "batch_size": lambda value: ("--eval-batch", value.partition(":")[0]),
    "device": _to("--eval-device"),
    "limit": lambda value: ("--eval-limit", value.removesuffix(".0")),
    "num_fewshot": _to("--eval-shots"),
    "output_path": _to("--eval-output"),
    "system_instruction": _to("--eval-system"),
    "trust_remote_code": lambda _: ("--eval-trust-remote-code",),
    "verbosity": lambda value: ("--log-cli-level", value.upper()),
    "predict_only": lambda _: (),
}

SILENT: Final = {
    "log_samples": "prompts and answers are always kept: `touchstone items last`",
    "use_cache": "scores of earlier runs are always taken, unless --eval-no-cache says otherwise",
    "fewshot_as_multiturn": "few-shot examples are always turns in a chat",
    "confirm_run_unsafe_code": "programs run in a sandbox, so that nothing needs to be confirmed",
    "max_batch_size": "--eval-batch auto takes as many as fit",
    "predict_only": "answers are scored too; `touchstone rescore last` scores them again",
    "include_path": "`touchstone migrate TASK.yaml` makes a benchmark of each task in that folder",
    "write_out": "prompts are always kept: `touchstone items last`",
    "show_config": "--eval-dry-run shows every setting",
    "check_integrity": "data and benchmarks are always checked",
    "seed": "",
    "model": "",
    "apply_chat_template": "",
}
"""Options whose effect we always have, or that other options take up."""

ARGS: Final[Mapping[str, Rule]] = {
    "pretrained": _to("--checkpoint"),
    "base_url": _to("--checkpoint"),
    "model": _to("--eval-model-name"),
    "dtype": _to("--eval-dtype"),
    "max_length": _to("--eval-seq-len"),
    "max_model_len": _to("--eval-seq-len"),
    "max_gen_toks": _to("--eval-max-new-tokens"),
    "think_end_token": _to("--eval-think-end"),
    "enable_thinking": lambda value: ("--eval-thinking", "on" if value == "True" else "off"),
    "num_concurrent": _to("--eval-concurrency"),
    "device": _to("--eval-device"),
    "tokenizer": _to("--eval-tokenizer"),
    "trust_remote_code": lambda value: ("--eval-trust-remote-code",) if value == "True" else (),
    "parallelize": lambda value: ("--eval-device-map", "auto") if value == "True" else (),
}
"""The parts of ``--model_args``."""

TEXTS: Final[Mapping[str, Rule]] = {
    "max_gen_toks": _to("--eval-max-new-tokens"),
    "temperature": _to("--eval-temperature"),
    "top_p": _to("--eval-top-p"),
    "do_sample": lambda _: (),  # the temperature says it
}
"""The parts of ``--gen_kwargs``."""

SERVER_ARGS: Final = ("tensor_parallel_size", "data_parallel_size", "gpu_memory_utilization", "quantization")
"""The parts of ``--model_args`` that the server of vLLM takes."""


def settings_of(config: Mapping[str, Any]) -> Given:
    """Return the options that a config of lm_eval has in YAML."""

    def text(value: Any) -> str:
        if isinstance(value, Mapping):
            return ",".join(f"{key}={one}" for key, one in value.items())
        return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

    found = {str(name).replace("-", "_"): value for name, value in config.items()}
    return {
        name: [] if value is True else [text(value)]
        for name, value in found.items()
        if value is not None and value is not False
    }


def of_lm_eval(given: Given, known: Collection[str]) -> Migrated:
    """Return our command for the options of lm-evaluation-harness; ``known`` are our benchmarks."""
    lines: list[str] = []
    given = dict(given)
    if config := "".join(given.pop("config", ())):
        if Path(config).suffix not in YAML:
            given["eval_config"] = [config]
        else:
            given = {**settings_of(read_yaml(Path(config))), **given}
    names = [name for value in given.get("tasks", ()) for name in re.split(r"[,\s]+", value) if name]
    terms, about = tasks_of(names, known, shots="num_fewshot" in given)
    if names and not terms:
        raise HarnessError(f"migrate: {'; '.join(about)}; `touchstone benchmarks` lists what there is")
    command = ["--tasks", ",".join(terms)] if terms else []
    lines += about
    for name, values in given.items():
        value = " ".join(values)
        if name in ("model_args", "gen_kwargs"):
            taken, more = _parts(name, ",".join(values), "".join(given.get("model", ())))
            command += taken
            lines += more
        elif name == "wandb_args":
            command += _wandb(",".join(values))
        elif name == "eval_config":
            command += ["--eval-config", value]
        elif name in LM_EVAL:
            command += LM_EVAL[name](value)
        if not name:
            lines += [f"no counterpart: {word}" for word in values]
        elif SILENT.get(name):
            lines.append(f"--{name}: {SILENT[name]}")
        elif name not in LM_EVAL and name not in (*SILENT, *TAKEN_UP, ""):
            lines.append(unknown(f"--{name}", [f"--{one}" for one in (*LM_EVAL, *SILENT, *TAKEN_UP)]))
    command += _limit_of_texts(names, command, lines)
    seed = "".join(given.get("seed", ())).split(",")[-1]
    command += ["--eval-fewshot", f"lm-eval:{seed}" if seed.isdigit() else "lm-eval"]
    command += ["--eval-chat", "on" if "apply_chat_template" in given else "off"]
    made, added = command_of(command)
    return Migrated((made,), (*added, *lines))


TAKEN_UP: Final = ("tasks", "model_args", "gen_kwargs", "wandb_args", "eval_config", "config")


def _limit_of_texts(names: Iterable[str], command: Sequence[str], lines: list[str]) -> list[str]:
    """Return the option for the length of texts that lm-evaluation-harness has for its tasks, where it differs from
    ours and is one; else a line says so."""
    told = {name: NEW_TOKENS[name] for name in names if name in NEW_TOKENS}
    if not told or "--eval-max-new-tokens" in command:
        return []
    if len(told) == len(list(names)) and len(set(told.values())) == 1:
        return ["--eval-max-new-tokens", str(next(iter(told.values())))]
    lines += [f"{name}: add --eval-max-new-tokens {most} in a run of its own" for name, most in told.items()]
    return []


def _wandb(text: str) -> list[str]:
    parts = dict(part.partition("=")[::2] for part in text.split(",") if part)
    project = ["--wandb-project", parts["project"]] if parts.get("project") else []
    return ["--wandb", *project]


def _parts(name: str, value: str, model: str) -> tuple[list[str], list[str]]:
    """Return the options for the parts of ``--model_args`` or ``--gen_kwargs``, and lines about the others."""
    rules = ARGS if name == "model_args" else TEXTS
    given = dict(part.partition("=")[::2] for part in value.split(",") if part)
    found: list[str] = []
    lines = []
    if name == "model_args" and (adapter := given.pop("peft", given.pop("lora_local_path", None))):
        found += ["--checkpoint", adapter]
        found += ["--eval-base-model", given.pop("pretrained")] if "pretrained" in given else []
    if model == "vllm" and "pretrained" in given:
        found += ["--checkpoint", f"vllm:{given.pop('pretrained')}"]
        taken = [f"--{key.replace('_', '-')} {given.pop(key)}" for key in SERVER_ARGS if key in given]
        found += ["--eval-server-args", " ".join(taken)] if taken else []
    for key, text in given.items():
        if key in rules:
            found += rules[key](text)
        else:
            lines.append(f"no counterpart: {key} of --{name}")
    return found, lines
