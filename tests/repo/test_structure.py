"""What no linter says of the package: start-up stays quick, public classes have names of their own.

The order of imports and what a benchmark may import are rules of import-linter and ruff, in ``pyproject.toml``.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import pytest_touchstone
from perf.house import modules, repeated_classes
from tests.support.places import PACKAGE, ROOT

HEAVY = (
    *("torch", "transformers", "tokenizers", "kiwipiepy", "scipy", "numpy", "datasets", "jinja2"),
    *("sympy", "math_verify"),
)


def run_pytest(*arguments: str) -> str:
    """The output of a run that succeeds; its last line names the packages that it loaded, of the heavy ones."""
    program = (
        "import sys, pytest; code = pytest.main(sys.argv[1:]); "
        "print('LOADED', sorted({name.partition('.')[0] for name in sys.modules} "
        f"& {set(HEAVY)!r})); sys.exit(code)"
    )
    # Other people's plugins may load what they like; hypothesis loads NumPy, for one.
    done = subprocess.run(
        [sys.executable, "-c", program, "-p", "no:hypothesispytest", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "arguments", [["evals/", "--co", "-q", "--checkpoint", "builtin:ko-mlm-tiny"], ["--help"]]
)
def test_listing_and_help_load_no_heavy_package(arguments: list[str]) -> None:
    assert "LOADED []" in run_pytest(*arguments)


def test_the_checkouts_conftest_and_the_installed_plugin_get_along() -> None:
    run_pytest("evals/", "--co", "-q", "--checkpoint", "fake:masked", "-k", "real_coref")


def test_everything_exported_is_there() -> None:
    assert all(hasattr(pytest_touchstone, name) for name in pytest_touchstone.__all__)


def test_a_public_class_has_a_name_of_its_own() -> None:
    assert not repeated_classes(modules(PACKAGE)), "say in the name what sets it apart from the others"
