"""The program in a text that a checkpoint wrote.

Two styles of answer work with every benchmark, and the text itself tells which it is:

- **A completion** goes on where the prompt ends. It ends before the earliest stop of the benchmark, or before the
  fence (three backticks) that closes the code block which a chat's prompt has opened. Of a function
  to be completed the program is the prompt and the completion; otherwise it is the completion.
- **A chat's answer** has its code in a fenced block, of backticks or tildes, as CommonMark 0.31 reads them (section
  4.5), also in a list; one that is never closed goes up to the end of the text. The block is taken whole. If it defines
  the function that was asked for, the program is the block after what the prompt has before that function (imports,
  helpers). If not, it is taken for the function's body, and the program is the prompt and the block.

Of a function the first block marked as Python counts, else the first one. Of a program that reads and prints it is the
last, as in LiveCodeBench (extraction_utils.py), because drafts come first: of the blocks that are closed the last one
marked as Python, else the last with code in it (the others are inputs and outputs), else one that is cut off.

A text with a fence is a completion when code stands before the first fence: its first line is indented, or a line of it
begins as a statement does. Nothing is parsed, as the text is untrusted; only for a program that reads and prints must
what stands before the fence be Python as a whole. Tags of a family around the answer are taken off first
(``core.reasoning.unwrapped``).

Where a benchmark asks a chat for a function in EvalPlus's words, ``chat_program`` cuts as EvalPlus does: of the longest
run of lines that is Python, what the tests need. The rules are those of EvalPlus 0.3.1 (evalplus/sanitize.py), read
with Python's own parser:

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
import textwrap
import warnings
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from pytest_touchstone.core.few_shot import ChatForm
from pytest_touchstone.core.reasoning import unwrapped
from pytest_touchstone.core.requests import earliest_stop
from pytest_touchstone.metrics.code.rows import unix_lines
from pytest_touchstone.metrics.code.test_scripts import any_digits, read_names

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


class PythonLines(NamedTuple):
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


def longest_run(text: str, needed: Collection[str] = ()) -> PythonLines | None:
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

    def longest_from(self, start: int) -> PythonLines | None:
        """The longest run that begins there. Where the parser stops at a line, no run with that line in it
        parses, so that the next to be tried ends before it."""
        end = self._unfit[bisect_left(self._unfit, start)]
        while end > start and self._left >= 0:
            source = "\n".join(self.lines[start:end])
            self._left -= len(source) + _EACH
            try:
                return PythonLines(source, _parse(source), self.size(start, end))
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


# What the tests need of a run


def _reached(run: PythonLines, needed: Collection[str]) -> str | None:
    """The imports of a run, followed by the statements that the names ``needed`` reach; None where it binds none of
    them."""
    if not _binds(run.body, needed):
        return None
    imports = [node for node in run.body if isinstance(node, _IMPORTS)]
    rest = _meant(
        [node for node in run.body if not isinstance(node, (*_IMPORTS, *_GO)) and not _is_main(node)]
    )
    variables = {name for node in rest if not isinstance(node, _DEFINITIONS) for name in _bound(node)}
    makers: dict[str, list[ast.stmt]] = {}
    for node in rest:
        for name in _bound(node) | (_changed(node) & variables):
            makers.setdefault(name, []).append(node)
    kept: set[ast.stmt] = set()
    waiting = deque(needed)
    while waiting:
        for node in makers.pop(waiting.popleft(), ()):
            kept.add(node)
            waiting.extend(read_names(node))
    lines = [line.encode() for line in run.source.split("\n")]
    return "".join(
        f"{_source(lines, node)}\n" for node in (*imports, *(node for node in rest if node in kept))
    )


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in read_names(node.test)


def _meant(nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements with one of the functions and classes of each name, so that a stub is not taken for the function.

    It is the first that returns something, else the first that yields, else the last.
    """
    meant: dict[str, tuple[int, ast.stmt]] = {}
    for node in nodes:
        if isinstance(node, _DEFINITIONS):
            worth, before = _worth(node), meant.get(node.name)
            if before is None or worth > before[0] or worth == before[0] == 0:
                meant[node.name] = worth, node
    chosen = {node for _, node in meant.values()}
    return [node for node in nodes if not isinstance(node, _DEFINITIONS) or node in chosen]


def _worth(node: ast.stmt) -> int:
    """2: a class, or a function that returns something; 1: a generator; 0: neither."""
    kinds = {type(one) for one in ast.walk(node)}
    if isinstance(node, ast.ClassDef) or ast.Return in kinds:
        return 2
    return int(bool(kinds & {ast.Yield, ast.YieldFrom}))


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


# The program in a text


HUMANEVAL_STOPS: Final = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
"""Chen et al. 2021, section 2.2; lm-evaluation-harness 0.4.13, task humaneval."""

MBPP_STOPS: Final = ("[DONE]",)
"""Austin et al. 2021; lm-evaluation-harness 0.4.13, task mbpp."""

DOCSTRING_STOPS: Final = ("\nclass", "\nassert", '\n"""', "\nprint", "\nif")
"""bigcode-evaluation-harness, task mbpp."""

APPS_STOPS: Final = ("\nQUESTION", "\n---", "\nANSWER")
"""bigcode-evaluation-harness, task apps."""

FENCE_STOPS: Final = ("\n```",)
"""For prompts that have opened a block of code."""

BLOCK_STOPS: Final = ("\n```\n", "<|endoftext|>", "<|endofmask|>", "</s>")
"""EvalPlus 0.3.1, provider/utility.py and provider/hf.py, for chat models: the ends of the block that the answer
begins with, and ends of text that a tokenizer does not know. EvalPlus's stops at a ``main`` part and at ``print`` are
not among them: a definition may follow, and cutting takes those lines out."""

_FENCE: Final = re.compile(
    r"^(?P<indent>[ \t]*+)(?P<marks>```++(?=[^\n`]*+$)|~~~++)[ \t]*+(?P<label>[\w+#.-]*+)(?P<rest>[^\n]*+)$",
    re.MULTILINE,
)
"""Nothing is tried twice: a line of an untrusted text may be very long."""

_PYTHON: Final = ("python", "python3", "py")
_STATEMENT: Final = re.compile(
    r"^(?:def |class |async def |import \w|from [\w.]+ import |@\w|for \w.*:|while .*:|if .*:|try:|with .*:"
    r"|print\(|[A-Za-z_][\w.\[\], ]*=)"
)


class _Block(NamedTuple):
    """A fenced block: the word after its fence in lower case, its code, and whether it is closed."""

    label: str
    code: str
    closed: bool

    @property
    def worth(self) -> tuple[bool, bool, bool]:
        """The order in which blocks are taken for a program that reads and prints; of equal ones the last counts."""
        has_code, marked = _has_code(self.code), self.label in _PYTHON
        closed = self.closed and has_code
        return closed and marked, closed and not self.label, has_code or marked


class Program(NamedTuple):
    """``source`` is run; ``code`` is the part of it that the checkpoint wrote."""

    source: str
    code: str

    @property
    def empty(self) -> bool:
        """No code at all: nothing, comments, or prose."""
        return not _has_code(self.code)


def cut(text: str, stops: Iterable[str]) -> str:
    """The text up to the earliest of the stops."""
    at = earliest_stop(text, stops)
    return text if at is None else text[:at]


def function_program(
    prompt: str,
    entry_point: str,
    text: str,
    stops: Sequence[str] = HUMANEVAL_STOPS,
    *,
    first: bool = False,
) -> Program:
    """The program for a function that begins in the prompt; if none does, the prompt is no part of it, nor are words
    before the function. ``first`` is that of ``script_program``."""
    front = program_prefix(prompt, entry_point)
    if not front:
        return script_program(text, stops, first=first)
    prompt = front
    definition = re.compile(rf"^(?:async )?def {re.escape(entry_point)}\b", re.MULTILINE)
    code, block = _code(text, first=True)
    if not block:
        code = cut(code, stops)
    elif definition.search(code):
        found = definition.search(prompt)  # before it are imports and helpers
        return Program((prompt[: found.start()] if found else prompt) + code, code)
    return Program(prompt + code, code)


def program_prefix(prompt: str, entry_point: str) -> str:
    """The part of a prompt that is the beginning of the program: all of it if it is code.

    After words it starts with the first line from which on it is code. A prompt that does not begin the tested
    function has no such part.
    """
    name = re.match(r"\w*", entry_point)
    begun = re.compile(rf"^(?:(?:async )?def|class) {name[0] if name else ''}\b", re.MULTILINE)
    if not begun.search(prompt):
        return ""
    lines = prompt.splitlines(keepends=True)
    for number in range(len(lines)):
        rest = "".join(lines[number:])
        if not begun.search(rest):
            break
        if any(map(parses, (rest, f"{rest}\n    pass\n"))):
            return rest
    return prompt


def chat_program(text: str, needed: Collection[str], prompt: str = "") -> Program:
    """The program in a chat's answer that was begun with a block of code, for tests that call the names ``needed``:
    what ``sanitized`` leaves of it, tabs as four spaces (EvalPlus, provider/hf.py). Where it defines none of them
    and its first line is indented, it goes on where ``prompt`` ends."""
    text = text.replace("\t", "    ")
    first = next((line for line in text.splitlines() if line.strip()), "")
    if prompt and first.startswith(" ") and not defines(text, needed):
        whole = prompt + text
        return Program(sanitized(whole, needed) or whole, text)
    found = sanitized(text, needed)
    return Program(text, text) if found is None else Program(found, found)


def script_program(text: str, stops: Sequence[str], *, first: bool = False) -> Program:
    """The program where the prompt is no part of it: the ``first`` block of code, as of a function, or the last."""
    code, block = _code(text, first=first)
    code = code if block else cut(code, stops)
    return Program(code, code)


def _code(text: str, *, first: bool) -> tuple[str, bool]:
    """The code in a text, and whether it is a chat's fenced block."""
    text = unwrapped(text)
    fences = list(_FENCE.finditer(text))
    if not fences:
        return text, False
    before = text[: fences[0].start()]
    if _has_code(before) and (first or parses(before)):
        return before, False
    blocks = list(_blocks(text, fences))
    if first:
        return next((block.code for block in blocks if block.label in _PYTHON), blocks[0].code), True
    code = max(reversed(blocks), key=lambda block: block.worth).code
    return textwrap.dedent(code) if code.lstrip("\r\n")[:1].isspace() else code, True


def _blocks(text: str, fences: Iterable[re.Match[str]]) -> Iterator[_Block]:
    """The blocks of a text between its fences; a fence with a word after it begins one, whatever is open."""
    opening: re.Match[str] | None = None
    for fence in fences:
        bare = not (fence["label"] or fence["rest"].strip())
        if opening is not None:
            if not fence["marks"].startswith(opening["marks"]):
                continue
            yield _block(text, opening, fence.start(), closed=bare)
        opening = None if opening is not None and bare else fence
    if opening is not None:
        yield _block(text, opening, len(text), closed=False)


def _block(text: str, opening: re.Match[str], end: int, *, closed: bool) -> _Block:
    """The block from a fence to that place, without the indentation of the fence."""
    code = text[opening.end() + 1 : end]
    indents = [len(line) - len(line.lstrip(" \t")) for line in code.splitlines() if line.strip()]
    if indent := min([len(opening["indent"]), *indents]):
        code = "".join(line[indent:] if line.strip() else line for line in code.splitlines(keepends=True))
    return _Block(opening["label"].lower(), code, closed)


def _has_code(text: str) -> bool:
    """Return whether the first line that is not blank is indented, or any line begins as a statement does."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and (lines[0][0] in " \t" or any(map(_STATEMENT.match, lines)))


# The words in which a chat is asked for a function: those of EvalPlus 0.3.1 (evalplus/codegen.py, provider/utility.py)

MOST_NEW_TOKENS: Final = 768
"""EvalPlus's limit, provider/base.py: the answer repeats the beginning of the function."""

_ASKED: Final = (
    "Please provide a self-contained Python script that solves the following problem "
    "in a markdown code block:"
)
_BEGUN: Final = (
    "Below is a Python script with a self-contained function that solves the problem "
    "and passes corresponding tests:"
)


def evalplus_chat(problem: str) -> ChatForm:
    """The problem in a block of code, and an answer that has begun its block, ends with it, and may hold any number of
    definitions."""
    question = f"{_ASKED}\n```\n{problem.strip()}\n```\n"
    return ChatForm(question, f"{_BEGUN}\n```python\n", BLOCK_STOPS, MOST_NEW_TOKENS)


def evalplus_turns(problem: str, program: str) -> tuple[str, str]:
    """A few-shot example: the question about the problem, and the answer with the whole program."""
    asked = evalplus_chat(problem)
    return asked.question, f"{asked.begun}{unix_lines(program).strip()}\n```"
