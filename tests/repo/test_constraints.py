"""The constraints give a tested combination, and leave a torch that is there alone: held against pip itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.places import ROOT

BOUNDED, OWN_TORCH = ROOT / "constraints.txt", ROOT / "constraints-own-torch.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TESTED = re.findall(r"^torch<=(.+)$", BOUNDED.read_text(encoding="utf-8"), flags=re.MULTILINE)


def metadata(name: str, version: str, requires: Sequence[str]) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    return "\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires), ""])


def wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> None:
    """A wheel without content."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{info}/METADATA", metadata(name, version, requires))
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of the tested torch and a newer one, of two versions of sympy, and of what needs them."""
    folder = tmp_path_factory.mktemp("index")
    math = PROJECT["optional-dependencies"]["math"]
    needs = [one for one in (*PROJECT["dependencies"], *math) if re.match(r"(torch|sympy)\b", one)]
    assert len(needs) == 2
    wheel(folder, "ours", "1", needs)
    for version in (*TESTED, "2.99.0"):
        wheel(folder, "torch", version, ["sympy>=1.13.3"])
    for version in ("1.13.1", "1.14.0", "1.99"):
        wheel(folder, "sympy", version)
    return folder


def installs(
    folder: Path, index: Path, constraints: Path, torch: str | None = None, needs: str = ""
) -> dict[str, str]:
    """The packages that pip would install in an environment that has this torch, with their versions."""
    venv.create(folder / "venv", with_pip=False)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    if torch is not None:
        info = packages / f"torch-{torch}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(metadata("torch", torch, [needs]))
        (info / "INSTALLER").write_text("pip\n")
    own = folder / "constraints.txt"  # without what this index does not have
    own.write_text(
        re.sub(r"^(?!torch|sympy|-c).*$", "", constraints.read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    (folder / OWN_TORCH.name).write_text(OWN_TORCH.read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "pip", "--isolated", "--python", str(folder / "venv" / "bin" / "python")]
    command += ["install", "--dry-run", "--no-index", "--find-links", str(index), "--report", "report.json"]
    done = subprocess.run(
        [*command, "-q", "-c", str(own), "ours"],
        cwd=folder,
        env={**os.environ, "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    found = {one["metadata"]["name"]: one["metadata"]["version"] for one in report["install"]}
    del found["ours"]
    return found


def test_without_a_torch_the_tested_one_is_installed(tmp_path: Path, index: Path) -> None:
    assert installs(tmp_path, index, BOUNDED) == {"torch": TESTED[0], "sympy": "1.14.0"}


@pytest.mark.parametrize(
    ("torch", "needs", "sympy"),
    [
        pytest.param("2.4.0+cu121", "sympy", "1.14.0", marks=pytest.mark.slow),
        ("2.6.0+cu124", "sympy==1.13.1", "1.13.1"),
        pytest.param("2.7.1+cu126", "sympy>=1.13.3", "1.14.0", marks=pytest.mark.slow),
        pytest.param(f"{TESTED[0]}+cu130", "sympy>=1.13.3", "1.14.0", marks=pytest.mark.slow),
    ],
)
def test_a_torch_that_is_there_stays(tmp_path: Path, index: Path, torch: str, needs: str, sympy: str) -> None:
    assert installs(tmp_path, index, BOUNDED, torch, needs) == {"sympy": sympy}


@pytest.mark.slow
def test_a_torch_newer_than_the_tested_one_stays_with_the_constraints_that_have_none(
    tmp_path: Path, index: Path
) -> None:
    assert installs(tmp_path, index, OWN_TORCH, "2.98.0+cu140", "sympy>=1.13.3") == {"sympy": "1.14.0"}


def test_every_other_package_is_pinned_once() -> None:
    lines = OWN_TORCH.read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    names = [re.split("[=<>]", line)[0].lower().replace("_", "-") for line in pins]
    assert len(names) == len(set(names))
    assert "torch" not in names
    assert [line for line in pins if "==" not in line] == ["sympy<=1.14.0"]
