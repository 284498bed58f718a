"""The sections on what comparing series finds, in a terminal of 80 columns, as Markdown, and as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_touchstone.document import Section
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.reading import load_study
from pytest_touchstone.study.sections import FINDINGS, render_study, study_facts, study_markdown
from tests.support.lines import missing
from tests.support.published import published
from tests.support.studies import answers, of_items, of_totals

KEYS = ["between", "forgetting", "noise", "matrix", "advice"]


@pytest.fixture(name="sections", scope="module")
def _sections(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, list[Section]]:
    folder = tmp_path_factory.mktemp("published")
    study = load_study([str(published(folder))], output=folder)
    return study, finding_sections(study)


def finding_sections(study: Study) -> list[Section]:
    return [section for section in (make(study) for make in FINDINGS) if section is not None]


def shown(study: Study) -> str:
    return render_study(finding_sections(study), width=80, color=False)


def test_the_published_rows_fit_80_columns_and_no_name_is_broken(
    sections: tuple[Study, list[Section]],
) -> None:
    text = render_study(sections[1], width=80, color=False)
    assert max(map(len, text.splitlines())) <= 80
    assert not missing(text, "mlm_v2 Real@1 66.04 % 65.31", "-0.73 [-4.17, +2.87] cannot tell")
    assert text.count("combined/1536") > 8
    costs = ["?", "3,000", "?", "3,800"]
    assert ["E", "entity_ft", *costs, *costs] in [line.split() for line in text.splitlines()]
    assert "No evidence: item scores" in " ".join(text.split())


def test_all_forms_have_the_same_findings(sections: tuple[Study, list[Section]]) -> None:
    study, found = sections
    data = study_facts(study, found)
    assert [one.key for one in found] == KEYS
    (measure,) = (one for one in data["between"]["measures"] if one["measure"] == "real_coref:real@1")
    bests = {best["series"]: best for best in measure["bests"]}
    page = study_markdown(found)
    assert f"{100 * bests['combined/1536']['value']:.2f} %" == "66.75 %"
    assert f"{100 * bests['combined/1536']['corrected']:.2f} %" in page
    assert data["matrix"][0]["is"]["entity_ft"]["mlm_v2/1536"] == "cannot tell"
    assert data["advice"]["checkpoint"]["point"] in page
    assert data["forgetting"] == []
    assert {one["verdict"] for one in data["noise"]} == {"too few items"}


def test_a_difference_that_is_told_stands_in_table_and_matrix() -> None:
    runs = answers([0.5, 0.5, 0.7, 0.7], 600, 1)
    text = shown(of_items({"a": runs[:2], "z": runs[2:]}))
    assert "worse 600" in text
    assert "better 600" in text
    assert "told apart" in text


def test_one_series_has_no_matrix_and_says_that_nothing_can_be_told_apart() -> None:
    study = of_items({"a": answers([0.5, 0.6, 0.6], 200, 2)})
    assert [one.key for one in finding_sections(study)] == ["forgetting", "noise", "advice"]
    assert "nothing to tell apart" in shown(study)


def test_where_nothing_is_known_no_number_is_made_up() -> None:
    text = shown(of_totals({"a": [0.5], "z": [0.6]}, n=0))
    assert not missing(text, "No evidence: no series", "No evidence: no measure")
    assert "%" not in text.replace("50.00 %", "").replace("60.00 %", "").replace("95 %", "").replace(
        "80 %", ""
    )


def test_more_series_than_fit_a_line_have_a_matrix_in_parts() -> None:
    runs = answers([0.6] * 9, 50, 3)
    text = shown(of_items({f"series_{place}": [run] for place, run in enumerate(runs)}))
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("I  series_8") == 2


def test_a_brief_study_of_many_series_says_how_many_others_each_is_better_than() -> None:
    def brief(accuracies: list[float], n: int) -> str:
        runs = enumerate(answers(accuracies, n, 6))
        sections = finding_sections(of_items({f"s{place}": [run] for place, run in runs}))
        return render_study(sections, width=80, color=False, brief=True)

    lines = brief([0.5] * 4 + [0.8] * 4, 600).splitlines()
    start = next(place for place, line in enumerate(lines) if line.endswith("better  worse"))
    counts = [line.split()[-2:] for line in lines[start + 1 : start + 9]]
    assert counts == [["0", "4"]] * 4 + [["4", "0"]] * 4
    assert "?" not in "".join(lines[start:])
    assert "none of 28 pairs" in " ".join(brief([0.6] * 8, 50).split())


def test_long_questions_are_cut_and_hostile_texts_are_text(tmp_path: Path) -> None:
    del tmp_path
    found = of_items({"a|b": answers([0.5, 0.6], 20, 4), "<z>": answers([0.5, 0.6], 20, 5)})
    page = study_markdown(finding_sections(found))
    assert "<z>" not in page
    assert "| a|b |" not in page
