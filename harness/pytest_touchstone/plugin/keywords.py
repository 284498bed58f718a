"""The words of ``-k``, compared with benchmarks whose rows have not been read.

A benchmark that they cannot mean need not be read at all.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.benchmark import Benchmark

MOST_WORDS: Final = 8
"""With more words of which nobody knows whether they match, all is possible."""

NUMBER: Final = "\0"
"""The place of a row's number in the names of items."""


def keyword_words(config: pytest.Config) -> list[str]:
    """Return the words of ``-k`` without those that join them."""
    words = re.findall(r"[^\s()]+", config.option.keyword)
    return [word for word in words if word not in ("and", "or", "not")]


def may_select(
    metafunc: pytest.Metafunc,
    spec: Benchmark,
    checkpoints: Sequence[CheckpointInfo],
    groups: Sequence[str] | None,
) -> bool:
    """Return whether ``-k`` can choose an item of a benchmark, before its rows are read.

    Items are named after these checkpoints and groups; None for groups that are not known.
    """
    from _pytest.mark import KeywordMatcher
    from _pytest.mark.expression import Expression

    words = list(dict.fromkeys(keyword_words(metafunc.config)))
    if not words or _others_parametrize(metafunc):
        return True
    certain = KeywordMatcher.from_item(metafunc.definition)
    names = None if groups is None else _names(metafunc, spec, checkpoints, groups)
    values = {
        word: (True,) if certain(word) or word.lower() in f"{spec.name}/".lower() else _possible(word, names)
        for word in words
    }
    if sum(len(value) > 1 for value in values.values()) > MOST_WORDS:
        return True
    try:
        expression = Expression.compile(metafunc.config.option.keyword.lstrip())
    except (SyntaxError, pytest.UsageError):
        return True  # pytest says what is wrong with it
    cases = (dict(zip(values, case, strict=True)) for case in itertools.product(*values.values()))
    return any(expression.evaluate(_Case(case)) for case in cases)


class _Case:
    """A matcher that gives each word an answer; a word that ``keyword_words`` does not find matches."""

    def __init__(self, answers: Mapping[str, bool]) -> None:
        self._answers = answers

    def __call__(self, name: str, /, **_: object) -> bool:
        return self._answers.get(name, True)


def stand_in_ids(spec: Benchmark, config: pytest.Config) -> list[str]:
    """Return the ids of the placeholders for a benchmark whose examples are not known.

    They are its name, and anything in ``-k`` and in node ids on the command line that may mean one of its examples or
    groups.
    """
    plain = [word.rstrip("]") for word in keyword_words(config)]
    told = spec.group is not None and any(word.lower() in spec.name.lower() for word in plain)
    named = [f"{spec.name}/{word}" for word in plain if word.isdecimal() or (told and word not in spec.name)]
    named += [word for word in plain if word.startswith(f"{spec.name}/")]
    brackets = [argument.partition("::")[2].partition("[") for argument in config.args]
    named += [text[:-1] for _, _, text in brackets if f"{spec.name}/" in text and text.endswith("]")]
    return list(dict.fromkeys([spec.name, *named]))


def _others_parametrize(metafunc: pytest.Metafunc) -> bool:
    """Return whether the names of items may have parts that are none of ours."""
    hooks = metafunc.definition.ihook.pytest_generate_tests.get_hookimpls()
    return (
        any(metafunc.definition.iter_markers("parametrize"))
        or any(
            one.params for found in metafunc._arg2fixturedefs.values() for one in found
        )  # private: nothing public tells the fixtures of a function that is not an item yet
        or any(hasattr(place, "pytest_generate_tests") for place in (metafunc.module, metafunc.cls))
        or any(hook.plugin_name.endswith("conftest.py") for hook in hooks)
    )


def _names(
    metafunc: pytest.Metafunc, spec: Benchmark, checkpoints: Sequence[CheckpointInfo], groups: Sequence[str]
) -> list[str]:
    """Return the names that items can have, with ``NUMBER`` for that of the row."""
    function = metafunc.definition.name
    places = [f"{spec.name}/{place}{NUMBER}]" for place in ("", *(f"{group}/" for group in groups))]
    places += [f"{spec.name}/{group}-{NUMBER}]" for group in groups]
    heads = [f"{function}[", *(f"{function}[{info.name}-" for info in checkpoints)]
    return [(head + place).lower() for head in heads for place in places]


def _possible(word: str, names: Sequence[str] | None) -> tuple[bool, ...]:
    """Return the answers that there can be to whether a word is a part of an item's name."""
    pieces = re.split(r"\d+", word.lower())
    if names is None or any(all(piece in name for piece in pieces) for name in names):
        return (True, False)
    return (False,)
