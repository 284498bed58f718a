"""The replies of real servers, as they were recorded: what a probe finds in them, and the answers made of them."""

from __future__ import annotations

import pytest

from pytest_touchstone.core.requests import (
    Generate,
    GenerateAnswer,
    Generated,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
)
from pytest_touchstone.engines.http.capabilities import capabilities_from_plain
from pytest_touchstone.engines.http.engine import canary_requests, describe_drift
from tests.support.recorded import FOLDER, SCORES, TEXTS, RecordedServer, answers, probed


def test_vllm_gives_scores_choices_and_texts() -> None:
    server = RecordedServer("vllm-0.32")
    info = probed(server.ask)
    can = capabilities_from_plain(info.served["abilities"])
    assert (info.served["server"], info.served["version"], info.seq_len) == ("vLLM", "0.32.0", 2048)
    assert (can.scoring, can.choices, can.token_ids, can.several) == ("prompt_logprobs", True, True, True)
    assert info.serves == (Loglikelihood, Generate)  # /tokenize says nothing of a token to begin with
    one, other, long = answers(info, server.ask, SCORES)
    assert isinstance(one, LoglikelihoodAnswer)
    assert isinstance(other, LoglikelihoodAnswer)
    assert isinstance(long, LoglikelihoodAnswer)
    assert (one.logprob, other.logprob) == pytest.approx((-5.2447, -9.1834), abs=1e-3)
    assert long.tokens == 8
    assert long.logprob == pytest.approx(-16.9655, abs=1e-3)
    plain, chat = answers(info, server.ask, TEXTS)
    assert plain == GenerateAnswer((Generated(" Paris.", "stop", 3),), 5)
    assert isinstance(chat, GenerateAnswer)
    assert (chat.chat, chat.samples[0].text) == (True, "The answer to this classic math")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("llama-server-b11434", "llama.cpp ignores echo: the reply echoes no log-probabilities"),
        ("llama-cpp-python-0.3.36", "llama-cpp-python has no tokenizer that is found here"),
    ],
)
def test_llama_cpp_gives_texts_alone_and_says_why(name: str, why: str) -> None:
    server = RecordedServer(name)
    info = probed(server.ask)
    assert info.serves == (Generate,)
    assert info.served["lacks"].startswith(why)
    assert all(isinstance(one, Refusal) for one in answers(info, server.ask, SCORES))
    texts = answers(info, server.ask, TEXTS)
    assert all(isinstance(one, GenerateAnswer) and one.text for one in texts)


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_a_server_that_stays_the_same_has_not_drifted(name: str) -> None:
    server = RecordedServer(name)
    info = probed(server.ask)
    asked = canary_requests(info.serves)
    before, after = (answers(info, server.ask, asked) for _ in range(2))
    assert describe_drift([before], [after]) is None
