"""The wheel has all that a run needs: installed anywhere, its benchmarks run in a folder that knows nothing of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.support.lines import missing
from tests.support.places import ROOT

QUICK = ("--checkpoint", "fake:causal", "--eval-limit", "1")
TASKS = "arc_easy,gsm8k,mmlu_stem/machine_learning"


@dataclass(frozen=True)
class Installed:
    """The built files, and an environment that has the wheel and, of this one, only what it depends on."""

    wheel: Path
    sdist: Path
    folder: Path

    def run(self, program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in a folder."""
        ours = ("PYTHONPATH", "PYTEST_ADDOPTS", "GITHUB_ACTIONS", "TOUCHSTONE_DATA")
        environment = {name: value for name, value in os.environ.items() if name not in ours}
        command = [str(self.folder / "bin" / program), *arguments]
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    (own,) = (folder / "venv" / "lib").glob("python*/site-packages")
    needed = folder / "needed"
    needed.mkdir()
    for path in needed_files():
        if path.exists() and not (needed / path.name).exists():
            (needed / path.name).symlink_to(path)
    (own / "needed.pth").write_text(f"{needed}\n")
    python = str(folder / "venv" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "-q"]
    subprocess.run([*pip, str(wheel)], check=True)
    (folder / "venv" / "bin" / "pytest").write_text(
        f"#!{python}\nimport sys\nfrom pytest import main\nsys.exit(main())\n"
    )
    (folder / "venv" / "bin" / "pytest").chmod(0o755)
    return Installed(wheel, sdist, folder / "venv")


def needed_files() -> set[Path]:
    """What lies in site-packages of all that the package depends on, and of the extra for Korean benchmarks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files, lines, names = (
        set[Path](),
        [*project["dependencies"], *project["optional-dependencies"]["korean"]],
        set[str](),
    )
    for line in lines:  # grows
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and requirement.name not in names:
            names.add(requirement.name)
            package = metadata.distribution(requirement.name)
            lines += package.requires or []
            tops = {
                file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")
            }
            files |= {Path(str(package.locate_file(top))) for top in tops}
    return files


def shipped_files(*folders: str) -> set[str]:
    """The files of the repository that must come along, by their paths."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    found = (path.relative_to(ROOT) for path in paths if path.is_file())
    return {str(path) for path in found if "__pycache__" not in path.parts}


def results(folder: Path) -> dict[tuple[str, str | None], Any]:
    """The metrics of the only run below a folder, by benchmark and group."""
    (path,) = (folder / "results").glob("*/summary.json")
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]
    return {(row["benchmark"], row["group"]): row["metrics"] for row in rows}


@pytest.mark.slow
def test_wheel_and_sdist_hold_code_benchmarks_data_models_and_licences(installed: Installed) -> None:
    names = set(zipfile.ZipFile(installed.wheel).namelist())
    assert names >= {name.removeprefix("harness/") for name in shipped_files("harness")}
    assert names >= {f"pytest_touchstone/{name}" for name in shipped_files("evals")}
    assert names >= {
        name.replace("fixtures", "pytest_touchstone/_shipped", 1) for name in shipped_files("fixtures")
    }
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
    with tarfile.open(installed.sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert packed >= shipped_files("harness", "evals", "fixtures", "docs", "tests") | {"LICENSE", "README.md"}


@pytest.mark.slow
def test_the_benchmarks_run_from_an_empty_folder_in_two_ways_that_are_the_same(
    installed: Installed, tmp_path: Path
) -> None:
    found = installed.run(
        "python", "-c", "import pytest_touchstone; print(pytest_touchstone.__file__)", cwd=tmp_path
    )
    assert found.stdout.startswith(str(installed.folder))
    for folder, program in (
        ("pytest", ("pytest", "--pyargs", "pytest_touchstone.evals", "--eval-tasks", TASKS, *QUICK)),
        ("touchstone", ("touchstone", "run", "--tasks", TASKS, *QUICK, "-n", "2")),
    ):
        (tmp_path / folder).mkdir()
        done = installed.run(*program, cwd=tmp_path / folder)
        assert done.returncode == 0, done.stdout + done.stderr
    assert results(tmp_path / "pytest") == results(tmp_path / "touchstone")
    assert {name for name, _ in results(tmp_path / "pytest")} == {"arc_easy", "gsm8k", "mmlu_stem"}
    again = installed.run("touchstone", "score", "last", cwd=tmp_path / "touchstone")
    assert not missing(again.stdout, "3 items", "0 with another verdict", "0 not scored again"), again.stderr
    exported = installed.run("touchstone", "export", "last", cwd=tmp_path / "touchstone")
    assert exported.returncode == 0, exported.stderr
    lines = [line for path in tmp_path.rglob("samples_*.jsonl") for line in path.read_text().splitlines()]
    assert all(json.loads(line)["doc"] for line in lines)
    assert len({json.loads(line)["doc_hash"] for line in lines}) == 3


@pytest.mark.slow
def test_a_builtin_checkpoint_is_scored_from_an_empty_folder(installed: Installed, tmp_path: Path) -> None:
    arguments = ("--checkpoint", "builtin:ko-mlm-tiny", "--eval-limit", "4")
    done = installed.run("touchstone", "run", "--tasks", "real_coref", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert results(tmp_path).keys() == {("real_coref", None)}


@pytest.mark.slow
def test_a_repository_with_names_like_ours_keeps_them(installed: Installed, tmp_path: Path) -> None:
    for folder in ("harness", "evals", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "harness" / "__init__.py").write_text("raise RuntimeError('the harness of somebody else')\n")
    for folder in ("evals", "tests"):
        (tmp_path / folder / "test_mine.py").write_text("raise RuntimeError('not asked for')\n")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    done = installed.run("touchstone", "run", "--tasks", "arc_easy", *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert results(tmp_path).keys() == {("arc_easy", None)}


@pytest.mark.slow
def test_exit_codes_and_files_of_ones_own_are_as_with_pytest(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("def test_it():\n    assert False\n")
    assert installed.run("touchstone", "run", "test_mine.py", cwd=tmp_path).returncode == 1
    assert installed.run("touchstone", "run", "--tasks", "arc", *QUICK, cwd=tmp_path).returncode == 4
    listed = installed.run("touchstone", "benchmarks", "--format", "json", cwd=tmp_path)
    assert {row["name"] for row in json.loads(listed.stdout)} >= {"arc_easy", "real_coref"}


@pytest.mark.slow
def test_the_first_benchmark_of_the_readme_runs_where_nothing_but_the_package_was_installed(
    installed: Installed, tmp_path: Path
) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8").partition("`test_capitals.py`, in any folder:")[2]
    code, _, shown = page.partition("    $ ")
    (tmp_path / "test_capitals.py").write_text(textwrap.dedent(code))
    command, *lines = shown.splitlines()
    fetch = installed.run("touchstone", "checkpoint", "fetch", "smollm2-135m", cwd=tmp_path)
    assert fetch.returncode == 0, fetch.stderr
    done = installed.run(*command.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    value = re.compile(r"capitals +acc +(\S+)")
    assert value.findall(done.stdout) == value.findall("\n".join(lines))
