"""Tests as they are published, made into a script that runs them.

Some texts of tests only define tests, and leave it to a framework to call them. Each form has a convention:

    def check(candidate)              HumanEval: called with the entry point
    def test_add(), class TestAdd     pytest: every function and method that begins with "test", each method on a
                                      fresh object
    class Adds(unittest.TestCase)     unittest: each test method, with setUp and tearDown
    if __name__ == "__main__":        a script's: the block is run
    assert candidate(1, 2) == 3       a check without its head: ``candidate`` is the entry point

Tests that the text calls itself are not called again. Tests that let an empty program pass are found out by the
sandbox, before it judges by them (``engines.sandbox.soundness``).
"""

from __future__ import annotations

import ast
import builtins
import functools
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

_LOCK: Final = threading.RLock()


@contextmanager
def any_digits() -> Iterator[None]:
    """Let numbers of over 4300 digits be read and written meanwhile, which Python refuses by default."""
    if not hasattr(sys, "set_int_max_str_digits"):
        yield
        return
    with _LOCK:  # the limit is the process's: no thread may restore it under another
        before = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(0)
        try:
            yield
        finally:
            sys.set_int_max_str_digits(before)


# The script that runs the tests


CHECK: Final = "check"
"""The function that tests of HumanEval's form define."""

CANDIDATE: Final = "candidate"
"""The name by which tests of that form call the program's function."""

_TEST: Final = "test"
"""The beginning of the names of tests (pytest and unittest, their defaults)."""

_TAKES_PROGRAM: Final = (CANDIDATE, "solution", "program", "function", "func", "fn", "f")
"""Names of a test function's only parameter that mean the entry point."""

_ACTS: Final = (ast.Assert, ast.Call, ast.Raise)
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def build_test_script(tests: str, entry_point: str = "") -> str:
    """The text of tests, followed by the calls that run them; the text itself if it runs them.

    ``entry_point`` is the name of the tested object, or an expression such as ``Solution().add``. Raises ``ValueError``
    for tests that cannot be read, that need an argument nobody gives, or that assert and call nothing.
    """
    with any_digits():
        return _script(tests, entry_point)


def base_name(entry_point: str) -> str:
    """The name that an entry point begins with: ``Solution`` of ``Solution().add``."""
    if not entry_point:
        return ""
    try:
        node: ast.AST = ast.parse(entry_point, mode="eval").body
    except (SyntaxError, ValueError):
        node = ast.Constant(0)
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if not isinstance(node, ast.Name):
        raise ValueError(f"entry_point is {entry_point[:60]!r}; it must be the name of a function or class")
    return node.id


def likely_entry_point(program: str, tests: str = "") -> str:
    """The likely entry point of a right program, for tasks that name none; empty if several are as likely.

    It is the one definition that the tests use, else the program's only one, else the one that no other uses.
    """
    try:
        body = _parsed(program).body
    except ValueError:
        return ""
    defined = {node.name: node for node in body if isinstance(node, _DEFINITIONS)}
    try:
        used = read_names(_parsed(tests))
    except ValueError:
        used = set()
    among = [name for name in defined if name in used] or list(defined)
    inner = {name for key in defined for name in read_names(defined[key]) if name != key}
    alone = among if len(among) == 1 else [name for name in among if name not in inner]
    return alone[0] if len(alone) == 1 else ""


def asked_names(tests: str, trusted: str = "") -> list[str]:
    """The program's names in the tests: those that they use and that neither they, nor ``trusted``, nor Python
    define. None where the tests cannot be read."""
    try:
        module, defined = _parsed(tests), set(_bound(_parsed(trusted)))
    except ValueError:
        return []
    known = {*_bound(module), *defined, *dir(builtins), *sys.stdlib_module_names}
    return sorted(read_names(module) - known)


def defined_classes(program: str) -> set[str]:
    """The classes that a program defines; none where it cannot be read."""
    try:
        body = _parsed(program).body
    except ValueError:
        return set()
    return {node.name for node in body if isinstance(node, ast.ClassDef)}


@functools.lru_cache(maxsize=2048)  # one task has many programs
def _script(tests: str, entry_point: str) -> str:
    module = _parsed(tests)
    more = [ast.unparse(node) for node in _guarded(module) if not _is_main(node)]
    more += dict.fromkeys(_calls(module, entry_point))
    if not any(isinstance(node, _ACTS) for node in ast.walk(module)):
        raise ValueError("its tests ask nothing of the program; they would pass every program")
    text, kept = tests, [node for node in module.body if not _is_main(node)]
    if len(kept) < len(module.body):
        text = ast.unparse(ast.Module(kept, []))
    is_headless = CANDIDATE in read_names(module) - set(_bound(module))
    if is_headless and base_name(entry_point) not in ("", CANDIDATE):
        text = f"{CANDIDATE} = {entry_point}\n{text}"
    return f"{text}\n" + "".join(f"{call}\n" for call in more) if more else text


def _calls(module: ast.Module, entry_point: str) -> Iterator[str]:
    """The calls of those tests that nothing in the module calls."""
    used = read_names(ast.Module(_executed(module), []))
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name not in used:
            if node.name == CHECK or node.name.startswith(_TEST):
                yield _call(node, entry_point)
        elif isinstance(node, ast.ClassDef):
            yield from _class_calls(node, called=node.name in used)


def _call(node: _Function, entry_point: str) -> str:
    """The call of a test function."""
    wanted = _wanted(node)
    given = ""
    if len(wanted) == 1 and (node.name == CHECK or wanted[0] in _TAKES_PROGRAM):
        if not entry_point:
            raise ValueError(
                f"its tests define {node.name}({wanted[0]}), and nothing says what to give it; name the "
                "function in entry_point"
            )
        given = entry_point
    elif wanted:
        raise ValueError(
            f"its tests define {node.name}({', '.join(wanted)}), and nothing gives it {wanted[-1]!r}; a test "
            "that is to be called takes no argument, or the function"
        )
    return _run(f"{node.name}({given})", node)


def _class_calls(node: ast.ClassDef, *, called: bool) -> Iterator[str]:
    """The calls of a class's test methods; a runner of unittest's that the module calls itself raises nothing."""
    methods = {one.name: one for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
    tests = [method for name, method in methods.items() if name.startswith(_TEST)]
    if any(name.endswith("TestCase") for name in _bases(node)):
        if tests:
            loader = '__import__("unittest").defaultTestLoader'
            yield f"{loader}.loadTestsFromTestCase({node.name}).debug()"
    elif node.name.startswith(_TEST.title()) and not called:
        for method in tests:
            if len(wanted := _wanted(method)) > 1:
                raise ValueError(
                    f"its tests define {node.name}.{method.name}({', '.join(wanted)}), and nothing gives it "
                    f"{wanted[-1]!r}; a test that is to be called takes no argument"
                )
            if "setup_method" in methods:
                yield f"_made = {node.name}(); _made.setup_method(); {_run(f'_made.{method.name}()', method)}"
            else:
                yield _run(f"{node.name}().{method.name}()", method)


def _run(call: str, node: _Function) -> str:
    return f'__import__("asyncio").run({call})' if isinstance(node, ast.AsyncFunctionDef) else call


def _wanted(node: _Function) -> list[str]:
    """The parameters that a call must give."""
    positional = [*node.args.posonlyargs, *node.args.args]
    first = positional[: len(positional) - len(node.args.defaults)]
    keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return [one.arg for one in first] + [one.arg for one, default in keywords if default is None]


def _bases(node: ast.ClassDef) -> list[str]:
    return [
        base.attr if isinstance(base, ast.Attribute) else base.id
        for base in node.bases
        if isinstance(base, (ast.Attribute, ast.Name))
    ]


def _guarded(module: ast.Module) -> list[ast.stmt]:
    """The statements under ``if __name__ == "__main__":``."""
    return [one for node in module.body if _is_guard(node) and isinstance(node, ast.If) for one in node.body]


def _is_guard(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare) or len(node.test.ops) != 1:
        return False
    sides = [ast.unparse(side) for side in (node.test.left, *node.test.comparators)]
    return isinstance(node.test.ops[0], ast.Eq) and sorted(sides) == ["'__main__'", "__name__"]


def _is_main(node: ast.stmt) -> bool:
    """Return whether a statement makes a framework search the script for tests (here the script is no file)."""
    return isinstance(node, ast.Expr) and any(
        isinstance(one, ast.Call) and ast.unparse(one.func) in ("unittest.main", "pytest.main")
        for one in ast.walk(node)
    )


# Names that tests ask of a program


def _executed(module: ast.Module) -> list[ast.stmt]:
    """The statements of the module's level that are run, those of definitions left out."""
    found: list[ast.stmt] = []
    for node in module.body:
        if _is_guard(node):
            found += _guarded(ast.Module([node], []))
        elif not isinstance(node, _DEFINITIONS):
            found.append(node)
    return found


def read_names(node: ast.AST) -> set[str]:
    """The names that a node reads, without the local names of functions in it."""
    found: set[str] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
            found.add(one.id)
        elif isinstance(one, ast.Global):
            found.update(one.names)
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            inner = ast.Module(one.body, []) if isinstance(one.body, list) else one.body
            found |= read_names(inner) - _own(one)
            waiting += _outside(one)
        else:
            waiting += ast.iter_child_nodes(one)
    return found


def _outside(node: _Function | ast.Lambda) -> list[ast.expr]:
    """The expressions that are read where a function is defined: defaults, annotations, decorators."""
    annotations = [argument.annotation for argument in ast.walk(node.args) if isinstance(argument, ast.arg)]
    around = [*getattr(node, "decorator_list", ()), getattr(node, "returns", None)]
    expressions = (*node.args.defaults, *node.args.kw_defaults, *annotations, *around)
    return [expression for expression in expressions if expression is not None]


def _own(node: _Function | ast.Lambda) -> set[str]:
    """A function's local names: its parameters, and what it sets without declaring it global."""
    inside = list(ast.walk(node))
    shared = {name for one in inside if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names}
    found = {one.arg for one in inside if isinstance(one, ast.arg)}
    found |= {one.id for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return found - shared


def _bound(module: ast.Module) -> Iterator[str]:
    """The names that a module binds at its top level."""
    for node in module.body:
        for one in [node] if isinstance(node, _DEFINITIONS) else ast.walk(node):
            if isinstance(one, _DEFINITIONS):
                yield one.name
            elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                yield one.id
            elif isinstance(one, (ast.Import, ast.ImportFrom)):
                yield from ((alias.asname or alias.name).partition(".")[0] for alias in one.names)


def _parsed(text: str) -> ast.Module:
    """The text as Python; raises ``ValueError`` where it is none."""
    try:
        with any_digits(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in a task's texts
            return ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"its tests are no Python: {error.msg} (line {error.lineno})") from None
    except RecursionError:
        raise ValueError("its tests are nested too deep") from None
