"""Prices, and what requests would cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.formats.base import CheckpointRequest
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Generate, Loglikelihood, Turn
from pytest_touchstone.engines.http.calls import CallFailure
from pytest_touchstone.engines.http.engine import planner_of, served_checkpoint
from pytest_touchstone.engines.http.planning import estimate, parse_price, token_cost
from pytest_touchstone.engines.http.probe import Probe
from pytest_touchstone.engines.http.server import parse_address
from pytest_touchstone.engines.settings import ModelSettings
from tests.support.lines import naming
from tests.support.model_server import ModelServer

REQUESTS = (
    Loglikelihood("The answer is", " A"),
    Loglikelihood("The answer is", " B"),
    Generate("The answer", max_new_tokens=10),
)


@pytest.mark.parametrize(("text", "price"), [("0.15,0.6", (0.15, 0.6)), (" 1 , .5", (1.0, 0.5))])
def test_a_price_is_that_of_prompts_and_of_texts(text: str, price: tuple[float, float]) -> None:
    assert parse_price(text) == price


@pytest.mark.parametrize("text", ["", "1", "1,2,3", "-1,2", "a,b"])
def test_what_is_no_price_is_told_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"0\.15,0\.6"):
        parse_price(text)


def test_money_is_counted_by_the_million() -> None:
    assert token_cost(2_000_000, 500_000, (0.5, 2.0)) == 2.0
    assert token_cost(1, 1, None) is None


def info_of(server: ModelServer, tokenizer: str | None) -> CheckpointInfo:
    address = parse_address("http://h:8000")
    return served_checkpoint(
        address, Probe(address, server.ask).run(None, tokenizer), CheckpointRequest("http://h:8000")
    )


def test_the_tokens_of_a_run_are_known_before_it(whole: Path) -> None:
    info = info_of(ModelServer(whole), None)
    planner = planner_of(info, ModelSettings())
    found = estimate(REQUESTS, planner, (1.0, 10.0))
    bodies = [call.body or {} for call in planner.plan(REQUESTS).calls]
    prompt = sum(len(body["prompt"]) for body in bodies)
    assert (found.calls, found.prompt_tokens, found.new_tokens, found.exact) == (3, prompt, 12, True)
    assert found.cost == pytest.approx((prompt + 120) / 1e6)


def test_without_a_tokenizer_tokens_are_guessed_and_it_says_so(whole: Path) -> None:
    info = info_of(ModelServer(whole, style="openai"), None)
    found = estimate(REQUESTS[2:], planner_of(info, ModelSettings()))
    assert (found.calls, found.new_tokens, found.exact, found.cost) == (1, 10, False, None)


def test_a_template_that_is_demanded_and_missing_is_a_mistake(whole: Path) -> None:
    info = replace(info_of(ModelServer(whole), None), source="http://h:8000")
    with pytest.raises(CheckpointError, match=naming("--eval-chat on", "chats")):
        planner_of(info, ModelSettings(chat="on"))


@pytest.mark.parametrize("refuses", [True, False])
def test_a_questions_system_turn_is_sent_to_a_template_that_takes_one(
    whole: Path, tmp_path: Path, refuses: bool
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(whole)
    refusal = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    tokenizer.chat_template = f"{refusal * refuses}{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}"
    tokenizer.save_pretrained(tmp_path)
    server = ModelServer(whole)

    def ask(path: str, body: Mapping[str, Any] | None) -> Any | CallFailure:
        if not path.endswith("/chat/completions"):
            return server.ask(path, body)
        choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "length"}
        return {"model": "tiny", "choices": [choice], "usage": {"prompt_tokens": 1}}

    address = parse_address("http://h:8000")
    probe = Probe(address, ask).run(None, str(tmp_path))
    planner = planner_of(
        served_checkpoint(address, probe, CheckpointRequest("http://h:8000")), ModelSettings()
    )
    turns = (Turn("system", "You add."), Turn("user", "1 + 1"))
    [call] = planner.plan([Generate("1 + 1", max_new_tokens=5, turns=turns)]).calls
    assert call.body is not None
    sent = [(message["role"], message["content"]) for message in call.body["messages"]]
    assert sent == (
        [("user", "You add.\n\n1 + 1")] if refuses else [("system", "You add."), ("user", "1 + 1")]
    )
