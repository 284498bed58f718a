"""How a chat is asked for a function: the words of EvalPlus 0.3.1 (evalplus/codegen.py, provider/utility.py)."""

from __future__ import annotations

from typing import Final

from harness.core.few_shot import ChatForm
from harness.metrics.code.extract import BLOCK_STOPS

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
    """The problem in a block of code, and an answer that has begun its own block, ends with it, and may hold any number
    of definitions."""
    return ChatForm(chat_question(problem), f"{_BEGUN}\n```python\n", BLOCK_STOPS, MOST_NEW_TOKENS)


def chat_question(problem: str) -> str:
    """The turn of the user."""
    return f"{_ASKED}\n```\n{problem.strip()}\n```\n"


def chat_answer(program: str) -> str:
    """The turn of the assistant with a whole program, as a few-shot example has it."""
    return f"{_BEGUN}\n```python\n{program.strip()}\n```"
