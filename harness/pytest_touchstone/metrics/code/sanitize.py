"""The part of a chat's answer that is run: of its longest run of lines that is Python, what the tests need.

The rules are those of EvalPlus 0.3.1 (evalplus/sanitize.py), read with Python's own parser:

- Of all runs of lines that parse, the one with the most lines that are not blank; of equal ones the first. Runs
  that define what the tests call go before those that do not, so that a long list of examples does not win.
- Of that run all imports, and in order what the names that the tests call reach: functions, classes, variables. Of
  several functions of one name the first that returns something. Calls, assertions and the ``__main__`` part go.
- Where nothing is left, the run is kept whole.

EvalPlus follows every name that occurs in a definition, its parameters and local variables too; here only names that
are looked up outside of it count. EvalPlus also drops what is decorated, functions that return nothing or yield, and
statements that fill a table; here they stay where they are reached.

The text is untrusted: it is parsed and never run, in bounded time, and whatever the parser raises means only that it
does not parse.
"""

from __future__ import annotations

import ast
import re
import symtable
import warnings
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from pytest_touchstone.metrics.code.digits import any_digits

MOST_CHARACTERS: Final = 200_000
"""The rest of a longer text is ignored."""

MOST_PARSED: Final = 1_000_000
"""The number of characters parsed in search of the longest run, in all; a second or two."""

_EACH: Final = 200
"""The fixed cost of parsing, in characters."""

_LONGEST_LINE: Final = 20_000
"""A longer line belongs to no run."""

_NO_SOURCE: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that no Python source can have."""

_NOT_PARSED: Final = (SyntaxError, ValueError, MemoryError, RecursionError)

_IMPORTS: Final = (ast.Import, ast.ImportFrom)
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES: Final = (*_DEFINITIONS, *_COMPREHENSIONS, ast.Lambda)
_GO: Final = (ast.Assert, ast.Delete, ast.Raise)


class Run(NamedTuple):
    """Lines of a text that are Python: the text, its statements, and how many lines are not blank."""

    source: str
    body: list[ast.stmt]
    size: int


def sanitized(text: str, needed: Collection[str]) -> str | None:
    """The program for tests that call the names ``needed``; None where no run of lines parses."""
    found = longest_run(text, needed)
    if found is None:
        return None
    return _reached(found, needed) or found.source


def defines(text: str, needed: Collection[str]) -> bool:
    """Return whether some run of lines binds one of the names, if only by an import."""
    found = longest_run(text, needed)
    return found is not None and _binds(found.body, needed)


def longest_run(text: str, needed: Collection[str] = ()) -> Run | None:
    """The run of lines that parses and has the most lines that are not blank; those that bind one of ``needed``
    go before all others. None where no line parses."""
    search = _Search(text, needed)
    best, fits = None, False
    for start in search.starts():
        no_longer = best is not None and search.size(start, len(search.lines)) <= best.size
        if no_longer and (fits or start > search.last_named):
            break  # no run from here on can be better
        run = search.longest_from(start)
        if run is None:
            continue
        binds = _binds(run.body, needed)
        if best is None or (binds, run.size) > (fits, best.size):
            best, fits = run, binds
    return best


class _Search:
    """The lines of a text, and the cost so far of parsing some of them. ``last_named`` is the number of the last line
    with one of the names in it, -1 where there is none."""

    def __init__(self, text: str, needed: Collection[str]) -> None:
        text = text[: 2 * MOST_CHARACTERS].replace("\r\n", "\n").replace("\r", "\n")
        self.lines = text[:MOST_CHARACTERS].split("\n")
        self._full = [0, *accumulate(bool(line.strip()) for line in self.lines)]
        named = (n for n, line in enumerate(self.lines) if any(name in line for name in needed))
        self.last_named = max(named, default=-1)
        long = (
            n for n, line in enumerate(self.lines) if len(line) > _LONGEST_LINE or _NO_SOURCE.search(line)
        )
        self._unfit = [*long, len(self.lines)]
        self._left = MOST_PARSED

    def starts(self) -> Iterator[int]:
        """The lines that a run can begin with, as long as not too much has been parsed. Those that cost nothing to
        refuse are left out: blank and indented ones, and fences."""
        for number, line in enumerate(self.lines):
            if self._left < 0:
                return
            if line.strip() and (line[0] not in " \t\f" or line.lstrip()[0] == "#") and line[:3] != "```":
                yield number

    def size(self, start: int, end: int) -> int:
        """The number of these lines that are not blank."""
        return self._full[end] - self._full[start]

    def longest_from(self, start: int) -> Run | None:
        """The longest run that begins there. Where the parser stops at a line, no run with that line in it
        parses, so that the next to be tried ends before it."""
        end = self._unfit[bisect_left(self._unfit, start)]
        while end > start and self._left >= 0:
            source = "\n".join(self.lines[start:end])
            self._left -= len(source) + _EACH
            try:
                return Run(source, _parse(source), self.size(start, end))
            except SyntaxError as error:
                end = min(end - 1, start + max(0, (error.lineno or len(self.lines)) - 1))
            except _NOT_PARSED:
                end -= 1
        return None


def parses(text: str) -> bool:
    """Return whether all of a text is Python."""
    try:
        _parse(text)
    except _NOT_PARSED:
        return False
    return True


def _parse(source: str) -> list[ast.stmt]:
    """The statements; raises one of ``_NOT_PARSED``."""
    with any_digits(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the text's escape sequences
        return ast.parse(source).body


def _binds(body: Sequence[ast.stmt], names: Collection[str]) -> bool:
    """Return whether one of the names is bound at the module's level, as far as can be told without running it."""
    wanted = set(names)
    return bool(wanted) and any(not wanted.isdisjoint(_bound(node)) for node in body)


# The needed part of a run


@dataclass(frozen=True, slots=True)
class _Part:
    """A statement of a run: its source, the names that it binds, the variables that it changes, and the names that it
    uses from outside."""

    node: ast.stmt
    source: str
    bound: frozenset[str]
    changed: frozenset[str]
    used: frozenset[str]


def _reached(run: Run, needed: Collection[str]) -> str | None:
    """The imports of a run, followed by the statements that the names ``needed`` reach; None where it binds none of
    them."""
    if not _binds(run.body, needed):
        return None
    parts = list(_parts(run))
    imports = [part for part in parts if isinstance(part.node, _IMPORTS)]
    rest = _meant([part for part in parts if not isinstance(part.node, _IMPORTS)])
    variables = {name for part in rest if not isinstance(part.node, _DEFINITIONS) for name in part.bound}
    makers: dict[str, list[int]] = {}
    for number, part in enumerate(rest):
        for name in part.bound | (part.changed & variables):
            makers.setdefault(name, []).append(number)
    kept: set[int] = set()
    seen, waiting = set(needed), deque(needed)
    while waiting:
        for number in makers.get(waiting.popleft(), ()):
            if number not in kept:
                kept.add(number)
                waiting.extend(rest[number].used - seen)
                seen |= rest[number].used
    chosen = [*imports, *(rest[number] for number in sorted(kept))]
    return "".join(f"{part.source}\n" for part in chosen)


def _meant(parts: Sequence[_Part]) -> list[_Part]:
    """The parts with one of the functions and classes of each name, so that a stub is not taken for the function.

    It is the first that returns something, else the first that yields, else the last.
    """
    meant: dict[str, tuple[int, int]] = {}
    for number, part in enumerate(parts):
        if isinstance(part.node, _DEFINITIONS):
            worth, before = _worth(part.node), meant.get(part.node.name)
            if before is None or worth > before[0] or worth == before[0] == 0:
                meant[part.node.name] = worth, number
    numbers = {number for _, number in meant.values()}
    return [part for n, part in enumerate(parts) if not isinstance(part.node, _DEFINITIONS) or n in numbers]


def _worth(node: ast.stmt) -> int:
    """2: a class, or a function that returns something; 1: a generator; 0: neither."""
    kinds = {type(one) for one in ast.walk(node)}
    if isinstance(node, ast.ClassDef) or ast.Return in kinds:
        return 2
    return int(bool(kinds & {ast.Yield, ast.YieldFrom}))


def _parts(run: Run) -> Iterator[_Part]:
    """The statements of a run that may be needed: no assertions, no ``__main__`` part, no call that changes nothing."""
    lines = [line.encode() for line in run.source.split("\n")]
    for node in run.body:
        if isinstance(node, _GO) or (isinstance(node, ast.If) and "__name__" in _names(node.test)):
            continue
        bound, changed = _bound(node), _changed(node)
        if bound or changed:
            source = _source(lines, node)
            yield _Part(node, source, frozenset(bound), frozenset(changed), frozenset(_used(source, node)))


def _source(lines: Sequence[bytes], node: ast.stmt) -> str:
    """A statement's own text, with its decorators; columns count bytes."""
    decorators = getattr(node, "decorator_list", ())
    first, column = min([(node.lineno, node.col_offset), *((one.lineno, 0) for one in decorators)])
    last = node.end_lineno or node.lineno
    found = list(lines[first - 1 : last])
    found[-1] = found[-1][: node.end_col_offset]
    found[0] = found[0][column:]
    return b"\n".join(found).decode()


def _bound(node: ast.stmt) -> set[str]:
    """The names that a statement binds in the module."""
    found: set[str] = set()
    for one in _of_the_module(node):
        if isinstance(one, _DEFINITIONS):
            found.add(one.name)
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            found.add(one.id)
        elif isinstance(one, ast.alias):
            found.add(one.asname or one.name.partition(".")[0])
    return found


def _changed(node: ast.stmt) -> set[str]:
    """The names whose items or attributes a statement sets, or whose methods it calls without use of the result."""
    found: set[str] = set()
    for one in _of_the_module(node):
        target: ast.AST | None = None
        if isinstance(one, (ast.Subscript, ast.Attribute)) and isinstance(one.ctx, ast.Store):
            target = one
        elif isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
            target = one.value.func if isinstance(one.value.func, ast.Attribute) else None
        while isinstance(target, (ast.Subscript, ast.Attribute)):
            target = target.value
        if isinstance(target, ast.Name):
            found.add(target.id)
    return found


def _of_the_module(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement in the module's own scope: definitions, but not their content."""
    waiting = deque([node])
    while waiting:
        one = waiting.popleft()
        yield one
        if not isinstance(one, _SCOPES):
            waiting.extend(ast.iter_child_nodes(one))


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _used(source: str, node: ast.stmt) -> set[str]:
    """The names that a statement uses from the module: not parameters, nor local variables of its functions."""
    try:
        with any_digits(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tables = [symtable.symtable(source, "answer", "exec")]
    except _NOT_PARSED:
        return _names(node)
    found: set[str] = set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        of_the_module = table.get_type() == "module"
        for symbol in table.get_symbols():
            looked_up = symbol.is_referenced() and (of_the_module or symbol.is_global())
            if looked_up or symbol.is_declared_global():
                found.add(symbol.get_name())
    return found
