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
def unlimited_int_digits() -> Iterator[None]:
    """Allow integers of over 4300 digits within the context; Python refuses them by default."""
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

_EFFECTS: Final = (ast.Assert, ast.Call, ast.Raise)
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def build_test_script(tests: str, entry_point: str = "") -> str:
    """Return the text of tests, followed by the calls that run them, unless the text calls them itself.

    ``entry_point`` is the name of the tested object, or an expression such as ``Solution().add``. Raises ``ValueError``
    for tests that cannot be parsed, that need an unknown argument, or that neither assert nor call anything.
    """
    with unlimited_int_digits():
        return _build_script(tests, entry_point)


def root_name(entry_point: str) -> str:
    """Return the name that an entry point begins with: ``Solution`` of ``Solution().add``."""
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
    """Return the likely entry point of a right program, for tasks without one; empty if ambiguous.

    It is the one definition that the tests use, else the program's only one, else the one that no other uses.
    """
    try:
        body = _parse(program).body
    except ValueError:
        return ""
    defined = {node.name: node for node in body if isinstance(node, _DEFINITIONS)}
    try:
        used = read_names(_parse(tests))
    except ValueError:
        used = set()
    candidates = [name for name in defined if name in used] or list(defined)
    used_inside = {name for key in defined for name in read_names(defined[key]) if name != key}
    outermost = (
        candidates if len(candidates) == 1 else [name for name in candidates if name not in used_inside]
    )
    return outermost[0] if len(outermost) == 1 else ""


def undefined_names(tests: str, trusted: str = "") -> list[str]:
    """Return the names that tests expect from the program, none if the tests cannot be parsed.

    They are the names that the tests use, but that neither the tests, nor ``trusted``, nor Python define.
    """
    try:
        module, defined = _parse(tests), set(_bound_names(_parse(trusted)))
    except ValueError:
        return []
    available = {*_bound_names(module), *defined, *dir(builtins), *sys.stdlib_module_names}
    return sorted(read_names(module) - available)


def defined_classes(program: str) -> set[str]:
    """Return the classes that a program defines; none if it cannot be parsed."""
    try:
        body = _parse(program).body
    except ValueError:
        return set()
    return {node.name for node in body if isinstance(node, ast.ClassDef)}


@functools.lru_cache(maxsize=2048)  # one task has many programs
def _build_script(tests: str, entry_point: str) -> str:
    module = _parse(tests)
    calls = [ast.unparse(node) for node in _main_block(module) if not _calls_test_runner(node)]
    calls += dict.fromkeys(_test_calls(module, entry_point))
    if not any(isinstance(node, _EFFECTS) for node in ast.walk(module)):
        raise ValueError("its tests ask nothing of the program; they would pass every program")
    text, statements = tests, [node for node in module.body if not _calls_test_runner(node)]
    if len(statements) < len(module.body):
        text = ast.unparse(ast.Module(statements, []))
    is_headless = CANDIDATE in read_names(module) - set(_bound_names(module))
    if is_headless and root_name(entry_point) not in ("", CANDIDATE):
        text = f"{CANDIDATE} = {entry_point}\n{text}"
    return f"{text}\n" + "".join(f"{call}\n" for call in calls) if calls else text


def _test_calls(module: ast.Module, entry_point: str) -> Iterator[str]:
    """Return the calls of those tests that nothing in the module calls."""
    used = read_names(ast.Module(_executed_statements(module), []))
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name not in used:
            if node.name == CHECK or node.name.startswith(_TEST):
                yield _function_call(node, entry_point)
        elif isinstance(node, ast.ClassDef):
            yield from _method_calls(node, called=node.name in used)


def _function_call(node: _Function, entry_point: str) -> str:
    """Return the call of a test function."""
    required = _required_parameters(node)
    argument = ""
    if len(required) == 1 and (node.name == CHECK or required[0] in _TAKES_PROGRAM):
        if not entry_point:
            raise ValueError(
                f"its tests define {node.name}({required[0]}), and nothing says what to give it; name the "
                "function in entry_point"
            )
        argument = entry_point
    elif required:
        raise ValueError(
            f"its tests define {node.name}({', '.join(required)}), and nothing gives it {required[-1]!r}; a test "
            "that is to be called takes no argument, or the function"
        )
    return _await_if_async(f"{node.name}({argument})", node)


def _method_calls(node: ast.ClassDef, *, called: bool) -> Iterator[str]:
    """Yield the calls of a class's test methods.

    With ``called``, the module itself uses the class. A unittest runner that the module calls itself raises nothing, so
    the tests of a TestCase are run in any case.
    """
    methods = {
        statement.name: statement
        for statement in node.body
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    tests = [method for name, method in methods.items() if name.startswith(_TEST)]
    # A base is a name or an attribute, such as unittest.TestCase.
    if any(str(getattr(base, "attr", getattr(base, "id", ""))).endswith("TestCase") for base in node.bases):
        if tests:
            loader = '__import__("unittest").defaultTestLoader'
            yield f"{loader}.loadTestsFromTestCase({node.name}).debug()"
    elif node.name.startswith(_TEST.title()) and not called:
        for method in tests:
            if len(required := _required_parameters(method)) > 1:
                raise ValueError(
                    f"its tests define {node.name}.{method.name}({', '.join(required)}), and nothing gives it "
                    f"{required[-1]!r}; a test that is to be called takes no argument"
                )
            if "setup_method" in methods:
                call = _await_if_async(f"_made.{method.name}()", method)
                yield f"_made = {node.name}(); _made.setup_method(); {call}"
            else:
                yield _await_if_async(f"{node.name}().{method.name}()", method)


def _await_if_async(call: str, node: _Function) -> str:
    return f'__import__("asyncio").run({call})' if isinstance(node, ast.AsyncFunctionDef) else call


def _required_parameters(node: _Function) -> list[str]:
    """Return the parameters that a call must give."""
    positional = [*node.args.posonlyargs, *node.args.args]
    required = positional[: len(positional) - len(node.args.defaults)]
    keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return [parameter.arg for parameter in required] + [
        parameter.arg for parameter, default in keywords if default is None
    ]


def _main_block(module: ast.Module) -> list[ast.stmt]:
    """Return the statements under ``if __name__ == "__main__":``."""
    return [
        statement
        for node in module.body
        if _is_main_guard(node) and isinstance(node, ast.If)
        for statement in node.body
    ]


def _is_main_guard(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare) or len(node.test.ops) != 1:
        return False
    sides = [ast.unparse(side) for side in (node.test.left, *node.test.comparators)]
    return isinstance(node.test.ops[0], ast.Eq) and sorted(sides) == ["'__main__'", "__name__"]


def _calls_test_runner(node: ast.stmt) -> bool:
    """Return whether a statement lets a framework search for tests; here the script is not a file."""
    return isinstance(node, ast.Expr) and any(
        isinstance(descendant, ast.Call) and ast.unparse(descendant.func) in ("unittest.main", "pytest.main")
        for descendant in ast.walk(node)
    )


# Names that tests ask of a program


def _executed_statements(module: ast.Module) -> list[ast.stmt]:
    """Return the statements of the module's level that are run, those of definitions left out."""
    statements: list[ast.stmt] = []
    for node in module.body:
        if _is_main_guard(node):
            statements += _main_block(ast.Module([node], []))
        elif not isinstance(node, _DEFINITIONS):
            statements.append(node)
    return statements


def read_names(node: ast.AST) -> set[str]:
    """Return the names that a node reads, without the local names of functions in it."""
    names: set[str] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, ast.Name) and isinstance(current.ctx, ast.Load):
            names.add(current.id)
        elif isinstance(current, ast.Global):
            names.update(current.names)
        if isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            body = ast.Module(current.body, []) if isinstance(current.body, list) else current.body
            names |= read_names(body) - _local_names(current)
            pending += _outer_expressions(current)
        else:
            pending += ast.iter_child_nodes(current)
    return names


def _outer_expressions(node: _Function | ast.Lambda) -> list[ast.expr]:
    """Return the expressions that are read where a function is defined: defaults, annotations, decorators."""
    annotations = [argument.annotation for argument in ast.walk(node.args) if isinstance(argument, ast.arg)]
    around = [*getattr(node, "decorator_list", ()), getattr(node, "returns", None)]
    expressions = (*node.args.defaults, *node.args.kw_defaults, *annotations, *around)
    return [expression for expression in expressions if expression is not None]


def _local_names(node: _Function | ast.Lambda) -> set[str]:
    """Return a function's local names: its parameters, and what it sets without declaring it global."""
    descendants = list(ast.walk(node))
    shared = {
        name
        for descendant in descendants
        if isinstance(descendant, (ast.Global, ast.Nonlocal))
        for name in descendant.names
    }
    names = {descendant.arg for descendant in descendants if isinstance(descendant, ast.arg)}
    names |= {
        descendant.id
        for descendant in descendants
        if isinstance(descendant, ast.Name) and isinstance(descendant.ctx, ast.Store)
    }
    return names - shared


def _bound_names(module: ast.Module) -> Iterator[str]:
    """Return the names that a module binds at its top level."""
    for node in module.body:
        for inner in [node] if isinstance(node, _DEFINITIONS) else ast.walk(node):
            if isinstance(inner, _DEFINITIONS):
                yield inner.name
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id
            elif isinstance(inner, (ast.Import, ast.ImportFrom)):
                yield from ((alias.asname or alias.name).partition(".")[0] for alias in inner.names)


def _parse(text: str) -> ast.Module:
    """Parse a text as Python. Raises ``ValueError`` if it is not."""
    try:
        with unlimited_int_digits(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in a task's texts
            return ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"its tests are no Python: {error.msg} (line {error.lineno})") from None
    except RecursionError:
        raise ValueError("its tests are nested too deep") from None
