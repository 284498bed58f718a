"""Results are found by their names; a message about an unknown name lists those that there are."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli.baseline import save
from pytest_touchstone.compare.baselines import BaselineSource, find_baselines
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.formats.run import read_run
from pytest_touchstone.compare.load import find_candidates, parse_sizes, read_file
from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.core.errors import DataError, OptionError
from pytest_touchstone.reports import comparison
from pytest_touchstone.results.store import ResultStore
from tests.support.korean_table import row, write
from tests.support.runs import run


def names(*arguments: str, output: Path) -> list[str]:
    return [one.name for one in find_candidates(arguments, output=output)]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    run(tmp_path, "first", "step-100", when=10)
    run(tmp_path, "second", "step-200", "step-300", seed=1, when=20)
    return tmp_path


def test_runs_are_found_by_id_by_folder_and_their_checkpoints_by_name(results: Path) -> None:
    assert names("first", "second#step-300", output=results) == ["step-100", "step-300"]
    assert names(f"{results}/first", f"{results}/second:step-200", output=Path("none")) == [
        "step-100",
        "step-200",
    ]


def test_a_summary_stands_for_its_run(results: Path) -> None:
    assert names(
        f"{results}/first/summary.json", f"{results}/second/summary.json#step-200", output=results
    ) == [
        "step-100",
        "step-200",
    ]


def test_a_run_brings_its_items_and_conditions_without_what_changes_no_score(results: Path) -> None:
    one, _ = find_candidates(["first", "second#step-200"], output=results)
    entry = one.entries["winogrande"]
    assert len(entry.items.examples) == 24
    assert entry.saved.conditions["seed"] == 1234
    assert "workers" not in entry.saved.conditions


def test_a_run_and_what_is_saved_of_it_have_the_same_conditions_and_step(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "device": "auto",
        "device_kind": "cuda",
        "base_model": "elsewhere",
        "limit": 3,
        "brand_new": 1,
    }
    (one,) = read_run(run(tmp_path, "first", "step-100", **settings))
    for saved in ResultStore(tmp_path).find():
        entry = one.entries[saved.benchmark]
        assert entry.saved.known == saved.known
        assert (entry.saved.step, one.about["step"]) == (saved.step, 100)
        assert {"limit", "brand_new"} <= set(saved.conditions)
        assert not {"device", "device_kind", "base_model"} & set(saved.conditions)


def test_runs_on_a_cpu_and_on_a_gpu_were_asked_alike(tmp_path: Path) -> None:
    run(tmp_path, "cpu", "step-100", device="auto", device_kind="cpu", batch=8)
    run(tmp_path, "gpu", "step-200", device="cuda:1", device_kind="cuda", speculative="off", seed=1)
    pair = compare_pair(*find_candidates(["cpu", "gpu"], output=tmp_path))
    assert not [note for note in comparison.notes(pair) if "asked alike" in note]


def test_saved_results_are_found_by_name_path_and_fingerprint(results: Path) -> None:
    print_of_it = b"step-300".hex() * 8
    for wanted in ("step-300", "runs/step-300", print_of_it, print_of_it[:12]):
        assert names("first", wanted, output=results) == ["step-100", "step-300"]


def test_the_newest_saved_result_of_a_checkpoint_counts(results: Path) -> None:
    run(results, "third", "step-300", seed=7, when=30)
    _, one = find_candidates(["first", "step-300"], output=results)
    assert one.origin == "saved of run third"


def test_one_name_of_two_checkpoints_must_be_told_apart(results: Path, tmp_path: Path) -> None:
    store = ResultStore(results)
    for saved in store.find(benchmark="winogrande")[:1]:
        store.save(dataclasses.replace(saved, fingerprint="f" * 64), store.items(saved))
    with pytest.raises(DataError, match=r"'step-100' .*2 checkpoints .*ffffffffffff"):
        names("step-100", "step-300", output=results)


def test_without_arguments_the_two_newest_runs_are_meant(tmp_path: Path) -> None:
    for place, name in enumerate(("b", "c", "a")):
        run(tmp_path, name, f"of-{name}", when=10 + place)
    assert names(output=tmp_path) == ["of-c", "of-a"]
    with pytest.raises(DataError, match=r"^0 runs .*name two"):
        names(output=tmp_path / "empty")


def test_a_single_run_of_several_checkpoints_is_compared_within(results: Path) -> None:
    assert names("second", output=results) == ["step-200", "step-300"]
    with pytest.raises(DataError, match=r"first .*step-100; name another"):
        names("first", output=results)


def test_of_a_folder_of_result_files_the_two_newest_are_meant(tmp_path: Path) -> None:
    for place, name in enumerate(("old", "tuned", "base")):
        path = tmp_path / f"{name}_results.json"
        path.write_text(json.dumps({"model": name, "results": {"drop": {"f1": 0.2}}}), encoding="utf-8")
        os.utime(path, (place, place))
    assert names(str(tmp_path), output=tmp_path / "results") == ["tuned", "base"]


def test_candidates_of_one_name_get_their_origin_or_a_number(results: Path) -> None:
    run(results, "again", "step-100", when=40)
    assert names("first", "again", output=results) == ["step-100 (run first)", "step-100 (run again)"]
    assert names("first", "first", output=results) == ["step-100", "step-100 [2]"]


def test_rows_of_a_table_are_named_by_parts_in_any_spelling(tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", row("mlm_v2", 390), row("mlm_v2", 390, seq_len="2048"), row("ft", 39))
    for wanted in ("mlm_v2/1536/390", "MLM v2/1536/checkpoint-390", "1536/390", "mlm-v2/1536/step 390"):
        assert names(f"{table}#{wanted}", f"{table}:ft", output=tmp_path) == [
            "mlm_v2/1536/checkpoint-390",
            "ft/1536/checkpoint-39",
        ]
    with pytest.raises(DataError, match=r"'mlm_v2/390' .*2 checkpoints; .*mlm_v2/1536"):
        names(f"{table}#mlm_v2/390", f"{table}#ft", output=tmp_path)
    with pytest.raises(DataError, match=r"'mlm_v3'; .*mlm_v2/"):
        names(f"{table}#mlm_v3", f"{table}#ft", output=tmp_path)
    with pytest.raises(DataError, match=r"3 checkpoints; .*t\.csv#mlm_v2/1536/checkpoint-390"):
        names(str(table), f"{table}#ft", output=tmp_path)


def test_imported_rows_are_found_by_name_as_in_their_table(tmp_path: Path) -> None:
    table = read_file(write(tmp_path / "t.csv", row("plain", 390), row("other", 80)), {})
    for one in table.candidates:
        save(ResultStore(tmp_path), one, 5.0)
    found = find_candidates(["plain/390", "other/1536/checkpoint-80"], output=tmp_path)
    assert [one.name for one in found] == ["plain/1536/checkpoint-390", "other/1536/checkpoint-80"]
    assert found[0].origin == "imported from t.csv"
    assert found[0].entries["real_coref"].items.examples == []
    assert found[0].about == {"series": "plain", "seq_len": 1536, "step": 390, "epoch": 3.9}


def test_saved_results_are_found_by_run_and_name_also_where_the_run_or_the_file_is_gone(
    results: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / "t.csv", row("plain", 1), row("plain", 2))
    for one in read_file(path, {}).candidates:
        save(ResultStore(results), one, 5.0)
    path.unlink()
    shutil.rmtree(results / "second")
    assert names("t.csv#plain/2", "second#step-200", output=results) == [
        "plain/1536/checkpoint-2",
        "step-200",
    ]
    with pytest.raises(DataError, match=r"second: .*'x'; .*step-"):
        names("second#x", "first", output=results)


def test_an_imported_result_is_never_the_best_of_the_saved_ones(results: Path, tmp_path: Path) -> None:
    (one,) = read_file(write(tmp_path / "t.csv", row("plain", 1, real1="0.9999", score="")), {}).candidates
    save(ResultStore(results), one, 5.0)
    store = ResultStore(results)
    saved = store.find(benchmark="real_coref")
    assert [found.published for found in saved].count(True) == 1
    new = dataclasses.replace(saved[-1], run_id="new", began=100.0, fingerprint="0" * 64)
    (table,) = [found for found in saved if found.published]
    source = BaselineSource(name="best", kind="best", saved=[table], items=store.items)
    mine = BenchmarkScores(new, store.items(saved[-1]))
    assert find_baselines(mine, source, metric="real@1").state == "first"
    named = find_baselines(mine, dataclasses.replace(source, name="t.csv", kind="run"), metric="real@1")
    assert (named.state, "`touchstone compare` compares totals" in named.reason) == ("refused", True)


def test_a_table_that_is_imported_twice_is_there_once(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", row("plain", 1), row("plain", 2))
    for now in (5.0, 6.0):
        for one in read_file(path, {}).candidates:
            save(ResultStore(tmp_path), one, now)
    assert names("plain/1", "plain/2", output=tmp_path) == [
        "plain/1536/checkpoint-1",
        "plain/1536/checkpoint-2",
    ]


def test_nothing_of_a_name_says_what_there_is_the_nearest_first(results: Path) -> None:
    with pytest.raises(DataError, match=r"step-201: .*there are: step-200"):
        names("first", "step-201", output=results)


def test_a_run_that_did_not_end_is_named_as_such(results: Path) -> None:
    (results / "first" / "summary.json").unlink()
    (results / "first" / "run.json").write_text("{}", encoding="utf-8")
    for path in (results / "first" / "details").glob("*_results.json"):
        path.unlink()
    (results / "first" / "details" / "checkpoints.csv").unlink(missing_ok=True)
    with pytest.raises(DataError, match=r"first: no summary\.json: .*ended"):
        names("first", "second#step-200", output=results)


@pytest.mark.parametrize(
    ("texts", "sizes"),
    [
        (["real=2400,ko_lambada=600"], {"real_coref": 2400, "ko_lambada": 600}),
        (["coref=5", "lambada=6", "drop=7"], {"real_coref": 5, "ko_lambada": 6, "drop": 7}),
        ([], {}),
    ],
)
def test_numbers_of_items_are_given_by_name(texts: list[str], sizes: dict[str, int]) -> None:
    assert parse_sizes(texts) == sizes


@pytest.mark.parametrize("text", ["", "real", "real=", "real=0", "real=-1", "real=1.5", "=5", "real=5,"])
def test_what_is_no_number_of_items_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"invalid --items .*: expected BENCHMARK=N"):
        parse_sizes([text])


def test_a_number_of_items_of_an_unknown_benchmark_is_refused(tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", row("a", 1), row("b", 1))
    with pytest.raises(DataError, match=r"--items: .*'dorp' .*there are: "):
        find_candidates([f"{table}#a", f"{table}#b"], output=tmp_path, sizes={"dorp": 5})


def test_a_folder_with_one_results_file_of_any_name_is_that_file(tmp_path: Path) -> None:
    content = {"results": {"t": {"acc": 0.5}}, "config": {"model_args": "pretrained=org/m"}}
    for folder, names in {"a": ["results"], "b": ["old"], "two": ["x", "y"], "none": []}.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    folders = [str(tmp_path / name) for name in ("a", "b")]
    assert [one.entries.keys() for one in find_candidates(folders, output=tmp_path / "r")] == [{"t"}, {"t"}]
    with pytest.raises(DataError, match=r"two .*2 .*files; .*x\.json, y\.json"):
        find_candidates([folders[0], str(tmp_path / "two")], output=tmp_path / "r")
    with pytest.raises(DataError, match=r"none: a folder without results"):
        find_candidates([folders[0], str(tmp_path / "none")], output=tmp_path / "r")


def test_a_file_of_which_nothing_can_be_read_says_why(tmp_path: Path) -> None:
    path = tmp_path / "a_results.json"
    path.write_text(json.dumps({"results": {"t": {"judge": 7.8}}}), encoding="utf-8")
    with pytest.raises(DataError, match=r"t judge 7\.8"):
        find_candidates([str(path), str(path)], output=tmp_path / "r")


def test_the_newest_run_is_called_last(results: Path) -> None:
    names = [one.name for one in find_candidates(["last"], output=results)]
    assert len(names) > 1
    assert find_candidates([f"last#{names[0]}", f"last#{names[1]}"], output=results)[1].name == names[1]
