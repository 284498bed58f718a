"""Whole pages: one file that needs nothing else, whose data says what the results say."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html import unescape

import pytest

from perf.page import make_run
from pytest_touchstone.compare.formats.run import read_run
from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.core.keys import MARK
from pytest_touchstone.reports.comparison import pooled_text
from pytest_touchstone.reports.files import write_results
from pytest_touchstone.reports.page.payload import PageItems
from pytest_touchstone.reports.page.security import KeyFoundError, Redaction
from pytest_touchstone.reports.page.summary import breakdown
from pytest_touchstone.reports.pages import comparison_page, run_page
from pytest_touchstone.results.journal import Journal, read_journal
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import load_summary
from tests.support.lines import missing
from tests.support.pages import chunk_items, unpacked
from tests.support.places import ROOT
from tests.support.summaries import sample

KEPT = ROOT / "tests" / "results" / "kept" / "20261122_041947_5582"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        make_run(folder / name, 24, checkpoints, seed=seed)
        for name, checkpoints, seed in (("a", 2, 1), ("b", 1, 2))
    ]


def block(page, name):
    (found,) = re.findall(rf'<script type="[a-z/]+" id="{name}">(.*?)</script>', page, re.DOTALL)
    return found


def meta_of(page):
    return json.loads(block(page, "page-meta"))


def test_the_page_has_every_item_of_the_journal_with_its_scores():
    page = run_page(load_summary(KEPT))
    meta = meta_of(page)
    found = {}
    for part in meta["parts"]:
        columns = json.loads(unpacked(block(page, part["columns"])))
        texts = [one for name in part["texts"] for one in chunk_items(unpacked(block(page, name)))]
        assert len(texts) == len(columns["example"]) == part["items"]
        checkpoint = meta["runs"][part["run"]]["checkpoints"][part["checkpoint"]]["name"]
        for number, example in enumerate(columns["example"]):
            scores = {name: values[number] for name, values in columns["metrics"].items()}
            found[checkpoint, example] = scores, texts[number]["asked"][0]["kind"]
    records = read_journal(KEPT)
    assert {key: scores for key, (scores, _) in found.items()} == {
        (one.checkpoint, one.example): one.scores for one in records
    }
    assert {kind for _, kind in found.values()} == {"choices", "Generate", "FillMask"}


def test_items_are_in_the_order_of_collection_each_with_its_last_record(tmp_path):
    run = make_run(tmp_path / "a", 20, chosen=["texts"])
    first, second, *_ = read_journal(run)
    with Journal(run, "zz") as journal:
        journal.append(replace(first, scores={"exact_match": 0.25}))
        journal.append(replace(second, status="lost", scores={}))
    collected, _, _ = RunDirectory(run).read_collected()
    page = run_page(load_summary(run))
    (part,) = meta_of(page)["parts"]
    columns = json.loads(unpacked(block(page, part["columns"])))
    assert columns["example"] == [one.example for one in collected]
    assert columns["metrics"]["exact_match"][:2] == [0.25, second.scores["exact_match"]]
    assert columns["status"] == [0] * 20


def test_the_page_asks_for_nothing_and_runs_its_own_script_alone(runs):
    page = run_page(load_summary(runs[0]))
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    policy = unescape(policy)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    for text in (*scripts, style):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not re.search(
        r"""<(link|img|iframe|object|embed|base)\b|\b(src|style|on\w+)=""", page.split("<script")[0]
    )
    assert page.count("<script") == page.count("</script>") == len(scripts) + len(meta_blocks(page)) + 1


def meta_blocks(page):
    meta = meta_of(page)
    return {name for part in meta["parts"] for name in (part["columns"], *part["texts"])}


def test_names_of_others_cannot_end_the_data_that_they_stand_in(runs):
    summary = load_summary(runs[0])
    evil = "</script><script>alert(1)</script>&<!--"
    page = run_page(replace(summary, run_id=evil))
    assert "alert(1)</script>" not in page
    assert meta_of(page)["title"] == f"Results of {evil}"


def test_the_same_items_always_make_the_same_page(runs):
    assert run_page(load_summary(runs[0])) == run_page(load_summary(runs[0]))


def test_checkpoints_of_a_run_have_the_verdicts_of_the_comparison(runs):
    meta = meta_of(run_page(load_summary(runs[0])))
    first, second = read_run(runs[0])
    pair = compare_pair(first, second)
    *each, pooled = meta["verdicts"]
    assert pair.pooled is not None
    assert pair.pooled.comparison.verdict is not None
    assert (pooled["benchmark"], pooled["verdict"]) == (None, pair.pooled.comparison.verdict)
    for one, line in zip(each, pair.judged.values(), strict=True):
        assert line.comparison.verdict is not None
        assert line.flips is not None
        assert one["verdict"] == line.comparison.verdict
        assert meta["benchmarks"][one["benchmark"]]["name"] == line.benchmark
        assert (one["a"]["checkpoint"], one["b"]["checkpoint"]) == (0, 1)
        assert (one["gained"], one["lost"], one["p"]) == (
            len(line.flips.gained),
            len(line.flips.lost),
            line.comparison.p,
        )


def test_a_run_over_a_training_has_a_curve_for_each_benchmark(runs):
    page = run_page(load_summary(runs[0]))
    assert page.count('<svg class="curve"') == 4
    assert '<svg class="curve"' not in run_page(load_summary(runs[1]))  # one checkpoint makes none


def test_the_summary_divides_a_benchmark_by_length_and_fields(tmp_path):
    run = make_run(tmp_path / "a", 96, chosen=["texts"])
    summary = load_summary(run)
    text = re.sub(r"\s+", " ", unescape(re.sub("<[^>]+>", " ", run_page(summary))))
    assert not missing(text, "by length of the question", "by fields of the data")
    found = breakdown(PageItems(Redaction()).read(summary, compared=False).parts)["texts"]
    assert [one.label.partition(":")[0] for one in found] == ["length"] * 3
    assert sum(int(one.counts[0]) for one in found) == 96
    total = sum((one.metric.value or 0) * int(one.counts[0]) for one in found)
    assert total / 96 == pytest.approx(summary.results[-1].metrics["exact_match"].value)


def test_runs_stand_side_by_side_with_their_verdicts_in_plain_html(runs):
    page = comparison_page([load_summary(run) for run in runs])
    meta = meta_of(page)
    assert (meta["kind"], [one["label"] for one in meta["runs"]]) == ("comparison", ["a", "b"])
    assert {part["run"] for part in meta["parts"]} == {0, 1}
    text = re.sub(r"\s+", " ", unescape(re.sub("<[^>]+>", " ", page[page.index('<main id="summary"') :])))
    assert "model/checkpoint-100 (b) against model/checkpoint-100 (a)" in text
    assert "model/checkpoint-200 (a) against" not in text
    assert "inconclusive" in text
    pair = compare_pair(*(read_run(run)[0] for run in runs))
    assert pair.pooled is not None
    assert pooled_text(pair.pooled) in text


def test_a_key_in_the_command_leaves_the_page_unwritten_and_all_else_written(tmp_path):
    summary = sample(1)
    key = "hf_" + "a1B2c3D4" * 4
    manifest = {**summary.manifest, "command": ["evals/", f"--token={key}"]}
    with pytest.raises(KeyFoundError, match=r"command .*key"):
        write_results(replace(summary, manifest=manifest), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert "summary.json" in names
    assert "report.html" not in names


def test_a_key_in_a_message_of_the_summary_is_left_out():
    key = "ghp_" + "a1B2c3D4" * 5
    page = run_page(replace(sample(1), faults=[{"item": "x", "status": "error", "message": f"no {key}"}]))
    assert key not in page
    assert f"no {MARK.format('an API key')}" in page
    (note,) = re.findall(r'<p class="note">(.* key .*)</p>', page)
    assert not missing(note, "1 place", "the summary")


def test_the_page_begins_with_who_is_best_and_the_table_of_checkpoints():
    whole = sample(3, faults=False)
    results = [
        replace(one, invalid="cut off") if (one.checkpoint, one.benchmark) == NOT_VALID else one
        for one in whole.results
    ]
    told = {"benchmark": "winogrande", "metric": "acc", "checkpoint": "checkpoint-200", "of": 3, "told": True}
    page = unescape(run_page(replace(whole, results=results, leaders=[{**told, "rival": "x", "p": 0.01}])))
    places = [page.index(text) for text in ("<h1>", 'class="lead"', 'class="scroll overview', "<h2>")]
    assert places == sorted(places)
    assert not missing(page, "checkpoint-200 is the best", "on winogrande", "p 0.01")
    table = page[places[2] : page.index("</table>")]
    assert [table.count(f"checkpoint-{step}00") for step in (1, 2, 3)] == [1, 1, 1]
    assert len(re.findall(r'<td class="number best">', table)) == 1
    assert re.findall(r'<td class="number invalid">[\d.]+<small>(.*?)</small>', table).count("NOT VALID") >= 1
    assert page.count('<details class="note"><summary>') == 1
    assert 'class="tiles"' not in page


def test_a_single_checkpoint_has_its_benchmarks_one_below_the_other():
    for number, first in ((1, "benchmark"), (2, "checkpoint"), (9, "checkpoint")):
        page = run_page(sample(number, faults=False))
        table = page[page.index('class="scroll overview') :]
        assert f'<th scope="col">{first}</th>' in table[: table.index("</tr>")]


NOT_VALID = ("checkpoint-300", "real_coref")
