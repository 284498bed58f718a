"""The names of lm-evaluation-harness's tasks, groups and tags, and the files that define them.

Its ``TaskManager`` parses 14,000 files for them, which takes seconds. So the index of the installed tasks is kept in a
file, for as long as no task's file changes.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.core import disk
from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.files import read_checked, write_checked
from pytest_touchstone.core.tasks import LM_EVAL_PREFIX, MOST_NAMES, TaskPattern
from pytest_touchstone.core.text import join_choices, similar_names

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager

MISSING: Final = f"{LM_EVAL_PREFIX}NAME needs the package lm_eval: pip install 'pytest-touchstone[lm-eval]'"

_WILD: Final = frozenset("*?[")


def task_manager(folder: Path | None, cache: Path) -> TaskManager:
    """Return lm-evaluation-harness's manager of its tasks and of those below ``folder``.

    Args:
        folder: The value of ``--eval-lm-eval-path``.
        cache: The folder that keeps the index of installed tasks.

    Raises:
        OptionError: If lm-evaluation-harness is not installed.

    """
    if find_spec("lm_eval") is None:
        raise OptionError(MISSING)
    # Its warnings are about tasks by the thousand, and would stand between the lines of a report.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks._index import Entry, Kind

    own: TaskManager = TaskManager(include_defaults=False, include_path=folder and str(folder))
    installed = {
        name: Entry(name, Kind[kind], path and Path(path), tags=set(tags))
        for name, (kind, path, tags) in _installed_index(cache).items()
    }
    own._index = {**installed, **own.task_index}
    return own


def _installed_index(cache: Path) -> dict[str, list[Any]]:
    """Return kind, YAML file and tags of each installed name."""
    import lm_eval.tasks
    from lm_eval.tasks import TaskManager

    root = Path(lm_eval.tasks.__file__).parent
    stamp = hashlib.sha256("\n".join(sorted(_stamps(root))).encode()).hexdigest()
    file = cache / "index.json"
    with suppress(OSError, ValueError):
        kept = read_checked(file)
        if kept["stamp"] == stamp:
            return dict(kept["index"])
    index = {
        name: [entry.kind.name, entry.yaml_path and str(entry.yaml_path), sorted(entry.tags)]
        for name, entry in TaskManager().task_index.items()
    }
    with suppress(OSError):
        disk.make_folder(cache)
        write_checked(file, {"stamp": stamp, "index": index})
    return index


def _stamps(folder: Path) -> Iterator[str]:
    """Yield path, size and time of each YAML file below a folder."""
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".yaml"):
                path = Path(parent, name)
                stat = path.stat()
                yield f"{path} {stat.st_size} {stat.st_mtime_ns}"


def resolve_names(names: Sequence[str], manager: TaskManager) -> list[str]:
    """Return the tasks, groups and tags that names and patterns mean, each once.

    Raises ``OptionError`` for one that matches nothing, with similar names.
    """
    index = manager.task_index
    resolved: dict[str, None] = {}
    for name in names:
        group = name.partition("::")[0]  # GROUP::TASK is defined within the file of the group
        matches = [part for part in (name, group) if part in index][:1]
        if not matches and _WILD & set(name):
            matches = [known for known in index if fnmatchcase(known, name)]
        if not matches:
            near = [known for known in index if name in known][:MOST_NAMES]
            near = near or similar_names(name, index, MOST_NAMES)
            hint = f"did you mean {join_choices(near)}?" if near else "`lm_eval ls tasks` lists them"
            hint = next(_broken_files(manager.include_path, name), hint)
            raise OptionError(f"{LM_EVAL_PREFIX}{name}: lm-evaluation-harness has no such task; {hint}")
        resolved |= dict.fromkeys(matches)
    return list(resolved)


def _broken_files(folder: str | None, name: str) -> Iterator[str]:
    """Yield what is wrong with the YAML files below ``folder`` that have a name and cannot be read."""
    from lm_eval.tasks._yaml_loader import load_yaml

    for path in sorted(Path(folder).rglob("*.yaml")) if folder else ():
        try:
            load_yaml(path, resolve_func=False)
        except Exception as error:  # a file of somebody's
            if name.encode() in path.read_bytes():
                yield f"{path} cannot be read: {' '.join(str(error).split())}"


def asked_names(terms: Sequence[TaskPattern]) -> list[str]:
    """Return the names after ``lm_eval:`` in terms of ``--eval-tasks``."""
    return [
        term.name.removeprefix(LM_EVAL_PREFIX)
        for term in terms
        if term.name.startswith(LM_EVAL_PREFIX) and not term.out
    ]
