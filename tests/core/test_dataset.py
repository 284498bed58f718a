"""Datasets and few-shot examples."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypedDict

from pytest_touchstone.core.benchmark import Benchmark, Dataset, Published, RowRules, Shots
from pytest_touchstone.core.coverage import SHIPPED, BenchmarkSize
from pytest_touchstone.core.dataset import (
    DatasetInfo,
    DatasetRows,
    Example,
    apply_limit,
    count_rows,
    data_files,
    load_dataset,
    load_shots,
    nearest_file,
    read_lines,
)
from pytest_touchstone.core.errors import DataError, MissingDataError, ShotsError
from pytest_touchstone.core.few_shot import Shot
from pytest_touchstone.core.few_shot_sampling import draw_shots
from pytest_touchstone.core.requests import Loglikelihood, Turn
from tests.support.lines import naming


class Row(TypedDict):
    question: str
    answer: int


SHOTS = Dataset(local="sums/test", fewshot="shots")


def rendered(row: Any) -> str:
    return f"{row['question']}={row['answer']}"


def spec(**more: Any) -> Benchmark:
    fields: dict[str, Any] = {
        "name": "x",
        "version": 1,
        "data": Dataset(local="sums/test"),
        "asks": (Loglikelihood,),
        "primary": "acc",
        "row": Row,
        "shots": Shots(shot=rendered),
    }
    return Benchmark(**{**fields, **more})


def write(folder: Path, name: str, *lines: str) -> str:
    path = folder / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(folder)


def row(n: int) -> str:
    return json.dumps({"question": f"{n}+1", "answer": n + 1})


def test_rows_get_ids_by_their_place_and_the_pack_its_hash(tmp_path: Path) -> None:
    dataset = load_dataset(spec(), write(tmp_path, "sums/test", row(0), "", row(1)))
    assert [example.id for example in dataset.examples] == ["x/0", "x/1"]
    assert (dataset.info.origin, dataset.info.rows, len(dataset.info.sha256)) == ("--eval-data", 2, 64)
    assert dataset.info.name == "sums/test"
    assert dataset.info.path.endswith("sums/test.jsonl")


def test_the_hash_is_of_the_content_not_of_the_layout(tmp_path: Path) -> None:
    one = load_dataset(spec(), write(tmp_path / "a", "sums/test", '{"question": "1", "answer": 2}'))
    other = load_dataset(spec(), write(tmp_path / "b", "sums/test", '{"answer":2,"question":"1"}'))
    third = load_dataset(spec(), write(tmp_path / "c", "sums/test", '{"answer":3,"question":"1"}'))
    assert one is not None
    assert other is not None
    assert third is not None
    assert one.info.sha256 == other.info.sha256 != third.info.sha256


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"question": "1"}', "row 2: field 'answer' is missing"),
        ('{"question": "1", "answer": "many"}', "row 2: field 'answer' is 'many'"),
        ("{", "row 2: not valid JSON"),
        ("[1]", "row 2: a list, not a JSON object"),
    ],
)
def test_a_wrong_row_is_named_by_file_and_number(tmp_path: Path, line: str, fault: str) -> None:
    data = write(tmp_path, "sums/test", row(0), line)
    with pytest.raises(DataError, match=r"sums/test.jsonl, ") as caught:
        load_dataset(spec(), data)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_row_that_cannot_be_prepared_is_named_too(tmp_path: Path) -> None:
    data = write(tmp_path, "sums/test", row(0))
    with pytest.raises(DataError, match=naming("row 1", "field 'text'", "missing")):
        load_dataset(spec(row_rules=RowRules(prepare=lambda given: {"question": given["text"]})), data)


def test_a_file_that_is_not_utf8_or_empty_is_an_error(tmp_path: Path) -> None:
    data = write(tmp_path, "sums/test")
    with pytest.raises(DataError, match="no rows"):
        load_dataset(spec(), data)
    (tmp_path / "sums/test.jsonl").write_bytes(b'{"question": "\xff"}')
    with pytest.raises(DataError, match="not UTF-8"):
        load_dataset(spec(), data)


def test_a_file_of_rows_may_be_packed_with_gzip(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n\n{"a": 2}\n'))
    assert [(line.number, line.data) for line in read_lines(path)] == [(1, {"a": 1}), (3, {"a": 2})]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"rows\.jsonl\.gz: cannot be read"):
        list(read_lines(path))


def test_a_packed_file_with_a_broken_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    whole = bytearray(gzip.compress(b'{"a": 1}\n' * 1000))
    whole[10] = 0xFF
    path.write_bytes(whole)
    with pytest.raises(DataError, match=r"rows\.jsonl\.gz: cannot be read"):
        list(read_lines(path))


def test_a_pack_that_is_nowhere_is_missing_by_its_path(tmp_path: Path) -> None:
    for data, named in (
        (str(tmp_path), f"{tmp_path}/sums/test.jsonl"),
        (None, "--eval-data DIR"),
        ("hub", "Hub"),
    ):
        with pytest.raises(MissingDataError, match=naming("x", named)):
            load_dataset(spec(), data)


def test_neither_a_folder_nor_the_hub_is_helped_out_with_shipped_rows(tmp_path: Path) -> None:
    shipped = spec(data=Dataset(local="arc_easy/test", fewshot="train"), row=None)
    assert load_dataset(shipped, None).info.origin == "shipped"
    assert load_shots(shipped, None) is not None
    folder = write(tmp_path, "other/test", row(0))
    for place in (folder, "hub"):
        with pytest.raises(MissingDataError):
            load_dataset(shipped, place)
        with pytest.raises(ShotsError, match=naming("few-shot", "--eval-shots 0")):
            load_shots(shipped, place)


def test_a_prompt_that_is_part_of_the_benchmark_comes_with_it_and_says_so(tmp_path: Path) -> None:
    folder = write(tmp_path, "math500/test", row(0))
    prompt = spec(
        data=Dataset(local="sums/test", fewshot=Dataset(local="minerva/shots")),
        shots=Shots(fixed=True),
        row=None,
    )
    found = load_shots(prompt, folder)
    assert found is not None
    assert (found.info.origin, len(found.examples)) == ("the benchmark's prompt", 4)
    write(tmp_path, "minerva/shots", row(1))
    own = load_shots(prompt, folder)
    assert own is not None
    assert (own.info.origin, len(own.examples)) == ("--eval-data", 1)


@pytest.mark.parametrize(
    ("there", "name", "scored", "found"),
    [
        ("humaneval/processed/test", "humaneval/HumanEval", True, True),
        ("humaneval/processed/valid", "humaneval/HumanEval", True, True),
        ("humaneval/processed/train", "humaneval/HumanEval", True, False),
        ("winogrande/processed/validation", "winogrande/dev", True, True),
        ("hellaswag/processed/val", "hellaswag/validation", True, True),
        ("gsm8k/processed/validation", "gsm8k/test", True, False),
        ("mbpp/processed/test", "mbpp/sanitized_test", True, False),
        ("mbpp/processed/sanitized_test", "mbpp/sanitized_test", True, True),
        ("mmlu/processed/test/algebra", "mmlu/test", True, True),
        ("gsm8k/processed/train", "gsm8k/train", False, True),
        ("mmlu/processed/validation", "mmlu/dev", False, False),
        ("minerva/processed/test", "minerva/shots", False, False),
    ],
)
def test_a_processed_split_serves_the_same_split_alone(
    tmp_path: Path, there: str, name: str, scored: bool, found: bool
) -> None:
    write(tmp_path, there, row(0))
    assert bool(data_files(tmp_path, name, scored=scored)) == found


def test_a_file_in_its_own_place_goes_before_a_processed_one(tmp_path: Path) -> None:
    write(tmp_path, "humaneval/processed/test", row(0))
    write(tmp_path, "humaneval/HumanEval", row(1))
    assert data_files(tmp_path, "humaneval/HumanEval", scored=True) == [
        tmp_path / "humaneval" / "HumanEval.jsonl"
    ]


@pytest.mark.parametrize(
    ("there", "near"),
    [
        ("ARC-Easy/test.jsonl", "ARC-Easy/test.jsonl"),
        ("ARC-Easy/ARC-Easy-Test.jsonl", "ARC-Easy/ARC-Easy-Test.jsonl"),
        ("arc-easy/test.json", "arc-easy/test.json"),
        ("arc_easy/Test.parquet", "arc_easy/Test.parquet"),
        ("arc_easy/processed/train.jsonl", "arc_easy/processed/train.jsonl"),
        ("ai2_arc/ARC-Easy/test.csv", "ai2_arc/ARC-Easy/test.csv"),
        ("arc_easy_test.jsonl", "arc_easy_test.jsonl"),
        ("ArcEasy.json", "ArcEasy.json"),
        ("gsm8k/test.jsonl", None),
        ("unrelated/rows.jsonl", None),
    ],
)
def test_what_lies_nearest_is_named(tmp_path: Path, there: str, near: str | None) -> None:
    place = tmp_path / there
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()
    assert nearest_file(tmp_path, "arc_easy/test") == near


def test_a_folder_of_files_makes_groups_by_field_or_by_file(tmp_path: Path) -> None:
    write(tmp_path, "sums/test/easy", row(0), row(1))
    data = write(tmp_path, "sums/test/hard", row(2))
    dataset = load_dataset(spec(group="file", row=None), data)
    assert [example.id for example in dataset.examples] == ["x/easy/0", "x/easy/1", "x/hard/0"]
    assert [example.row["file"] for example in dataset.examples] == ["easy", "easy", "hard"]
    with pytest.raises(DataError, match="field 'subject' is missing"):
        load_dataset(spec(group="subject"), data)


def sources(folder: Path, *names: str | None) -> str:
    """A dataset whose rows name these sources; None for a row without one."""
    named = [{} if name is None else {"source": name} for name in names]
    return write(
        folder, "sums/test", *(json.dumps({**json.loads(row(n)), **one}) for n, one in enumerate(named))
    )


def test_rows_of_several_sets_are_groups_and_keep_their_ids(tmp_path: Path) -> None:
    data = sources(tmp_path, "wiki", "klue/nli", "wiki")
    plain, dataset = load_dataset(spec(), data), load_dataset(spec(subsets="source"), data)
    assert [example.group for example in dataset.examples] == ["wiki", "klue_nli", "wiki"]
    assert dataset.info == plain.info
    for one, other in zip(dataset.examples, plain.examples, strict=True):
        assert replace(one, group=None) == other
    assert {name: extent.of for name, extent in count_rows(spec(subsets="source"), dataset, 0).items()} == {
        "wiki": 2,
        "klue_nli": 1,
        "": 3,
    }


@pytest.mark.parametrize("names", [("wiki", "wiki"), (None, None), ("wiki", None), ("wiki", "")])
def test_with_one_set_or_none_named_nothing_changes(tmp_path: Path, names: tuple[str | None, ...]) -> None:
    data = sources(tmp_path, *names)
    assert load_dataset(spec(subsets="source"), data) == load_dataset(spec(), data)


def test_a_row_of_several_sets_that_names_none_is_named(tmp_path: Path) -> None:
    data = sources(tmp_path, "wiki", "klue", None)
    with pytest.raises(DataError, match=naming("row 3", "field 'source'", "None", "sets")):
        load_dataset(spec(subsets="source"), data)


def test_the_hub_is_asked_only_when_named_and_a_local_folder_reads_alike(tmp_path: Path) -> None:
    write(tmp_path, "data/test", row(0), row(1))
    benchmark = spec(data=Dataset(str(tmp_path)))
    with pytest.raises(MissingDataError):
        load_dataset(benchmark, None)
    dataset = load_dataset(benchmark, "hub")
    assert [example.row for example in dataset.examples] == [json.loads(row(0)), json.loads(row(1))]
    assert dataset.info.origin == "hub"


def test_the_configurations_of_a_set_on_the_hub_are_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[str, str | None, str]] = []

    def load(path: str, config: str | None, *, split: str) -> list[dict[str, Any]]:
        loaded.append((path, config, split))
        return [json.loads(row(n)) for n in range(2)]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    several = spec(data=Dataset("a/b", ("Law", "Math"), fewshot="dev"), row=None, group="file")
    found = load_dataset(several, "hub")
    assert [one.id for one in found.examples] == ["x/Law/0", "x/Law/1", "x/Math/0", "x/Math/1"]
    shots = load_shots(several, "hub")
    assert shots is not None
    assert [one.group for one in shots.examples] == ["Law", "Law", "Math", "Math"]
    assert loaded == [("a/b", name, split) for split in ("test", "dev") for name in ("Law", "Math")]


def test_the_files_of_a_set_with_a_script_are_fetched_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("test.jsonl", 0), ("test2.jsonl", 1)):
        (tmp_path / name).write_text(row(number) + "\n", encoding="utf-8")

    def download(repo_id: str, filename: str, *, repo_type: str) -> str:
        if (repo_id, repo_type) != ("a/b", "dataset") or not (tmp_path / filename).exists():
            raise OSError(f"404 of {filename}\nand more")
        return str(tmp_path / filename)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    found = load_dataset(spec(data=Dataset("a/b", files=("test.jsonl", "test2.jsonl"))), "hub")
    assert [example.row for example in found.examples] == [json.loads(row(0)), json.loads(row(1))]
    assert (found.info.origin, found.info.path) == ("hub", "a/b")
    with pytest.raises(DataError, match=naming("a/b", "test3.jsonl", 404)):
        load_dataset(spec(data=Dataset("a/b", files=("test.jsonl", "test3.jsonl"))), "hub")


EXAMPLES = [
    Example(f"x/{g}/{n}", g, {"question": str(n), "answer": n}, "") for g in ("a", "b") for n in range(10)
]


@given(st.none() | st.integers(1, 30) | st.floats(0.001, 0.999))
def test_a_limit_takes_the_first_of_each_group(limit: float | int | None) -> None:
    kept = apply_limit(EXAMPLES, limit)
    for group in ("a", "b"):
        members = [example for example in EXAMPLES if example.group == group]
        mine = [example for example in kept if example.group == group]
        assert mine == members[: len(mine)]
        assert len(mine) == (
            10 if limit is None else min(limit, 10) if isinstance(limit, int) else -int(-limit * 10 // 1)
        )


def dataset_of(name: str, count: int) -> DatasetRows:
    examples = tuple(
        Example(f"{name}/{n}", None, {"question": f"{name}{n}", "answer": n}, "") for n in range(count)
    )
    return DatasetRows(DatasetInfo(name=name, origin="shipped", path=name, rows=count, sha256=""), examples)


@given(st.integers(0, 10), st.integers(0, 2**40))
def test_all_examples_share_one_draw_that_depends_on_the_seed_alone(count: int, seed: int) -> None:
    dataset, source = dataset_of("x", 3), dataset_of("train", 10)
    shots = draw_shots(spec(), count, seed, dataset, source)
    prefixes = {shots.few_shot(spec(), example).text for example in dataset.examples}
    assert len(prefixes) == 1
    assert (
        draw_shots(spec(), count, seed, dataset_of("x", 2), source).few_shot(spec(), dataset.examples[0]).text
        in prefixes
    )
    assert prefixes.pop().count("\n\n") == count


@given(st.integers(1, 9), st.integers(0, 2**40))
def test_an_example_is_never_among_its_own_shots(count: int, seed: int) -> None:
    dataset = dataset_of("x", 10)
    shots = draw_shots(spec(), count, seed, dataset, None)
    for example in dataset.examples:
        prefix = shots.few_shot(spec(), example).text
        assert f"{example.row['question']}=" not in prefix
        assert prefix.count("\n\n") == count


def test_first_means_file_order() -> None:
    shots = draw_shots(
        spec(shots=Shots(shot=rendered, pick="first")), 2, 7, dataset_of("x", 1), dataset_of("train", 5)
    )
    assert shots.few_shot(spec(), dataset_of("x", 1).examples[0]).text == "train0=0\n\ntrain1=1\n\n"
    description = shots.description()
    assert len(description.pop("sha256")) == 64
    assert description == {"num_fewshot": 2, "from": "train, shipped", "pick": "first"}


def test_examples_for_all_groups_leave_the_rows_in_one_folder_of_ids(tmp_path: Path) -> None:
    grouped = spec(row=None, group="kind", data=SHOTS, shots=Shots(shot=rendered, pick="first", for_all=True))
    write(
        tmp_path,
        "sums/test",
        *(json.dumps({"question": "1", "answer": n, "kind": k}) for n, k in enumerate("aba")),
    )
    folder = write(tmp_path, "sums/shots", row(7), row(8))
    dataset, source = load_dataset(grouped, folder), load_shots(grouped, folder)
    assert [example.id for example in dataset.examples] == ["x/a-0", "x/b-0", "x/a-1"]
    drawn = draw_shots(grouped, 2, 0, dataset, source)
    assert {drawn.few_shot(grouped, example).text for example in dataset.examples} == {"7+1=8\n\n8+1=9\n\n"}


def test_few_shot_rows_without_a_group_serve_all_groups_beside_those_of_one(tmp_path: Path) -> None:
    grouped = spec(row=None, group="kind", data=SHOTS, shots=Shots(shot=rendered, pick="first"))
    write(
        tmp_path,
        "sums/test",
        *(json.dumps({"question": "1", "answer": n, "kind": k}) for n, k in enumerate("aba")),
    )
    own = json.dumps({"question": "9", "answer": 9, "kind": "b"})
    folder = write(tmp_path, "sums/shots", own, row(7), row(8))
    dataset, source = load_dataset(grouped, folder), load_shots(grouped, folder)
    drawn = draw_shots(grouped, 2, 0, dataset, source)
    texts = {example.id: drawn.few_shot(grouped, example).text for example in dataset.examples}
    assert texts["x/a/0"] == texts["x/a/1"] == "7+1=8\n\n8+1=9\n\n"
    assert texts["x/b/0"] == "9=9\n\n7+1=8\n\n"
    write(tmp_path, "sums/shots", json.dumps({"question": "9", "answer": 9, "kind": None}))
    with pytest.raises(DataError, match="field 'kind' is None"):
        load_shots(grouped, folder)
    write(tmp_path, "sums/test", row(1))
    with pytest.raises(DataError, match="field 'kind' is missing"):
        load_dataset(grouped, folder)


def test_examples_in_two_parts_are_text_and_turns(tmp_path: Path) -> None:
    chatty = spec(shots=Shots(shot=lambda row: Shot(f"{row['question']}=", str(row["answer"]))), data=SHOTS)
    folder = write(tmp_path, "sums/test", row(1))
    write(tmp_path, "sums/shots", row(7))
    dataset, source = load_dataset(chatty, folder), load_shots(chatty, folder)
    drawn, example = draw_shots(chatty, 1, 0, dataset, source), dataset.examples[0]
    assert drawn.few_shot(chatty, example).text == "7+1= 8\n\n"
    assert drawn.few_shot(chatty, example).turns == (Turn("user", "7+1="), Turn("assistant", "8"))
    assert Shot("q", "a", between="").text == "qa"


def test_examples_in_one_piece_make_no_turns(tmp_path: Path) -> None:
    folder = write(tmp_path, "sums/test", row(1), row(2))
    dataset = load_dataset(spec(), folder)
    drawn = draw_shots(spec(), 1, 0, dataset, None)
    assert drawn.few_shot(spec(), dataset.examples[0]).turns == ()


def test_too_few_rows_for_the_shots_is_a_clear_error() -> None:
    with pytest.raises(DataError, match=naming("5 few-shot", "train", "4 rows", "--eval-shots")):
        draw_shots(spec(), 5, 0, dataset_of("x", 1), dataset_of("train", 4))


def test_shots_come_from_their_own_file(tmp_path: Path) -> None:
    data = write(tmp_path, "sums/train", row(5))
    source = load_shots(spec(data=Dataset(local="sums/test", fewshot="train")), data)
    assert source is not None
    assert [example.row["answer"] for example in source.examples] == [6]
    assert load_shots(spec(), data) is None


def test_a_benchmark_knows_how_many_items_it_has_with_its_data(tmp_path: Path) -> None:
    rows = [json.dumps({"question": "q", "answer": index, "kind": "ab"[index % 2]}) for index in range(7)]
    folder = write(tmp_path, "sums/test", *rows)
    grouped = spec(group="kind", row=None, published=Published({"a": 10, "b": 20}))
    assert count_rows(grouped, load_dataset(grouped, folder), 0) == {
        "a": BenchmarkSize(of=4, rows=4, published=10),
        "b": BenchmarkSize(of=3, rows=3, published=20),
        "": BenchmarkSize(of=7, rows=7, published=30),
    }
    own = spec(published=Published(30, own_rows="rows of our own"))
    of_the_project = load_dataset(own, folder)
    assert count_rows(own, of_the_project, 0)[""].published == 30
    shipped_rows = replace(of_the_project, info=replace(of_the_project.info, origin=SHIPPED))
    assert count_rows(own, shipped_rows, 0)[""] == BenchmarkSize(
        of=7, rows=7
    )  # they are no part of what was published
    few = spec(row_rules=RowRules(most_rows=5))
    assert count_rows(few, load_dataset(few, folder), 0) == {"": BenchmarkSize(of=5, rows=7)}
