"""Every command of README, docs and tutorials is one that can be typed: its options are known and take their values,
and what it names of this project exists.

Commands are lines of code blocks, and code within sentences and tables, that begin with ``touchstone``, ``pytest`` or
``python``. A ``\\`` at its end continues a line, ``#`` after a space begins a remark, and words in capitals stand for
something of the reader's. The tutorials are also run (``test_tutorials``). A block is left out after
``<!-- not a command: WHY -->``.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from pytest_touchstone.checkpoints.builtin import NAMES
from pytest_touchstone.cli.benchmarks import known_specs
from pytest_touchstone.cli.command import COMMANDS, parser_for
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.settings import SET, Setting, settings_table
from pytest_touchstone.core.tasks import LM_EVAL_PREFIX, TaskSelection, declared_groups, task_groups
from tests.repo.test_documents import PAGES, place
from tests.support.places import ROOT

PROGRAMS = ("touchstone", "pytest", "python")
BLOCK = re.compile(
    r"(?P<left_out><!-- not a command: [^\n]*-->\n+)?"
    r"(?:^```[^\n]*\n(?P<fenced>.*?)^```$|(?P<indented>(?:^ {4}[^\n]*\n|^\n(?= {4}))+))",
    re.DOTALL | re.MULTILINE,
)
INLINE = re.compile(r"(?<!`)`((?:touchstone|pytest|python) [^`]+)`(?!`)")
STANDS_FOR = re.compile(r"[A-Z][A-Z0-9_]*")
OURS = ("evals", "tests", "docs", "fixtures", "perf", "simulations")
NUMBERS = ("N", "K")


class Typed(NamedTuple):
    """A command as a page shows it."""

    page: str
    text: str

    @property
    def words(self) -> list[str]:
        """Its words, without the brackets around what may be left out."""
        plain = re.sub(r"(?<![\w*])\[(?=[-A-Z])|(?<=[\w.])\](?=\s|$)|(?<=\s)\.\.\.", "", self.text)
        return ["1" if word in NUMBERS else word for word in shlex.split(plain)]


def commands_of(page: str, text: str) -> Iterator[Typed]:
    """The commands that a page shows."""
    for block in BLOCK.finditer(text):
        code = re.sub(r"\\\n\s*", "", block["fenced"] or block["indented"] or "")
        for line in code.splitlines() if block["left_out"] is None else ():
            plain = re.sub(r"\s+#\s.*$", "", line.strip().removeprefix("$ "))
            for part in plain.split(" && "):
                if part.partition(" ")[0] in PROGRAMS and not re.search(r"[.:,]$", part):
                    yield Typed(page, part)
    for found in INLINE.finditer(BLOCK.sub("", text)):
        yield Typed(page, " ".join(found[1].split()))


def typed() -> list[Typed]:
    """The commands of all pages, each once."""
    found = (one for page in PAGES for one in commands_of(place(page), page.read_text(encoding="utf-8")))
    return list(dict.fromkeys(found))


@functools.cache
def tasks_unknown(text: str) -> str | None:
    """The reason why a choice of benchmarks is none; tasks of an installed lm-evaluation-harness may have any name."""
    text = ",".join(name for name in text.split(",") if not name.startswith(LM_EVAL_PREFIX))
    if not text:
        return None
    specs = known_specs([])
    chosen = TaskSelection.of([text], task_groups(ROOT / "pyproject.toml"), [spec.name for spec in specs])
    return chosen.unknown([(spec, declared_groups(spec, None)) for spec in specs])


def faults_of_options(words: list[str], config: pytest.Config) -> Iterator[str]:
    """What is wrong with the words after ``pytest`` or ``touchstone run``."""
    rows = {
        flag: row for row in settings_table().values() if row.option for flag in (row.flag, row.long_flag)
    }
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        row = rows.get("--eval-tasks" if flag == "--tasks" else flag)
        if flag == SET:
            key, _, value = (value if equals else next(rest, "")).partition("=")
            flag, row, equals = f"{SET} {key}", settings_table().get(key), "="
        if row is not None and row.action != "switch":
            value = value if equals else next(rest, "")
            if not value:
                yield f"{flag} needs a value"
            elif not STANDS_FOR.search(value):
                yield from faults_of_value(row, flag, value)
        elif row is None and flag.startswith("-"):
            _, unknown = config._parser.parse_known_and_unknown_args(
                [word, *(["1"] if flag in ("-n", "-k", "-m") else [])]
            )
            if any(one.startswith("-") for one in unknown):
                yield f"unknown option {flag}"
            if flag in ("-n", "-k", "-m", "-p"):
                next(rest, None)
        elif row is None and word.split("/")[0] in OURS and not (ROOT / word.partition("::")[0]).exists():
            yield f"{word} does not exist"


def faults_of_value(row: Setting, flag: str, value: str) -> Iterator[str]:
    """What is wrong with the value of an option of ours."""
    if row.name == "tasks":
        yield from filter(None, [tasks_unknown(value)])
    elif row.name == "checkpoint" and value.startswith("builtin:"):
        name = value.removeprefix("builtin:").partition("/")[0]
        yield from [] if name in NAMES else [f"{value}: no such checkpoint"]
    elif row.name not in ("checkpoint", "config", "data", "gate_config", "base_model", "tokenizer"):
        try:
            row.read(value, flag)
        except HarnessError as error:
            yield str(error)


def faults_of_ours(words: list[str], config: pytest.Config) -> Iterator[str]:
    """What is wrong with the words after ``touchstone``."""
    names = {one.name: one for one in COMMANDS}
    if STANDS_FOR.fullmatch(words[0]):
        return  # the name of something
    if words[0] not in names:
        yield f"no command {words[0]}"
    elif words[0] == "run":
        yield from faults_of_options(words[1:], config)
    elif len(words) > 1 + bool(names[words[0]].commands):
        try:
            parser_for(words).parse_args(words)
        except HarnessError as error:
            yield str(error)


def faults(one: Typed, config: pytest.Config) -> list[str]:
    """What is wrong with a command."""
    program, *words = one.words
    if program == "touchstone":
        return list(faults_of_ours(words, config))
    if program == "pytest":
        return list(faults_of_options(words, config))
    script = next((word for word in words if word.endswith(".py")), None)
    own = script is not None and script.split("/")[0] in OURS
    return [f"{script} does not exist"] if own and not (ROOT / str(script)).exists() else []


def test_the_commands_of_all_pages_can_be_typed(pytestconfig: pytest.Config) -> None:
    commands = typed()
    wrong = [f"{one.page}: {one.text}: {fault}" for one in commands for fault in faults(one, pytestconfig)]
    assert not wrong
    assert len(commands) > 150


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("    pytest evals/ --eval-workers 2\n", "unknown option --eval-workers"),
        ("    touchstone run --tasks arc_esy\n", "invalid --eval-tasks 'arc_esy'"),
        ("Type `touchstone run --eval-limit none`.\n", "--eval-limit"),
        ("```console\n$ touchstone compare A \\\n    --no-such\n...\n```\n", "unknown option --no-such"),
        ("    touchstone rn x\n", "no command rn"),
        ("| `pytest tests/no_such.py` |\n", "tests/no_such.py does not exist"),
        ("    pytest evals/ --checkpoint builtin:none\n", "builtin:none: no such checkpoint"),
        ("    python fixtures/build/none.py\n", "fixtures/build/none.py does not exist"),
    ],
)
def test_a_command_that_cannot_be_typed_is_found(pytestconfig: pytest.Config, text: str, fault: str) -> None:
    (one,) = commands_of("page", text)
    (found,) = faults(one, pytestconfig)
    assert fault in found


def test_remarks_parts_that_may_be_left_out_and_marked_blocks_are_no_faults(
    pytestconfig: pytest.Config,
) -> None:
    export = "    touchstone export RUN [-o DIR] [--no-samples]    # into a folder\n"
    page = f"{export}\n<!-- not a command: why -->\n\n    pytest --none\n"
    (one,) = commands_of("page", page)
    assert one.words == ["touchstone", "export", "RUN", "-o", "DIR", "--no-samples"]
    assert not faults(one, pytestconfig)
