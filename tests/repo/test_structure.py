"""The project's own rules: data flows one way, torch stays in its place, start-up stays quick."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_touchstone
from tests.support.places import PACKAGE, ROOT

LAYERS = (
    ("core", "statistics"),
    ("metrics",),
    ("checkpoints",),
    ("engines",),
    ("results",),
    ("compare",),
    ("reports",),
    ("plugin",),
    ("cli",),
)
"""A folder of the package imports from folders above its own in this list, and from itself."""

HEAVY = (
    *("torch", "transformers", "tokenizers", "kiwipiepy", "scipy", "numpy", "datasets", "rich", "jinja2"),
    *("sympy", "math_verify"),
)


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Every import statement with the dotted name it imports, as deep as it goes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def part(name: str) -> str:
    """The part of the package that a dotted name belongs to: ``pytest_touchstone.core.text`` -> ``core``."""
    first, second = (*name.split("."), "")[:2]
    assert first == "pytest_touchstone"
    return second


@pytest.mark.parametrize(
    "path", modules("harness/pytest_touchstone"), ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_module_imports_only_from_layers_above_its_own(path: Path) -> None:
    mine = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if mine == "__init__":
        return
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    assert mine in level, f"give {mine} a layer"
    for _, name in imports(ast.parse(path.read_text(encoding="utf-8"))):
        if name.split(".")[0] == "pytest_touchstone" and part(name) in level and part(name) != mine:
            assert level[part(name)] < level[mine], f"{path.name} imports {name}, against the flow"


@pytest.mark.parametrize(
    "path", modules("harness/pytest_touchstone"), ids=lambda path: str(path.relative_to(ROOT))
)
def test_heavy_packages_are_imported_inside_functions_and_torch_in_models_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    inside = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(block)
    }
    for node, name in imports(tree):
        package = name.split(".")[0]
        if package in HEAVY and id(node) not in guarded:
            assert id(node) in inside, f"{path.name} imports {package} at its top"
        if package in ("torch", "transformers"):
            assert path.is_relative_to(PACKAGE / "engines" / "transformers"), f"{path.name} imports {package}"


@pytest.mark.parametrize("path", modules("evals"), ids=lambda path: path.name)
def test_a_benchmark_file_knows_the_public_names_and_metrics_alone(path: Path) -> None:
    allowed = {*pytest_touchstone.__all__, "metrics"}
    for _, name in imports(ast.parse(path.read_text(encoding="utf-8"))):
        package = name.split(".")[0]
        assert package not in HEAVY
        assert not name.startswith(("_pytest", "pytest."))
        if package == "pytest_touchstone":
            assert part(name) in allowed, f"{path.name} imports {name}"


def test_no_module_is_longer_than_five_hundred_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for folder in ("harness", "evals", "fixtures", "tests")
        for path in modules(folder)
        if (count := path.read_text(encoding="utf-8").count("\n")) > 500
    }
    assert not long


def test_everything_exported_is_there() -> None:
    assert all(hasattr(pytest_touchstone, name) for name in pytest_touchstone.__all__)


@pytest.mark.parametrize(
    "arguments", [["evals/", "--co", "-q", "--checkpoint", "builtin:ko-mlm-tiny"], ["--help"]]
)
def test_listing_and_help_load_no_heavy_package(arguments: list[str]) -> None:
    program = (
        "import sys, pytest; code = pytest.main(sys.argv[1:]); "
        "print('LOADED', sorted({name.partition('.')[0] for name in sys.modules} "
        f"& {set(HEAVY) - {'rich'}!r})); sys.exit(code)"
    )
    # Other people's plugins may load what they like; hypothesis loads NumPy, for one.
    found = subprocess.run(
        [sys.executable, "-c", program, "-p", "no:hypothesispytest", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert "LOADED []" in found.stdout


def test_the_checkouts_conftest_and_the_installed_plugin_get_along() -> None:
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "evals/",
            "--co",
            "-q",
            "--checkpoint",
            "fake:masked",
            "-k",
            "real_coref",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
