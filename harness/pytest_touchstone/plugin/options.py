"""The settings of a run, from the options of pytest's command line.

The options are rows of ``core/settings.toml``. argparse takes every value as text; each is parsed here,
before anything runs, so that a wrong one is reported in one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.resolve import StepFilter
from pytest_touchstone.core.errors import CheckpointError, OptionError
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.core.files import shown_path
from pytest_touchstone.core.settings import (
    ALL,
    CONFIG_FILE,
    OPTION,
    PROJECT,
    SET,
    SettingSources,
    load_environment_settings,
    load_project_settings,
    parse_set_options,
    parse_settings_table,
    settings_table,
)
from pytest_touchstone.core.tasks import task_groups
from pytest_touchstone.core.text import similar_names
from pytest_touchstone.engines.sandbox import SandboxSettings
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.plugin import project_file

if TYPE_CHECKING:
    from pytest_touchstone.core.eval_config import EvalConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a run; the value of every row of the table is an attribute.

    ``origins`` says where each value is from. ``notes`` says which names mean other rows elsewhere. ``demonstration``
    is whether neither a checkpoint nor a limit nor a file of benchmarks was given, ``by_hand`` which rows of the table
    go before what a benchmark has for itself. ``file`` is what ``--eval-config`` names. ``groups`` are the known groups
    of benchmarks.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    notes: tuple[str, ...]
    by_hand: frozenset[str]
    demonstration: bool
    file: EvalConfig | None
    groups: Mapping[str, str]
    model: ModelSettings
    sandbox_settings: SandboxSettings
    sampling: Sampling

    def __getattr__(self, name: str) -> Any:
        """Return the value of a row of the table."""
        if name not in self.values:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.values[name]

    @property
    def trackers(self) -> tuple[str, ...]:
        """The names of the trackers that receive the run."""
        selected = {
            "mlflow": self.mlflow or self.mlflow_experiment,
            "wandb": self.wandb or self.wandb_project,
        }
        return tuple(name for name, wanted in selected.items() if wanted)

    def recorded(self) -> dict[str, Any]:
        """Return the settings as a run's manifest has them: every row of the table."""
        return {
            name: value.text if isinstance(value, StepFilter) else value
            for name, value in self.values.items()
        }


def runs_nothing(config: pytest.Config) -> bool:
    """Return whether pytest will only collect tests or set up fixtures."""
    return bool(config.option.collectonly or config.getoption("setuponly", False))


def settings_of(config: pytest.Config) -> Settings:
    """Return the settings of this process; raise ``OptionError`` for a wrong value.

    Workers of xdist share out the CPU's threads.
    """
    sources = _sources(config)
    file = _file_of(sources)
    given = sources.values()
    values = {name: row.default for name, row in settings_table().items()} | given
    values["limit"] = None if values["limit"] == ALL else values["limit"]
    values |= sampling_values(values["samples"], given.get("temperature"), given.get("top_p"))
    groups = task_groups(project_file(config)) if values["tasks"] else {}
    workers = worker_count(config)
    if values["dry_run"] and workers > 1:
        raise OptionError("--eval-dry-run runs in one process: leave -n out, or add -n 0")
    if values["engine"] and workers > 1:
        raise OptionError("--eval-engine sends work to replicas from one process: leave -n out, or add -n 0")
    check_device_map(values, workers)
    values |= {"workers": workers, "device_kind": device_kind(values["device"])}
    sampling = Sampling(values["samples"], values["temperature"], values["top_p"], values["seed"])
    return Settings(
        values=values,
        origins={name: sources.origin(name) for name in values},
        notes=file.notes if file is not None else (),
        by_hand=sources.above(CONFIG_FILE) if file is not None else frozenset(given),
        demonstration=not given.keys() & {"checkpoint", "limit", "config"},
        file=file,
        groups=groups,
        sampling=sampling,
        model=ModelSettings(
            **{field.name: values[field.name] for field in fields(ModelSettings) if field.name in values}
            | {
                "threads": cpu_threads(workers, os.environ),
                "processes": workers,
                "concurrency": max(1, values["concurrency"] // max(1, workers)),
            }
        ),
        sandbox_settings=SandboxSettings(
            kind=values["sandbox"],
            workers=_cores(workers),
            grader=values["grader"],
            program_seconds=values["program_seconds"],
        ),
    )


def _sources(config: pytest.Config) -> SettingSources:
    """Return the values that anybody gives, but for a file of ``--eval-config``; raises ``OptionError``."""
    options = parse_set_options(config.getoption(SET, None) or ())
    for name, row in settings_table().items():
        given = config.getoption(row.long_flag, None) if row.option and not row.key else None
        if given not in (None, False, []):
            options[name] = row.value(given)
    sources = SettingSources()
    sources.given[PROJECT] = load_project_settings(project_file(config))
    sources.given["environment"] = load_environment_settings(os.environ)
    sources.given["options"] = options, dict.fromkeys(options, OPTION)
    return sources


def _file_of(sources: SettingSources) -> EvalConfig | None:
    """Return the file that ``--eval-config`` names, whose settings join the ``sources``; raises ``OptionError``."""
    if (name := sources.values().get("config")) is None:
        return None
    from pytest_touchstone.core.eval_config import read_eval_config
    from pytest_touchstone.core.tasks import shipped_names

    file = read_eval_config(Path(name), shipped_names())
    shown = shown_path(file.path)
    values, origins = parse_settings_table(file.settings, f"{shown}: settings", shown)
    if file.terms:
        values["tasks"], origins["tasks"] = file.terms, shown
    if file.batch is not None and "batch" not in values:
        values["batch"], origins["batch"] = file.batch, shown
    sources.given[CONFIG_FILE] = values, origins
    return file


def sampling_values(samples: int, temperature: float | None, top_p: float | None) -> dict[str, float]:
    """Return temperature and top_p, with defaults for what the options leave open.

    One sample is greedy, several are drawn at 0.2. A temperature without top_p draws from the likeliest tokens that
    have 0.95 of the probability. Raises ``OptionError`` for several greedy samples.
    """
    temperature = (0.2 if samples > 1 else 0.0) if temperature is None else temperature
    if samples > 1 and not temperature:
        raise OptionError(
            f"--eval-temperature 0: {samples} greedy samples of a task are all the same; "
            "use --eval-samples 1, or a temperature above 0"
        )
    return {"temperature": temperature, "top_p": (0.95 if temperature else 1.0) if top_p is None else top_p}


def check_device_map(values: Mapping[str, Any], workers: int) -> None:
    """Raise ``OptionError`` where a model cannot be spread over the accelerators by this process alone."""
    if values["device_map"] is None:
        return
    if workers > 1:
        raise OptionError(
            "device_map=auto spreads a model over all accelerators from one process: leave -n out, or add -n 0"
        )
    if values["device"] not in ("auto", "cuda"):
        raise OptionError(
            f"device_map=auto uses all accelerators, and --eval-device {values['device']} is one: "
            "leave one of them out"
        )


def device_kind(device: str) -> str:
    """Return the kind of device that ``--eval-device`` means, as far as it is known without torch."""
    if device != "auto":
        return device.partition(":")[0]
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if not hidden and any(Path(name).exists() for name in ("/dev/nvidia0", "/dev/kfd", "/dev/dxg")):
        return "cuda"
    return "mps" if sys.platform == "darwin" else "cpu"


def _cores(workers: int) -> int:
    """Return the number of cores for one of that many processes, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // workers)


def cpu_threads(workers: int, environ: Mapping[str, str]) -> int | None:
    """Return the threads with which torch computes: a core each, fewer if ``OMP_NUM_THREADS`` says so.

    None leaves the number to torch.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    most = environ.get("OMP_NUM_THREADS", "")
    return min(_cores(workers), int(most)) if most.isdecimal() and int(most) else _cores(workers)


def worker_count(config: pytest.Config) -> int:
    """Return the number of processes that share the work: xdist's workers, or 1."""
    given = getattr(config, "workerinput", None)
    if given is not None:
        return int(given["workercount"])
    if config.getoption("dist", "no") == "no":
        return 1
    return max(1, len(config.getoption("tx", None) or []))


WITHOUT_BASE: Final = ("folder", "gguf", "fake", "served")
"""The checkpoint formats that take no ``--eval-base-model``."""


def check_base(base: str | None, infos: Sequence[CheckpointInfo], *, some_failed: bool) -> None:
    """Raise ``CheckpointError`` for a base model that no checkpoint takes; one that failed to load may be meant."""
    takes = any(info.base is not None or info.format not in WITHOUT_BASE for info in infos)
    if base is not None and infos and not takes and not some_failed:
        raise CheckpointError(
            f"--eval-base-model {base}: no checkpoint of this run is a LoRA adapter, a .pt file or distributed; "
            "leave it out, or check --checkpoint"
        )


def check_served(
    settings: Settings, infos: Sequence[CheckpointInfo], *, some_failed: bool, texts: bool
) -> None:
    """Raise ``CheckpointError`` for an option of served models if no checkpoint uses it.

    ``texts`` says whether servers generate texts.
    """
    if not infos or some_failed:
        return
    served = [info for info in infos if info.served]
    started = list(infos) if texts else [info for info in served if info.served.get("child")]
    for key, value, takes, what in (
        ("model_name", settings.model_name, served, "--checkpoint http://HOST:PORT/v1"),
        ("tokenizer", settings.tokenizer, served, "--checkpoint http://HOST:PORT/v1"),
        (
            "server_args",
            settings.server_args,
            started,
            "--checkpoint vllm:PATH, sglang:PATH or llama-server:PATH",
        ),
    ):
        if value is not None and not takes:
            kind = "a served model" if takes is served else "at a server that this run starts"
            raise CheckpointError(
                f"{SET} {key}={value}: no checkpoint of this run is {kind}, which takes it; "
                f"leave it out, or give {what}"
            )


# Options that pytest does not know


PREFIX: Final = "--eval-"

PARTS: Final = ("model-args", "gen-kwargs", "generation-kwargs")
"""Options of others whose values are options, ``NAME=VALUE,...``."""

KEPT: Final = {
    "gate-plan": "--gate --eval-dry-run shows what a gate could decide",
    "log-samples": "prompts and answers are always kept",
    "use-cache": "scores of earlier runs are always taken",
    "confirm-run-unsafe-code": "programs run in a sandbox",
    "epochs-reducer": "--eval-samples N has avg@N (mean), maj@N (mode) and pass@k (pass_at_k)",
    "fewshot-as-multiturn": "few-shot examples are always turns in a chat",
    "reasoning-history": "a reasoning is never part of what was said before",
    "reasoning-effort": "chat templates are told --eval-set thinking=on or off, and nothing between",
    "reasoning-tokens": "--eval-max-new-tokens bounds a reasoning and its answer together",
}
"""Options of others that are to be left out, and why: most have an effect that we always have."""


def unknown_option_message(unknown: Sequence[str], words: Sequence[str], *, ours_alone: bool) -> str | None:
    """Return a message about the ``unknown`` options among the ``words`` of a command line.

    None if pytest should refuse them.

    ``ours_alone`` is whether ``touchstone run`` was typed: then nothing is left to pytest.
    """
    messages: dict[str, str] = {}
    nobodys = ""
    for word in (word for word in unknown if word.startswith("--")):
        name, sign, value = word.partition("=")
        if not sign:
            value = next(
                (argument for argument in words[words.index(word) + 1 :][:1] if not argument.startswith("-")),
                "",
            )
        plain = name.removeprefix("--").replace("_", "-").removeprefix("eval-")
        if plain in KEPT:
            messages[name] = f"{name}: no such option; leave it out: {KEPT[plain]}"
        elif meant := list(_equivalent_options(plain, value)):
            messages[name] = (
                f"{name}: no such option; {' '.join(meant)} {'do' if len(meant) > 1 else 'does'} that"
            )
        elif near := _nearest_option(name):
            messages[name] = f"unknown option {name}: did you mean {near}?"
        elif name.startswith(PREFIX) or ours_alone:
            nobodys = nobodys or name
    if messages:
        return "; ".join(messages.values())
    if nobodys:
        return f"unknown option {nobodys}; `pytest --help` has ours under 'benchmarks of language models'"
    return None


def _equivalent_options(name: str, value: str) -> Iterator[str]:
    """Yield our options for one of another program."""
    if name in PARTS:
        for key, _, text in (assignment.partition("=") for assignment in value.split(",")):
            yield from _equivalent_options(key.replace("_", "-"), text)
        return
    for row in settings_table().values():
        if row.option and name in (*row.elsewhere, row.name.replace("_", "-")):
            yield row.usage


def _nearest_option(name: str) -> str:
    """Return the option of ours that is most like it; an empty text where none is."""
    rows = [row for row in settings_table().values() if row.option]
    if name.startswith(PREFIX):  # what all of them begin with says nothing of which is meant
        keys = {row.name.replace("_", "-"): row for row in rows}
        return "".join(keys[near].usage for near in similar_names(name.removeprefix(PREFIX), keys))
    return "".join(similar_names(name, [row.flag for row in rows], cutoff=0.75))
