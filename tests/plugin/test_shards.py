"""Shards of a run, each by a pytest of its own, are joined into what one run would have found."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.cli import main
from pytest_touchstone.core.files import with_checksum
from pytest_touchstone.plugin.shards import ShardAssignment, assign_shards
from pytest_touchstone.results.journal import latest_records, read_journal
from tests.support.lines import missing
from tests.support.project import Project
from tests.support.tiny import tiny_causal

OTHERWISE = ("crc32", "seconds", "run_id", "directory", "effort", "manifest", "changes", "checkpoints")
"""What differs between two runs of the same items."""

SECOND = """
from pytest_touchstone import Loglikelihood, benchmark, composite

composite("both", {"sums:acc": 0.5, "more:acc": 0.5})


@benchmark(name="more", version=1, data="sums/test", asks=Loglikelihood, primary="acc", group="kind", cluster="pair")
def test_more(example):
    '''Which of two sums is likelier, without examples.'''
    right, wrong = yield [Loglikelihood(example["q"], " " + option) for option in example["options"]]
    return {"acc": right.logprob > wrong.logprob}
"""


@pytest.fixture
def rows(project: Project) -> Project:
    """Two benchmarks, one of them with groups and clusters, and a composite of both."""
    (project.path / "test_more.py").write_text(SECOND, encoding="utf-8")
    lines = [
        {
            "n": n,
            "q": f"{n}+1=",
            "options": [str(n + 1), str(n)],
            "kind": "even" if n % 2 == 0 else "odd",
            "pair": n // 4,
        }
        for n in range(40)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (project.path / "data" / "sums" / "test.jsonl").write_text(text, encoding="utf-8")
    return project


def merged(project: Project, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code of a merge of all shards, and the results that it wrote."""
    code = main(["merge", "results", "-o", "results/whole", *words])
    path = project.path / "results" / "whole" / "summary.json"
    return code, json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def plain(summary: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a run, without what is its own."""
    found = {name: value for name, value in summary.items() if name not in OTHERWISE}
    found["results"] = [{**one, "seconds": 0} for one in summary["results"]]
    return found


def scores(run: Path) -> dict[str, Any]:
    return {
        name: (one.scores, one.exchanges, one.reused_from)
        for name, one in latest_records(read_journal(run)).items()
    }


def test_merged_shards_are_the_same_run_with_the_same_verdict(
    rows: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(rows.path)
    for number in "321":
        done = rows.run("--eval-shard", f"{number}/3", "--eval-run-id", "night")
        assert done.ret == 0
        done.stdout.re_match_lines([rf"shard {number}/3: \d+ of 80 items, 3\d\.\d%"])
        done.stdout.re_match_lines([r"next +touchstone merge results"])
    assert not (rows.path / "results" / "saved").exists()  # parts are nobody's baseline
    capsys.readouterr()
    code, found = merged(rows)
    assert code == 0
    assert not missing(capsys.readouterr().out, "3 shards", "80 of 80 items")
    assert rows.run("--eval-run-id", "one", "--eval-no-cache").ret == 0
    one = json.loads((rows.path / "results" / "one" / "summary.json").read_text(encoding="utf-8"))
    assert plain(found) == plain(one)
    assert found["composites"][0]["name"] == "both"
    folder = rows.path / "results"
    assert scores(folder / "whole") == scores(folder / "one")
    assert (folder / "whole" / "results.csv").read_bytes() == (folder / "one" / "results.csv").read_bytes()
    capsys.readouterr()
    assert (
        main(["merge", "results", "-o", "results/whole", "--gate", "--baseline", "one", "--format", "json"])
        == 0
    )
    gate = json.loads(capsys.readouterr().out)["summary"]["gate"]
    assert gate["decision"] == "passed"
    assert {line["benchmark"] for line in gate["lines"]} >= {"sums", "more"}
    strict = Path("gate.toml")
    strict.write_text('[benchmarks.sums]\nfloors = ["acc >= 0.99"]\n', encoding="utf-8")
    assert main(["merge", "results", "--gate", "--baseline", "none", "--gate-config", "gate.toml"]) == 8


def test_a_shard_that_is_not_there_or_not_done_is_named_until_it_is(
    rows: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(rows.path)
    rows.run("--eval-shard", "1/3")
    rows.run("--eval-shard", "2/3")
    (second,) = (path for path in rows.runs if path.name.endswith("2of3"))
    journal = second / "items" / "items-main.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:5]) + lines[5][:40])  # killed while it wrote
    (second / "summary.json").unlink()
    code, found = merged(rows)
    told = capsys.readouterr().out
    assert code == 9
    assert "missing     shard 3/3 is missing" in told
    assert f"missing     shard 2/3: {len(lines) - 5} of {len(lines)} items not scored" in told
    assert len(found["faults"]) == len(lines) - 5
    assert main(["merge", "results", "-o", "results/whole", "--gate", "--baseline", "none"]) in (4, 9)
    assert not (rows.path / "results" / "saved").exists()
    rows.run("--eval-shard", "2/3")  # the same command again
    rows.run("--eval-shard", "3/3")
    capsys.readouterr()
    code, found = merged(rows)
    assert code == 0
    assert not missing(capsys.readouterr().out, "double 5 items", "alike")  # a fake has no cache
    assert found["totals"]["scored"] == 80
    before = {path.name: path.read_bytes() for path in (rows.path / "results" / "whole").glob("*.js*")}
    assert merged(rows)[0] == 0
    assert before == {
        path.name: path.read_bytes() for path in (rows.path / "results" / "whole").glob("*.js*")
    }


def test_shards_of_other_questions_are_refused_by_name(
    rows: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(rows.path)
    rows.run("--eval-shard", "1/2", "--eval-run-id", "a")
    rows.run("--eval-shard", "2/2", "--eval-run-id", "b")
    path = rows.path / "results" / "b_2of2" / "run.json"
    good = path.read_text(encoding="utf-8")

    def refused(change: Any) -> str:
        manifest = json.loads(good)
        change(manifest)
        path.write_text(json.dumps(manifest), encoding="utf-8")
        capsys.readouterr()
        assert main(["merge", "results"]) == 4
        return capsys.readouterr().err

    begin = "touchstone: results/a_1of2 (1/2) and results/b_2of2 (2/2) are no parts of one run: "
    assert refused(lambda one: one["settings"].update(dtype="bfloat16")) == (
        f"{begin}--eval-dtype is 'auto' and 'bfloat16'\n"
    )
    assert refused(lambda one: one["settings"].update(device_kind="mps")).startswith(
        f"{begin}--eval-device-kind is"
    )
    assert refused(lambda one: one["benchmarks"]["sums"].update(data="0", code="1")) == (
        f"{begin}sums has other data, code\n"
    )
    assert "the fingerprint of fake-causal is" in refused(
        lambda one: one["checkpoints"][0].update(fingerprint="another")
    )
    path.write_text(good, encoding="utf-8")
    rows.run("--eval-run-id", "plain")
    assert main(["merge", "results/plain"]) == 4
    assert not missing(capsys.readouterr().err, "results/plain", "no shard")
    assert main(["merge", "results", "-o", "results/plain"]) == 4
    assert not missing(capsys.readouterr().err, "results/plain", "no merged run")
    left = Path("results/left/details/.run.json.1.2.tmp")  # by a merge that was killed before its manifest
    left.parent.mkdir(parents=True)
    left.write_text("{")
    assert main(["merge", "results/a_1of2", "results/b_2of2", "-o", "results/left"]) == 0


def test_scores_that_differ_between_shards_are_reported(
    rows: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(rows.path)
    rows.run("--eval-shard", "1/1", "--eval-run-id", "a")
    shutil.copytree("results/a_1of1", "results/b_1of1")
    manifest = Path("results/b_1of1/run.json")
    manifest.write_text(
        json.dumps({**json.loads(manifest.read_text()), "run_id": "b_1of1"}), encoding="utf-8"
    )
    journal = Path("results/b_1of1/items/items-main.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    other = json.loads(lines[0])
    del other["crc32"]
    other["scores"]["acc"] = 1 - other["scores"]["acc"]
    journal.write_bytes(b"".join([with_checksum(json.dumps(other)[:-1].encode()), *lines[1:]]))
    assert merged(rows)[0] == 9
    told = capsys.readouterr().out
    assert not missing(told, "double 79 items", "alike")
    assert not missing(told, "differing 1 item", "later score stays")
    assert other["item"] in told


def test_more_shards_than_items_leave_some_without_and_none_fails(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.path)
    project.rows(2)
    assert {project.run("--eval-shard", f"{number}/3").ret for number in (1, 2, 3)} == {0}
    assert merged(project)[1]["totals"]["scored"] == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--eval-shard", "2/5", "--gate"],
            "*--eval-shard 2/5: --eval-gate needs the whole run*touchstone merge --gate*",
        ),
        (["--eval-shard", "2/5", "--mlflow"], "*needs the whole run*touchstone export*"),
        (
            ["--eval-shard", "6/5"],
            "*invalid --eval-shard '6/5': expected NUMBER/COUNT, such as 2/5, with a number from 1 to the count*",
        ),
    ],
)
def test_what_a_shard_cannot_do_is_refused(project: Project, options: list[str], says: str) -> None:
    done = project.run(*options)
    assert done.ret == 4
    done.stderr.fnmatch_lines([says])


@pytest.mark.slow
def test_a_shard_that_was_killed_goes_on_from_its_own_scores_and_takes_none_of_the_others(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(project.path)
    tiny_causal(project.path / "model", seed=0)
    for number in (1, 2):
        assert project.run("--eval-shard", f"{number}/2", checkpoint="model").ret == 0
    second = next(path for path in project.runs if path.name.endswith("2of2"))
    journal = second / "items" / "items-main.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:4]))
    (second / "summary.json").unlink()
    assert project.run("-n", "2", "--eval-shard", "2/2", checkpoint="model", apart=True).ret == 0
    code, found = merged(project)
    assert code == 0
    assert [one["reused"] for one in found["results"]] == [0]  # within one run nothing is from another
    again = next(path for path in project.runs if path.name.endswith("2of2") and path != second)
    newest = json.loads((again / "summary.json").read_text())
    assert [one["reused"] for one in newest["results"]] == [4]
    assert found["totals"]["scored"] == 20


# Shards agree about who has which item; the parts cost about the same, and stay when rows are added.


ITEMS = st.lists(
    st.builds(
        ShardAssignment,
        model=st.sampled_from(["m", "n"]),
        result=st.sampled_from(["r", "s", "t"]),
        prefix=st.sampled_from(["p", "q"]),
        together=st.integers(0, 40).map(str),
        cost=st.floats(0, 1000),
        shared=st.floats(0, 1000),
        row=st.just(""),
    ),
    max_size=60,
)


def benchmarks(
    *, models: int = 1, rows: int = 1000, added: int = 0, shared: float = 0.0, groups: int = 1
) -> list[ShardAssignment]:
    """Three benchmarks whose rows are of very different sizes; the added rows come before the others."""
    found = []
    for model in range(models):
        for name, cost in (("short", 40.0), ("long", 900.0), ("middle", 100.0)):
            sizes = random.Random(name)
            for number in [*range(rows, rows + added), *range(rows)]:
                size = cost * (sizes.random() + 0.5)
                result = f"m{model} {name}"
                prefix = f"{result} {number % groups}"
                found.append(ShardAssignment(f"m{model}", result, prefix, f"row {number}", size, shared))
    return found


def costs(items: list[ShardAssignment], shards: list[int], count: int) -> list[float]:
    return [
        sum(one.cost for one, at in zip(items, shards, strict=True) if at == shard) for shard in range(count)
    ]


@settings(max_examples=60)
@given(ITEMS, st.integers(1, 9), st.randoms(use_true_random=False))
def test_every_item_has_one_shard_whatever_the_order_of_the_items(
    items: list[ShardAssignment], count: int, chance: random.Random
) -> None:
    found = assign_shards(items, count)
    assert len(found) == len(items)
    assert all(0 <= shard < count for shard in found)
    order = list(range(len(items)))
    chance.shuffle(order)
    again = assign_shards([items[index] for index in order], count)
    kinds = [defaultdict(set) for _ in range(2)]  # type: ignore[var-annotated]
    for index, shard in enumerate(found):
        kinds[0][items[index][:4]].add(shard)
    for index, shard in zip(order, again, strict=True):
        kinds[1][items[index][:4]].add(shard)
    assert kinds[0] == kinds[1]
    assert all(len(shards) == 1 for shards in kinds[0].values())  # the rows of a cluster stay together


def test_shards_cost_about_the_same() -> None:
    for count in (2, 3, 5, 16):
        items = benchmarks()
        found = costs(items, assign_shards(items, count), count)
        assert max(found) <= 1.04 * sum(found) / count
        assert min(found) >= 0.75 * sum(found) / count


def test_each_benchmark_is_spread_so_that_a_wrong_guess_of_its_cost_does_no_harm() -> None:
    items = benchmarks()
    shards = assign_shards(items, 4)
    for name in ("short", "long", "middle"):
        own = [one._replace(cost=one.cost if name in one.result else 0.0) for one in items]
        found = costs(own, shards, 4)
        assert max(found) <= 1.1 * sum(found) / 4


def test_the_items_of_a_shard_are_not_the_rows_that_follow_each_other() -> None:
    items = benchmarks()
    shards = assign_shards(items, 2)
    changes = sum(mine != other for mine, other in itertools.pairwise(shards))
    assert changes > len(items) / 10


def test_rows_that_are_added_move_few_of_the_others() -> None:
    for count in (2, 3, 5):
        before, after = benchmarks(), benchmarks(added=10)
        at = {one[:4]: shard for one, shard in zip(before, assign_shards(before, count), strict=True)}
        moved = sum(
            at.get(one[:4], shard) != shard
            for one, shard in zip(after, assign_shards(after, count), strict=True)
        )
        assert moved <= 0.06 * len(before)


def test_items_that_share_a_dear_prefix_are_not_torn() -> None:
    torn = {}
    for shared in (0.0, 5000.0):
        items = benchmarks(rows=400, groups=40, shared=shared)
        where = defaultdict(set)
        for one, shard in zip(items, assign_shards(items, 4), strict=True):
            where[one.prefix].add(shard)
        torn[shared] = sum(len(shards) for shards in where.values()) / len(where)
    assert torn[5000.0] == 1.0
    assert torn[0.0] > 2


def test_a_row_of_two_benchmarks_is_in_one_shard() -> None:
    items = [one._replace(row=one.together) for one in benchmarks(rows=200)]
    where = defaultdict(set)
    for one, shard in zip(items, assign_shards(items, 5), strict=True):
        where[one.row].add(shard)
    assert len(where) == 200
    assert all(len(shards) == 1 for shards in where.values())
    assert {shard for shards in where.values() for shard in shards} == set(range(5))


def test_of_many_checkpoints_each_is_loaded_by_few_shards() -> None:
    items = benchmarks(models=20, rows=30)
    shards = assign_shards(items, 4)
    assert len({(one.model, shard) for one, shard in zip(items, shards, strict=True)}) <= 20 + 4
    found = costs(items, shards, 4)
    assert max(found) <= 1.05 * sum(found) / 4


def test_few_checkpoints_are_shared_by_all() -> None:
    items = benchmarks(models=1)
    assert len(set(assign_shards(items, 8))) == 8
