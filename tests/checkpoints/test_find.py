"""The checkpoints that a folder, a glob or several paths mean, in order.

``--eval-steps``: ranges, lists and mistakes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.checkpoints.info import info_from_plain
from pytest_touchstone.checkpoints.resolve import (
    FoundCheckpoints,
    find_checkpoints,
    parse_steps,
    trailing_number,
)
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import shipped
from tests.support.lines import naming
from tests.support.tiny import tiny_causal, trainer_state


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_causal(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def runs(model: Path, tmp_path: Path) -> Path:
    """Two runs: one with a model at its root, what a trainer leaves, and a folder of logs."""
    for name in (
        "a",
        "a/checkpoint-1000",
        "a/checkpoint-200",
        "a/best",
        "b10/checkpoint-7",
        "b9/checkpoint-8",
    ):
        shutil.copytree(model, tmp_path / "runs" / name, dirs_exist_ok=True)
    (tmp_path / "runs" / "a" / "logs").mkdir()
    (tmp_path / "runs" / "a" / "logs" / "events.txt").write_text("log")
    inside = tmp_path / "runs" / "a" / "checkpoint-200"
    (inside / "optimizer.pt").write_bytes(b"state")
    (inside / "rng_state.pth").write_bytes(b"state")
    (inside / "global_step200").mkdir()
    return tmp_path / "runs"


def named(series: FoundCheckpoints, runs: Path) -> list[str]:
    return [str(info.path.relative_to(runs)) for info in series.infos]


WHOLE = ["a/checkpoint-200", "a/checkpoint-1000", "a/best", "a"]


def test_a_folder_that_holds_checkpoints_means_all_of_them_by_series_and_step(runs: Path) -> None:
    series = find_checkpoints([str(runs)])
    assert named(series, runs) == [*WHOLE, "b9/checkpoint-8", "b10/checkpoint-7"]
    assert (series.failed, series.left_out) == ([], [])


def test_a_folder_that_is_a_checkpoint_means_itself_and_a_recursive_glob_all_in_it(runs: Path) -> None:
    assert named(find_checkpoints([str(runs / "a")]), runs) == ["a"]
    assert named(find_checkpoints([f"{runs}/a/**"]), runs) == WHOLE


def test_several_paths_are_sorted_and_each_is_taken_once(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    sources = ["b9/checkpoint-8", "a/checkpoint-1000", str(runs / "a" / "checkpoint-1000"), "a/checkpoint-*"]
    assert [str(info.path) for info in find_checkpoints(sources).infos] == [
        "a/checkpoint-200",
        "a/checkpoint-1000",
        "b9/checkpoint-8",
    ]


def test_the_trainers_step_goes_before_the_number_in_the_name(runs: Path) -> None:
    trainer_state(runs / "a" / "checkpoint-200", global_step=5000, epoch=3.0)
    series = find_checkpoints([f"{runs}/a/checkpoint-*"])
    assert named(series, runs) == ["a/checkpoint-1000", "a/checkpoint-200"]
    assert [info.step for info in series.infos] == [1000, 5000]
    assert {info.training.series for info in series.infos} == {str(runs / "a")}


def test_a_glob_of_folders_that_are_none_says_so_and_goes_on(runs: Path) -> None:
    series = find_checkpoints([f"{runs}/a/*"])
    assert named(series, runs) == WHOLE[:-1]
    (left_out,) = series.left_out
    assert naming(f"{runs}/a/logs").search(left_out)
    with pytest.raises(CheckpointError, match="no folder of a checkpoint"):
        find_checkpoints([f"{runs}/a/log*"])


def test_files_of_epochs_are_a_series_with_the_best_one_last(tmp_path: Path) -> None:
    for name in ("checkpoint_epoch_10.pt", "checkpoint_best.pt", "checkpoint_epoch_9.pt", "optimizer.pt"):
        (tmp_path / name).write_bytes(b"x")
    from pytest_touchstone.checkpoints.resolve import checkpoints_below

    assert [path.name for path in checkpoints_below(tmp_path)] == [
        "checkpoint_best.pt",
        "checkpoint_epoch_9.pt",
        "checkpoint_epoch_10.pt",
    ]


def test_one_broken_checkpoint_of_several_is_told_apart(runs: Path) -> None:
    (runs / "a" / "checkpoint-200" / "model.safetensors").write_bytes(b"cut off")
    (runs / "a" / "checkpoint-300").mkdir()
    series = find_checkpoints([str(runs)])
    assert named(series, runs) == ["a/checkpoint-1000", "a/best", "a", "b9/checkpoint-8", "b10/checkpoint-7"]
    assert [one.name for one in series.failed] == ["checkpoint-200", "checkpoint-300"]
    assert "model.safetensors: " in series.failed[0].message
    assert "an empty folder" in series.failed[1].message


def test_a_broken_one_is_missed_by_name_whichever_way_it_is_given(runs: Path) -> None:
    gone = str(runs / "a" / "checkpoint-300")
    series = find_checkpoints([str(runs / "a"), gone])
    (failed,) = series.failed
    assert naming(gone, "path").search(failed.message)


def test_where_all_are_broken_one_line_has_the_reason_of_each(runs: Path) -> None:
    for name in ("checkpoint-200", "checkpoint-1000"):
        (runs / "a" / name / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=naming("2 checkpoints")) as raised:
        find_checkpoints([f"{runs}/a/checkpoint-*"])
    first, second = str(raised.value).split("; (2) ")
    assert "checkpoint-1000" in first
    assert "checkpoint-200" in second
    with pytest.raises(CheckpointError, match=r"^[^;]*config.json: "):
        find_checkpoints([f"{runs}/a/checkpoint-2*"])


def test_steps_are_selected_and_what_has_none_is_left_out(runs: Path) -> None:
    (runs / "a" / "checkpoint-200" / "config.json").write_text("{")
    series = find_checkpoints([f"{runs}/a/**"], steps=parse_steps("300:"))
    assert named(series, runs) == ["a/checkpoint-1000"]
    assert series.failed == []  # it is not among the steps
    assert [line.partition(":")[0] for line in series.left_out] == ["checkpoint best", "checkpoint a"]
    assert all("--eval-steps" in line for line in series.left_out)


def test_steps_that_are_not_there_are_answered_with_those_that_are(runs: Path) -> None:
    with pytest.raises(CheckpointError, match=naming("--eval-steps 5", "200, 1000")):
        find_checkpoints([f"{runs}/a/checkpoint-*"], steps=parse_steps("5"))
    with pytest.raises(CheckpointError, match=naming("--eval-steps 5", "none")):
        find_checkpoints([str(runs / "a" / "best")], steps=parse_steps("5"))


def test_names_of_several_series_begin_with_their_folders(runs: Path, model: Path) -> None:
    shutil.copytree(model, runs / "b9" / "checkpoint-9")
    series = find_checkpoints([f"{runs}/**"])
    assert [info.name for info in series.infos] == [
        *("a-checkpoint-200", "a-checkpoint-1000", "a-best", "a"),
        *("b9-checkpoint-8", "b9-checkpoint-9", "checkpoint-7"),
    ]


def test_the_builtin_series_is_given_by_a_glob() -> None:
    names = [info.name for info in find_checkpoints(["builtin:ko-mlm-tiny/*"]).infos]
    assert names[0] == "mlm-checkpoint-25"
    assert names[-1] == "nouns-checkpoint-1200"
    assert [info.name for info in find_checkpoints(["builtin:ko-mlm-tiny/**"]).infos] == names
    with pytest.raises(CheckpointError, match=r"there is a series, builtin:ko-mlm-tiny/\*"):
        find_checkpoints(["builtin:*"])


def test_a_checkpoint_comes_back_from_plain_data_as_it_was(model: Path) -> None:
    (info,) = resolve(str(model), seq_len=None)
    assert info_from_plain(info.plain()) == info


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("checkpoint-300", 300),
        ("checkpoint_epoch_7.pt", 7),
        ("model-step-40.Q8_0.gguf", 40),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", None),
        ("model-F16.gguf", None),
        ("final", None),
        ("0123456789abcdef0123456789abcdef01234567", None),
    ],
)
def test_the_number_at_the_end_of_a_name_is_a_step_but_no_type_of_numbers_or_hash(
    name: str, number: int | None
) -> None:
    assert trailing_number(Path(name)) == number


def test_files_of_several_runs_are_series_by_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in ("a", "b"):
        shutil.copytree(shipped("models", "mtp-tiny"), tmp_path / "storage" / "checkpoints" / run)
    folder = tmp_path / "storage" / "checkpoints" / "a"
    for epoch in (10, 1, 2):
        shutil.copy(folder / "checkpoint_best.pt", folder / f"checkpoint_epoch_{epoch}.pt")
    monkeypatch.chdir(tmp_path)
    best = find_checkpoints(["storage/checkpoints/*/checkpoint_best.pt"])
    assert [info.name for info in best.infos] == ["a-checkpoint_best", "b-checkpoint_best"]
    epochs = find_checkpoints(["storage/checkpoints/a/checkpoint_epoch_*.pt"], steps=parse_steps("2:"))
    assert [info.name for info in epochs.infos] == ["checkpoint_epoch_2", "checkpoint_epoch_10"]
    names = [f"checkpoint_epoch_{epoch}" for epoch in (1, 2, 10)]
    assert [info.name for info in find_checkpoints([str(folder)]).infos] == [*names, "checkpoint_best"]


STEPS = (25, 100, 200, 300, 600, 1200)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("300:", [300, 600, 1200]),
        (":300", [25, 100, 200, 300]),
        ("100:600:100", [100, 200, 300, 600]),
        ("100:599", [100, 200, 300]),
        ("::300", [300, 600, 1200]),
        ("25:", list(STEPS)),
        ("100,300", [100, 300]),
        ("25, 600:", [25, 600, 1200]),
        ("7", []),
    ],
)
def test_a_range_has_both_its_ends_and_a_list_its_members(text: str, meant: list[int]) -> None:
    assert [step for step in STEPS if parse_steps(text).has(step)] == meant


def test_epochs_with_fractions_lie_between() -> None:
    assert parse_steps("1:2").has(1.5)
    assert not parse_steps("2:").has(1.5)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        *(
            (text, "START:STOP:STEP")
            for text in ("", ":", "a", "1:2:3:4", "100-200", "-5:", "1.5", "100,,200")
        ),
        ("5:1", "1:5"),
        ("1:9:0", "1:9:1"),
    ],
)
def test_anything_else_is_refused_with_what_can_be_given(text: str, instead: str) -> None:
    with pytest.raises(ValueError, match=naming(instead)):
        parse_steps(text)
