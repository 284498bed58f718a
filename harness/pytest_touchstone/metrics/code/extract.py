"""The program in a text that a checkpoint wrote.

Two styles of answer work with every benchmark, and the text itself tells which it is:

- **A completion** goes on where the prompt ends. It ends before the earliest stop of the benchmark, or before the
  fence (three backticks) that closes the code block which a chat's prompt has opened. Of a function
  to be completed the program is the prompt and the completion; otherwise it is the completion.
- **A chat's answer** has its code in a fenced block: the first block marked as Python, else the first one, up to
  the end of the text where it is never closed. The block is taken whole. If it defines the function that was
  asked for, the program is the block after what the prompt has before that function (imports, helpers). If not, it
  is taken for the function's body, and the program is the prompt and the block.

A text with a fence is a completion when code stands before the first fence: its first line is indented, or
a line of it begins as a statement does. Nothing is parsed, as the text is untrusted.

Where a benchmark asks a chat for a function in EvalPlus's words, ``chat_program`` cuts as EvalPlus does; see
``sanitize``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from pytest_touchstone.core.few_shot import ChatForm
from pytest_touchstone.core.requests import earliest_stop
from pytest_touchstone.metrics.code.rows import unix_lines
from pytest_touchstone.metrics.code.sanitize import defines, parses, sanitized

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

_FENCE: Final = re.compile(r"^[ \t]*+```++[ \t]*+([\w+#.-]*+)[^\n`]*+$", re.MULTILINE)
"""Nothing is tried twice: a line of an untrusted text may be very long."""

_PYTHON: Final = ("python", "python3", "py")
_STATEMENT: Final = re.compile(
    r"^(?:def |class |async def |import \w|from [\w.]+ import |@\w|for \w.*:|while .*:|if .*:|try:|with .*:"
    r"|print\(|[A-Za-z_][\w.\[\], ]*=)"
)


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
    prompt: str, entry_point: str, text: str, stops: Sequence[str] = HUMANEVAL_STOPS
) -> Program:
    """The program for a function that begins in the prompt; if none does, the prompt is no part of it, nor are words
    before the function."""
    front = program_prefix(prompt, entry_point)
    if not front:
        return script_program(text, stops)
    prompt = front
    definition = re.compile(rf"^(?:async )?def {re.escape(entry_point)}\b", re.MULTILINE)
    code, block = _code(text)
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
    what ``sanitize`` leaves of it, tabs as four spaces (EvalPlus, provider/hf.py). Where it defines none of them
    and its first line is indented, it goes on where ``prompt`` ends."""
    text = text.replace("\t", "    ")
    first = next((line for line in text.splitlines() if line.strip()), "")
    if prompt and first.startswith(" ") and not defines(text, needed):
        whole = prompt + text
        return Program(sanitized(whole, needed) or whole, text)
    found = sanitized(text, needed)
    return Program(text, text) if found is None else Program(found, found)


def script_program(text: str, stops: Sequence[str]) -> Program:
    """The program where the prompt is no part of it."""
    code, block = _code(text)
    code = code if block else cut(code, stops)
    return Program(code, code)


def _code(text: str) -> tuple[str, bool]:
    """The code in a text, and whether it is a chat's fenced block."""
    fences = list(_FENCE.finditer(text))
    if not fences:
        return text, False
    before = text[: fences[0].start()]
    if _has_code(before):
        return before, False
    blocks: list[tuple[str, str]] = []
    for opening, closing in zip(fences[::2], [*fences[1::2], None], strict=False):
        end = len(text) if closing is None else closing.start()
        blocks.append((opening[1].lower(), text[opening.end() + 1 : end]))
    return next((code for label, code in blocks if label in _PYTHON), blocks[0][1]), True


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
