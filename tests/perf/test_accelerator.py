"""The accelerator's program: its table, the joining of its files, its time, and what it asks and counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf import accelerator
from perf.accelerator import settings_of
from perf.accelerator_parts.attempt import attempt
from perf.accelerator_parts.budget import Budget, as_many, until
from perf.accelerator_parts.findings import Findings, Row, from_plain, join, markdown
from perf.accelerator_parts.generate import Asked, Case, floor, requests
from perf.accelerator_parts.generate_peers import parted
from perf.accelerator_parts.limits import Peaks, operations_of
from perf.accelerator_parts.models import Setup
from perf.accelerator_parts.score_items import grown, repeated
from perf.accelerator_parts.shapes import Sizes, named, sizes, small
from perf.arithmetic import Tokens
from perf.prompts import Item
from pytest_touchstone.core.requests import Generate, Loglikelihood
from pytest_touchstone.engines.transformers.token_work import TokenizedPrompt
from tests.support.lines import missing

ABOUT = {"device": "A100", "dtype": "bfloat16", "shapes": "as published", "torch": "2.13.0"}


def findings(*rows: Row, seconds: float = 1.0, about: Mapping[str, str] = ABOUT) -> Findings:
    return Findings({**about, "seconds": {row.part: seconds for row in rows}}, rows)


def cells(text: str, word: str) -> list[str]:
    """The cells of the table's line with that word."""
    (line,) = (line for line in text.splitlines() if line.startswith("|") and word in line)
    return [cell.strip() for cell in line.strip("|").split("|")]


class Time:
    """A clock that others move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# The table


def test_the_table_has_shares_in_per_cent_and_a_reason_in_the_place_of_figures() -> None:
    text = markdown(
        findings(
            Row("score", "A", "arc", figures={"tokens/s": 123456.7, "share of peak": 0.51, "off": 0.00123}),
            Row("score", "A", "arc", "lm_eval", note="not there: lm_eval is not installed"),
        )
    )
    assert "- device: A100" in text
    assert cells(text, "| ours |") == ["A", "arc", "ours", "123,457", "51%", "0.00123"]
    assert cells(text, "lm_eval")[3].startswith("not there: lm_eval")


def test_a_figure_that_is_no_number_leaves_its_cell_empty_and_stays_out_of_the_json() -> None:
    found = findings(Row("load", "A", "first", figures={"answered, s": 2.0, "peak MiB": float("nan")}))
    assert cells(markdown(found), "first") == ["A", "first", "ours", "2", ""]
    assert json.loads(json.dumps(found.plain()))["rows"][0]["figures"] == {"answered, s": 2.0}


def test_every_line_of_a_table_has_as_many_cells() -> None:
    text = markdown(
        findings(Row("a", "A|B", "x\ny", figures={"n": 1}), Row("a", "C", "z", note="failed: a | b"))
    )
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {5}


def test_a_note_beside_figures_stands_below_its_table() -> None:
    text = markdown(findings(Row("programs", "A", "whole", figures={"tasks": 8}, note="from 8 of 164 tasks")))
    assert cells(text, "whole")[2] == "ours [1]"
    assert not missing(text, "[1] from 8", "164 tasks")


# Joining


def test_joined_files_make_one_table_and_rows_with_figures_replace_those_left_out() -> None:
    out = Row("score", "A", "arc", note="left out: no time")
    there = Row("score", "A", "arc", figures={"tokens/s": 5.0})
    limits = Row("limits", "device", "bfloat16", "torch", {"bandwidth, GB/s": 2000.0})
    for order in ((out, there), (there, out)):
        files = {"a.json": findings(limits, order[0]), "b.json": findings(order[1], seconds=2.0)}
        found = join(files)
        assert found.rows == (limits, there)
        assert found.about["seconds"] == {"limits": 1.0, "score": 2.0}


def test_findings_survive_a_file() -> None:
    found = findings(
        Row("score", "A", "arc", figures={"tokens/s": 5.0}), Row("load", "B", "x", note="failed")
    )
    assert from_plain(json.loads(json.dumps(found.plain()))) == found


@pytest.mark.parametrize("fact", ["device", "dtype", "shapes", "torch"])
def test_files_of_different_machines_are_not_joined(fact: str) -> None:
    row = Row("score", "A", "arc")
    with pytest.raises(SystemExit, match=rf"b\.json: .*{fact} .*a\.json"):
        join({"a.json": findings(row), "b.json": findings(row, about={**ABOUT, fact: "other"})})


def test_the_command_joins_files_without_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, row in (("a", Row("limits", "device", "x")), ("b", Row("score", "A", "arc"))):
        (tmp_path / f"{name}.json").write_text(json.dumps(findings(row).plain()))
    paths = [str(tmp_path / f"{name}.json") for name in ("a", "b", "all")]
    monkeypatch.setattr("sys.argv", ["accelerator", "--join", *paths[:2], "--json", paths[2]])
    accelerator.main()
    assert capsys.readouterr().out.count("\n## ") == 2
    assert [row["part"] for row in json.loads(Path(paths[2]).read_text())["rows"]] == ["limits", "score"]


@pytest.mark.parametrize("text", [None, "{", "[]", '{"about": {}}', '{"about": {}, "rows": [{"a": 1}]}'])
def test_a_file_that_is_none_of_ours_is_named(
    tmp_path: Path, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "a.json").write_text(text)
    monkeypatch.setattr("sys.argv", ["accelerator", "--join", str(tmp_path / "a.json")])
    with pytest.raises(SystemExit, match=r"--join .*a\.json: .*--json"):
        accelerator.main()


# Time


def test_time_that_one_share_leaves_is_there_for_the_next() -> None:
    clock = Time()
    whole = Budget(90.0, clock)
    first = whole.split(3)
    assert first.left == 30.0
    clock.now += 10.0
    assert whole.split(2).left == 40.0
    clock.now += 100.0
    assert whole.left == 0.0
    assert not whole.enough()


def test_work_ends_when_its_time_is_over_but_not_before_the_least() -> None:
    clock = Time()

    def work(seconds: float) -> None:
        clock.now += seconds

    assert until(work, [1.0] * 10, 2.5, clock=clock) == 3
    assert until(work, [1.0] * 10, 0.0, clock=clock) == 1
    assert until(work, [1.0] * 10, 0.0, least=4, clock=clock) == 4
    assert until(work, [1.0] * 3, 99.0, clock=clock) == 3


@given(st.integers(1, 5000), st.floats(0, 1e3), st.floats(0, 1e4))
def test_at_least_one_and_at_most_all_fit(count: int, each: float, seconds: float) -> None:
    found = as_many(count, each, seconds)
    assert 1 <= found <= count
    assert found == 1 or found * each <= seconds + 1e-6


# Models


def test_models_are_named_by_their_beginnings_in_the_order_of_the_list() -> None:
    assert [one.name for one in named("bert, SmolLM2")] == ["SmolLM2-135M", "BERT-base", "BERT-base 2048"]
    assert len(named(None)) == 9
    for wrong in ("gpt", "bert,", ""):
        with pytest.raises(SystemExit, match="unknown model"):
            named(wrong)


def test_the_multi_token_prediction_model_has_its_published_size_and_reads_head_0_alone() -> None:
    (shape,) = named("mtp")
    found = sizes(shape)
    assert round(found.whole / 1e6) == 6738
    heads = 3 * (4 * 4096**2 + 3 * 4096 * 11_008 + 2 * 4096)
    assert found.whole - found.read == heads + 32_000 * 4096  # and the table of embeddings
    assert found.keys_values == 2 * 29 * 4096


def test_small_shapes_have_an_embedding_for_each_token() -> None:
    for shape in named(None):
        assert small(shape, 777).config["vocab_size"] == 777
        assert small(shape, 777).seq_len == shape.seq_len


def test_settings_are_read_as_python_or_as_words() -> None:
    assert settings_of("speculative=off,batch=4") == {"speculative": "off", "batch": 4}
    assert settings_of(None) == {}
    with pytest.raises(SystemExit, match=r"--settings speed=1: .*dtype"):
        settings_of("speed=1")


# What is asked


@given(st.integers(1, 50), st.sampled_from(["", "Question: a\nAnswer: b\n\n"]))
def test_repeated_items_differ_after_the_same_examples(count: int, shots: str) -> None:
    items = [
        Item(f"arc/{number}", (Loglikelihood(f"{shots}Question: {number}", " x"),), 0) for number in range(7)
    ]
    found = repeated(items, count)
    contexts = [item.requests[0].context for item in found]
    assert len(set(contexts)) == len(contexts) == count
    assert all(one.startswith(shots) for one in contexts)


def test_tokens_of_many_items_grow_with_those_after_the_shared_ones() -> None:
    few, more = Tokens(total=400, distinct=130, logits=8), Tokens(total=800, distinct=160, logits=16)
    assert grown(few, more, 10.0) == Tokens(total=4000, distinct=400, logits=80)


def test_as_many_texts_are_asked_for_as_there_are_rows_each_new_after_the_same_examples() -> None:
    setup = Setup(device="cpu", dtype="float32", models=(), small=True)
    for case in (Case("gsm8k 5-shot", 1, 70), Case("humaneval", 20, 256)):
        asked = requests(case, setup, "# B\n", 9)
        assert sum(one.samples for one in asked) >= case.rows > sum(one.samples for one in asked[:-1])
        assert len({one.prompt for one in asked}) == len(asked)
        assert all(one.prompt.startswith("# B\n") and one.max_new_tokens == 9 for one in asked)
    gsm8k = [one.prompt for one in requests(Case("gsm8k 5-shot", 1, 70), setup, "", 9)]
    assert [one.count("Question:") for one in gsm8k] == [6] * 70
    assert len({one[: one.rfind("\n\n")] for one in gsm8k}) == 1


def prompts(*tokens: tuple[int, ...]) -> list[TokenizedPrompt]:
    return [TokenizedPrompt(Generate("", max_new_tokens=8), one, 0) for one in tokens]


def test_a_step_reads_a_shared_prefix_once_and_its_products_grow_with_the_rows() -> None:
    found = Sizes(inside=80, output=(10, 2), matrices={(10, 8): 1}, keys_values=3, whole=120)
    asked = Asked(Case("gsm8k", 1, 2), prompts((1, 2, 3, 4), (1, 2, 3, 5)), tokens=8)
    assert asked.shared == 3
    slow = Peaks(matrix=1e9, bandwidth=1.0, launch=0.0, matrix_size=1)
    assert floor(found, asked, 2, slow) == (2 * (100 + 3 * (3 + 2 * 1 + 2 * 4)), "reading")
    fast = Peaks(matrix=1.0, bandwidth=1e9, launch=0.0, matrix_size=1)
    assert floor(found, asked, 2, fast) == (2 * 2 * 100, "products")
    assert operations_of(found.matrices, 5) == 2 * 5 * 80


def letters(ids: Sequence[int]) -> str:
    return "".join("abcdef\ufffd"[one] for one in ids)


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_texts_part_at_the_first_letter_apart(one: list[int], two: list[int]) -> None:
    both = list(zip(one, two, strict=False))
    expected = next((at for at, (a, b) in enumerate(both) if a != b), None)
    assert parted(letters(one), two, letters) == expected


def test_half_a_character_is_no_difference() -> None:
    assert parted("ab\ufffd\ufffdc", [0, 1, 6, 2], letters) is None
    assert parted("abc", [0, 1, 6], letters) is None
    assert parted("abc", [0, 1, 6, 3], letters) == 3


def test_a_failure_costs_the_rows_of_its_model_alone(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> list[Row]:
        raise ValueError("no such kernel")

    (row,) = attempt(fails, part="score", model="A", device="cpu")
    assert row == Row("score", "A", "all", note="failed: ValueError: no such kernel")
    assert "no such kernel" in capsys.readouterr().err
