"""Tasks of lm-evaluation-harness, loaded with their data as its ``simple_evaluate`` loads them.

Loading imports a task's Python file and reads its dataset. Whatever a task draws at random comes from a state that is
set as ``simple_evaluate`` sets it (``random`` 0, ``numpy`` and ``torch`` 1234), and is nobody else's.

With ``--eval-data DIR`` a dataset ORG/NAME is ``DIR/ORG__NAME/CONFIG/SPLIT.jsonl`` or ``.parquet``, without CONFIG if
it has none. Formats that ``datasets`` reads by themselves (``json``, ``parquet``) and folders are read from where the
task says.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.core.errors import DataError, HarnessError, OptionError
from pytest_touchstone.core.tasks import LM_EVAL_PREFIX

if TYPE_CHECKING:
    from lm_eval.api.group import Group
    from lm_eval.api.task import Task
    from lm_eval.tasks import TaskManager

FEWSHOT_SEED: Final = 1234
"""The seed of few-shot examples, unless ``fewshot=lm-eval:SEED`` gives another."""

UNSAFE: Final = (
    "runs the programs that a model writes in this process; the shipped humaneval, mbpp and their plus versions run "
    "theirs in a sandbox"
)

IMAGES: Final = "asks about images or sound; checkpoints are sent texts alone"

IMAGE_FIELDS: Final = frozenset({"doc_to_image", "doc_to_audio"})

SAMPLING: Final = ("do_sample", "temperature", "top_p", "top_k")
"""The generation kwargs that are asked for, beside stops and the limit of tokens."""

_LIBRARIES: Final = (
    *(
        "lm-eval",
        "datasets",
        "evaluate",
        "sacrebleu",
        "rouge-score",
        "scikit-learn",
        "nltk",
        "jinja2",
        "numpy",
    ),
    *("sympy", "math-verify", "latex2sympy2-extended", "antlr4-python3-runtime", "langdetect"),
)
"""The packages that scores of tasks rest on; their versions are a condition."""


@dataclass(slots=True, eq=False)
class RandomState:
    """The state of the process's generators of random numbers that a task sees."""

    states: tuple[Any, Any, Any] | None = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let a task draw from its own state, and give the process its state back."""
        import numpy as np

        torch = sys.modules.get("torch")
        before = _random_states(torch)
        if self.states is None:
            random.seed(0)
            np.random.seed(1234)
            if torch is not None:
                torch.random.default_generator.manual_seed(1234)
        else:
            _set_random_states(self.states, torch)
        try:
            yield
        finally:
            self.states = _random_states(torch)
            _set_random_states(before, torch)


def _random_states(torch: Any) -> tuple[Any, Any, Any]:
    import numpy as np

    return random.getstate(), np.random.get_state(), torch and torch.random.get_rng_state()


def _set_random_states(states: tuple[Any, Any, Any], torch: Any) -> None:
    import numpy as np

    random.setstate(states[0])
    np.random.set_state(states[1])
    if states[2] is not None:
        torch.random.set_rng_state(states[2])


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task with the names by which it is asked for, besides its own, and its state of random numbers."""

    name: str
    task: Task
    state: RandomState
    names: list[str] = field(default_factory=list)


def load_tasks(
    names: Iterable[str], manager: TaskManager, data: Path | None
) -> tuple[dict[str, LoadedTask], list[Group]]:
    """Load tasks, groups and tags with their data; return the tasks by name, and the groups.

    Raises ``OptionError`` for a task that cannot be asked, and ``DataError`` for one whose data are not there.
    """
    loaded: dict[str, LoadedTask] = {}
    groups: dict[str, Group] = {}
    for name in names:
        state = RandomState()
        _check_written(name, manager)
        with task_errors(name), _reading_local(data), state.applied():
            found = manager.load(name)
        groups |= found.get("groups", {})
        for task_name, task in found["tasks"].items():
            earlier = loaded.setdefault(task_name, LoadedTask(task_name, task, state))
            if config_text(earlier.task) != config_text(task):
                raise OptionError(
                    f"{LM_EVAL_PREFIX}{name}: {task_name} is configured otherwise by another name; "
                    "ask for them in two runs"
                )
            earlier.names.append(name)
    for task in loaded.values():
        check_task(task.name, task.task)
    for group in groups.values():
        for task in group.get_all_tasks():
            loaded[task.task_name].names.append(group.name)
    return loaded, list(groups.values())


@contextmanager
def task_errors(name: str) -> Iterator[None]:
    """Raise ``DataError`` with the task's name for whatever its code, ``datasets`` or the Hub raises."""
    try:
        yield
    except HarnessError:
        raise
    except (Exception, SystemExit) as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{LM_EVAL_PREFIX}{name}: cannot be loaded: {type(error).__name__}: {reason}"
        ) from error


def _check_written(name: str, manager: TaskManager) -> None:
    """Raise ``OptionError`` for what a file says of a task, before its code runs and its data are read."""
    from lm_eval.tasks._yaml_loader import load_yaml

    entry = manager.task_index[name]
    for member in entry.tags if entry.yaml_path is None else [name]:
        path = manager.task_index[member].yaml_path
        written = {} if path is None else load_yaml(path, resolve_func=False)
        if (
            fault := UNSAFE
            if written.get("unsafe_code")
            else IMAGES
            if IMAGE_FIELDS & written.keys()
            else None
        ):
            raise OptionError(f"{LM_EVAL_PREFIX}{member}: {fault}")


def check_task(name: str, task: Task) -> None:
    """Raise ``OptionError`` for a task that would be answered or scored wrongly."""
    config = task.config
    metrics = getattr(task, "_metric_fn_list", {})
    fault = None
    if getattr(task, "UNSAFE_CODE", False):
        fault = UNSAFE
    elif getattr(task, "MULTIMODAL", False):
        fault = IMAGES
    elif config.process_results is None and (
        lost := [key for key, scorer in metrics.items() if scorer is None]
    ):
        fault = f"its metric {lost[0]} is unknown to lm-evaluation-harness, or `evaluate` cannot load it here"
    elif config.output_type == "generate_until":
        fault = generation_fault(config.generation_kwargs or {})
    if fault is not None:
        raise OptionError(f"{LM_EVAL_PREFIX}{name}: {fault}")


def generation_fault(arguments: Mapping[str, Any]) -> str | None:
    """Return why texts cannot be asked for with these ``generation_kwargs``, None where they can."""
    from lm_eval.models.utils import normalize_gen_kwargs

    try:
        given = normalize_gen_kwargs(dict(arguments))
    except (TypeError, ValueError) as error:
        return f"generation_kwargs: {error}"
    if "" in given.pop("until"):
        return "until has an empty text, at which every answer ends; give until: [] to stop at the end token"
    if given.get("do_sample") and not given.get("temperature"):
        return "do_sample is true without a temperature"
    if given.pop("num_beams", 1) != 1:
        return f"num_beams is {arguments['num_beams']}; beams are not searched"
    unknown = given.keys() - {*SAMPLING, "max_gen_toks"}
    return f"generation_kwargs has {min(unknown)!r}, which is not supported" if unknown else None


# Data


@contextmanager
def _reading_local(folder: Path | None) -> Iterator[None]:
    """Have ``datasets.load_dataset`` read a folder in place of the Hub."""
    import datasets

    original = datasets.load_dataset
    if folder is not None:
        datasets.load_dataset = _local_reader(folder, original)
    try:
        yield
    finally:
        datasets.load_dataset = original


def _local_reader(folder: Path, original: Callable[..., Any]) -> Callable[..., Any]:
    def load_dataset(path: str, name: str | None = None, **arguments: Any) -> Any:
        is_format = path in ("json", "parquet", "csv", "text", "arrow", "pandas")
        if is_format or Path(path).exists():
            return original(path=path, name=name, **arguments)
        place = folder / path.replace("/", "__") / (name or "")
        files = {
            file.stem: file for ending in ("jsonl", "parquet") for file in sorted(place.glob(f"*.{ending}"))
        }
        if not files:
            raise DataError(
                f"{place}: no SPLIT.jsonl or SPLIT.parquet of the dataset {path}; --eval-data names its folder"
            )
        splits = {
            split: original(
                "parquet" if file.suffix == ".parquet" else "json", data_files=str(file), split="train"
            )
            for split, file in files.items()
        }
        import datasets

        return splits[arguments["split"]] if arguments.get("split") else datasets.DatasetDict(splits)

    return load_dataset


# Identity


def config_text(task: Task) -> str:
    """Return a task's resolved configuration as JSON; functions by name."""

    def named(value: Any) -> str:
        return getattr(value, "__qualname__", type(value).__name__)

    config = {**vars(task.config), "metadata": {**(task.config.metadata or {}), "version": task.VERSION}}
    return json.dumps(config, sort_keys=True, default=named)


def conditions_digest(task: Task, code: str) -> str:
    """Return the hash of all that a task's prompts and scores come from.

    That is its resolved configuration, the chain of its YAML files, the Python files beside these, the hash of what all
    tasks share (``code_digest``), and its few-shot rows.
    """
    digest = hashlib.sha256(f"{config_text(task)}\0{code}".encode())
    digest.update(files_digest(_source_files(task)).encode())
    if task.config.num_fewshot:
        for row in getattr(getattr(task, "sampler", None), "df", None) or ():
            digest.update(json.dumps(row, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def code_digest(folder: Path | None) -> str:
    """Return the hash of the Python files below a folder, and of the versions of the libraries that score."""
    digest = hashlib.sha256(files_digest(folder.rglob("*.py") if folder is not None else ()).encode())
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            digest.update(f"{name} {importlib.metadata.version(name)}\0".encode())
    return digest.hexdigest()


def files_digest(paths: Iterable[Path]) -> str:
    """Return the hash of files' names and contents."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _source_files(task: Task) -> set[Path]:
    """Return the files that make a task: YAML, and Python beside it."""
    source = (task.config.metadata or {}).get("config_source", "")
    files = _yaml_chain(Path(source), set()) if Path(source).is_file() else set()
    files.add(Path(inspect.getfile(type(task))))
    folders = {path.parent for path in files}
    files |= {path for parent in folders for path in parent.glob("*.py")}
    # A function of an importable module may be anywhere.
    json.dumps(vars(task.config), default=lambda value: files.update(_code_file(value)))
    return {path for path in files if path.is_file()}


def _code_file(value: Any) -> set[Path]:
    """Return the file of a function, none of anything else."""
    code = getattr(getattr(value, "func", value), "__code__", None)
    return set() if code is None else {Path(code.co_filename)}


def _yaml_chain(path: Path, seen: set[Path]) -> set[Path]:
    """Return a YAML file and all that it includes."""
    from lm_eval.tasks._yaml_loader import load_yaml

    seen.add(path)
    includes = load_yaml(path, resolve_func=False, recursive=False).get("include", [])
    for include in includes if isinstance(includes, list) else [includes]:
        included = (path.parent / include).resolve()
        if included not in seen:
            _yaml_chain(included, seen)
    return seen
