"""``touchstone migrate``: command lines and configs of lm-evaluation-harness in our words.

touchstone migrate lm_eval --model hf --model_args pretrained=gpt2 --tasks arc_easy --num_fewshot 25
touchstone migrate config.yaml                a config of lm_eval, as of its --config

The command asks whole published sets (``--eval-data hub``), unless TOUCHSTONE_DATA names a folder of them. What it asks
less of, and what has no counterpart, are lines below it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from pytest_touchstone.cli.command import Output
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import MOST_SETTINGS, read_regular, shown_path
from pytest_touchstone.core.settings import SET
from pytest_touchstone.core.tasks import LM_EVAL_PREFIX, NEW_TOKENS, ZERO_SHOT, shipped_names, translate_task
from pytest_touchstone.core.text import similar_names

Words: TypeAlias = tuple[str, ...]
Rule: TypeAlias = Callable[[str], Words]
Given: TypeAlias = Mapping[str, Sequence[str]]
"""The options of a command line with their values, by name, with underscores."""

YAML: Final = (".yaml", ".yml")
EXPECTED: Final = (
    "expected lm_eval and its options, or its config in YAML (other scripts: docs/coming-from-scripts.md)"
)
BEFORE: Final = re.compile(
    r"[A-Za-z_]\w*=.*|(.*/)?(nohup|time|uv|poetry|run|accelerate|launch|torchrun|python[\d.]*)|-m|-u",
    re.DOTALL,
)
"""The words that may stand before the name of the program."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    text = "a command line of lm_eval, or its config in YAML"
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ... | FILE", help=text)


def run(options: argparse.Namespace) -> Output:
    """Translate a command line or a config of lm-evaluation-harness. Raises ``HarnessError``."""
    words = [word for word in options.words if word != "--"]
    if len(words) == 1 and Path(words[0]).suffix in YAML:
        command, notes = translate(read_config(Path(words[0])))
    else:
        text = " ".join(words) if len(words) == 1 else shlex.join(words)
        try:
            words = shlex.split(re.sub(r"\\\r?\n", "", text))  # as a shell joins lines
        except ValueError as error:
            raise HarnessError(f"migrate: the command cannot be read as a shell reads it: {error}") from None
        words = [word for word in words if word != "&"]
        before = [*itertools.takewhile(BEFORE.fullmatch, words)]
        program, *rest = words[len(before) :] or [""]
        if not re.fullmatch(r"lm[_-]eval(\..*)?", Path(program).name):
            raise HarnessError(f"migrate: {program!r} is not known: {EXPECTED}")
        command, notes = translate(options_of(rest[1:] if rest[:1] == ["run"] else rest))
        command = [*(word for word in before if "=" in word), *command]
    data = {"command": command, "notes": notes}
    return Output(data, "\n".join((shlex.join(command), *(f"  {note}" for note in notes))))


SWITCHES: Final = (
    *("log_samples", "trust_remote_code", "write_out", "show_config", "predict_only", "check_integrity"),
    *("fewshot_as_multiturn", "confirm_run_unsafe_code"),
)
"""Options that have no value."""

SHORT: Final = {
    "m": "model", "a": "model_args", "t": "tasks", "f": "num_fewshot", "b": "batch_size", "L": "limit",
    "o": "output_path", "s": "log_samples", "c": "use_cache",
}  # fmt: skip


def options_of(words: Sequence[str]) -> dict[str, list[str]]:
    """Parse a command line into options with their values. Switches have none; stray words are under ''."""
    values: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            option, equals, value = word.partition("=")
            bare = option.lstrip("-")
            name = bare.replace("-", "_") if option.startswith("--") else SHORT.get(bare, bare)
            values.setdefault(name, []).extend([value] if equals else [])
        else:
            values.setdefault("" if name in SWITCHES else name, []).append(word)
    return values


def read_config(path: Path) -> Given:
    """Return the options in a config of lm-evaluation-harness. Raises ``HarnessError``."""
    import yaml

    def text(value: Any) -> str:
        if isinstance(value, Mapping):
            return ",".join(f"{key}={argument}" for key, argument in value.items())
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)

    try:
        config = yaml.safe_load(read_regular(path, MOST_SETTINGS).decode("utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise HarnessError(f"cannot read {shown_path(path)}: {' '.join(str(error).split())}") from None
    if not isinstance(config, dict) or not {"tasks", "model", "model_args"} & config.keys():
        raise HarnessError(
            f"{shown_path(path)} is no config of lm_eval: expected tasks and model_args; a task is written in Python: "
            "docs/benchmarks.md"
        )
    return {
        str(name).replace("-", "_"): [] if value is True else [text(value)]
        for name, value in config.items()
        if value is not None and value is not False
    }


# The options


def _to(flag: str) -> Rule:
    return lambda value: (flag, value)


def _key(name: str) -> Rule:
    return lambda value: (SET, f"{name}={value}")


RULES: Final[Mapping[str, Rule]] = {
    "batch_size": lambda value: ("--eval-batch", value.partition(":")[0]),
    "device": _to("--eval-device"),
    "eval_config": _to("--eval-config"),
    "include_path": _to("--eval-lm-eval-path"),
    "limit": lambda value: ("--eval-limit", value.removesuffix(".0")),
    "num_fewshot": _to("--eval-shots"),
    "output_path": _to("--eval-output"),
    "system_instruction": _key("system"),
    "trust_remote_code": lambda _: ("--eval-trust-remote-code",),
    "verbosity": lambda value: ("--log-cli-level", value.upper()),
}

NOTES: Final = {
    "log_samples": "prompts and answers are always kept: `touchstone items last`",
    "use_cache": "scores of earlier runs are always taken, unless --eval-no-cache says otherwise",
    "fewshot_as_multiturn": "few-shot examples are always turns in a chat",
    "confirm_run_unsafe_code": "programs run in a sandbox, so that nothing needs to be confirmed",
    "max_batch_size": "--eval-batch auto takes as many as fit",
    "predict_only": "answers are scored too; `touchstone score last` scores them again",
    "write_out": "prompts are always kept: `touchstone items last`",
    "show_config": "--eval-dry-run shows every setting",
    "check_integrity": "data and benchmarks are always checked",
}
"""Options whose effect we always have, or have in another way."""

MODEL_ARGS: Final[Mapping[str, Rule]] = {
    "pretrained": _to("--checkpoint"),
    "base_url": _to("--checkpoint"),
    "model": _key("model_name"),
    "dtype": _to("--eval-dtype"),
    "max_length": _to("--eval-seq-len"),
    "max_model_len": _to("--eval-seq-len"),
    "max_gen_toks": _to("--eval-max-new-tokens"),
    "think_end_token": _key("think_end"),
    "enable_thinking": lambda value: (SET, f"thinking={'on' if value == 'True' else 'off'}"),
    "num_concurrent": _to("--eval-concurrency"),
    "device": _to("--eval-device"),
    "tokenizer": _key("tokenizer"),
    "trust_remote_code": lambda value: ("--eval-trust-remote-code",) if value == "True" else (),
    "parallelize": lambda value: (SET, "device_map=auto") if value == "True" else (),
}

GEN_KWARGS: Final[Mapping[str, Rule]] = {
    "max_gen_toks": _to("--eval-max-new-tokens"),
    "temperature": _to("--eval-temperature"),
    "top_p": _key("top_p"),
    "do_sample": lambda _: (),  # the temperature says it
}

WANDB_ARGS: Final[Mapping[str, Rule]] = {"project": _key("wandb_project")}

PARTS: Final = {"model_args": MODEL_ARGS, "gen_kwargs": GEN_KWARGS, "wandb_args": WANDB_ARGS}
"""Options whose values are options, ``NAME=VALUE,...``."""

SERVER_ARGS: Final = ("tensor_parallel_size", "data_parallel_size", "gpu_memory_utilization", "quantization")
"""The parts of ``--model_args`` that the server of vLLM takes."""

ELSEWHERE: Final = ("tasks", "config", "seed", "model", "apply_chat_template")
"""Options that ``translate`` reads by itself."""

ITS_OWN: Final = "the task of lm-evaluation-harness itself: pip install 'pytest-touchstone[lm-eval]'"
OWN_FILE: Final = "name the task, lm_eval:NAME, and its folder, --eval-lm-eval-path DIR"
HUB: Final = (
    "--eval-data hub: whole published sets (pip install 'pytest-touchstone[hub]'); or a folder of your copies"
)
NO_CHECKPOINT: Final = "PATH: your checkpoint's folder or file, or a server's http://HOST:PORT/v1"
SHIPPED_WHOLE: Final = "humaneval"


def translate(given: Given) -> tuple[list[str], list[str]]:
    """Return the touchstone command for options of lm-evaluation-harness, with notes on differences.

    Raises ``HarnessError`` if no task has a counterpart.
    """
    if config := "".join(given.get("config", ())):
        given = (
            {**read_config(Path(config)), **given}
            if Path(config).suffix in YAML
            else {**given, "eval_config": [config]}
        )
    names = [name for value in given.get("tasks", ()) for name in re.split(r"[,\s]+", value) if name]
    terms, notes = tasks_of(names, shots="num_fewshot" in given)
    if names and not terms:
        raise HarnessError(f"migrate: {'; '.join(notes)}; `touchstone benchmarks` lists what there is")
    command = ["touchstone", "run", *(["--tasks", ",".join(terms)] if terms else [])]
    for name, values in given.items():
        if name in PARTS:
            command += _parts(name, ",".join(values), "".join(given.get("model", ())), notes)
        elif name in RULES:
            command += RULES[name](" ".join(values))
        elif name in NOTES:
            notes.append(f"--{name}: {NOTES[name]}")
        elif not name:
            notes += [f"no counterpart: {word}" for word in values]
        elif name not in ELSEWHERE:
            near = similar_names(
                f"--{name}", [f"--{option}" for option in (*PARTS, *RULES, *NOTES, *ELSEWHERE)]
            )
            notes.append(f"no counterpart: --{name}" + (f" (is it {near[0]}?)" if near else ""))
    if "--eval-max-new-tokens" not in command:
        command += _limit_of_texts(names, notes)
    seed = "".join(given.get("seed", ())).split(",")[-1]
    command += [SET, f"fewshot=lm-eval:{seed}" if seed.isdigit() else "fewshot=lm-eval"]
    command += ["--eval-chat", "on" if "apply_chat_template" in given else "off"]
    added = []
    if "--checkpoint" not in command:
        command += ["--checkpoint", "PATH"]
        added.append(NO_CHECKPOINT)
    if terms != [SHIPPED_WHOLE] and not os.environ.get("TOUCHSTONE_DATA"):
        command += ["--eval-data", "hub"]
        added.append(HUB)
    if limit := "".join(given.get("limit", ())).removesuffix(".0"):
        added.append(f"--eval-limit {limit}: a sample, and results say so; without it, whole sets")
    return command, [*added, *notes]


def tasks_of(names: Iterable[str], *, shots: bool) -> tuple[list[str], list[str]]:
    """Return the terms of ``--tasks`` for task names of lm-evaluation-harness, with notes on missing ones.

    With ``shots`` the command has a number of few-shot examples for all tasks.
    """
    shipped = shipped_names()
    terms: list[str] = []
    notes: list[str] = []
    for name in names:
        of_name = translate_task(name, shipped, theirs=True)
        if all(term.partition("/")[0] in shipped or set("*?[") & set(term) for term in of_name):
            terms += of_name
        elif name.endswith(tuple(YAML)):
            notes.append(f"no counterpart: task {name}; {OWN_FILE}")
        else:
            near = similar_names(name, shipped)
            terms.append(f"{LM_EVAL_PREFIX}{name}")
            notes.append(f"{terms[-1]}: {ITS_OWN}" + (f" (nearest of ours: {near[0]})" if near else ""))
    terms = list(dict.fromkeys(terms))
    for benchmark in () if shots else ZERO_SHOT:
        first = next((index for index, term in enumerate(terms) if term.partition("/")[0] == benchmark), None)
        if first is not None:  # one term says it for the whole benchmark
            terms[first] += " 0-shot"
    return terms, notes


def _limit_of_texts(names: Sequence[str], notes: list[str]) -> list[str]:
    """Return the option for the token limit that lm-evaluation-harness sets for its tasks.

    Tasks with different limits get a note instead.
    """
    limits = {name: NEW_TOKENS[name] for name in names if name in NEW_TOKENS}
    if len(limits) == len(names) and len(set(limits.values())) == 1:
        return ["--eval-max-new-tokens", str(limits[names[0]])]
    notes += [
        f"{name}: add --eval-max-new-tokens {limit} in a run of its own" for name, limit in limits.items()
    ]
    return []


def _parts(name: str, value: str, model: str, notes: list[str]) -> list[str]:
    """Return the options for a ``NAME=VALUE,...`` argument. Parts without a counterpart get a note."""
    arguments = dict(argument.partition("=")[::2] for argument in value.split(",") if argument)
    words = ["--wandb"] if name == "wandb_args" else []
    if name == "model_args" and (adapter := arguments.pop("peft", arguments.pop("lora_local_path", None))):
        words += ["--checkpoint", adapter]
        words += ["--eval-base-model", arguments.pop("pretrained")] if "pretrained" in arguments else []
    if model == "vllm" and "pretrained" in arguments:
        words += ["--checkpoint", f"vllm:{arguments.pop('pretrained')}"]
        taken = [f"--{key.replace('_', '-')} {arguments.pop(key)}" for key in SERVER_ARGS if key in arguments]
        words += [SET, f"server_args={' '.join(taken)}"] if taken else []
    for key, text in arguments.items():
        if key in PARTS[name]:
            words += PARTS[name][key](text)
        elif name != "wandb_args":
            notes.append(f"no counterpart: {key} of --{name}")
    return words
