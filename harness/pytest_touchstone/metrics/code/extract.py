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
(``core.reasoning.strip_answer_tags``).

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
from pytest_touchstone.core.reasoning import strip_answer_tags
from pytest_touchstone.core.requests import earliest_stop
from pytest_touchstone.metrics.code.rows import unix_lines
from pytest_touchstone.metrics.code.test_scripts import read_names, unlimited_int_digits

MAX_CHARACTERS: Final = 200_000
"""Characters beyond this number are ignored."""

MAX_PARSED_CHARACTERS: Final = 1_000_000
"""The maximum number of characters parsed in search of the longest run, in all; a second or two."""

_PARSE_OVERHEAD: Final = 200
"""The fixed cost of parsing, in characters."""

_MAX_LINE: Final = 20_000
"""A longer line belongs to no run."""

_NO_SOURCE: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that no Python source can have."""

_NOT_PARSED: Final = (SyntaxError, ValueError, MemoryError, RecursionError)

_IMPORTS: Final = (ast.Import, ast.ImportFrom)
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES: Final = (*_DEFINITIONS, *_COMPREHENSIONS, ast.Lambda)
_DROPPED: Final = (ast.Assert, ast.Delete, ast.Raise)


class PythonLines(NamedTuple):
    """Lines of a text that are Python: the text, its statements, and how many lines are not blank."""

    source: str
    body: list[ast.stmt]
    size: int


def sanitize(text: str, needed: Collection[str]) -> str | None:
    """Return the program for tests that call the names ``needed``; None if no run of lines parses."""
    run = longest_run(text, needed)
    if run is None:
        return None
    return _reachable_source(run, needed) or run.source


def defines_any(text: str, needed: Collection[str]) -> bool:
    """Return whether a run of lines binds one of the names, even by an import."""
    run = longest_run(text, needed)
    return run is not None and _binds_any(run.body, needed)


def longest_run(text: str, needed: Collection[str] = ()) -> PythonLines | None:
    """Return the run of lines that parses and has the most non-blank lines; None if no line parses.

    Runs that bind one of ``needed`` are preferred.
    """
    search = _Search(text, needed)
    best, best_binds = None, False
    for start in search.starts():
        no_longer = best is not None and search.count_lines(start, len(search.lines)) <= best.size
        if no_longer and (best_binds or start > search.last_named):
            break  # no run from here on can be better
        run = search.longest_from(start)
        if run is None:
            continue
        binds = _binds_any(run.body, needed)
        if best is None or (binds, run.size) > (best_binds, best.size):
            best, best_binds = run, binds
    return best


class _Search:
    """A search for runs of lines that parse, with a budget of parsed characters.

    ``last_named`` is the index of the last line that contains one of the names, -1 if there is none.
    """

    def __init__(self, text: str, needed: Collection[str]) -> None:
        text = text[: 2 * MAX_CHARACTERS].replace("\r\n", "\n").replace("\r", "\n")
        self.lines = text[:MAX_CHARACTERS].split("\n")
        self._line_counts = [0, *accumulate(bool(line.strip()) for line in self.lines)]
        named = (n for n, line in enumerate(self.lines) if any(name in line for name in needed))
        self.last_named = max(named, default=-1)
        long = (n for n, line in enumerate(self.lines) if len(line) > _MAX_LINE or _NO_SOURCE.search(line))
        self._unparsable = [*long, len(self.lines)]
        self._left = MAX_PARSED_CHARACTERS

    def starts(self) -> Iterator[int]:
        """Yield the lines that a run may begin with, until the budget is used up.

        Blank lines, indented lines and fences are left out, since they cost nothing to refuse.
        """
        for number, line in enumerate(self.lines):
            if self._left < 0:
                return
            if line.strip() and (line[0] not in " \t\f" or line.lstrip()[0] == "#") and line[:3] != "```":
                yield number

    def count_lines(self, start: int, end: int) -> int:
        """Return the number of non-blank lines in a range."""
        return self._line_counts[end] - self._line_counts[start]

    def longest_from(self, start: int) -> PythonLines | None:
        """Return the longest run that begins at a line, or None.

        If the parser stops at a line, no run with that line parses, so the next attempt ends before that line.
        """
        end = self._unparsable[bisect_left(self._unparsable, start)]
        while end > start and self._left >= 0:
            source = "\n".join(self.lines[start:end])
            self._left -= len(source) + _PARSE_OVERHEAD
            try:
                return PythonLines(source, _parse(source), self.count_lines(start, end))
            except SyntaxError as error:
                end = min(end - 1, start + max(0, (error.lineno or len(self.lines)) - 1))
            except _NOT_PARSED:
                end -= 1
        return None


def is_python(text: str) -> bool:
    """Return whether all of a text is Python."""
    try:
        _parse(text)
    except _NOT_PARSED:
        return False
    return True


def _parse(source: str) -> list[ast.stmt]:
    """Return the statements; raises one of ``_NOT_PARSED``."""
    with unlimited_int_digits(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the text's escape sequences
        return ast.parse(source).body


def _binds_any(body: Sequence[ast.stmt], names: Collection[str]) -> bool:
    """Return whether one of the names is bound at the module's level, as far as syntax shows."""
    wanted = set(names)
    return bool(wanted) and any(not wanted.isdisjoint(_bound_names(node)) for node in body)


# What the tests need of a run


def _reachable_source(run: PythonLines, needed: Collection[str]) -> str | None:
    """Return the imports of a run and the statements that ``needed`` reach, or None if it binds none of them."""
    if not _binds_any(run.body, needed):
        return None
    imports = [node for node in run.body if isinstance(node, _IMPORTS)]
    others = [node for node in run.body if not isinstance(node, (*_IMPORTS, *_DROPPED))]
    rest = _without_stubs(
        [node for node in others if not (isinstance(node, ast.If) and "__name__" in read_names(node.test))]
    )
    variables = {name for node in rest if not isinstance(node, _DEFINITIONS) for name in _bound_names(node)}
    makers: dict[str, list[ast.stmt]] = {}
    for node in rest:
        for name in _bound_names(node) | (_mutated_names(node) & variables):
            makers.setdefault(name, []).append(node)
    kept: set[ast.stmt] = set()
    pending = deque(needed)
    while pending:
        for node in makers.pop(pending.popleft(), ()):
            kept.add(node)
            pending.extend(read_names(node))
    lines = [line.encode() for line in run.source.split("\n")]
    return "".join(
        f"{_source_of(lines, node)}\n" for node in (*imports, *(node for node in rest if node in kept))
    )


def _without_stubs(nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements with one definition per name, so that a stub does not replace the function.

    The first that returns something is kept, else the first that yields, else the last.
    """
    preferred: dict[str, tuple[int, ast.stmt]] = {}
    for node in nodes:
        if isinstance(node, _DEFINITIONS):
            rank, previous = _definition_rank(node), preferred.get(node.name)
            if previous is None or rank > previous[0] or rank == previous[0] == 0:
                preferred[node.name] = rank, node
    chosen = {node for _, node in preferred.values()}
    return [node for node in nodes if not isinstance(node, _DEFINITIONS) or node in chosen]


def _definition_rank(node: ast.stmt) -> int:
    """Return 2 for a class or a function that returns something, 1 for a generator, 0 for other functions."""
    kinds = {type(descendant) for descendant in ast.walk(node)}
    if isinstance(node, ast.ClassDef) or ast.Return in kinds:
        return 2
    return int(bool(kinds & {ast.Yield, ast.YieldFrom}))


def _source_of(lines: Sequence[bytes], node: ast.stmt) -> str:
    """Return a statement's own text, with its decorators.

    Columns of syntax trees count bytes, so ``lines`` are bytes, too.
    """
    decorators = getattr(node, "decorator_list", ())
    first, column = min(
        [(node.lineno, node.col_offset), *((decorator.lineno, 0) for decorator in decorators)]
    )
    last = node.end_lineno or node.lineno
    source_lines = list(lines[first - 1 : last])
    source_lines[-1] = source_lines[-1][: node.end_col_offset]
    source_lines[0] = source_lines[0][column:]
    return b"\n".join(source_lines).decode()


def _bound_names(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds in the module."""
    names: set[str] = set()
    for inner in _module_scope_nodes(node):
        if isinstance(inner, _DEFINITIONS):
            names.add(inner.name)
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id)
        elif isinstance(inner, ast.alias):
            names.add(inner.asname or inner.name.partition(".")[0])
    return names


def _mutated_names(node: ast.stmt) -> set[str]:
    """Return the names of objects that a statement mutates.

    Counted are set items and attributes, and methods whose result is not used.
    """
    names: set[str] = set()
    for inner in _module_scope_nodes(node):
        target: ast.AST | None = None
        if isinstance(inner, (ast.Subscript, ast.Attribute)) and isinstance(inner.ctx, ast.Store):
            target = inner
        elif isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Call):
            target = inner.value.func if isinstance(inner.value.func, ast.Attribute) else None
        while isinstance(target, (ast.Subscript, ast.Attribute)):
            target = target.value
        if isinstance(target, ast.Name):
            names.add(target.id)
    return names


def _module_scope_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement in the module's own scope: definitions, but not their content."""
    pending = deque([node])
    while pending:
        current = pending.popleft()
        yield current
        if not isinstance(current, _SCOPES):
            pending.extend(ast.iter_child_nodes(current))


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
"""Possessive quantifiers, since a line of an untrusted text may be very long."""

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
    def priority(self) -> tuple[bool, bool, bool]:
        """The priority of a block for a program that reads and prints; of equal blocks the last is taken."""
        has_code, marked = _has_code(self.code), self.label in _PYTHON
        closed = self.closed and has_code
        return closed and marked, closed and not self.label, has_code or marked


class Program(NamedTuple):
    """A program: ``source`` is run, ``code`` is the part of it that the model wrote."""

    source: str
    code: str

    @property
    def empty(self) -> bool:
        """Whether there is no code at all: nothing, comments, or prose."""
        return not _has_code(self.code)


def cut_at_stops(text: str, stops: Iterable[str]) -> str:
    """Return the text before the earliest stop."""
    stop_index = earliest_stop(text, stops)
    return text if stop_index is None else text[:stop_index]


def function_program(
    prompt: str,
    entry_point: str,
    text: str,
    stops: Sequence[str] = HUMANEVAL_STOPS,
    *,
    first: bool = False,
) -> Program:
    """Return the program for a function that begins in the prompt.

    Words before the function are left out; if no function begins there, the prompt is left out, too. For ``first`` see
    ``script_program``.
    """
    front = program_prefix(prompt, entry_point)
    if not front:
        return script_program(text, stops, first=first)
    prompt = front
    definition = re.compile(rf"^(?:async )?def {re.escape(entry_point)}\b", re.MULTILINE)
    code, block = _find_code(text, first=True)
    if not block:
        code = cut_at_stops(code, stops)
    elif definition.search(code):
        match = definition.search(prompt)  # before it are imports and helpers
        return Program((prompt[: match.start()] if match else prompt) + code, code)
    return Program(prompt + code, code)


def program_prefix(prompt: str, entry_point: str) -> str:
    """Return the part of a prompt that begins the program: all of it if it is code.

    After words, the part starts with the first line from which on everything is code. It is empty if the prompt does
    not begin the tested function.
    """
    name = re.match(r"\w*", entry_point)
    definition = re.compile(rf"^(?:(?:async )?def|class) {name[0] if name else ''}\b", re.MULTILINE)
    if not definition.search(prompt):
        return ""
    lines = prompt.splitlines(keepends=True)
    for index in range(len(lines)):
        rest = "".join(lines[index:])
        if not definition.search(rest):
            break
        if any(map(is_python, (rest, f"{rest}\n    pass\n"))):
            return rest
    return prompt


def chat_program(text: str, needed: Collection[str], prompt: str = "") -> Program:
    """Return the program in a chat's answer that was begun with a block of code.

    Args:
        text: The answer; tabs become four spaces (EvalPlus, provider/hf.py).
        needed: The names that the tests call.
        prompt: The beginning of the program. It is put before an answer that defines none of the names and begins with
            an
            indented line.

    """
    text = text.replace("\t", "    ")
    first = next((line for line in text.splitlines() if line.strip()), "")
    if prompt and first.startswith(" ") and not defines_any(text, needed):
        whole = prompt + text
        return Program(sanitize(whole, needed) or whole, text)
    source = sanitize(text, needed)
    return Program(text, text) if source is None else Program(source, source)


def script_program(text: str, stops: Sequence[str], *, first: bool = False) -> Program:
    """Return the program of a text without its prompt: the ``first`` block of code, or the last."""
    code, block = _find_code(text, first=first)
    code = code if block else cut_at_stops(code, stops)
    return Program(code, code)


def _find_code(text: str, *, first: bool) -> tuple[str, bool]:
    """Return the code in a text, and whether it is a fenced block."""
    text = strip_answer_tags(text)
    fences = list(_FENCE.finditer(text))
    if not fences:
        return text, False
    prefix = text[: fences[0].start()]
    if _has_code(prefix) and (first or is_python(prefix)):
        return prefix, False
    blocks = list(_parse_blocks(text, fences))
    if first:
        return next((block.code for block in blocks if block.label in _PYTHON), blocks[0].code), True
    code = max(reversed(blocks), key=lambda block: block.priority).code
    return textwrap.dedent(code) if code.lstrip("\r\n")[:1].isspace() else code, True


def _parse_blocks(text: str, fences: Iterable[re.Match[str]]) -> Iterator[_Block]:
    """Yield the blocks of a text between its fences; a fence with a word after it always opens a block."""
    opening: re.Match[str] | None = None
    for fence in fences:
        bare = not (fence["label"] or fence["rest"].strip())
        if opening is not None:
            if not fence["marks"].startswith(opening["marks"]):
                continue
            yield _make_block(text, opening, fence.start(), closed=bare)
        opening = None if opening is not None and bare else fence
    if opening is not None:
        yield _make_block(text, opening, len(text), closed=False)


def _make_block(text: str, opening: re.Match[str], end: int, *, closed: bool) -> _Block:
    """Return the block from its opening fence to ``end``, without the indentation of the fence."""
    code = text[opening.end() + 1 : end]
    indents = [len(line) - len(line.lstrip(" \t")) for line in code.splitlines() if line.strip()]
    if indent := min([len(opening["indent"]), *indents]):
        code = "".join(line[indent:] if line.strip() else line for line in code.splitlines(keepends=True))
    return _Block(opening["label"].lower(), code, closed)


def _has_code(text: str) -> bool:
    """Return whether the first non-blank line is indented, or any line begins like a statement."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and (lines[0][0] in " \t" or any(map(_STATEMENT.match, lines)))


# The words in which a chat is asked for a function: those of EvalPlus 0.3.1 (evalplus/codegen.py, provider/utility.py)

MOST_NEW_TOKENS: Final = 768
"""EvalPlus's limit, provider/base.py: the answer repeats the beginning of the function."""

_QUESTION: Final = (
    "Please provide a self-contained Python script that solves the following problem "
    "in a markdown code block:"
)
_ANSWER_START: Final = (
    "Below is a Python script with a self-contained function that solves the problem "
    "and passes corresponding tests:"
)


def evalplus_chat(problem: str) -> ChatForm:
    """Return the problem in a block of code, and the beginning of an answer.

    The answer has begun its block of code, ends with it, and may hold any number of definitions.
    """
    question = f"{_QUESTION}\n```\n{problem.strip()}\n```\n"
    return ChatForm(question, f"{_ANSWER_START}\n```python\n", BLOCK_STOPS, MOST_NEW_TOKENS)


def evalplus_turns(problem: str, program: str) -> tuple[str, str]:
    """Return a few-shot example: the question about the problem, and the answer with the whole program."""
    chat_form = evalplus_chat(problem)
    return chat_form.question, f"{chat_form.begun}{unix_lines(program).strip()}\n```"
