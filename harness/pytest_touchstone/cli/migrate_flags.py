"""Command lines of others -> ours: of lm-evaluation-harness, and of scripts that evaluate a served model."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pytest_touchstone.core.lm_eval_names import difference, translated
from pytest_touchstone.core.text import alike

Words: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Migrated:
    """A ``command`` of ours, or the ``text`` of a file, with ``lines`` about what differs."""

    command: Words = ()
    lines: Words = ()
    text: str | None = None


SWITCHES: Final = (
    *("list-benchmarks", "validate-config", "dry-run", "log_samples", "s", "trust_remote_code", "write_out"),
    *("apply_chat_template", "show_config", "predict_only", "check_integrity", "fewshot_as_multiturn"),
    *("confirm_run_unsafe_code",),
)
"""Options that may stand without a value."""

SHORT: Final = {
    "m": "model", "a": "model_args", "t": "tasks", "f": "num_fewshot", "b": "batch_size", "L": "limit",
    "o": "output_path", "s": "log_samples", "c": "use_cache",
}  # fmt: skip
"""The short options of lm_eval."""


def _options(words: Sequence[str], short: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the options with their values, empty for switches."""
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        plain = short.get(name.lstrip("-"), name.lstrip("-"))
        values = []
        while not equals and at < len(words) and not re.match(r"--?[A-Za-z]", words[at]):
            values.append(words[at])
            at += 1
            if plain in SWITCHES and plain != "apply_chat_template":
                break
        yield (
            plain,
            value if equals else ",".join(values) if plain in ("tasks", "model_args") else " ".join(values),
        )


Rule: TypeAlias = Callable[[str], Words]


def _to(flag: str) -> Rule:
    return lambda value: (flag, value)


SERVED: Final[Mapping[str, Rule]] = {
    "endpoint": _to("--checkpoint"),
    "batch-size": _to("--eval-batch"),
    "run-id": _to("--eval-run-id"),
    "config": _to("--eval-config"),
    "output": _to("--eval-output"),
    "gpu": lambda value: ("--eval-device", f"cuda:{value}"),
    "max-length": _to("--eval-seq-len"),
    "dry-run": lambda _: ("--eval-dry-run",),
    "log-level": lambda value: ("--log-cli-level", value.upper()),
}
"""The options of a script that evaluates a served model."""


def of_served_script(words: Sequence[str]) -> Migrated:
    """Return our command for such a script's options."""
    given = dict(_options([word.replace("_", "-") if word.startswith("--") else word for word in words], {}))
    if "list-benchmarks" in given:
        config = ("--config", given["config"]) if "config" in given else ()
        return Migrated(("touchstone", "benchmarks", *config))
    if "validate-config" in given:
        return Migrated(("touchstone", "validate", given.get("config") or "eval_config.json"))
    command = ["pytest", "evals/"]
    lines = []
    for name, value in given.items():
        if name in SERVED:
            command += SERVED[name](value)
        else:
            lines.append(_unknown(f"--{name}", [f"--{one}" for one in SERVED]))
    if "endpoint" in given and {"gpu", "batch-size"} & given.keys():
        lines.append("--eval-device and --eval-batch do nothing to a served model: its server decides")
    return Migrated(tuple(command), tuple(lines))


def _unknown(flag: str, known: Collection[str]) -> str:
    near = alike(flag, known)
    return f"no counterpart: {flag}" + (f" (is it {near[0]}?)" if near else "")


LM_EVAL: Final[Mapping[str, Rule]] = {
    "batch_size": lambda value: ("--eval-batch", value.partition(":")[0]),
    "device": _to("--eval-device"),
    "limit": lambda value: ("--eval-limit", value.removesuffix(".0")),
    "num_fewshot": _to("--eval-shots"),
    "output_path": _to("--eval-output"),
    "trust_remote_code": lambda _: ("--eval-trust-remote-code",),
    "verbosity": lambda value: ("--log-cli-level", value.upper()),
}

SILENT: Final = {
    "log_samples": "prompts and answers are always kept: `touchstone items RUN`",
    "use_cache": "scores of earlier runs are always taken, unless --eval-no-cache says otherwise",
    "fewshot_as_multiturn": "few-shot examples are always turns in a chat",
    "confirm_run_unsafe_code": "programs run in a sandbox, so that nothing needs to be confirmed",
    "max_batch_size": "--eval-batch auto takes as many as fit",
    "seed": "",
    "model": "",
}
"""Options whose effect we always have, or that other options take up."""

ARGS: Final[Mapping[str, Rule]] = {
    "pretrained": _to("--checkpoint"),
    "base_url": _to("--checkpoint"),
    "model": _to("--eval-model-name"),
    "dtype": _to("--eval-dtype"),
    "max_length": _to("--eval-seq-len"),
    "max_model_len": _to("--eval-seq-len"),
    "device": _to("--eval-device"),
    "tokenizer": _to("--eval-tokenizer"),
    "trust_remote_code": lambda value: ("--eval-trust-remote-code",) if value == "True" else (),
}
"""The parts of ``--model_args``."""

TEXTS: Final[Mapping[str, Rule]] = {
    "max_gen_toks": _to("--eval-max-new-tokens"),
    "temperature": _to("--eval-temperature"),
    "top_p": _to("--eval-top-p"),
}
"""The parts of ``--gen_kwargs``."""


def of_lm_eval(words: Sequence[str], known: Collection[str]) -> Migrated:
    """Return our command for one of lm-evaluation-harness; ``known`` are our benchmarks."""
    given = dict(_options(words, SHORT))
    command, lines = ["pytest", "evals/"], []
    for name, value in given.items():
        if name == "tasks":
            taken, more = _tasks(value, known)
            command += taken
            lines += more
        elif name in ("model_args", "gen_kwargs"):
            taken, more = _parts(name, value)
            command += taken
            lines += more
        elif name in LM_EVAL:
            command += LM_EVAL[name](value)
        elif name in SILENT:
            lines += [f"--{name}: {SILENT[name]}"] if SILENT[name] else []
        elif name != "apply_chat_template":
            lines.append(
                _unknown(f"--{name}", [f"--{one}" for one in (*LM_EVAL, *SILENT, "tasks", "model_args")])
            )
    seed = given.get("seed", "").split(",")[-1]
    command += ["--eval-fewshot", f"lm-eval:{seed}" if seed.isdigit() else "lm-eval"]
    command += ["--eval-chat", "on" if "apply_chat_template" in given else "off"]
    return Migrated(tuple(command), tuple(lines))


def _tasks(value: str, known: Collection[str]) -> tuple[list[str], list[str]]:
    names = [name for name in value.replace(" ", ",").split(",") if name]
    found: list[str] = []
    lines: list[str] = []
    for name in names:
        terms = translated(name, known, theirs=True)
        lines += dict.fromkeys(f"{name}: {why}" for term in terms if (why := difference(name, term)))
        if all(term.partition("/")[0] in known or set("*?[") & set(term) for term in terms):
            found += terms
        else:
            near = alike(name, known)
            lines.append(f"no counterpart: task {name}" + (f" (nearest: {near[0]})" if near else ""))
    return (["--eval-tasks", ",".join(dict.fromkeys(found))] if found else []), lines


def _parts(name: str, value: str) -> tuple[list[str], list[str]]:
    """Return the options for the parts of ``--model_args`` or ``--gen_kwargs``, and lines about the others."""
    rules = ARGS if name == "model_args" else TEXTS
    given = dict(part.partition("=")[::2] for part in value.split(",") if part)
    found: list[str] = []
    lines = []
    if name == "model_args" and (adapter := given.pop("peft", None)):
        found += ["--checkpoint", adapter]
        found += ["--eval-base-model", given.pop("pretrained")] if "pretrained" in given else []
    for key, text in given.items():
        if key in rules:
            found += rules[key](text)
        elif key == "do_sample":
            continue  # the temperature says it
        else:
            lines.append(f"no counterpart: {key} of --{name}")
    return found, lines
