"""Options of scripts in our words: those that are known by name (docs/coming-from-scripts.md), and others whose options
have the usual names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_touchstone.cli.migrate_lm_eval import (
    Given,
    Migrated,
    Words,
    command_of,
    options_of,
    tasks_of,
    unknown,
)
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import open_regular
from pytest_touchstone.core.tasks import shipped_names

SCRIPT_SHORT: Final = {
    "e": "endpoint", "c": "config", "o": "output", "r": "run_id", "g": "gpu", "b": "batch_size", "l": "max_length",
    "t": "temperature", "p": "top_p",
}  # fmt: skip
"""Those of scripts for a served model."""


NAMES: Final = {
    "--checkpoint": "checkpoint checkpoints checkpoint_path checkpoint_dir ckpt model_path model endpoint run_dir "
    "run_dirs runs adapter adapter_path lora_path",
    "--tasks": "tasks task dataset datasets benchmark benchmarks",
    "--eval-seq-len": "seq_len max_length max_seq_len max_seq_length",
    "--eval-output": "output output_dir output_path results_dir",
    "--eval-run-id": "run_id",
    "--eval-config": "config",
    "--eval-batch": "batch_size",
    "--eval-device": "device",
    "--eval-dtype": "dtype",
    "--eval-limit": "limit max_tasks max_samples num_examples",
    "--eval-samples": "num_samples n_samples",
    "--eval-temperature": "temperature",
    "--eval-top-p": "top_p",
    "--eval-max-new-tokens": "max_tokens max_new_tokens",
    "--eval-program-seconds": "timeout",
    "--eval-shots": "num_fewshot",
    "--eval-seed": "seed",
    "--eval-chat": "chat",
    "--eval-base-model": "base_model base_model_path",
    "--eval-tokenizer": "tokenizer",
    "--eval-model-name": "model_name",
    "--mlflow-experiment": "experiment experiment_name mlflow_experiment",
}
"""Our options, each with the names that scripts have for it."""

FLAGS: Final = {name: flag for flag, names in NAMES.items() for name in names.split()}

SERVED: Final = ("gpu", "device", "batch_size")
"""What a server decides."""

ENVIRONMENT: Final = {
    "VLLM_MODEL_ENDPOINT": "endpoint", "EVAL_CONFIG_PATH": "config", "OUTPUT_DIR": "output", "RUN_ID": "run_id",
    "GPU_DEVICE": "gpu", "BATCH_SIZE": "batch_size", "MAX_LENGTH": "max_length", "LOG_LEVEL": "log_level",
    "MODEL_NAME": "model_name", "TOKENIZER": "tokenizer",
}  # fmt: skip
"""The variables that scripts for a served model read, with the options that they stand for."""


def _gpus(value: str) -> list[str]:
    names = [name for name in value.split(",") if name]
    if len(names) > 1:
        return ["-n", str(len(names))]
    return ["--eval-device", value if value in ("cpu", "mps", "auto") else f"cuda:{value}"]


def _pipelines(values: Sequence[str]) -> list[str]:
    names = [name for value in values for name in value.split(",") if name]
    return [
        word for name in names for word in ("--checkpoint", f"storage/checkpoints/{name}/checkpoint_best.pt")
    ]


SPECIAL: Final[Mapping[str, Callable[[Sequence[str]], list[str]]]] = {
    "gpu": lambda values: _gpus(",".join(values)),
    "pipelines": _pipelines,
    "pipeline": _pipelines,
    "min_step": lambda values: ["--eval-steps", f"{''.join(values)}:"],
    "max_step": lambda values: ["--eval-steps", f":{''.join(values)}"],
    "dry_run": lambda _: ["--eval-dry-run"],
    "mlflow": lambda _: ["--mlflow"],
    "wandb": lambda _: ["--wandb"],
    "no_mlflow": lambda _: [],
    "log_level": lambda values: ["--log-cli-level", "".join(values).upper()],
}
"""The options that need more than another name."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script by its name: the options that it has without being given them, and lines about it."""

    name: str
    has: Mapping[str, str]
    lines: Words = ()
    rows: bool = True


KOREAN: Final = (
    "real_coref: 400 rows are shipped; a set from your texts: docs/benchmarks.md, then --eval-data DIR",
    "ko_lambada: gated on the Hub; until --eval-data DIR has it, it is left out, and ko_lambada_wiki stands beside it",
)
SCRIPTS: Final = (
    Script(
        r"evaluate_(all_\w*)?checkpoints?(_\w+)?\.(py|sh)",
        {"tasks": "real_coref,ko_lambada,ko_lambada_wiki"},
        KOREAN,
        rows=False,
    ),
    Script(
        r"weighted_mtp\.(cli\.)?evaluate|run_evaluation(\.py)?",
        {
            "dataset": "humaneval",
            "num_samples": "20",
            "temperature": "0.2",
            "max_tokens": "512",
            "timeout": "5",
            "mlflow": "",
        },
    ),
    Script(
        r"eval_(simple|custom_checkpoint)\.py",
        {
            "tasks": "drop,winogrande,gsm8k,minerva_math,mmlu_stem",
            "num_fewshot": "0",
            "limit": "0.2",
            "batch_size": "16",
            "dtype": "bfloat16",
            "chat": "off",
        },
    ),
)
"""The scripts that are known by name."""

COMPARES: Final = re.compile(r"compare_(evaluation_)?results\.py")
STUDIES: Final = re.compile(r"(analy[sz]e|study)_checkpoints\.py")
KNOWN: Final = "lm_eval, a script of docs/coming-from-scripts.md, one with --endpoint or --tasks, or a file"
EVALUATES: Final = {"task", "tasks", "benchmark", "benchmarks"}
"""The options by which a script is known as an evaluation; a data set may be one for training."""


def of_script(program: str, words: Sequence[str], environment: Mapping[str, str]) -> Migrated:
    """Return our commands for a script and its options. Raises ``HarnessError`` for one of which nothing is known."""
    name = Path(program).name
    given: dict[str, list[str]] = {
        ENVIRONMENT[key]: [value] for key, value in environment.items() if key in ENVIRONMENT
    }
    given |= options_of(([program] if program.startswith("-") else []) + list(words), SCRIPT_SHORT)
    operands = given.pop("", [])
    if operands[:1] == ["evaluate"]:
        name = f"{name}.{operands.pop(0)}"
    if COMPARES.fullmatch(name):
        return Migrated((("touchstone", "compare", *_newest(operands)),))
    if STUDIES.fullmatch(name):
        folder = [
            word for key in ("output", "output_dir") for value in given.get(key, ()) for word in ("-o", value)
        ]
        inputs = [
            value for key, values in given.items() if key not in ("output", "output_dir") for value in values
        ]
        return Migrated((("touchstone", "study", *operands, *inputs, *folder),))
    if "list_benchmarks" in given:
        default = CONFIG if Path(CONFIG).is_file() else ""
        return Migrated((("touchstone", "benchmarks", *_configured("--config", given, default)),))
    if "validate_config" in given:
        return Migrated((("touchstone", "validate", *_configured("", given, CONFIG)),))
    script = next((one for one in SCRIPTS if re.fullmatch(one.name, name)), None)
    evaluates = given.keys() & EVALUATES and _name_of("--checkpoint", given)
    if script is None and "endpoint" not in given and not evaluates:
        raise HarnessError(f"migrate: {name!r} is not known: expected {KNOWN}")
    found: dict[str, list[str]] = {}
    if script is not None:
        found |= {key: [value] for key, value in script.has.items()} | _written(Path(program), script)
        taken = {FLAGS.get(key, key) for key in given}
        found = {key: values for key, values in found.items() if FLAGS.get(key, key) not in taken}
        if "no_mlflow" in given:
            found.pop("mlflow", None)
    elif "endpoint" in given and "config" not in given:
        found["config"] = [CONFIG]
    return _of_options({**found, **given}, script, operands)


def _name_of(flag: str, given: Given) -> str | None:
    return next((name for name in given if FLAGS.get(name) == flag), None)


def _configured(flag: str, given: Given, default: str = "") -> Words:
    config = "".join(given.get("config", ())) or default
    return tuple(part for part in (flag, config) if part) if config else ()


CONFIG: Final = "configs/eval_config.json"
"""The file that scripts for a served model read by default."""


def _of_options(given: dict[str, list[str]], script: Script | None, operands: Sequence[str]) -> Migrated:
    lines = list(script.lines) if script is not None else []
    served = "endpoint" in given
    if served and (dropped := [name for name in SERVED if given.pop(name, None) is not None]):
        named = " and ".join(f"--{name.replace('_', '-')}" for name in dropped)
        lines.append(f"{named}: left out, a served model's server decides")
    if served and not Path(given["config"][0] if "config" in given else "").is_file():
        lines.append(f"{given['config'][0]} is not here; start the command where it is")
    temperatures = [part for value in given.pop("temperature_search", ()) for part in value.split(",")]
    if temperatures:
        given.pop("temperature", None)
    command: list[str] = []
    for name, values in given.items():
        flag = FLAGS.get(name)
        if flag == "--tasks":
            names = [one for value in values for one in value.split(",") if one]
            terms, about = tasks_of(names, shipped_names(), shots=False, theirs=False)
            command[:0] = ["--tasks", ",".join(terms)] if terms else []
            lines += about
        elif flag == "--checkpoint":
            command += [word for value in values for word in (flag, value)]
        elif flag is not None:
            command += [flag, " ".join(values)]
        elif name in SPECIAL:
            command += SPECIAL[name](values)
        else:
            known = [f"--{one.replace('_', '-')}" for one in (*FLAGS, *SPECIAL)]
            lines.append(unknown(f"--{name.replace('_', '-')}", known))
    lines += [f"no counterpart: {word}" for word in operands]
    if script is not None and not script.rows and "--eval-output" not in command:
        command.append("--eval-beside")
    every = [["--eval-temperature", one] for one in temperatures] or [[]]
    made, added = zip(
        *(command_of(command, one, whole=script is None or script.rows) for one in every), strict=True
    )
    compare: tuple[Words, ...] = ()
    if command.count("--checkpoint") > 1:
        kept = _name_of("--eval-output", given)
        where = ("--output", " ".join(given[kept])) if kept else ()
        compare = (("touchstone", "compare", "last", *where),)
    return Migrated((*made, *compare), (*added[0], *lines))


def _written(path: Path, script: Script) -> dict[str, list[str]]:
    """Return what a script that is here has in its text: the paths of its checkpoints, and numbers that it passes on;
    else what stands for them."""
    text = _text(path)
    if path.suffix == ".sh":
        folders = re.findall(r"[\"'\s=]((?:\.?\.?/)*runs/[\w./-]+)(?=[\"'\s])", text)
        return {"checkpoint": list(dict.fromkeys(folders)) or ["runs/*/checkpoint-*"]}
    if path.name != "eval_simple.py" and "eval_" not in script.name:
        return {}
    found: dict[str, list[str]] = {}
    for key in ("limit", "batch_size", "num_fewshot"):
        if told := re.search(rf"^\s*{key}\s*=\s*([\d.]+)", text, re.MULTILINE):
            found[key] = [told[1]]
    paths = dict(
        re.findall(r"^\s*(base_model_path|adapter_path|output_dir)\s*=\s*[\"']([^\"']+)", text, re.MULTILINE)
    )
    if path.name == "eval_simple.py":
        found["checkpoint"] = [paths.get("base_model_path", "BASE"), paths.get("adapter_path", "ADAPTER")]
    if "output_dir" in paths:
        found["output_dir"] = [paths["output_dir"]]
    return found


MOST_TEXT: Final = 1 << 20
"""The bytes of a script that are read."""


def _text(path: Path) -> str:
    try:
        with open_regular(path) as stream:
            return stream.read(MOST_TEXT).decode(errors="replace")
    except OSError:
        return ""


def _newest(operands: Sequence[str]) -> list[str]:
    """Return the two newest files of results of a folder, the older one first; other names as they are."""
    if len(operands) != 1 or not (folder := Path(operands[0])).is_dir():
        return list(operands)
    files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
    return [str(path) for path in files[-2:]] if len(files) > 1 else [str(folder)]
