"""``touchstone benchmarks`` lists what there is to be asked, shipped or of somebody's own, and reads nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.cli.benchmarks import known_specs
from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.tasks import shipped_names
from tests.conformance.kit import kits
from tests.support.forking import python
from tests.support.installed import touchstone
from tests.support.lines import missing
from tests.support.places import SOURCE

OWN = """
from pytest_touchstone import Loglikelihood, benchmark


@benchmark("capitals", version=3, {data}, asks=Loglikelihood, primary="acc", tags=("geography",))
def test_capitals(example):
    right, wrong = yield [Loglikelihood("a", " b"), Loglikelihood("a", " c")]
    return {{"margin": right.logprob - wrong.logprob, "acc": right.logprob > wrong.logprob}}


def test_plain():
    raise SystemExit("not run")
"""


def rows(*arguments: str, cwd: Path) -> dict[str, dict[str, Any]]:
    done = touchstone("benchmarks", "--format", "json", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


def test_an_installed_package_of_benchmarks_is_listed_as_pytest_runs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "shared_benchmarks_of_a_test"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "test_capitals.py").write_text(OWN.format(data="rows=[{'a': 1}, {'a': 2}]"))
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.chdir(tmp_path)
    assert main(["benchmarks", package.name, "--format", "json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["name"], row["rows"], row["file"]) == (
        "capitals",
        2,
        f"site/{package.name}/test_capitals.py",
    )
    assert main(["benchmarks", "no.such.package"]) == 4
    assert not missing(capsys.readouterr().err, "no.such.package", "tag")


def test_every_shipped_benchmark_is_listed_as_it_is_declared(tmp_path: Path) -> None:
    found = rows(cwd=tmp_path)
    for kit in kits():
        row, spec = found[kit.spec.name], kit.spec
        assert (row["version"], row["shots"], row["rows"]) == (
            spec.version,
            spec.shots.count,
            len(kit.examples),
        )
        assert row["asks"] == [kind.__name__ for kind in spec.asks]
        assert row["metrics"][0] == spec.primary
        assert set(row["metrics"]) >= {*spec.metrics, *spec.aggregate}
        assert row["data"]["folder"] == spec.data.name
    assert found["mmlu_stem"]["data"]["hub"] == {"path": "cais/mmlu", "config": "all", "split": "test"}
    assert found["mmlu_stem"]["published_rows"] == 2386
    assert len(found["mmlu_stem"]["groups"]) == 14
    assert (found["mmlu"]["published_rows"], len(found["mmlu"]["groups"])) == (14_042, 57)
    assert found["apps_stdin"]["rows"] is None
    assert "no data" in found["apps_stdin"]["missing"]


def test_the_table_fits_eighty_columns(tmp_path: Path) -> None:
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(SOURCE)}
    command = [python(), "-m", "pytest_touchstone.cli", "benchmarks"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert max(map(len, done.splitlines())) <= 80
    table = done.partition("\n\n")[0].splitlines()
    assert len(table) == 1 + len(shipped_names())  # a benchmark is one line
    assert ["arc_easy", "scoring", "acc", "0", "32", "2,376"] in map(str.split, table)
    assert not [line for line in table if "…" in line]
    assert table[1:] == sorted(table[1:])
    assert "groups   leaderboard_v1, openllm, code_plus, pretraining" in done


def test_a_folder_of_ones_own_is_listed_too(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(OWN.format(data="rows=[{}, {}]"))
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q --eval-limit 1\nfilterwarnings = error\n")
    assert rows(".", cwd=tmp_path) == {
        "capitals": {
            "name": "capitals",
            "version": 3,
            "asks": ["Loglikelihood"],
            "tags": ["causal", "scoring", "geography"],
            "metrics": ["acc"],
            "shots": 0,
            "rows": 2,
            "rows_from": "the benchmark's own",
            "missing": "",
            "published_rows": None,
            "groups": [],
            "data": {"folder": None, "hub": None},
            "needs": {},
            "source": "",
            "file": "test_mine.py",
        }
    }
    assert not (tmp_path / "results").exists()


def test_the_rows_of_a_folder_of_data_are_counted(tmp_path: Path) -> None:
    (tmp_path / "data" / "sums").mkdir(parents=True)
    (tmp_path / "data" / "sums" / "test.jsonl").write_text("{}\n{}\n{}\n")
    (tmp_path / "test_mine.py").write_text(OWN.format(data='data="sums/test"'))
    found = rows("test_mine.py", "geography", "--data", "data", cwd=tmp_path)
    assert (found["capitals"]["rows"], found["capitals"]["rows_from"]) == (3, "--eval-data")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("arc_chalenge",), "invalid NAME 'arc_chalenge': no such file, benchmark or tag; did you mean arc_challenge?"),
        (("test_wrong.py",), "test_wrong.py: ModuleNotFoundError: No module named 'no_such_module'"),
        (("empty",), "no benchmarks in empty"),
        (("--data", "nowhere"), "invalid --data 'nowhere': expected the folder"),
    ],
    ids=str,
)  # fmt: skip
def test_a_mistake_is_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "test_wrong.py").write_text("import no_such_module\n")
    (tmp_path / "empty").mkdir()
    done = touchstone("benchmarks", *arguments, cwd=tmp_path)
    assert done.returncode == 4
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"touchstone: {said}")


SEED = {
    "benchmarks": {
        "arc": {"enabled": True, "description": "", "tasks": ["arc_easy", "arc_challenge"]},
        "math": {"enabled": True, "description": "", "tasks": ["gsm8k"]},
        "language": {"enabled": False, "description": "", "tasks": ["lambada_openai"]},
    },
    "tasks": {
        "arc_easy": {
            "enabled": True,
            "tasks": ["arc_easy"],
            "num_fewshot": 25,
            "batch_size": 8,
            "limit": None,
        },
        "arc_challenge": {"enabled": False, "tasks": ["arc_challenge"], "num_fewshot": 25},
        "gsm8k": {"limit": 4, "metrics": ["exact_match"], "timeout": 60},
    },
}


@pytest.fixture(scope="module")
def specs() -> list[Benchmark]:
    """The shipped benchmarks, for which pytest collects ``evals/``."""
    return known_specs([])


@pytest.fixture
def once(specs: list[Benchmark], monkeypatch: pytest.MonkeyPatch) -> None:
    """Several commands of a test collect ``evals/`` only once."""
    monkeypatch.setattr("pytest_touchstone.cli.benchmarks.known_specs", lambda _: specs)


def file_of(tmp_path: Path, told: Any) -> str:
    path = tmp_path / "eval_config.json"
    path.write_text(json.dumps(told))
    return str(path)


def test_what_a_file_enables_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = file_of(tmp_path, SEED)
    assert main(["benchmarks", "--config", path]) == 0
    out = capsys.readouterr().out
    assert not missing(out, "valid", "2 benchmarks")
    assert "tasks.arc_challenge: enabled is false" in out
    assert max(map(len, out.splitlines()[2:])) <= 80
    assert main(["benchmarks", "--config", path, "--format", "json"]) == 0
    rows = {row["benchmark"]: row for row in json.loads(capsys.readouterr().out)["benchmarks"]}
    assert {name: (row["shots"], row["limit"]) for name, row in rows.items()} == {
        "arc_easy": (25, "all"),
        "gsm8k": (5, 4),
    }


@pytest.mark.usefixtures("once")
def test_every_fault_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file_of(tmp_path, {"tasks": {"gsm8k": {"limit": -1, "metric": []}, "arc_easy": {"priority": 1}}})
    assert main(["benchmarks", "--config", path]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{path}: tasks.") or "eval_config.json: tasks." in line for line in lines)
    path = file_of(
        tmp_path,
        {
            "tasks": {"gsm8k": {"nope": 1}, "hellaswag": {"limit": -3, "metrics": ["bleu"]}, "arc_eazy": {}},
            "settings": {"devize": "cuda", "sede": 1},
        },
    )
    assert main(["benchmarks", "--config", path]) == 4
    faults = [line.partition("eval_config.json: ")[2] for line in capsys.readouterr().out.splitlines()]
    assert [one.partition(":")[0] for one in faults] == [
        *("tasks.gsm8k.nope", "tasks.hellaswag.limit", "tasks.hellaswag", "tasks.arc_eazy"),
        *("settings", "settings"),
    ]
    path = file_of(tmp_path, {"tasks": {"gsm8k": {}, "arc_eazy": {}, "hellaswag": {"metrics": ["bleu"]}}})
    assert main(["benchmarks", "--config", path]) == 4
    first, second = capsys.readouterr().out.splitlines()
    assert not missing(first, "tasks.arc_eazy", "'arc_eazy'", "did you mean arc_easy?")
    assert "hellaswag has no metric 'bleu'" in second


@pytest.mark.usefixtures("once")
def test_entries_that_are_not_enabled_are_checked_and_only_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    off = {"arc_eazy": {"enabled": False}, "hellaswag": {"enabled": False, "metrics": ["bleu"]}}
    path = file_of(tmp_path, {"tasks": {"gsm8k": {}, **off}})
    assert main(["benchmarks", "--config", path, "--format", "json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["notes"]
    assert not missing(first, "not enabled", "'arc_eazy'", "did you mean arc_easy?")
    assert "hellaswag has no metric 'bleu'" in second
    path = file_of(
        tmp_path, {"benchmarks": {"a": {"tasks": ["gsm8k"]}}, "tasks": {"x": {"tasks": ["nope_at_all"]}}}
    )
    assert main(["benchmarks", "--config", path, "--format", "json"]) == 0
    assert "nope_at_all" in " ".join(json.loads(capsys.readouterr().out)["notes"])
