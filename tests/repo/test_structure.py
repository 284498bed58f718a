"""What no linter says of the package: start-up stays quick, public classes have names of their own.

The order of imports and what a benchmark may import are rules of import-linter and ruff, in ``pyproject.toml``.
"""

from __future__ import annotations

import ast
import re
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


MODE = re.compile(r"[wax]b?\+?|r\+b?")
WRITING = frozenset(
    (
        *("write_text", "write_bytes", "touch", "unlink", "rename", "mkdir", "makedirs", "symlink_to"),
        *("fsync", "ftruncate", "pwrite", "copyfileobj", "copyfile", "copytree"),
    )
)


def writes(call: ast.Call) -> bool:
    """Whether a call opens a file to be written, or changes a folder; those of the layer do not count."""
    if not isinstance(call.func, ast.Attribute):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
    elif isinstance(call.func.value, ast.Name) and call.func.value.id == "disk":
        return False
    else:
        name = call.func.attr
    given = [*call.args, *(one.value for one in call.keywords)]
    if name in ("open", "fdopen"):
        modes = (one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str))
        flags = (node.attr for one in given for node in ast.walk(one) if isinstance(node, ast.Attribute))
        return any(map(MODE.fullmatch, modes)) or not {"O_WRONLY", "O_RDWR", "O_CREAT"}.isdisjoint(flags)
    one_place = isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords
    return name in WRITING or (name == "replace" and one_place)


APART = {
    "core.disk": "the layer itself",
    "core.files": "appends to what is no file, such as /dev/stdout",
    "checkpoints.builtin": "unpacks a fetched file beside its place, and checks it",
    "cli.watch": "locks an empty file",
    "engines.http.managed_servers": "keeps the log of a server",
    "engines.replicas.replica": "has a copy of a checkpoint for a while",
    "engines.transformers.cpu.kernels": "has a compiler write beside the place",
    "engines.transformers.live": "has an empty copy of a model for a while",
    "reports.ci": "appends to a file of the job's",
    "reports.trackers.sending": "has what is sent for a while",
}
"""The modules that write by themselves, and why that need not last."""


def test_all_that_is_kept_is_written_by_the_layer_for_it() -> None:
    found = {}
    for name, path in modules(PACKAGE).items():
        if ".sandbox.guest" not in name and not name.endswith(".self_test_program"):
            calls = (one for one in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(one, ast.Call))
            found[name.removeprefix("pytest_touchstone.")] = [one.lineno for one in calls if writes(one)]
    assert {name: lines for name, lines in found.items() if lines}.keys() == APART.keys()
