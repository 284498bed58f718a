"""A mistake on the command line is one line and exit code 4, and nothing is done before; no argument is no mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.cli.commands import COMMANDS

MISTAKES = {
    "frobnicate": "touchstone: 'frobnicate' is no command: there are ",
    "compar": "touchstone: 'compar' is no command: did you mean 'compare'? (touchstone --help)",
    "--bogus": "touchstone: COMMAND is missing (touchstone --help)",
    "--bogus list": "touchstone: unknown option --bogus (touchstone --help)",
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
    "compare --json --markdown nosuch b": "touchstone: --json and --markdown: give one of them",
    "compare nosuch other": "touchstone: nosuch: no such file, run or checkpoint",
    "list extra": "touchstone: 'extra' is one argument too many (touchstone list --help)",
    "list --json=3": "touchstone: --json takes no value: '3' (touchstone list --help)",
    "report": "touchstone: RUN is missing (touchstone report --help)",
    "report nosuch": "touchstone: nosuch: no such run in results/",
    "report nosuch --json --csv": "touchstone: --json and --csv: give one of them",
    "rescore nosuch": "touchstone: nosuch: no such run in results/",
    "show": "touchstone: PATH is missing (touchstone show --help)",
    "show nosuch": "touchstone: nosuch: no such file or folder",
    "fetch nosuch": "touchstone: nosuch: nothing to fetch under that name",
    "import nosuch.csv": "touchstone: nosuch.csv: no such file",
    "import nosuch.txt": "touchstone: nosuch.txt: ",
    "conformance nosuch": "touchstone: nosuch: cannot be read",
    "conformance --cases nosuch": "touchstone: ",
    "grade nosuch samples": "touchstone: invalid BENCHMARK 'nosuch': expected ",
    "grade humaneval nosuch.jsonl": "touchstone: nosuch.jsonl: ",
    "grade humaneval nosuch.jsonl --workers 0": "touchstone: invalid --workers '0': expected a whole number from 1",
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
    assert "positional arguments" in out


def test_two_forms_are_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.json").write_text(json.dumps([{"benchmark": "b"}]), encoding="utf-8")
    assert main(["compare", "rows.json", "nosuch", "--json", "--markdown"]) == 4
    assert "nosuch" not in capsys.readouterr().err
