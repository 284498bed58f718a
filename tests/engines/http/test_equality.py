"""A model behind a server answers as in this process, item by item."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import (
    Generate,
    GenerateAnswer,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
    Request,
    RollingAnswer,
    RollingLoglikelihood,
    Turn,
)
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from tests.support.engines import engine_for
from tests.support.model_server import serving
from tests.support.tiny import CORPUS, bytelevel_tokenizer, tiny_causal

CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<me>{% endif %}"
QUESTION = "A question: what is the answer?"
SCORES: tuple[Request, ...] = (
    *(Loglikelihood(f"{QUESTION}\nAnswer:", f" {letter}") for letter in "ABCD"),
    *(Loglikelihood(text[:30], text[30:60]) for text in CORPUS),
    Loglikelihood("", " the answer"),
    Loglikelihood("a ", "b"),
    Loglikelihood("서울", "은 대한민국"),
    Loglikelihood("x", ""),
    *(RollingLoglikelihood(text) for text in CORPUS[:2]),
    RollingLoglikelihood(""),
)
TEXTS: tuple[Request, ...] = (
    *(Generate(text[:20], max_new_tokens=12) for text in CORPUS),
    Generate("The quick", max_new_tokens=24, stop=("e", "\n")),
    Generate(QUESTION, max_new_tokens=6, samples=2),
    Generate("", max_new_tokens=4),
    Generate(QUESTION, max_new_tokens=8, turns=(Turn("user", QUESTION),), turns_stop=("zz",)),
    Generate("b", max_new_tokens=8, turns=(Turn("user", "b"), Turn("assistant", "The ans"))),
)
SETTINGS = ModelSettings(device="cpu", threads=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a chat template."""
    place = tiny_causal(tmp_path_factory.mktemp("served") / "model")
    tokenizer = bytelevel_tokenizer()
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(place)
    return place


@pytest.mark.parametrize("style", ["vllm", "openai"])
def test_a_served_model_answers_as_in_this_process(folder: Path, style: str) -> None:
    asked = SCORES + TEXTS
    with closing(engine_for(folder)) as own:
        expected = own.answer(asked)
    with serving(folder, style=style) as server:
        (info,) = resolve(f"{server.url}/v1?tokenizer={folder}", seq_len=None)
        with closing(open_engine(info, SETTINGS)) as engine:
            told: dict[int, object] = {}
            found = engine.answer(asked, told.__setitem__)
    assert [told[number] for number in range(len(asked))] == found
    for request, mine, theirs in zip(asked, expected, found, strict=True):
        assert type(mine) is type(theirs), (request, mine, theirs)
        if isinstance(mine, (LoglikelihoodAnswer, RollingAnswer)):
            assert theirs.logprob == pytest.approx(mine.logprob, abs=1e-3), request  # type: ignore[union-attr]
            assert _without(mine) == _without(theirs), request
        elif isinstance(mine, GenerateAnswer):
            assert style == "openai" or mine == theirs, request
            assert isinstance(theirs, GenerateAnswer)
            assert [one.text for one in mine.samples] == [one.text for one in theirs.samples], request
            assert (mine.prompt_tokens, mine.chat) == (theirs.prompt_tokens, theirs.chat), request
        elif isinstance(mine, Refusal):
            assert mine == theirs


def test_with_the_tokenizer_of_the_server_scores_are_the_same(folder: Path) -> None:
    asked = [one for one in SCORES if isinstance(one, Loglikelihood) and one.context]
    with closing(engine_for(folder)) as own:
        expected = own.answer(asked)
    with serving(folder, root=False) as server:
        (info,) = resolve(server.url, seq_len=None)
        assert info.served["tokenizer"] == "/tokenize"
        with closing(open_engine(info, SETTINGS)) as engine:
            found = engine.answer(asked)
    for request, mine, theirs in zip(asked, expected, found, strict=True):
        assert _without(mine) == _without(theirs), request
        if isinstance(mine, LoglikelihoodAnswer) and isinstance(theirs, LoglikelihoodAnswer):
            assert theirs.logprob == pytest.approx(mine.logprob, abs=1e-3), request


def test_short_continuations_of_long_contexts_are_asked_token_by_token(tmp_path: Path) -> None:
    folder = tiny_causal(tmp_path / "long", seq_len=512)
    context = " ".join(CORPUS) * 3
    asked = [
        *(Loglikelihood(context[:400], text) for text in (" a b", " a c", " no")),
        Loglikelihood(context[:380], " " + context[380:450]),
    ]
    with closing(engine_for(folder)) as own:
        expected = own.answer(asked)
    with serving(folder, limit=512, block=16) as server:
        (info,) = resolve(server.url, seq_len=None)
        with closing(open_engine(info, SETTINGS)) as engine:
            found = engine.answer(asked)
        sent = [body for _, body in server.bodies]
    for mine, theirs in zip(expected, found, strict=True):
        assert isinstance(mine, LoglikelihoodAnswer)
        assert isinstance(theirs, LoglikelihoodAnswer)
        assert theirs.logprob == pytest.approx(mine.logprob, abs=1e-3)
        assert _without(mine) == _without(theirs)
    longest = max(len(body["prompt"]) for body in sent if "prompt" in body)
    whole = [len(body["prompt"]) for body in sent if "prompt_logprobs" in body]
    assert longest in whole, "a long continuation costs less as a whole"
    assert sum(one > 200 for one in whole) == 1, "the others are asked in steps"


def _without(answer: object) -> tuple[object, ...]:
    """An answer's fields but the log-probability."""
    names = ("is_greedy", "tokens", "truncated", "spans_join")
    return tuple(getattr(answer, name, None) for name in names)
