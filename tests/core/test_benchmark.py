"""What ``@benchmark`` takes: one dataset by its name, or rows of its own."""

from __future__ import annotations

import json
import sys
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typing_extensions

import pytest_touchstone
from pytest_touchstone import Dataset, FewShot, Loglikelihood, Published, Scores, Shots, benchmark
from pytest_touchstone.core.benchmark import LIST_OF_DICTS, Benchmark, declaration_of
from pytest_touchstone.core.dataset import load_dataset, load_shots
from pytest_touchstone.core.errors import BenchmarkError, DataError
from pytest_touchstone.core.requests import Request
from tests.support.lines import naming


def made(**fields: Any) -> Benchmark:
    """The declaration of a benchmark with these arguments."""
    kinds: tuple[type[Request], ...] = (Loglikelihood,)

    @benchmark(**{"name": "x", **fields}, version=1, asks=kinds, primary="acc")
    def test_x(example: Any, fewshot: FewShot) -> Scores:
        """Nothing."""
        answer = yield fewshot.loglikelihood(example["q"], " 1")
        return {"acc": answer.is_greedy}

    found = declaration_of(test_x)
    assert found is not None
    return found


GSM8K = Dataset("openai/gsm8k", "main", split="test", fewshot="train")


def test_a_data_set_is_named_once_for_the_hub_and_for_folders() -> None:
    assert GSM8K.name == "gsm8k/test"
    shots = GSM8K.shots
    assert shots == Dataset("openai/gsm8k", "main", split="train", local="gsm8k/train")
    assert shots.shots is None


@pytest.mark.parametrize(
    ("given", "name", "shots"),
    [
        (Dataset("a/b", split="dev", fewshot="train", local="c/valid"), "c/valid", "c/train"),
        (Dataset("a/b"), "b/test", None),
        (Dataset(local="c/test", fewshot=Dataset(local="d/shots")), "c/test", "d/shots"),
        (Dataset(local="mine.jsonl", fewshot="shots.jsonl"), "mine.jsonl", "shots.jsonl"),
        (Dataset(local="sub/mine.jsonl", fewshot="shots.jsonl"), "sub/mine.jsonl", "sub/shots.jsonl"),
    ],
)
def test_names_in_a_folder_follow_from_the_split_unless_given(
    given: Dataset, name: str, shots: str | None
) -> None:
    assert given.name == name
    assert (given.shots.name if given.shots else None) == shots


def test_a_text_is_the_name_of_a_dataset_in_a_folder() -> None:
    assert made(data="sums/test").data == Dataset(local="sums/test")
    assert made(data="sums").data.name == "sums"


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ("benchmark 'x'", "data='NAME/FILE'", "data=Dataset")),
        ({"data": "a/b", "rows": []}, ("benchmark 'x'", "data", "rows")),
        ({"data": GSM8K, "tests": 1}, ("'tests'",)),
        ({"dta": GSM8K}, ("'dta'",)),
        ({"data": GSM8K, "metrics": "acc"}, ("metrics='acc'", "tuple")),
        ({"data": GSM8K, "metrics": ("f1",)}, ("primary", "'acc'", "metrics")),
        ({"data": GSM8K, "subsets": "a", "group": "b"}, ("group", "subsets")),
    ],
)
def test_a_wrong_declaration_is_one_line(fields: dict[str, Any], names: tuple[str, ...]) -> None:
    with pytest.raises(BenchmarkError, match=naming(*names)):
        made(**fields)
    with pytest.raises(BenchmarkError, match=naming("Dataset", "local='NAME/FILE'", "rows=[...]")):
        Dataset()


def test_the_paper_is_the_first_of_the_sources() -> None:
    assert Published(paper="arXiv 1", source="a harness").places == "arXiv 1; a harness"
    assert made(data=GSM8K, published=Published(paper="arXiv 1")).published.places == "arXiv 1"
    assert made(data=GSM8K).published.places == ""


ROWS = [{"q": "1+1=", "a": 2}, {"q": "2+2=", "a": 4}]


@pytest.mark.parametrize("data", [None, "hub", "nowhere"])
def test_rows_of_a_benchmark_are_used_whatever_the_data(data: str | None) -> None:
    found = load_dataset(made(rows=ROWS), data)
    assert [(example.id, example.row) for example in found.examples] == [("x/0", ROWS[0]), ("x/1", ROWS[1])]
    assert (found.info.name, found.info.origin, found.info.rows) == ("x", "the benchmark's own", 2)
    assert load_shots(made(rows=ROWS), data) is None
    changed = load_dataset(made(rows=[*ROWS[:1], {"q": "2+2=", "a": 5}]), data)
    assert changed.info.sha256 != found.info.sha256


def test_rows_in_a_file_beside_the_module_are_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    (tmp_path / "shots.jsonl").write_text('{"q": "3+3=", "a": 6}\n', encoding="utf-8")
    spec = made(data=Dataset(local="sums.jsonl", fewshot="shots.jsonl"), folder=tmp_path)
    found, shots = load_dataset(spec, "hub"), load_shots(spec, None)
    assert [example.row for example in found.examples] == ROWS
    assert found.info.path == str(tmp_path / "sums.jsonl")
    assert shots is not None
    assert [example.row["a"] for example in shots.examples] == [6]
    assert made(data="sums.jsonl").code.folder == Path(__file__).parent


class Question(typing.TypedDict):
    q: str


class Nested(typing_extensions.TypedDict):
    question: Question


@pytest.mark.parametrize("row", [Question, Nested])
def test_a_row_type_of_typing_works_where_it_can_and_is_named_where_it_cannot(row: Any) -> None:
    spec = made(rows=[{"q": "1+1=", "question": {"q": "1+1="}}], row=row)
    if sys.version_info >= (3, 12):
        assert len(load_dataset(spec, None).examples) == 1
        return
    with pytest.raises(DataError, match=naming("x", "typing.TypedDict", "Python 3.12", "typing_extensions")):
        load_dataset(spec, None)


class DataFrame:
    """Rows in a form that is no list."""


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ([{"q": "1+1="}], "list"),
        ({"q": "1+1="}, "dict"),
        ((one for one in ROWS), "generator"),
        (DataFrame(), "DataFrame"),
    ],
)
def test_rows_in_a_form_that_is_no_list_or_no_path_are_named_in_one_line(given: Any, kind: str) -> None:
    with pytest.raises(BenchmarkError, match=naming("benchmark 'x'", f"type {kind}", LIST_OF_DICTS)):
        made(data=given)
    if kind != "list":
        with pytest.raises(BenchmarkError, match=naming(f"rows of type {kind}", LIST_OF_DICTS)):
            made(rows=given)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"q": "1"}, 3], "rows of x, row 2: of type int, not a dict"),
        ([{"q": {1, 2}}], "rows of x, row 1: .*set.* use text, numbers, lists and dicts"),
        ([], "rows of x: no rows"),
    ],
)
def test_wrong_rows_of_a_benchmark_are_named(rows: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        load_dataset(made(rows=rows), None)


def test_a_missing_file_beside_the_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: no such file"):
        load_dataset(made(data="none.jsonl", folder=tmp_path), None)


def test_every_public_name_is_there_and_others_are_not() -> None:
    assert all(getattr(pytest_touchstone, name) is not None for name in pytest_touchstone.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'benchmarks'"):
        pytest_touchstone.benchmarks  # noqa: B018


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"asks": Loglikelihood, "primary": "acc"}, "benchmark 'x': no version; write version=1"),
        ({}, "benchmark .x.: no version, asks; write version=1, asks=Loglikelihood"),
    ],
)
def test_what_a_declaration_lacks_is_said_with_what_to_write(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BenchmarkError, match=f"^{said}$"):
        benchmark("x", **given)
    with pytest.raises(BenchmarkError, match=r"^@benchmark without arguments; write @benchmark\("):
        benchmark(made)  # type: ignore[arg-type, call-arg]
    with pytest.raises(BenchmarkError, match=r"^@benchmark: too many positional arguments$"):
        benchmark("x", 1)  # type: ignore[call-arg]


def test_a_misspelt_argument_is_refused_with_the_nearest_one() -> None:
    # mypy refuses it too: without its error the comment on the call is one that it calls unused.
    with pytest.raises(BenchmarkError, match=naming("'shot_'", "'shots'")):
        benchmark("x", version=1, data="a/b", asks=Loglikelihood, shot_=Shots())  # type: ignore[call-arg]
    with pytest.raises(BenchmarkError, match=naming("'num_fewshot'", "shots=Shots(5, shot=..., pick=...)")):
        benchmark("x", version=1, data="a/b", asks=Loglikelihood, num_fewshot=3)  # type: ignore[call-arg]
    with pytest.raises(BenchmarkError, match=r"shots=3; write shots=Shots\(...\)"):
        benchmark("x", version=1, data="a/b", asks=Loglikelihood, shots=3)  # type: ignore[arg-type]


if TYPE_CHECKING:  # what mypy alone refuses
    benchmark("x", version=1, data="a/b", asks=Loglikelihood, primary="acc", shots=Shots("3"))  # type: ignore[arg-type]
    benchmark("x", version=1, data="a/b", asks=Loglikelihood, primary="acc", shots=Shots(pick="last"))  # type: ignore[arg-type]
    benchmark("x", version="1", data="a/b", asks=Loglikelihood, primary="acc")  # type: ignore[arg-type]
    Shots(num_fewsht=3)  # type: ignore[call-arg]
    benchmark("x", data="a/b", asks=Loglikelihood, primary="acc")  # type: ignore[call-arg]
    benchmark(
        "x", version=1, data="a/b", asks=[Loglikelihood], primary="acc", shots=Shots(3), tags=("short",)
    )


def test_a_dataset_on_the_hub_is_named_by_path_configuration_and_split() -> None:
    assert Dataset("a/b", "main", split="train").on_hub == {"path": "a/b", "config": "main", "split": "train"}
    assert Dataset("a/b", ("x", "y")).on_hub == {"path": "a/b", "split": "test"}
    assert Dataset(local="b/test").on_hub == Dataset("a/b", rows=[{}]).on_hub == {}
