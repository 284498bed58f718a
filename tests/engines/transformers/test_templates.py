"""A hostile chat template ends in one line, in bounded time and memory."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from pytest_touchstone.core.requests import Refusal, Turn
from pytest_touchstone.engines.transformers import tokenizer as templates
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
from tests.support.lines import naming
from tests.support.tiny import tiny_causal

LOOPS = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
DOUBLED = "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}"
HOSTILE = (
    "{{ 'a' * 10**10 }}",
    "{{ [1] * 10**10 }}",
    "{{ 7 ** 1000000000 }}",
    "{{ 'a'.ljust(10**10) }}",
    "{{ 'a' | center(10**10) }}",
    "{{ '%9999999999d' % 1 }}",
    "{{ '%*d' % (10**10, 1) }}",
    "{{ '{:9999999999}'.format(1) }}",
    "{{ '%9999999999d' | format(1) }}",
    "{{ ('a' * 9**6).replace('a', 'b' * 9**5) }}",
    "{{ ('a' * 9**6) | replace('a', 'b' * 9**5) }}",
    "{{ range(99999) | list | join('a' * 9**5) }}",
    "{{ ('a' * 9**6).join(range(99999) | map('string') | list) }}",
    DOUBLED,
    DOUBLED.replace("n.s + n.s", "n.s ~ n.s"),
    "{% for a in range(9999) %}{% for b in range(99) %}{{ messages[0].content * 99 }}{% endfor %}{% endfor %}",
    LOOPS,
    LOOPS + "{% for a in range(9999) %}{% endfor %}",
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_causal(tmp_path_factory.mktemp("model") / "a"))


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("template", HOSTILE)
def test_a_hostile_template_is_refused_in_one_line(
    tokenizer: Any, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "SECONDS", 0.3)
    tokenizer.chat_template = template
    before = peak()
    said = TextTokenizer(tokenizer).conversation([Turn("user", "hello")])
    assert isinstance(said, Refusal)
    assert naming("chat template", "TemplateLimitError").search(said.reason)
    assert peak() - before < 3 << 30


def test_a_usual_template_is_written_as_before(tokenizer: Any) -> None:
    tokenizer.chat_template = (
        "{% for m in messages %}<|{{ m.role | upper }}|>{{ '-' * 3 + m['content'] | trim }}"
        "{{ loop.index * 2 }}{{ 7 % 4 }}{{ ['a', 'b'] | join(', ') }}{{ m | tojson }}{% endfor %}"
    )
    said = TextTokenizer(tokenizer).conversation([Turn("user", " hello ")])
    assert said == '<|USER|>---hello23a, b{"role": "user", "content": " hello "}'


def test_what_is_done_in_time_is_never_stopped_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "SECONDS", 0.0005)
    for _ in range(300):
        try:
            assert templates.run_limited(lambda: sum(range(2000)) > 0)
        except templates.TemplateLimitError:
            continue
