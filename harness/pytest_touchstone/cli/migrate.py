"""``touchstone migrate``: command lines, config files and tasks of others in our words.

touchstone migrate lm_eval --model hf --model_args pretrained=gpt2 --tasks arc_easy --num_fewshot 25
touchstone migrate python run_evaluation.py --endpoint http://localhost:8000 --config eval_config.json --gpu 1
touchstone migrate eval_config.json           the command that runs it
touchstone migrate my_task.yaml               a choice or generation task as a benchmark, for `> test_my_task.py`
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from pytest_touchstone.cli.command import Output
from pytest_touchstone.cli.migrate_flags import Migrated, of_lm_eval, of_served_script
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.tasks import shipped_names

LM_EVAL = ("lm_eval", "lm-eval")
TASKS = (".yaml", ".yml")
CONFIGS = (".json", ".toml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="COMMAND ... | FILE",
        help="a command line of lm_eval or of a script with --endpoint, a config, or a task in YAML",
    )


def run(options: argparse.Namespace) -> Output:
    """Translate a command line or a file; what has no counterpart is named. Raises ``HarnessError``."""
    words: list[str] = [word for word in options.words if word != "--json"]
    if words[:1] == ["--"]:
        del words[0]
    if len(words) == 1 and " " in words[0]:
        words = shlex.split(words[0])
    if not words:
        raise HarnessError(
            "migrate: COMMAND or FILE is missing, such as `touchstone migrate lm_eval --tasks arc_easy`"
        )
    found = _migrated(words)
    if found.text is not None:
        notes = "".join(f"# {line}\n" for line in found.lines)
        return Output({"text": found.text, "notes": list(found.lines)}, notes + found.text)
    data = {"command": found.command, "notes": list(found.lines)}
    return Output(data, "\n".join((shlex.join(found.command), *(f"  {line}" for line in found.lines))))


def _migrated(words: Sequence[str]) -> Migrated:
    path = Path(words[0])
    if len(words) == 1 and path.suffix in TASKS:
        from pytest_touchstone.cli.migrate_task import of_task

        return of_task(path)
    if len(words) == 1 and path.suffix in CONFIGS:
        from pytest_touchstone.core.eval_config import read_eval_config

        read_eval_config(path, shipped_names())  # raises where it is wrong
        note = f"{words[0]} works as it is; `touchstone validate {words[0]}` shows what it enables"
        return Migrated(("pytest", "evals/", "--eval-config", words[0]), (note,))
    while words and (Path(words[0]).name.startswith("python") or words[0] == "-m"):
        words = words[1:]
    program, rest = (Path(words[0]).name, words[1:]) if words else ("", [])
    if program in LM_EVAL or program.startswith("lm_eval."):
        return of_lm_eval(rest[1:] if rest[:1] == ["run"] else rest, shipped_names())
    if program.endswith((".py", ".sh")) or program.startswith("-"):
        return of_served_script(words if program.startswith("-") else rest)
    if path.suffix:
        raise HarnessError(
            f"migrate: {words[0]}: expected a config ({', '.join(CONFIGS)}) or a task ({TASKS[0]})"
        )
    raise HarnessError(
        f"migrate: {program!r} is not known: expected lm_eval, a script with its options, or a file"
    )
