"""Reasoning: the text that a model writes to itself before its answer, between two delimiters. The answer is what
follows.

A trace is what stands before the last end delimiter, as for lm-evaluation-harness's ``think_end_token``, if the text
begins with the delimiter that opens a trace, or has none: some chat templates open it in the prompt. A trace without an
end has used up the tokens, or the model ended within it: then there is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from pytest_touchstone.core.requests import GenerateAnswer, Generated

AUTO: Final = "auto"
OFF: Final = "off"
"""The values of ``--eval-think-end`` that are no delimiter: those of ``DELIMITERS``, and no trace is looked for."""


_BLANK: Final = re.compile(r"\A(?:[^\S\n]*\n)*(?: (?=\S))?")
"""The white space between a trace and its answer; the indentation of a program that goes on stays."""


@dataclass(frozen=True, slots=True)
class ReasoningDelimiters:
    """The texts before and after a trace; ``begin`` is empty where it is not known. With ``named`` a person gave the
    end, and a text is taken for a trace until it comes."""

    begin: str
    end: str
    named: bool = False

    def opens(self, prompt: str) -> bool:
        """Return whether a prompt ends within a trace that it opens."""
        return bool(self.begin) and prompt.rstrip().endswith(self.begin)

    def split(self, text: str, *, opened: bool = False) -> tuple[str | None, str]:
        """Return the trace without its delimiters, None where there is none, and the answer, which is empty where the
        trace does not end. ``opened``: the prompt has opened it."""
        begun = text.lstrip().removeprefix(self.begin)
        begins = bool(self.begin) and begun != text.lstrip()
        trace, end, answer = begun.rpartition(self.end)
        if end and (begins or opened or self.named or not self.begin or self.begin not in trace):
            return trace.strip(), _BLANK.sub("", answer)
        return (begun.strip(), "") if begins or opened else (None, text)


DELIMITERS: Final = tuple(
    ReasoningDelimiters(*pair)
    for pair in (
        ("<think>", "</think>"),  # DeepSeek-R1, Qwen3, QwQ, SmolLM3, GLM, Nemotron
        ("[THINK]", "[/THINK]"),  # Magistral
        ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),  # gpt-oss
        ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A Reasoning
        ("<seed:think>", "</seed:think>"),  # Seed-OSS
        ("<|begin_of_thought|>", "<|end_of_thought|>"),  # Sky-T1, OpenThinker
        ("<thought>", "</thought>"),  # EXAONE Deep
        ("<thinking>", "</thinking>"),
        ("<reasoning>", "</reasoning>"),
    )
)
"""The delimiters that models in use were trained with."""


def delimiters_of(think_end: str) -> tuple[ReasoningDelimiters, ...]:
    """Return the delimiters that a value of ``--eval-think-end`` stands for."""
    if think_end in (AUTO, OFF):
        return DELIMITERS if think_end == AUTO else ()
    begin = next((one.begin for one in DELIMITERS if one.end == think_end), "")
    return (ReasoningDelimiters(begin, think_end, named=True),)


def delimiters_among(delimiters: Iterable[ReasoningDelimiters], known: str) -> ReasoningDelimiters | None:
    """Return the first whose end stands in ``known``, a chat template and a vocabulary; named ones always."""
    return next((one for one in delimiters if one.named or one.end in known), None)


def without_trace(answer: GenerateAnswer, delimiters: Iterable[ReasoningDelimiters]) -> GenerateAnswer:
    """Return the answer with the traces of its samples taken out of their texts, as far as no engine has done it."""
    kept = tuple(delimiters)
    samples = tuple(_split(one, kept) for one in answer.samples)
    return answer if samples == answer.samples else replace(answer, samples=samples)


def _split(sample: Generated, delimiters: Iterable[ReasoningDelimiters]) -> Generated:
    if sample.reasoning is not None:
        return sample
    for one in delimiters:
        if one.end in sample.text or (one.begin and sample.text.lstrip().startswith(one.begin)):
            trace, text = one.split(sample.text)
            if trace is not None:
                return replace(sample, text=text, reasoning=trace)
    return sample


def seems_traced(text: str) -> bool:
    """Return whether a delimiter of a trace stands in an answer, where none has been looked for or found."""
    return any(one.end in text for one in DELIMITERS)
