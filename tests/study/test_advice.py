"""What to do next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_touchstone.document import Facts
from pytest_touchstone.statistics.power import binary_design, power_of_drop
from pytest_touchstone.study.advice import NO_GAIN, PAIRED, advice, advice_section
from pytest_touchstone.study.reading import load_study
from tests.support.compared import printed, ran
from tests.support.entries import right
from tests.support.known import known
from tests.support.lines import missing
from tests.support.published import published
from tests.support.studies import answers, of_items, of_totals, placed, study_of_candidates


def test_the_best_that_is_told_from_all_others_is_advised_without_rivals() -> None:
    runs = answers([0.4, 0.5, 0.7], 1000, 1)
    chosen = known(advice(of_items({"a": runs})).checkpoint)
    assert (chosen.point.name, chosen.rivals, chosen.earliest) == ("a/3", (), None)


def test_the_earlier_one_that_cannot_be_told_from_it_is_named() -> None:
    runs = answers([0.4, 0.6, 0.6, 0.601], 1000, 2)
    found = advice(of_items({"a": runs}))
    chosen = known(found.checkpoint)
    names = {"a/2", "a/3", "a/4"}
    assert {chosen.point.name, *(point.name for point in chosen.rivals)} == names
    assert chosen.earliest is None or chosen.earliest.name == "a/2"
    assert known(known(chosen.expected).high) < known(chosen.expected).value + 0.05


def test_what_is_expected_allows_for_the_choice() -> None:
    chosen = known(advice(of_items({"a": answers([0.6] * 12, 400, 3)})).checkpoint)
    assert known(chosen.expected).value < chosen.value - 0.005


def test_the_items_that_it_takes_find_the_difference_with_the_power_that_is_promised() -> None:
    runs = answers([0.60, 0.62], 400, 6)
    found = advice(of_items({"a": runs[:1], "z": runs[1:]}))
    (more,) = found.more_items
    moved = abs(known(more.duel.comparison.difference))
    flips = (sum(known(more.duel.as_measured.flips)) + 0.5) / 401
    power = power_of_drop(binary_design(known(more.needed), flips), moved, margin=0.0)
    assert 0.79 < power < 0.82


def test_without_enough_data_it_says_that_it_cannot_be_decided_with_it() -> None:
    runs = answers([0.60, 0.62], 400, 6)
    (_, decide) = advice(of_items({"a": runs[:1], "z": runs[1:]})).plan
    assert decide.command == ""
    assert "cannot be decided" in decide.expected


def test_with_more_rows_the_command_asks_for_as_many_as_it_takes() -> None:
    before, after = right(60, 100), [*right(54, 60), *right(12, 40)]
    study = of_items({"a": [{"b": before}], "z": [{"b": after}]}, of=100_000)
    found = advice(study)
    (more,) = found.more_items
    (_, decide) = found.plan
    assert decide.command.endswith(f"--eval-tasks b --eval-limit {more.needed}")
    assert "--checkpoint runs/a/1" in decide.command
    assert "a difference within" in decide.expected


def test_of_totals_the_same_items_are_advised() -> None:
    (go_on, decide) = advice(of_totals({"a": [0.60], "z": [0.61]})).plan
    assert go_on.expected == NO_GAIN
    assert decide.expected == PAIRED
    assert decide.command == ""  # no path of either is known


def test_there_is_no_evidence_from_one_checkpoint_or_without_errors() -> None:
    for study in (of_items({"a": answers([0.6], 100, 7)}), of_totals({"a": [0.5, 0.6]}, n=0)):
        found = advice(study)
        assert found.checkpoint is None
        assert found.why.startswith("no evidence")
        assert found.plan == ()


def test_gains_are_those_of_series_that_are_known_to_have_begun_here() -> None:
    runs = answers([0.5, 0.7], 800, 8)
    candidates = [placed(ran("a/1", runs[0]), "a", 1.0), placed(ran("z/1", runs[1]), "z", 1.0)]
    study = study_of_candidates(candidates, declared={"z": {"from": "a/1"}})
    expected = advice(study).plan[0].expected
    assert expected.startswith("z reached +")
    assert not missing(expected, "its start, a/1", "one training")


def test_of_the_published_rows_the_highest_is_advised_and_all_others_named_as_rivals(tmp_path: Path) -> None:
    found = advice(load_study([str(published(tmp_path))], output=tmp_path))
    chosen = known(found.checkpoint)
    assert (chosen.point.name, chosen.measure.label) == ("entity_ft/2048/checkpoint-1600", "score")
    assert len(chosen.rivals) == 32
    assert known(chosen.earliest).name == "entity_ft/2048/checkpoint-1400"
    assert len(found.more_items) == 4
    assert all(known(more.needed) > more.items == 3000 or more.items == 3800 for more in found.more_items)


def test_the_advice_does_not_hang_on_the_order_of_benchmarks() -> None:
    scores = [
        {**first, "a": second["b"]}
        for first, second in zip(answers([0.5, 0.7], 400, 4), answers([0.8, 0.4], 400, 5), strict=True)
    ]
    turned = [{name: one[name] for name in reversed(one)} for one in scores]
    found = [known(advice(of_items({"s": runs})).checkpoint) for runs in (scores, turned)]
    assert found[0].measure.label == found[1].measure.label == "all items"
    assert found[0].point.name == found[1].point.name == "s/1"


def test_nothing_beyond_all_right_is_expected() -> None:
    expected = known(known(advice(of_items({"a": answers([0.9, 0.95], 6, 3)})).checkpoint).expected)
    assert 0 <= known(expected.low) <= known(expected.high) <= 1


def test_commands_run_shipped_benchmarks_or_the_files_that_are_here() -> None:
    def commands(name: str) -> list[str]:
        runs = [{name: one["b"]} for one in answers([0.6, 0.7], 1000, 1)]
        return [one.command for one in advice(of_items({"a": runs})).plan]

    (command,) = commands("mmlu_stem")
    assert not missing(command, "touchstone run --tasks mmlu_stem", "--checkpoint 'runs/NEW/checkpoint-*'")
    assert commands("mine") == ["pytest --checkpoint 'runs/NEW/checkpoint-*' --eval-tasks mine"]
    totals = [printed(f"a/{n}", {"squadv2": (0.5 + n / 10, None, 900)}) for n in (1, 2)]
    found = advice(study_of_candidates([placed(one, "a", float(n)) for n, one in enumerate(totals, 1)]))
    assert [one.command for one in found.plan] == [""]


def test_it_names_a_path_that_exists_or_says_that_the_checkpoint_was_only_in_memory(tmp_path: Path) -> None:
    def facts(engine: str, folder: Path) -> tuple[dict[str, str], str]:
        study = of_items({"a": [{"mmlu_stem": one["b"]} for one in answers([0.6, 0.7], 1000, 1)]})
        for point in study.points:
            for name, entry in point.candidate.entries.items():
                saved = replace(
                    entry.saved, path=str(folder / point.short), checkpoint_info={"engine": engine}
                )
                point.candidate.entries[name] = replace(entry, saved=saved)
        (first, *_) = advice_section(study).parts
        assert isinstance(first, Facts)
        return dict(first.rows), advice(study).plan[0].command

    (tmp_path / "runs" / "a" / "2").mkdir(parents=True)
    rows, command = facts("live", tmp_path / "gone")
    assert "in memory" in rows["not saved"]
    assert "path" not in rows
    assert "'runs/NEW/checkpoint-*'" in command
    for engine in ("live", "transformers"):
        rows, command = facts(engine, tmp_path / "runs" / "a")
        assert rows["path"] == str(tmp_path / "runs" / "a" / "2")
        assert f"{tmp_path}/runs/NEW/checkpoint-*" in command
    assert "not saved" not in facts("transformers", tmp_path / "gone")[0]
