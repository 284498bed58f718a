"""A base and its adapters are asked one after the other, and score what they score alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.results.journal import latest_records, read_journal
from tests.support.project import Project
from tests.support.tiny import tiny_adapter, tiny_causal


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_causal(tmp_path_factory.mktemp("base") / "base")


@pytest.fixture(scope="module")
def adapters(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("lora")
    return [tiny_adapter(root / name, base, seed=seed) for seed, name in enumerate(("lora-a", "lora-b"), 1)]


def order(project: Project) -> list[tuple[str, str]]:
    """Checkpoint and example of the only run's items, in the order of the journal."""
    (run,) = project.runs
    return [(record.checkpoint, record.example) for record in read_journal(run)]


def found(project: Project) -> dict[tuple[str, str], Any]:
    """Checkpoint and example -> scores and everything asked and answered; the run is removed."""
    import shutil

    (run,) = project.runs
    records = latest_records(read_journal(run)).values()
    shutil.rmtree(project.path / "results")
    return {
        (record.checkpoint, record.example): (record.status, record.scores, record.exchanges)
        for record in records
    }


def near(value: Any) -> Any:
    """The value with its numbers rounded for comparison."""
    if isinstance(value, dict):
        return {name: near(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [near(one) for one in value]
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


def also(*paths: Path) -> list[str]:
    return [word for path in paths for word in ("--checkpoint", str(path))]


def test_a_stranger_in_between_comes_after_the_family(
    project: Project, base: Path, adapters: list[Path]
) -> None:
    project.run(
        "--checkpoint", "fake:causal", *also(*adapters), "--eval-set", "batch_items=10", checkpoint=str(base)
    )
    seen = order(project)
    assert [name for name, _ in seen][::20] == ["base", "lora-a", "lora-b", "fake-causal"]
    for name in ("base", "lora-a", "lora-b"):
        assert [one for whose, one in seen if whose == name] == [f"sums/{number}" for number in range(20)]


def test_checkpoints_without_a_common_base_keep_pytests_order(project: Project) -> None:
    (project.path / "test_more.py").write_text(
        (project.path / "test_sums.py").read_text().replace('"sums"', '"more"')
    )
    project.run("--checkpoint", "fake:masked", "--eval-set", "batch_items=5")
    assert [example.split("/")[0] for _, example in order(project)] == ["more"] * 20 + ["sums"] * 20


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_together_they_score_item_by_item_what_each_scores_alone(
    workers: str, project: Project, base: Path, adapters: list[Path]
) -> None:
    (project.path / "test_write.py").write_text(
        "from pytest_touchstone import Generate, benchmark\n"
        "@benchmark(name='write', version=1, data='sums/test', asks=Generate, primary='acc')\n"
        "def test_write(example):\n"
        "    answer = yield Generate(example['q'], max_new_tokens=6)\n"
        "    return {'acc': len(answer.samples[0].text)}\n"
    )
    alone: dict[tuple[str, str], Any] = {}
    for path in (base, *adapters):
        assert project.run("--eval-set", "batch_items=6", checkpoint=str(path)).ret == 0
        alone |= found(project)
    result = project.run(*also(*adapters), "-n", workers, "--eval-set", "batch_items=6", checkpoint=str(base))
    assert result.ret == 0
    together = found(project)
    assert together.keys() == alone.keys()
    assert len(together) == 3 * 40
    for key, one in together.items():
        # Processes share more items out in larger units; sums in batches of another size end in other last digits.
        assert one == alone[key] if workers == "0" else near(one) == near(alone[key]), key
    assert len({json.dumps(together[name, "sums/3"][2]) for name in ("base", "lora-a", "lora-b")}) == 3


def test_the_base_is_loaded_once(
    project: Project, base: Path, adapters: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_touchstone.engines.transformers.loading import load_model

    loads: list[str] = []

    def counted(info: CheckpointInfo, settings: ModelSettings, **more: Any) -> Any:
        loads.append(info.name)
        return load_model(info, settings, **more)

    monkeypatch.setattr("pytest_touchstone.engines.transformers.pool.load_model", counted)
    assert project.run(*also(*adapters), "--eval-set", "batch_items=4", checkpoint=str(base)).ret == 0
    assert loads == ["base"]


def test_what_a_fixture_makes_for_a_checkpoint_is_never_anothers(
    project: Project, base: Path, adapters: list[Path]
) -> None:
    (project.path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def place(checkpoint):\n"
        "    held = [checkpoint.name]\n"
        "    yield held\n"
        "    held.clear()\n"
    )
    text = (project.path / "test_sums.py").read_text()
    text = text.replace(
        "def test_sums(example, fewshot)", "def test_sums(example, fewshot, place, checkpoint)"
    )
    (project.path / "test_sums.py").write_text(
        text.replace("    pass\n", "    assert place == [checkpoint.name]\n")
    )
    assert project.run(*also(*adapters), "--eval-set", "batch_items=5", checkpoint=str(base)).ret == 0
