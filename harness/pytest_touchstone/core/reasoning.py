"""Reasoning: the text that a model writes to itself before its answer, between two delimiters.

The answer is what follows the last trace that is closed. A trace is closed by its end delimiter, as for
lm-evaluation-harness's ``think_end_token``. It begins with the delimiter that opens it, at the beginning of a line or
before a word that it touches; or the text has none, since some chat templates open the trace in the prompt. A delimiter
that is merely mentioned opens none.

A trace that is open has used up the tokens, or the model ended within it: then there is no answer. A trace may be
opened once more after the last one that was closed, and the prompt may have opened it. A text without any delimiter is
an open trace if it ended at the limit of tokens, and its end delimiter is named or the server is known to open traces
in its prompts.

What looks like a trace and is none by these rules stays in the text, and ``seems_to_have_trace`` finds it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from pytest_touchstone.core.requests import GenerateAnswer, Generated

AUTO: Final = "auto"
OFF: Final = "off"
"""The values of ``--eval-set think_end`` that are no delimiter: those of ``DELIMITERS``, and no trace is looked for."""


_BLANK: Final = re.compile(r"\A(?:[^\S\n]*\n)*(?: (?=\S))?")
"""The white space between a trace and its answer; the indentation of a program that goes on stays."""

_TAG: Final = re.compile(r"([<\[◁])(/?)([\w:]+)([>\]▷])")

_PAIRED: Final = {
    # The words that gpt-oss's special tokens leave behind where a server drops these: they touch the text around them.
    "analysis": r"(?:\A\s*|(?<=\S)assistant)(?:analysis|commentary)(?=[^\s.,:;!?-])",
    "Here is my thought process:": r"\A\s*Here(?: is|['’]s) my thought process:",
    "<|think|>": r"\A\s*<\|think\|>",
    "/think\n": r"\A\s*/think\s*\n",
}
"""The patterns of beginnings whose end may stand in any text: it closes a trace only where the text begins with one."""

_SPELLINGS: Final = _PAIRED | {
    "assistantfinal": r"(?<![\s`\"'])assistantfinal|assistantfinal(?=[\w#*$\\])",
    "Here is my response:": r"Here(?: is|['’]s) my response:",
    "<|channel|>final<|message|>": r"<\|channel\|>final(?:\s*<\|constrain\|>\s*\w+)?<\|message\|>",
}
"""The patterns of delimiters that are not always written alike."""


@functools.cache
def _pattern(delimiter: str) -> re.Pattern[str]:
    """Return what finds a delimiter. In tags, case, white space and attributes do not matter."""
    tag = _TAG.fullmatch(delimiter)
    if tag is None:
        return re.compile(_SPELLINGS.get(delimiter, re.escape(delimiter)))
    left, slash, name, right = (re.escape(group) for group in tag.groups())
    inside = rf"\s*/\s*{name}\s*" if slash else rf"\s*{name}(?:\s+\w+\s*=[^{left}{right}\n]*)?\s*"
    return re.compile(f"{left}{inside}{right}", re.IGNORECASE)


@functools.cache
def _opening(begin: str) -> re.Pattern[str]:
    """Return what finds the beginning of a trace where it opens one."""
    mark = _pattern(begin)
    text = mark.pattern if begin in _PAIRED else rf"^[\ufeff \t\r]*{mark.pattern}|{mark.pattern}(?=\w|\n)"
    return re.compile(text, mark.flags | re.MULTILINE)


def _is_code(text: str, index: int) -> bool:
    """Return whether a place in a text is within Markdown's code."""
    before = text[:index]
    return bool(before.count("```") % 2 or before.rpartition("\n")[2].replace("```", "").count("`") % 2)


@dataclass(frozen=True, slots=True)
class ReasoningDelimiters:
    """The texts before and after a trace; ``begin`` is empty if it is unknown.

    ``named`` means that the user gave the end. Then everything before it is a trace however it begins, and a text
    without it that ended at the limit of tokens is an open trace.
    """

    begin: str
    end: str
    named: bool = False

    def opens(self, prompt: str) -> bool:
        """Return whether a prompt ends within a trace that it opens."""
        return bool(self.begin) and prompt.rstrip().endswith(self.begin)

    def starts(self, text: str) -> bool:
        """Return whether a text starts with the beginning of a trace."""
        return bool(self.begin) and _pattern(self.begin).match(text.lstrip("\ufeff \t\r\n")) is not None

    def is_known_in(self, vocabulary: str) -> bool:
        """Return whether a chat template and a vocabulary have the delimiters."""
        return self.named or (
            self.end in vocabulary and (self.begin not in _PAIRED or self.begin in vocabulary)
        )

    def split(self, text: str, *, opened: bool = False, at_limit: bool = False) -> tuple[str | None, str]:
        """Split a text into its trace (else None) and its answer.

        The trace is without delimiters. The answer is empty where the trace is open. ``opened``: the prompt has opened
        it; ``at_limit``: the text ended at the limit of tokens.
        """
        exact = self.named and self.end in _SPELLINGS
        end = re.compile(re.escape(self.end)) if exact else _pattern(self.end)
        last = max(end.finditer(text), key=lambda match: match.start(), default=None)
        if last is not None:
            before, answer = text[: last.start()], text[last.end() :]
            lone = self.begin not in _PAIRED and not (self.begin and _pattern(self.begin).search(before))
            if self.named or opened or lone or self._is_opened_in(before):
                if not self._is_open_in(answer, at_limit):
                    return self._trace(before), _BLANK.sub("", answer)
                return self._trace(text), ""
        if opened or (self.named and at_limit) or self._is_open_in(text, at_limit):
            return self._trace(text), ""
        return None, text

    def _is_open_in(self, text: str, at_limit: bool) -> bool:
        """Return whether a text without an end delimiter is an open trace.

        A text that begins with words may be an answer, unless it was cut off.
        """
        return (at_limit or not self.begin[:1].isalpha()) and self._is_opened_in(text)

    def _is_opened_in(self, text: str) -> bool:
        if (
            not self.begin or _pattern(self.begin).search(text) is None
        ):  # the usual case, which is quick to tell
            return False
        return any(not _is_code(text, match.start()) for match in _opening(self.begin).finditer(text))

    def _trace(self, text: str) -> str:
        text = text.lstrip("\ufeff \t\r\n")
        return (_pattern(self.begin).sub("", text, count=1) if self.starts(text) else text).strip()


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
        ("◁think▷", "◁/think▷"),  # Kimi-VL
        ("<|channel>thought", "<channel|>"),  # Gemma 4
        ("<unused94>thought", "<unused95>"),  # MedGemma
        ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
        ("<longcat_think>", "</longcat_think>"),  # LongCat
        ("[unused16]", "[unused17]"),  # openPangu
        ("analysis", "assistantfinal"),  # gpt-oss, its special tokens dropped
        ("Here is my thought process:", "Here is my response:"),  # Granite 3.2
        ("<|think|>", "<|end|><|begin|>assistant<|content|>"),  # Solar Open
        ("/think\n", "<|im_end|>\n<|im_start|>assistant\n"),  # HyperCLOVA X SEED Think
    )
)
"""The delimiters that models in use were trained with."""

_TRACES: Final = re.compile(
    r"(?i:[<◁]\|? ?/? ?[\w:]*(?:think|thought|reason)[\w:]* ?\|?[>▷])"
    r"|\A\s*(?:thought\n|/think\n|analysis(?=[A-Z0-9])|Here(?: is|['’]s) my thought process:)"
)
"""Tags of any model, and the words with which a trace begins whose special tokens are gone."""


def delimiters_of(think_end: str) -> tuple[ReasoningDelimiters, ...]:
    """Return the delimiters that a value of ``--eval-set think_end`` stands for."""
    if think_end in (AUTO, OFF):
        return DELIMITERS if think_end == AUTO else ()
    begin = next((pair.begin for pair in DELIMITERS if pair.end == think_end), "")
    return (ReasoningDelimiters(begin, think_end, named=True),)


def delimiters_among(
    delimiters: Iterable[ReasoningDelimiters], vocabulary: str
) -> ReasoningDelimiters | None:
    """Return the first delimiters that a chat template or vocabulary has; named ones always."""
    return next((pair for pair in delimiters if pair.is_known_in(vocabulary)), None)


def split_trace(
    text: str, delimiters: Iterable[ReasoningDelimiters], *, opened: bool = False, at_limit: bool = False
) -> tuple[str | None, str]:
    """Split a text into reasoning trace and answer, by any of the delimiters.

    Delimiters that the text starts with are tried first. A further trace at the beginning of the answer is removed too.
    """
    pairs = tuple(delimiters)
    for pair in sorted(pairs, key=lambda pair: not pair.starts(text)):
        trace, answer = pair.split(text, opened=opened, at_limit=at_limit)
        if trace is not None and any(other.starts(answer) for other in pairs):
            more, answer = split_trace(answer, pairs, at_limit=at_limit)
            trace = "\n\n".join(filter(None, (trace, more)))
        if trace is not None:
            return trace, answer
    return None, text


def without_trace(answer: GenerateAnswer, delimiters: Iterable[ReasoningDelimiters]) -> GenerateAnswer:
    """Return the answer without the traces in its samples' texts."""
    pairs = tuple(delimiters)
    samples = tuple(_without_trace(sample, pairs) for sample in answer.samples)
    return answer if samples == answer.samples else replace(answer, samples=samples)


def _without_trace(sample: Generated, delimiters: Iterable[ReasoningDelimiters]) -> Generated:
    if sample.reasoning is not None:
        return sample
    trace, text = split_trace(sample.text, delimiters, at_limit=sample.finish_reason == "length")
    return sample if trace is None else replace(sample, text=text, reasoning=trace)


def begins_trace(text: str) -> bool:
    """Return whether a text has the beginning of a trace, or names it."""
    return any(_pattern(pair.begin).search(text) for pair in DELIMITERS)


def seems_to_have_trace(text: str) -> bool:
    """Return whether an answer seems to have a trace that was not removed."""
    ends = (_pattern(pair.end) for pair in DELIMITERS if pair.begin not in _PAIRED)
    return any(pattern.search(text) for pattern in (_TRACES, _pattern("assistantfinal"), *ends))


_WRAPPER: Final = re.compile(r"\s*<(answer|response)>(?:[^\S\n]*\n)?", re.IGNORECASE)
_MOST_WRAPPERS: Final = 8


def strip_answer_tags(text: str) -> str:
    """Return the answer without the tags that some model families put around it.

    These are Hunyuan's ``<answer>`` and ERNIE's ``<response>``, in any case, also nested.

    The text begins with the tag; what follows the last closing one is dropped. Where none closes it, as at the limit of
    tokens, the answer is all the rest.
    """
    for _ in range(_MOST_WRAPPERS):
        begun = _WRAPPER.match(text)
        if begun is None:
            break
        text = text[begun.end() :]
        closed = [*re.finditer(rf"</{begun[1]}>", text, re.IGNORECASE)]
        text = text[: closed[-1].start()] if closed else text
    return text
