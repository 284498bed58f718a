"""A mistake on the command line is one line and exit code 4, and nothing is done before; no argument is no mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_touchstone.cli import command, main
from pytest_touchstone.cli.command import COMMANDS, FORMER_COMMANDS

MISTAKES = {
    "frobnicate": "touchstone: 'frobnicate' is no command: there are ",
    "compar": "touchstone: 'compar' is no command: did you mean 'compare'? (touchstone --help)",
    "--bogus": "touchstone: COMMAND is missing (touchstone --help)",
    "--bogus runs": "touchstone: unknown option --bogus (touchstone --help)",
    "baseline st": "touchstone: 'st' is no command: did you mean 'set'? (touchstone baseline --help)",
    "baseline set": "touchstone: RUN_ID is missing (touchstone baseline set --help)",
    "compare --margn 1": "touchstone: unknown option --margn: did you mean --margin",
    "compare --margin": "touchstone: --margin needs a value (touchstone compare --help)",
    "compare --margin= a b": "touchstone: invalid --margin '': expected a number",
    "compare --margin x a b": "touchstone: invalid --margin 'x': expected a number",
    "compare --alpha 0 a b": "touchstone: invalid --alpha '0': expected a number above 0",
    "compare --alpha -1 a b": "touchstone: invalid --alpha '-1': expected a number above 0",
    "compare --show-flips 1.5 a b": "touchstone: invalid --show-flips '1.5': expected a whole number",
    "compare --items x a b": "touchstone: ",
    "compare --json nosuch b": "touchstone: unknown option --json: it is --format json now (touchstone compare --help)",
    "compare nosuch other": "touchstone: nosuch: no such file, run or checkpoint",
    "runs extra": "touchstone: 'extra' is one argument too many (touchstone runs --help)",
    "runs --format=3": "touchstone: --format: invalid choice: '3' (choose from ",
    "report": "touchstone: RUN is missing (touchstone report --help)",
    "report nosuch": "touchstone: nosuch: no such run in results/",
    "report nosuch --open --format text": "touchstone: --open: is for the page, and --format text is none",
    "report nosuch --stderr": "touchstone: --stderr: is for a table; give --format markdown or latex too",
    "report nosuch other": "touchstone: 2 runs: this form is of one; ",
    "score nosuch": "touchstone: nosuch: no such run in results/",
    "checkpoint show": "touchstone: PATH is missing (touchstone checkpoint show --help)",
    "checkpoint show nosuch": "touchstone: nosuch: no such file or folder",
    "checkpoint fetch nosuch": "touchstone: nosuch: nothing to fetch under that name",
    "baseline import nosuch.csv": "touchstone: nosuch.csv: no such file",
    "baseline import nosuch.txt": "touchstone: nosuch.txt: ",
    "score --verdicts nosuch": "touchstone: nosuch: cannot be read",
    "score --cases nosuch": "touchstone: ",
    "score humaneval nosuch.jsonl": "touchstone: nosuch.jsonl: cannot be read: No such file or directory",
    "score humaneval no?such.jsonl": "touchstone: no?such.jsonl: a question mark begins options",
    "score": "touchstone: BENCHMARK FILE, or RUN, is missing (touchstone score --help)",
    "score last --k 5": "touchstone: --k: does nothing with a run; leave it out (touchstone score --help)",
    "score last --answer x": "touchstone: --answer: does nothing with a run; leave it out",
    "score x --verdicts -o y": "touchstone: -o: does nothing with verdicts; leave it out",
    "score humaneval x --root y": "touchstone: --root: does nothing with a file of answers; leave it out",
    "baseline show nosuch": "touchstone: nosuch: no baseline and no run of that name",
    "baseline rm nosuch": "touchstone: nosuch: no baseline and no run of that name",
    "baseline set nosuch --name x": "touchstone: ",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_4(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 4
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(MISTAKES[arguments])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("group", [(), *((one.name,) for one in COMMANDS if one.commands)])
def test_a_command_that_needs_another_shows_which_there_are(
    group: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(group)
    assert ended.value.code == 0
    out, err = capsys.readouterr()
    assert not err
    assert re.search("^    [a-z]+  +[a-z]", out, re.MULTILINE)


@pytest.mark.parametrize("name", FORMER_COMMANDS)
def test_a_former_name_answers_with_the_new_one(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "x", "--json"]) == 4
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        f"touchstone: {name} has another name now: touchstone {FORMER_COMMANDS[name]}\n",
    )
    command, *_ = FORMER_COMMANDS[name].split()
    assert command in {one.name for one in COMMANDS}


def test_seventeen_commands_are_shown_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(COMMANDS) == 17
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if line.endswith(":") and line[0] != " "][1:]
    assert heads == [f"{group}:" for group in dict.fromkeys(one.group for one in COMMANDS)]
    assert len(heads) == 4
    assert all(len(line) <= 90 for line in lines)
    shown = [line.split()[0] for line in lines if line.startswith("    ")]
    assert shown == [one.name for one in COMMANDS]


def test_ctrl_c_while_a_class_is_made_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_: object) -> int:
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()  # as Python 3.11 does

    def fail(_: object) -> int:
        raise RuntimeError("ours")

    monkeypatch.setattr(command, "run_command", stop)
    assert main(["runs"]) == 2
    assert capsys.readouterr().err == "touchstone: stopped\n"
    monkeypatch.setattr(command, "run_command", fail)
    with pytest.raises(RuntimeError, match="ours"):
        main(["runs"])
