"""A benchmark file that needs nothing else: rows in the file, or beside it; questions as text and as a chat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.results.journal import latest_records, read_journal
from tests.support.project import ALONE

CAPITALS = """
from pytest_touchstone import FewShot, Generate, Graded, Loglikelihood, Scores, Shot, Shots, benchmark

ROWS = [
    {"country": "France", "capital": "Paris", "other": "Lyon"},
    {"country": "Peru", "capital": "Lima", "other": "Cusco"},
    {"country": "Kenya", "capital": "Nairobi", "other": "Mombasa"},
]


@benchmark("capitals", version=1, rows=ROWS, asks=Loglikelihood, primary="acc")
def test_capitals(example) -> Scores:
    right, wrong = yield [
        Loglikelihood(f"The capital of {example['country']} is", f" {city}")
        for city in (example["capital"], example["other"])
    ]
    return {"acc": right.logprob > wrong.logprob}


@benchmark("named", version=1, data="capitals.jsonl", asks=Generate, primary="right",
           shots=Shots(1, lambda row: Shot(f"{row['country']}:", row["capital"])))
def test_named(example, fewshot: FewShot) -> Scores:
    answer = yield fewshot.generate(f"{example['country']}:", stop=("\\n",), max_new_tokens=8)
    return Graded({"right": example["capital"] in answer.text}, no_answer=example["country"] == "Peru")
"""

ROWS = [{"country": "Peru", "capital": "Lima"}, {"country": "Mali", "capital": "Bamako"}]


def run(pytester: pytest.Pytester, *arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of one run by benchmark, and its records by example."""
    done = pytester.runpytest("--checkpoint", "fake:causal", *ALONE, *arguments)
    assert done.ret == 0
    (summary,) = pytester.path.glob("results/*/summary.json")
    results = {one["name"]: one for one in json.loads(summary.read_text())["results"]}
    return results, {one.example: one for one in latest_records(read_journal(summary.parent)).values()}


@pytest.fixture
def files(pytester: pytest.Pytester) -> Path:
    (pytester.path / "sub").mkdir()
    text = "".join(json.dumps(row) + "\n" for row in ROWS)
    (pytester.path / "sub" / "capitals.jsonl").write_text(text, encoding="utf-8")
    (pytester.path / "sub" / "test_capitals.py").write_text(CAPITALS, encoding="utf-8")
    return pytester.path


def test_rows_in_the_file_and_beside_it_are_run_and_named_as_the_benchmarks_own(
    pytester: pytest.Pytester, files: Path
) -> None:
    results, records = run(pytester)
    assert {name: one["scored"] for name, one in results.items()} == {"capitals": 3, "named": 2}
    assert [one["dataset"]["origin"] for one in results.values()] == ["the benchmark's own"] * 2
    assert results["named"]["no_answer"] == 1
    assert results["named"]["metrics"].keys() == {"right"}
    asked = records["named/0"].exchanges[0]["request"]
    assert asked["prompt"] == "Mali: Bamako\n\nPeru:"
    assert [turn["text"] for turn in asked["turns"]] == ["Mali:", "Bamako", "Peru:"]


def test_a_data_folder_that_lacks_them_does_not_matter(pytester: pytest.Pytester, files: Path) -> None:
    (files / "data").mkdir()
    assert set(run(pytester, "--eval-data", "data")[0]) == {"capitals", "named"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"capitals.jsonl"', '"none.jsonl"'), "named: sub/none.jsonl: no such file"),
        (("rows=ROWS", "rows=[3]"), "rows of capitals, row 1: of type int, not a dict"),
    ],
)
def test_rows_that_cannot_be_had_are_one_line(
    pytester: pytest.Pytester, files: Path, change: tuple[str, str], said: str
) -> None:
    (files / "sub" / "test_capitals.py").write_text(CAPITALS.replace(*change), encoding="utf-8")
    done = pytester.runpytest("--checkpoint", "fake:causal", *ALONE)
    assert done.ret == 4
    done.stderr.fnmatch_lines([f"ERROR: {said}"])


OTHER = """
import pytest
from pathlib import Path
from pytest_touchstone import Dataset, Loglikelihood, Shots, benchmark

ROWS = [{{"n": n}} for n in range(3)]


def read():
    yield from ROWS


def unreadable():
    raise OSError("no such table")


@pytest.fixture(scope="session")
def three_rows():
    return ROWS


@benchmark("b", version=1, asks=Loglikelihood, primary="acc", {how})
def test_b(example):
    answer = yield Loglikelihood("x", "y")
    return {{"acc": 1.0}}
"""


def run_other(pytester: pytest.Pytester, how: str, *arguments: str) -> pytest.RunResult:
    (pytester.path / "many").mkdir()
    for name in ("rows.jsonl", "many/a.jsonl", "many/b.jsonl"):
        (pytester.path / name).write_text('{"n": 1}\n{"n": 2}\n', encoding="utf-8")
    pytester.makepyfile(test_b=OTHER.format(how=how))
    return pytester.runpytest("--checkpoint", "fake:causal", "-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize(
    ("how", "items"),
    [
        ("rows=read", 3),
        ("rows=lambda: ROWS[:2]", 2),
        ("data=Path(__file__).with_name('rows.jsonl')", 2),
        ("data=Path(__file__).with_name('many'), group='file'", 4),
        ("data='many/'", 4),
    ],
)
def test_rows_come_from_a_function_a_path_or_a_folder(
    pytester: pytest.Pytester, how: str, items: int
) -> None:
    run_other(pytester, how).assert_outcomes(passed=items)


SHOTS = "shot=lambda row: str(row['n'])"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("rows=unreadable", "rows of b: OSError: no such table (test_b.py:13)"),
        ("rows=lambda: 3", "rows of b: of type int; give a list of dicts, or a function that returns one"),
        ("rows=[]", "rows of b: no rows; give one at least"),
        ("rows='three_rows'", "test_b.py:21: rows of type str: write rows=*"),
        ("rows=three_rows", "rows of b: a fixture, which runs later; give the function without the fixture"),
        ("data='row.jsonl'", "b: row.jsonl: no such file; did you mean 'rows.jsonl'?"),
        ("data='rows'", "b: data='rows' is no file; did you mean 'rows.jsonl'?"),
        ("data='rows.csv'", "b: data='rows.csv': only .jsonl files are read; *"),
        ("data='none/'", "b: none: no folder of .jsonl files*"),
        ("data=Dataset('rows.jsonl')", "test_b.py:21: Dataset('rows.jsonl'): a file is local='rows.jsonl'"),
        (
            "rows=ROWS, metric='acc'",
            "test_b.py:21: benchmark 'b': unknown field 'metric'; did you mean 'metrics'?",
        ),
        ("rows=ROWS, shots=Shots(1)", "b: 1 few-shot examples, but no shot=, which makes one of a row; *"),
        (
            f"rows=ROWS, shots=Shots(3, {SHOTS})",
            "b: 3 few-shot *has 3 rows, one of which is the question; *to 2",
        ),
        (
            f"data=Dataset(rows=ROWS, fewshot='train'), shots=Shots(1, {SHOTS})",
            "b: fewshot='train' is no file *",
        ),
    ],
)
def test_a_mistake_in_a_declaration_is_one_line_that_says_what_to_change(
    pytester: pytest.Pytester, how: str, said: str
) -> None:
    done = run_other(pytester, how)
    assert done.ret == 4
    done.stderr.fnmatch_lines([f"ERROR: {said}"])
    assert "Traceback" not in done.stdout.str() + done.stderr.str()
    done.stdout.no_fnmatch_line("*ERRORS*")


def test_workers_say_a_refused_declaration_once(pytester: pytest.Pytester) -> None:
    done = run_other(pytester, "rows=ROWS, metric='acc'", "-n", "2")
    assert done.ret == 4
    assert (done.stdout.str() + done.stderr.str()).count("unknown field") == 1
