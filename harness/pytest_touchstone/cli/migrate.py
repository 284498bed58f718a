"""``touchstone migrate``: command lines, config files and tasks of others in our words.

touchstone migrate lm_eval --model hf --model_args pretrained=gpt2 --tasks arc_easy --num_fewshot 25
touchstone migrate python evaluate_checkpoint.py --checkpoint runs/mlm/checkpoint-655 --seq-len 1536
touchstone migrate python -m weighted_mtp evaluate --checkpoint checkpoint_best.pt --dataset humaneval
touchstone migrate run_evaluation.py --endpoint http://localhost:8000 --gpu 1
touchstone migrate eval_config.json           the command that runs it; lm_eval's own configs in YAML too
touchstone migrate my_task.yaml               a choice or generation task as a benchmark, for `> test_my_task.py`

A command asks whole published sets (``--eval-data hub``), unless TOUCHSTONE_DATA names a folder of them. What it asks
less of, what was assumed, and what has no counterpart are lines below it.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pytest_touchstone.cli.command import Output
from pytest_touchstone.cli.lm_eval_task import of_task, read_yaml
from pytest_touchstone.cli.migrate_lm_eval import (
    SHORT,
    YAML,
    Migrated,
    Words,
    command_of,
    of_lm_eval,
    options_of,
    settings_of,
)
from pytest_touchstone.cli.migrate_scripts import ENVIRONMENT, KNOWN, of_script
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import shown_path
from pytest_touchstone.core.tasks import shipped_names

PROGRAMS = ("lm_eval", "lm-eval")
CONFIGS = (".json", ".toml")
RESULTS: Final = re.compile(r"_eval_results\.json|\.(real[15]|lambada_top1|lambada_wiki_top1|score)\b")
"""The files of results of masked models, and their fields."""
LOOP: Final = re.compile(
    r"for\s+(?P<name>\w+)\s+in\s+(?P<what>.+?)\s*;?\s*do\b(?P<body>.*?)\bdone", re.DOTALL
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="COMMAND ... | FILE",
        help="a command line of lm_eval or of a script (docs/coming-from-scripts.md), a config, or a task in YAML",
    )


def run(options: argparse.Namespace) -> Output:
    """Translate a command line or a file; what has no counterpart is named. Raises ``HarnessError``."""
    words: list[str] = [word for word in options.words if word != "--json"]
    if words[:1] == ["--"]:
        del words[0]
    if not words:
        raise HarnessError(
            "migrate: COMMAND or FILE is missing, such as `touchstone migrate lm_eval --tasks arc_easy`"
        )
    if len(words) == 1 and Path(words[0]).suffix in YAML:
        task = read_yaml(Path(words[0]))
        if "tasks" not in task and "model" not in task:
            text, lines = of_task(task, Path(words[0]))
            notes = "".join(f"# {line}\n" for line in lines)
            return Output({"text": text, "notes": list(lines)}, notes + text)
        found = of_lm_eval(settings_of(task), shipped_names())
    else:
        found = _migrated(" ".join(words) if len(words) == 1 else shlex.join(words), words)
    commands = [shlex.join(command) for command in found.commands]
    data = {"commands": [list(one) for one in found.commands], "notes": list(found.lines)}
    return Output(data, "\n".join((*commands, *(f"  {line}" for line in found.lines))))


def _migrated(text: str, words: Sequence[str]) -> Migrated:
    text = re.sub(r"\\\r?\n", "", text)  # as a shell joins lines
    if re.search(r"\bjq\b", text) and RESULTS.search(text):
        return _of_jq(text)
    if loop := LOOP.search(text):
        return _of_loop(loop)
    if len(words) == 1 and " " in words[0]:
        words = _split(text)
    if len(words) == 1 and (path := Path(words[0])).suffix in CONFIGS:
        return _of_config(path)
    environment, words = _started(words)
    program, rest = (words[0], words[1:]) if words else ("", [])
    name = Path(program).name
    if name in PROGRAMS or name.startswith("lm_eval."):
        given = options_of(rest[1:] if rest[:1] == ["run"] else rest, SHORT)
        found = of_lm_eval(given, shipped_names())
    else:
        found = of_script(program, rest, dict(environment))
    kept = tuple(f"{key}={value}" for key, value in environment.items() if key not in ENVIRONMENT)
    return Migrated(tuple((*kept, *command) for command in found.commands), found.lines)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise HarnessError(f"migrate: the command cannot be read as a shell reads it: {error}") from None


STARTERS: Final = ("uv run", "poetry run", "nohup", "time", "bash", "sh", "accelerate launch", "torchrun")


def _started(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables that a command sets, and its words from the name of the program on."""
    left = [word for word in words if word != "&"]
    environment: dict[str, str] = {}
    while left:
        if found := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", left[0], re.DOTALL):
            environment[found[1]] = found[2]
            del left[0]
        elif taken := next((one for one in map(str.split, STARTERS) if left[: len(one)] == one), None):
            del left[: len(taken)]
        elif Path(left[0]).name.startswith("python") or left[0] in ("-m", "-u"):
            del left[0]
        else:
            break
    return environment, left


def _of_loop(loop: re.Match[str]) -> Migrated:
    """Return the command for a loop of a shell over checkpoints; one for each value where more than these differs."""
    if re.search(r"[$`{]", loop["what"]):
        raise HarnessError(
            f"migrate: the loop is over {loop['what']}, which only the shell knows; write the values out"
        )
    pieces = re.split(r"[;\n]|\b(?:then|do)\b", loop["body"])
    line = next((piece for piece in pieces if re.search(r"\.(py|sh)\b|\blm[_-]eval\b|\s-m\s", piece)), "")
    if not line:
        raise HarnessError(f"migrate: the loop starts no program that is known: expected {KNOWN}")
    variable = rf"\$({loop['name']}\b|\{{{loop['name']}\}})"
    made = []
    for value in _split(loop["what"]):
        written = value.replace("\\", "\\\\")
        words = [re.sub(variable, written, word) for word in _split(line)]
        made.append(_migrated(shlex.join(words), words))
    steps = tuple(f"{least}:" for least in re.findall(r"-ge\s+(\d+)", loop["body"])[:1])
    more = ("--eval-steps", *steps) if steps else ()
    commands = dict.fromkeys(command for one in made for command in one.commands)
    return Migrated(tuple((*command, *more) for command in _joined([*commands])), made[0].lines)


def _joined(commands: Sequence[Words]) -> Sequence[Words]:
    """Return a command for all checkpoints where the commands differ by theirs alone, else the commands."""
    first, *others = commands
    if any("--checkpoint" not in command for command in commands):
        return commands
    at = first.index("--checkpoint") + 2
    rests = {(*command[: at - 2], *command[at:]) for command in commands}
    added = [word for command in others for word in command[at - 2 : at]]
    return [(*first[:at], *added, *first[at:])] if len(rests) == 1 else commands


def _of_jq(text: str) -> Migrated:
    """Return the command that shows what a line of ``jq`` picks from files of results."""
    plain = re.sub(r"-i?name\s+\S+|'[^']*'", " ", re.sub(r"\bfind\s+(\S+)", r"\1/", text))
    places = [word for word in plain.split() if re.search(r"[\w.]/|\*|\.json$", word) and word != "/dev/null"]
    inputs = dict.fromkeys(re.sub(r"(/\*(_eval_results)?\.json|/+)$", "", word.strip('"')) for word in places)
    said = "the line works too: --eval-beside writes the same files, with the same names in them"
    return Migrated((("touchstone", "study", *(inputs or ["runs"])),), (said,))


def _of_config(path: Path) -> Migrated:
    from pytest_touchstone.core.eval_config import read_eval_config

    settings = read_eval_config(path, shipped_names()).settings  # raises where it is wrong
    own = ["--checkpoint", str(settings["checkpoint"])] if isinstance(settings.get("checkpoint"), str) else []
    made, added = command_of(("--eval-config", str(path)), own)
    note = f"{shown_path(path)} works as it is; `touchstone validate {shlex.quote(str(path))}` shows what it enables"
    return Migrated((made,), (*added, note))
