"""The size of the project: statements, code, modules, large classes, names that say nothing, tests, words.

    python -m perf house [--json]

Statements are counted without docstrings and imports, code lines without docstrings, blank lines, comments and imports.
A shallow module has fewer than 130 lines of code and is imported by one module only, which lies in the same folder.
A large class has more than 20 attributes: fields of its body and names that its methods bind on ``self``.
Vague names are the uses of eight words as variables and parameters, in percent of all names.
Words are those of ``docs/``, the README and CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
"""The checkout."""

SOURCE: Final = ROOT / "harness"
"""The folder that Python imports the package from."""

SHALLOW: Final = 130
"""A module with fewer lines of code than this is shallow if it has one importer in its folder."""

LARGE: Final = 20
"""A class with more attributes than this is large."""

VAGUE: Final = frozenset({"one", "found", "part", "place", "known", "own", "told", "said"})
"""Names that say nothing about what they hold."""


def modules(package: Path) -> dict[str, Path]:
    """Return the files of a package by their dotted names; a folder's ``__init__`` has the folder's name."""
    names = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def is_code(node: ast.AST) -> bool:
    """Return whether a node is a statement other than an import or a docstring."""
    documents = (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
    return isinstance(node, ast.stmt) and not documents and not isinstance(node, ast.Import | ast.ImportFrom)


def statements(path: Path) -> int:
    """Return the number of statements, without imports and docstrings."""
    return sum(map(is_code, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))


def code_lines(path: Path) -> int:
    """Return the number of lines of code, without docstrings, blank lines, comments and imports."""
    text = path.read_text(encoding="utf-8")
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and not is_code(node):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        1
        for number, line in enumerate(text.splitlines(), 1)
        if number not in left_out and line.strip() and not line.lstrip().startswith("#")
    )


def importers(names: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return, for each module, the modules of the package that import it or something in it."""
    by_module: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = [target if target in names else node.module for target in inner]
            else:
                continue
            for target in targets:
                if target in names and target != name:
                    by_module[target].add(name)
    return by_module


def shallow_modules(names: Mapping[str, Path]) -> list[str]:
    """Return the short modules that only one module imports, from the same folder."""
    return [
        name
        for name, users in importers(names).items()
        if len(users) == 1
        and names[next(iter(users))].parent == names[name].parent
        and names[name].name != "__init__.py"
        and code_lines(names[name]) < SHALLOW
    ]


def repeated_classes(names: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return the public classes that several modules define, by name, with the modules."""
    defining: dict[str, list[str]] = defaultdict(list)
    for name, path in names.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defining[node.name].append(name)
    return {name: places for name, places in sorted(defining.items()) if len(places) > 1}


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's fields and of the attributes that its methods bind on ``self``."""
    fields = {
        field.target.id
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and "ClassVar" not in ast.unparse(field.annotation)
    }
    bound = {
        target.attr
        for target in ast.walk(node)
        if isinstance(target, ast.Attribute)
        and isinstance(target.ctx, ast.Store)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    }
    return fields | bound


def large_classes(names: Mapping[str, Path]) -> dict[str, int]:
    """Return the number of attributes of each class that has more than ``LARGE`` of them."""
    sizes = {
        f"{name}.{node.name}": len(attributes(node))
        for name, path in names.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    return {name: size for name, size in sizes.items() if size > LARGE}


def vague_names(names: Mapping[str, Path]) -> float:
    """Return the percentage of variables and parameters whose name is one of ``VAGUE``."""
    used = [
        node.id if isinstance(node, ast.Name) else node.arg
        for path in names.values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name | ast.arg)
    ]
    return round(100 * sum(name in VAGUE for name in used) / len(used), 2)


def repository_tests() -> int:
    """Return the number of test ids that pytest collects in ``tests/repo``."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/repo"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sum("::" in line for line in listed.splitlines())


def words() -> int:
    """Return the number of words of the documents."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def figures() -> dict[str, Any]:
    """Return all figures by name."""
    names = modules(SOURCE / "pytest_touchstone")
    return {
        "statements": sum(map(statements, names.values())),
        "code_lines": sum(map(code_lines, names.values())),
        "modules": len(names),
        "shallow_modules": len(shallow_modules(names)),
        "large_classes": large_classes(names),
        "vague_names_percent": vague_names(names),
        "repeated_classes": repeated_classes(names),
        "repository_tests": repository_tests(),
        "words": words(),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="the size of the project")
    parser.add_argument("--json", action="store_true", help="print JSON, with all names")
    options = parser.parse_args()
    results = figures()
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for name, value in results.items():
        shown = len(value) if isinstance(value, dict) else value
        print(f"{name.replace('_', ' '):20} {shown:>7,}")
    for name, size in results["large_classes"].items():
        print(f"  {name} has {size} attributes")
    for name, places in results["repeated_classes"].items():
        print(f"  {name} is defined in {', '.join(places)}")


if __name__ == "__main__":
    main()
