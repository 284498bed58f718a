"""Sending to Weights & Biases, with a stand-in for its package that keeps what it is told."""

from __future__ import annotations

import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.mlflow import TrackerError
from pytest_touchstone.reports.trackers.payload import (
    MetricPoint,
    ResultFiles,
    tracked_runs,
)
from pytest_touchstone.reports.trackers.wandb import WandB, artifact_name, steps_of
from tests.reports.trackers.test_payload import series_of


class StandIn(ModuleType):
    """The package. It fails from the run on that ``down`` names; ``told`` are the runs that ended."""

    __spec__ = ModuleSpec("wandb", None)

    def __init__(self, folder: Path, mode: str) -> None:
        super().__init__("wandb")
        self.folder, self.mode = folder, mode
        self.down = ""
        self.told: list[SimpleNamespace] = []

    def setup(self) -> Any:
        if self.mode == "nonsense":
            raise ValueError("mode: input should be 'online' or 'offline'")
        modes = {"online": "run", "offline": "offline-run"}
        return SimpleNamespace(
            settings=SimpleNamespace(
                mode=self.mode,
                run_mode=modes.get(self.mode),
                wandb_dir=str(self.folder),
                base_url="https://me:secret@host",
                entity=None,
            )
        )

    def Settings(self, **values: Any) -> dict[str, Any]:  # noqa: N802 -- the package's name
        return values

    def Artifact(self, name: str, kind: str) -> Any:  # noqa: N802 -- the package's name
        found = SimpleNamespace(name=name, kind=kind, files={})
        found.add_file = lambda path, *, name: found.files.update({name: Path(path).read_bytes()})
        return found

    def init(self, **about: Any) -> Any:
        if about["name"] == self.down:
            raise ValueError("Connection refused by me:secret@host")
        folder = self.folder / f"{'offline-' * (self.mode == 'offline')}run-today-{about['id']}" / "files"
        folder.mkdir(parents=True, exist_ok=True)
        run = SimpleNamespace(**about, dir=str(folder), steps=[], artifacts=[])
        run.log = lambda numbers, *, step: run.steps.append((step, numbers))
        run.log_artifact = run.artifacts.append
        run.finish = lambda exit_code: self.told.append(SimpleNamespace(**vars(run), exit_code=exit_code))
        return run

    def teardown(self) -> None:
        """Nothing was started."""


@pytest.fixture(params=["offline", "online"])
def package(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    found = StandIn(tmp_path / "wandb", request.param)
    monkeypatch.setitem(sys.modules, "wandb", found)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return found


def send(tmp_path: Path, **settings: str) -> Any:
    """Send a run of a series of two checkpoints, with a file and a picture."""
    for name in ("tasks.csv", "summary.json", "curve.png"):
        (tmp_path / name).write_text(name)
    place = ("checkpoint-100", "winogrande")
    found = {place: ResultFiles({"tasks.csv": tmp_path / "tasks.csv"})}
    runs = tracked_runs(series_of(2), {"summary.json": tmp_path / "summary.json"}, found)
    return WandB().send("r@1.000", runs, settings, lambda: {"curve.png": tmp_path / "curve.png"})


def test_each_part_is_a_run_of_the_group_and_the_parent_is_the_last(tmp_path: Path, package: StandIn) -> None:
    sent = send(tmp_path, wandb_project="mine")
    runs = tracked_runs(series_of(2), {}, {})
    assert [one.name for one in package.told] == [one.name for one in (*runs[1:], runs[0])]
    assert {(one.group, one.project) for one in package.told} == {("r@1.000", "mine")}
    assert (sent.runs, sent.new) == (len(runs), len(runs))
    assert sent.numbers == sum(len(one.points) for one in runs)
    assert {artifact.name[-8:] for one in package.told for artifact in one.artifacts} <= {
        one.id[:8] for one in package.told
    }
    parent = package.told[-1].artifacts[0].files
    assert parent == {"summary.json": b"summary.json", "curve.png": b"curve.png"}
    assert sent.files == 3


def test_a_result_has_its_numbers_at_its_step_and_its_parameters_as_they_are(
    tmp_path: Path, package: StandIn
) -> None:
    send(tmp_path)
    told = {one.name: one for one in package.told}
    for run in tracked_runs(series_of(2), {}, {}):
        one = told[run.name]
        assert [(step, name, value) for step, numbers in one.steps for name, value in numbers.items()] == [
            (point.step, point.name, point.value)
            for point in sorted(run.points, key=lambda point: point.step)
        ]
        assert one.config == {**run.tags, **run.params}
        assert all(1 <= len(tag) <= 64 for tag in one.tags)
        assert "valid:true" in one.tags
        assert one.exit_code == 0
    result = told["eval_winogrande_checkpoint-100"]
    assert (result.config["shots"], result.config["dataset"]) == (5, "winogrande")
    assert [step for step, _ in told["series_a"].steps] == [100, 200]
    assert {one.resume for one in package.told} == {None if package.mode == "offline" else "allow"}


def test_a_run_is_sent_once_to_a_project_and_after_a_break_only_the_rest(
    tmp_path: Path, package: StandIn
) -> None:
    package.down = "series_a"
    with pytest.raises(TrackerError) as error:
        send(tmp_path)
    assert str(error.value) == "https://host: no server listens there"
    before = {one.name for one in package.told}
    assert before
    package.down = ""
    rest = send(tmp_path)
    assert rest.new == rest.runs - len(before)
    assert len({one.id for one in package.told}) == rest.runs
    again = send(tmp_path)
    assert (again.new, again.numbers, again.files) == (0, 0, 0)
    assert send(tmp_path, wandb_project="other").new == rest.runs


def test_a_mode_that_sends_nothing_is_a_mistake(tmp_path: Path, package: StandIn) -> None:
    package.mode = "disabled"
    with pytest.raises(TrackerError, match=r"^WANDB_MODE is disabled; "):
        send(tmp_path)


def test_settings_that_the_package_refuses_are_a_mistake(tmp_path: Path, package: StandIn) -> None:
    package.mode = "nonsense"
    with pytest.raises(TrackerError, match=r"^its own settings: ValueError: mode: "):
        send(tmp_path)


@given(st.lists(st.builds(MetricPoint, st.sampled_from("abc"), st.floats(0, 1), st.integers(0, 5))))
def test_steps_come_in_order_and_hold_every_number(points: list[MetricPoint]) -> None:
    found = steps_of(points)
    assert [step for step, _ in found] == sorted({point.step for point in points})
    last = {(point.step, point.name): point.value for point in points}
    assert {(step, name): one for step, numbers in found for name, one in numbers.items()} == last


@given(st.text(), st.text("0123456789abcdef", min_size=16, max_size=16))
def test_a_name_of_an_artifact_is_one_that_the_package_takes(name: str, run_id: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", artifact_name(name, run_id))
