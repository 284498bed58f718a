"""A value over few items says so in every output, and a benchmark asked through a chat template by its name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.compare.baselines import BaselineSource
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.formats import korean_mlm, task_json
from pytest_touchstone.compare.formats.run import read_run
from pytest_touchstone.compare.gate.config import GateConfig
from pytest_touchstone.compare.gate.decide import cases_of, decide
from pytest_touchstone.compare.gate.result import gate_json
from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.core.coverage import BenchmarkSize
from pytest_touchstone.reports import ci
from pytest_touchstone.reports import comparison as comparing_text
from pytest_touchstone.reports.comparison import pair_facts
from pytest_touchstone.reports.files import write_results
from pytest_touchstone.reports.gate import decision_text
from pytest_touchstone.reports.pages import run_page
from pytest_touchstone.reports.terminal import render
from pytest_touchstone.results.aggregate import summarize
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.store_entry import results_from_records
from pytest_touchstone.results.summary import Summary, summary_json
from tests.support.summaries import DECLARATIONS, checkpoint_row, collect, record

PART, SAMPLE, SCORE = (
    "4 of 32 items, sample of 1,267",
    "sample: 24 of 1,319",
    "12 of 30 items",
)


def made(folder: Path, *, chat: bool = True, checkpoints: int = 1) -> Summary:
    """A run with part of a sample, a sample asked through a chat template, and part of the Korean sets."""
    names = [f"c{number}" for number in range(checkpoints)]
    extents = {
        "winogrande": {"": BenchmarkSize(of=32, rows=32, published=1267)},
        "gsm8k": {"": BenchmarkSize(of=24, rows=24, published=1319)},
        "real_coref": {"": BenchmarkSize(of=20, rows=20)},
        "ko_lambada_wiki": {"": BenchmarkSize(of=10, rows=10)},
    }
    known = {**DECLARATIONS, "gsm8k": replace(DECLARATIONS["winogrande"], name="gsm8k")}
    known = {name: replace(known[name], extents=extents[name]) for name in extents}
    counts = {"winogrande": 4, "gsm8k": 24, "real_coref": 2, "ko_lambada_wiki": 10}
    items = []
    for name, count in counts.items():
        own = collect(["winogrande"], names, count)
        items += [
            replace(
                one,
                benchmark=name,
                item=one.item.replace("winogrande", name),
                example=one.example.replace("winogrande", name),
            )
            for one in own
        ]
    scores = {"real_coref": ("real@1", "real@5"), "ko_lambada_wiki": ("lambada@1",)}
    records = [
        record(
            item,
            {name: float(place % 2) for name in scores.get(item.benchmark, ("acc",))},
            outputs=int(item.benchmark == "gsm8k"),
            chat=int(chat and item.benchmark == "gsm8k"),
        )
        for place, item in enumerate(items)
    ]
    with Journal(folder, "main") as journal:
        for one in records:
            journal.append(one)
    found = summarize(
        records,
        known,
        items,
        run_id=folder.name,
        directory=str(folder),
        manifest={"settings": {}},
        checkpoints=[checkpoint_row(name, step) for step, name in enumerate(names)],
    )
    entries = [BenchmarkScores(*one) for one in results_from_records(found, records)]
    gate = decide(
        cases_of(entries, found.composites),
        BaselineSource(name="best", kind="best"),
        GateConfig(mode="plain"),
    )
    return replace(found, gate=gate_json(gate, decision_text(gate)))


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    folder = tmp_path / "results" / "marked"
    folder.mkdir(parents=True)
    return made(folder)


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_terminal_has_them_beside_the_value_and_in_a_long_report_whole(summary: Summary) -> None:
    lines = render(replace(summary, gate=None), 80, color=False).splitlines()
    found = {line.split()[0]: line.split()[-2:] for line in lines if line.startswith("  ")}
    assert found["winogrande"] == ["4/1,267", "sample"]
    assert found["gsm8k"] == ["24/1,319", "sample"]
    assert found["score_wiki"][-1] == "12/30"
    assert any(line.startswith("  gsm8k 5-shot, chat ") for line in lines)
    text = words(render(replace(summary, gate=None), 80, color=False, details=True))
    for told in (f"winogrande: {PART}; winogrande/validation", f"gsm8k: {SAMPLE}; ", f"lambada@1; {SCORE}"):
        assert told in text


@pytest.mark.parametrize("checkpoints", [2, 9])
def test_several_checkpoints_have_them_once(tmp_path: Path, checkpoints: int) -> None:
    found = replace(made(tmp_path, checkpoints=checkpoints), gate=None)
    text = words(render(found, 80, color=False, details=True))
    assert text.count(f"winogrande: {PART}; winogrande/validation") == 1
    assert text.count(f"gsm8k: {SAMPLE}; ") == 1
    assert text.count(SCORE) == 1


@pytest.mark.parametrize("checkpoints", [2, 9])
def test_checkpoints_with_other_marks_have_them_in_their_rows(tmp_path: Path, checkpoints: int) -> None:
    found = made(tmp_path, checkpoints=checkpoints)
    first = next(one for one in found.results if one.benchmark == "gsm8k")
    other = replace(first, template="plain", scored=12)
    results = [other if one is first else one for one in found.results]
    text = render(replace(found, gate=None, results=results), 80, color=False)
    if checkpoints == 2:
        assert re.search(r"  gsm8k 5-shot .*\n(.*\n)+  gsm8k 5-shot, chat", text)
    else:
        rows = re.findall(r"^c\d .*$", text, re.MULTILINE)
        assert [" ".join(re.findall(r"[c~]+(?= |$)", row[2:])) for row in rows] == ["~", *["c"] * 8]


def test_markdown_has_them_in_the_row(summary: Summary) -> None:
    text = ci.markdown_page(replace(summary, gate=None))
    assert "| 4/1,267 | sample |" in text
    assert re.search(r"gsm8k 5-shot, chat.*\b24/1,319 \| sample", text)
    assert re.search(r"score&?[^|]* \| composite .*\b12/30 \|", text)
    assert f"winogrande: {PART}; " in text


def test_the_page_has_them_beside_the_value_and_the_name(summary: Summary) -> None:
    text = unescape(run_page(replace(summary, gate=None)))
    for mark in (PART, SAMPLE, SCORE):
        assert re.search(rf'<td class="number">[\d.]+<small>{mark}</small>', text), mark
    assert "<p>5-shot, chat, version 1" in text


def test_the_files_and_the_section_of_json_report_have_them(summary: Summary) -> None:
    write_results(summary)
    folder = Path(summary.directory)
    for content in (json.loads((folder / "summary.json").read_text()), summary_json(summary)):
        found = {one["benchmark"]: one for one in content["results"]}
        assert (found["winogrande"]["of"], found["winogrande"]["mark"]) == (32, PART)
        assert (found["gsm8k"]["mark"], found["gsm8k"]["template"]) == (SAMPLE, "chat")
        assert content["composites"][0]["mark"] == SCORE
    [result] = json.loads((folder / "details" / "winogrande_results.json").read_text())["results"]
    assert result["mark"] == PART
    tasks = task_json.by_task(summary, "c0")["results"]
    assert (tasks["winogrande"]["of"], tasks["winogrande"]["mark"]) == (32, PART)
    assert (tasks["gsm8k"]["mark"], tasks["gsm8k"]["template"]) == (SAMPLE, "chat")


def test_the_results_of_a_checkpoint_say_which_numbers_are_over_part_of_a_set(summary: Summary) -> None:
    [row] = korean_mlm.rows(summary)
    assert (row["coref_samples"], row["coref_of"], row["lambada_wiki_of"]) == (2, 20, 10)
    assert row["mark"] == "real_coref: 2 of 20 items"
    header, line = korean_mlm.table([row]).splitlines()
    assert dict(zip(header.split(","), line.split(","), strict=True))["mark"] == row["mark"]


def test_properties_and_annotations_have_them(summary: Summary) -> None:
    found = dict(ci.properties(summary))
    assert found["touchstone.c0.winogrande.mark"] == PART
    assert found["touchstone.c0.gsm8k.asked"] == "5-shot, chat"
    assert found["touchstone.c0.score_wiki.mark"] == SCORE
    assert found["touchstone.gate.c0.winogrande.about"] == PART
    assert summary.gate is not None
    lines = [{**line, "fails": ["worse"], "verdict": "worse"} for line in summary.gate["lines"]]
    text = "\n".join(ci.gate_commands(replace(summary, gate={**summary.gate, "lines": lines})))
    assert PART in text
    assert f"5-shot, chat; {SAMPLE}" in text


def test_the_lines_of_the_gate_have_them(summary: Summary) -> None:
    text = words(render(summary, 80, color=False, details=True))
    assert re.search(rf"winogrande acc [\d.]+ \({PART}\)", text)
    assert re.search(rf"gsm8k acc [\d.]+ \(5-shot, chat; {SAMPLE}\)", text)
    assert f"({PART})" in unescape(ci.markdown_page(summary)).replace("&#40;", "(")
    assert f"({PART})" in unescape(run_page(summary))


def test_a_comparison_and_the_lists_have_them(
    summary: Summary, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(summary)
    plain = tmp_path / "results" / "plain"
    plain.mkdir()
    write_results(replace(made(plain, chat=False), run_id="plain"))
    (one,), (other,) = read_run(Path(summary.directory)), read_run(plain)
    pair = compare_pair(one, other)
    for width in (80, 160):
        text = words(comparing_text.render([pair], width=width, color=False))
        assert f"({PART})" in text
    told = f"A 5-shot, chat; {SAMPLE}; B {SAMPLE}"
    assert f"({told})" in ci.comparison_page([pair])
    [line] = [row for row in pair_facts(pair)["benchmarks"] if row["benchmark"] == "gsm8k"]
    assert (line["baseline_about"], line["new_about"]) == (f"5-shot, chat; {SAMPLE}", SAMPLE)
    entry = one.entries["winogrande"]
    ResultStore(tmp_path / "results").save(entry.saved, entry.items)
    assert main(["baseline", "list", "--output", str(tmp_path / "results")]) == 0
    assert f"{PART}; version " in capsys.readouterr().out
    assert main(["runs", "--output", str(tmp_path / "results")]) == 0
    assert " 40/86" in capsys.readouterr().out
