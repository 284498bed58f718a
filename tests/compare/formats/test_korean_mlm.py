"""Tables of checkpoints are read row by row, and what is wrong in them is named."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_touchstone.compare.formats import format_of
from pytest_touchstone.compare.formats.base import ResultTable
from pytest_touchstone.compare.formats.korean_mlm import read_table
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.study.reading import load_study
from tests.support.korean_table import HEADER, row, write


def test_a_row_becomes_a_candidate_with_values_sizes_and_what_is_known_of_it(tmp_path: Path) -> None:
    (one,) = read_table(write(tmp_path / "t.csv", row("study", 300)), {}).candidates
    assert one.name == "study/1536/checkpoint-300"
    assert one.origin == "t.csv, line 2"
    assert one.about == {"series": "study", "seq_len": 1536, "step": 300, "epoch": 3.0}
    coref, lambada = one.entries["real_coref"].saved, one.entries["ko_lambada"].saved
    assert {name: (metric.value, metric.n) for name, metric in coref.metrics.items()} == {
        "real@1": (0.65, 2400),
        "real@5": (0.8, 2400),
    }
    assert (lambada.primary, lambada.metrics["lambada@1"].n, lambada.step) == ("lambada@1", 600, 300)
    assert one.entries["real_coref"].items.examples == []


def test_rows_of_all_files_have_fingerprints_of_their_own(tmp_path: Path) -> None:
    tables = [
        read_table(write(tmp_path / f"{n}.csv", row(step=1), row(step=2), row("s", n)), {}) for n in (5, 6)
    ]
    prints = [entry.saved.fingerprint for t in tables for c in t.candidates for entry in c.entries.values()]
    assert len(set(prints)) == 6  # both benchmarks of a row share one
    assert all(one.endswith("-imported") for one in prints)


@pytest.mark.parametrize(
    ("reported", "wrong"),
    [
        ("0.6050", False),
        ("0.6051", False),
        ("0.6049", False),
        ("0.6052", True),
        ("0.6100", True),
        ("", False),
    ],
)
def test_a_composite_contradicts_its_parts_only_beyond_rounding(
    tmp_path: Path, reported: str, wrong: bool
) -> None:
    table = read_table(write(tmp_path / "t.csv", row(score=reported)), {})
    assert [one.name for one in table.contradictions] == (["plain/1536/checkpoint-100"] if wrong else [])
    if wrong:
        assert table.contradictions[0].reported == float(reported)
        assert table.contradictions[0].computed == pytest.approx(0.605)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.tuples(*[st.floats(0, 1)] * 3), st.integers(1, 6))
def test_values_that_were_rounded_for_printing_never_contradict_their_composite(
    tmp_path: Path, values: tuple[float, float, float], digits: int
) -> None:
    score = 0.4 * values[0] + 0.3 * values[1] + 0.3 * values[2]
    real1, real5, lambada, written = (f"{value:.{digits}f}" for value in (*values, score))
    line = row(real1=real1, real5=real5, lambada=lambada, score=written)
    assert read_table(write(tmp_path / "t.csv", line), {}).contradictions == ()


@pytest.mark.parametrize(
    ("line", "column", "value"),
    [
        (row(real1="65.0", score="0.6"), "real1", "65.0"),
        (row(real1="-0.1", score=""), "real1", "-0.1"),
        (row(real5="abc", score=""), "real5", "abc"),
        (row(lambada="nan", score=""), "lambada_top1", "nan"),
        (row(lambada="inf", score=""), "lambada_top1", "inf"),
        (row(sizes="2400.5,600"), "coref_samples", "2400.5"),
        (row(sizes="0,600"), "coref_samples", "0"),
        (row(seq_len="long"), "seq_len", "long"),
        (row(score="high"), "reported_score", "high"),
        ("a,1536,checkpoint-1,1,1,,,,,,", "real1", None),
        ("a,1536,,,1,0.5,0.5,0.5,,,", "checkpoint", None),
        ("a,1536,checkpoint-1", "step", None),
        (row() + ",more", "the end of the row", "['more']"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_the_others_are_taken(
    tmp_path: Path, line: str, column: str, value: str | None
) -> None:
    table = read_table(write(tmp_path / "t.csv", row("good", 1), line, row("good", 2)), {})
    assert [one.name for one in table.candidates] == ["good/1536/checkpoint-1", "good/1536/checkpoint-2"]
    (bad,) = table.bad
    assert (bad.line, bad.column, bad.value) == (3, column, value)
    assert bad.remedy


def test_two_rows_of_one_name_are_not_mixed(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "t.csv", row(), row(real1="0.7000")), {})
    assert len(table.candidates) == 1
    assert "line 2 has this name" in table.bad[0].remedy


def test_per_cent_signs_other_delimiters_and_byte_order_marks_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    text = f"{HEADER}\n{row(real1='65%', real5='80.00 %', score='60.50%')}\n"
    for delimiter in ",;\t":
        path.write_text("\ufeff" + text.replace(",", delimiter), encoding="utf-8")
        table = read_table(path, {})
        metrics = table.candidates[0].entries["real_coref"].saved.metrics
        assert [one.value for one in metrics.values()] == pytest.approx([0.65, 0.8])
        assert table.contradictions == ()


def test_sizes_that_the_file_does_not_give_are_taken_from_the_person_else_not_known(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "c1,0.5", header="checkpoint,real1")
    for sizes, n in (({}, 0), ({"real_coref": 50}, 50)):
        saved = read_table(path, sizes).candidates[0].entries["real_coref"].saved
        assert (saved.metrics["real@1"].n, saved.scored) == (n, n)


def test_errors_and_strict_scores_beside_the_values_are_read(tmp_path: Path) -> None:
    header = "checkpoint,real1,real1_stderr,real1_strict,lambada_wiki_top1"
    (one,) = read_table(write(tmp_path / "t.csv", "c,0.5,0.02,0.4,0.1", header=header), {}).candidates
    metrics = one.entries["real_coref"].saved.metrics
    assert (metrics["real@1"].stderr, metrics["real@1_strict"].value) == (0.02, 0.4)
    assert "ko_lambada" not in one.entries
    assert one.entries["ko_lambada_wiki"].saved.metrics["lambada@1"].value == 0.1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has none of the columns real1"),
        (b"a,b\n1,2\n", "has none of the columns real1"),
        (b"checkpoint,real1\n\xff,1\n", "not UTF-8"),
        (b'checkpoint,real1\n"c,0.5\n', "not CSV"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused_in_one_line(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        read_table(path, {})
    assert "\n" not in str(caught.value)


def test_the_order_of_the_rows_does_not_matter(tmp_path: Path) -> None:
    lines = [row("a", 1), row("b", 2, score="0.9"), row("c", 3, real1="x", score="")]
    found = []
    for order in itertools.permutations(lines):
        table = read_table(write(tmp_path / "t.csv", *order), {})
        found.append(({c.name for c in table.candidates}, table.contradictions, {b.value for b in table.bad}))
    assert all(one == found[0] for one in found)


REPORT = """# Report

### 1. MLM v2 @ 1536 (seq_len=1536)

| Checkpoint | Epoch | Real@1 | Real@5 | LAMBADA@1 | Score |
|---|---|---|---|---|---|
| checkpoint-65 | 0.5 | **65.58%** ⭐ | 81.67% | 35.67% | 0.6190 |
| `checkpoint-130` | 1.0 | 64.71% | 79.79% | - | |

| Metric | 1536 | 2048 |
|---|---|---|
| Real@1 | 66.04% | 65.31% |

## Combined

| 에폭 | Real@1 |
|---|---|
| 1.0 | 62.92% |
"""


def read_any(path: Path, text: str) -> ResultTable:
    """The content of a file, read as the form that it has."""
    path.write_text(text, encoding="utf-8")
    found = format_of(path)
    assert found is not None
    return found.read(path, {})


def test_tables_of_a_report_in_markdown_are_read_with_the_series_of_their_headings(tmp_path: Path) -> None:
    table = read_any(tmp_path / "report.md", REPORT)
    assert [one.name for one in table.candidates] == [
        "MLM_v2/1536/checkpoint-65",
        "MLM_v2/1536/checkpoint-130",
        "Combined/epoch-1.0",
    ]
    first = table.candidates[0]
    assert first.entries["real_coref"].saved.metrics["real@1"].value == pytest.approx(0.6558)
    assert first.about["epoch"] == 0.5
    assert "ko_lambada" not in table.candidates[1].entries
    assert not table.bad


@pytest.mark.parametrize(
    "text",
    [
        '{"a_1536": [{"checkpoint": "checkpoint-5", "real1": 0.5}]}',
        '{"results": [{"series": "a", "seq_len": 1536, "checkpoint": "checkpoint-5", "real1": 0.5}]}',
        '{"series": {"a_1536": {"checkpoint-5": {"real1": 0.5}}}}',
        '{"a_1536": [{"checkpoint": "checkpoint-5", "metrics": {"real1": 0.5}}]}',
    ],
)
def test_objects_below_the_names_of_series_are_read(tmp_path: Path, text: str) -> None:
    (one,) = read_any(tmp_path / "x.json", text).candidates
    assert one.name == "a/1536/checkpoint-5"
    assert one.entries["real_coref"].saved.metrics["real@1"].value == 0.5


@pytest.mark.parametrize(
    "header",
    [
        "Seq",
        "seq",
        "SEQ_LEN",
        "Seq-Len",
        "Seq. length",
        "Max Seq Len",
        "Length",
        "길이",
        "Context length",
        "ctx",
    ],
)
@pytest.mark.parametrize("real1", ["real1", "Real@1"])
def test_a_column_that_is_called_like_a_length_is_one(tmp_path: Path, header: str, real1: str) -> None:
    lines = [("Model", header, "Checkpoint", real1), ("a", "1536", "checkpoint-5", "65.5%")]
    lines.append(("a", "2048", "checkpoint-5", "64.5%"))
    for name, text in (
        ("x.csv", "\n".join(map(",".join, lines))),
        ("x.md", "\n".join(f"| {' | '.join(line)} |" for line in lines)),
    ):
        table = read_any(tmp_path / name, text)
        assert [one.about for one in table.candidates] == [
            {"series": "a", "seq_len": length, "step": 5} for length in (1536, 2048)
        ]
        assert not table.bad


def test_a_column_in_our_words_is_not_replaced_by_another(tmp_path: Path) -> None:
    text = "model,series,max_length,seq_len,checkpoint,real1\nbert,a,99,1536,checkpoint-5,0.6\n"
    (one,) = read_any(tmp_path / "x.csv", text).candidates
    assert one.name == "a/1536/checkpoint-5"


@pytest.mark.parametrize(
    ("series", "name", "text"),
    [
        (
            "a",
            "x.csv",
            "series,seq_len,checkpoint,real1\na,1536,checkpoint-5,0.6\na,1536,checkpoint-10,0.7\n",
        ),
        ("checkpoints", "x.csv", "checkpoint,real1\ncheckpoint-5,0.6\nstep_10,0.7\n"),
        (
            "a",
            "x.md",
            "# a @ 1536\n| Checkpoint | Real@1 |\n|-|-|\n| checkpoint-5 | 0.6 |\n| checkpoint-10 | 0.7 |",
        ),
        ("a", "x.json", '{"a_1536": {"checkpoint-5": {"real1": 0.6}, "checkpoint-10": {"real1": 0.7}}}'),
        (
            "checkpoints",
            "x.json",
            '[{"checkpoint": "step_5", "real1": 0.6}, {"checkpoint": "step_10", "real1": 0.7}]',
        ),
    ],
)
def test_checkpoints_that_are_named_by_their_steps_are_one_series(
    tmp_path: Path, series: str, name: str, text: str
) -> None:
    read_any(tmp_path / name, text)
    (found,) = load_study([str(tmp_path / name)], output=tmp_path).series
    assert (found.name, [one.step for one in found.points]) == (series, [5, 10])
    assert found.seq_len == (1536 if series == "a" else None)


def test_a_file_of_one_checkpoint_that_names_no_training_is_of_none(tmp_path: Path) -> None:
    (one,) = read_any(tmp_path / "x.json", '{"checkpoint": "checkpoint-5", "real1": 0.6}').candidates
    assert one.about == {}


DETAILS = """
## {name} @ {length} (steps_per_epoch = {steps})

| Checkpoint | Epoch | Real@1 | Real@5 |
|---|---|---|---|
| checkpoint-5 | 0.5 | {first}% | 81.67% |
| checkpoint-10 | 1.0 | 64.71% | 79.79% |
"""
SUMMARY_TABLE = """
## Summary

| Model | {length} | Checkpoint | Epoch | Real@1 | Real@5 |
|---|---|---|---|---|---|
| Plain model | 1536 | checkpoint-5 | 0.5 | 65.5% | 81.6% |
| Plain model | 2048 | checkpoint-5 | 0.5 | {last} | 81.7% |
"""


@pytest.mark.parametrize("last", ["66.1%", "66.0%", "67.1%"])
def test_a_summary_that_repeats_rows_of_a_report_adds_none(tmp_path: Path, last: str) -> None:
    summary = SUMMARY_TABLE.format(length="Seq", last=last)
    details = [DETAILS.format(name="Plain", length=1536, steps=131, first="65.58")]
    details.append(DETAILS.format(name="Plain", length=2048, steps=110, first="66.08"))
    found = {
        one.name for one in read_any(tmp_path / "x.md", "".join([summary, *details, summary])).candidates
    }
    known = {f"Plain/{length}/checkpoint-{step}" for length in (1536, 2048) for step in (5, 10)}
    others = {f"Plain model/{length}/checkpoint-5" for length in (1536, 2048)}
    assert found == (known | others if last == "67.1%" else known)


def test_a_summary_that_stands_alone_is_kept_once(tmp_path: Path) -> None:
    summary = SUMMARY_TABLE.format(length="Length", last="66.1%")
    table = read_any(tmp_path / "x.md", summary + summary)
    assert (len(table.candidates), table.bad) == (2, ())


def test_series_that_begin_alike_are_both_kept(tmp_path: Path) -> None:
    row_of_0 = "| Checkpoint | Real@1 | Real@5 |\n|---|---|---|\n| checkpoint-0 | 50.0% | 60.0% |\n"
    text = "".join(
        f"# {name}\n{row_of_0}| checkpoint-5 | {real1} | 65.0% |\n\n"
        for name, real1 in (("a", "55%"), ("b", "56%"))
    )
    assert len(read_any(tmp_path / "x.md", text).candidates) == 4


def test_columns_with_the_names_of_reports_are_ours(tmp_path: Path) -> None:
    (one,) = read_any(tmp_path / "x.csv", "Checkpoint,Epoch,Real@1\ncheckpoint-5,1,65.5%\n").candidates
    assert one.entries["real_coref"].saved.metrics["real@1"].value == pytest.approx(0.655)


def test_a_page_without_such_tables_has_no_results(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("# Notes\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert format_of(tmp_path / "x.md") is None
