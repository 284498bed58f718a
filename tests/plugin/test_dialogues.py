"""Dialogues: texts are those of a plain loop, and nothing of the former turns is computed again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.requests import Answer, Generate, GenerateAnswer, Refusal
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.generation.batch import PrefixGroup
from tests.support.engines import ON_CPU, engine_for, generates_together
from tests.support.model_server import serving
from tests.support.project import Project
from tests.support.tiny import tiny_causal

TALKS = """
from pytest_touchstone import Generate, benchmark


@benchmark(name="talks", version=1, data="talks/test", asks=Generate, primary="characters", most_unusable=1.0)
def test_talks(example):
    '''A dialogue of several turns; what was said before is a list of dicts.'''
    history = []
    for question in example["questions"]:
        history.append({"role": "user", "content": question})
        answer = yield Generate(question, turns=history, max_new_tokens=example["most"])
        history.append({"role": "assistant", "content": answer.text})
    return {"characters": sum(len(turn["content"]) for turn in history)}
"""

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>\n"
    "{{ message.content }}<|endoftext|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)

QUESTIONS = (
    "Is the river wide where the boats go down in the evening?",
    "학교는 언덕 위에 있는가, 그리고 누가 책을 읽는가?",
    "And what did she say of the answer that the others gave?",
    "Who jumps over the lazy dog?",
)


def made_rows() -> list[dict[str, Any]]:
    """Dialogues of two turns and of four, with texts of several lengths."""
    return [
        {"most": 8 + 5 * (n % 4), "questions": [f"{n}. {one}" for one in QUESTIONS[: 2 if n % 3 else 4]]}
        for n in range(12)
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a chat template."""
    folder = tiny_causal(tmp_path_factory.mktemp("model") / "talker", seq_len=1024)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


@pytest.fixture
def talks(project: Project) -> Project:
    (project.path / "test_sums.py").unlink()
    (project.path / "test_talks.py").write_text(TALKS, encoding="utf-8")
    (project.path / "data" / "talks").mkdir(parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in made_rows())
    (project.path / "data" / "talks" / "test.jsonl").write_text(lines, encoding="utf-8")
    return project


def by_a_loop(folder: Path, rows: list[dict[str, Any]]) -> tuple[list[list[str]], list[list[int]]]:
    """The texts of each dialogue by ``generate``, one after the other, and the numbers of tokens of the prompts."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    texts: list[list[str]] = []
    lengths: list[list[int]] = []
    for row in rows:
        texts.append([])
        lengths.append([])
        history = []
        for question in row["questions"]:
            history.append({"role": "user", "content": question})
            written = tokenizer.apply_chat_template(history, tokenize=False, add_generation_prompt=True)
            ids = torch.tensor([tokenizer.encode(written, add_special_tokens=False)])
            lengths[-1].append(ids.shape[1])
            with torch.no_grad():
                made = model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=row["most"],
                    do_sample=False,
                    pad_token_id=0,
                )
            texts[-1].append(tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True))
            history.append({"role": "assistant", "content": texts[-1][-1]})
    return texts, lengths


def rows_of(project: Project) -> list[dict[str, Any]]:
    text = (project.path / "data" / "talks" / "test.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def texts_of(project: Project) -> list[list[str]]:
    """The texts of each dialogue of the only run, by row."""
    found = {
        int(name.rpartition("/")[2]): [one["answer"]["samples"][0]["text"] for one in record.exchanges]
        for name, record in project.records.items()
    }
    return [found[number] for number in sorted(found)]


@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("--eval-batch=1",), marks=pytest.mark.slow),
        pytest.param(("--eval-batch=3", "--eval-set=batch_items=5"), marks=pytest.mark.slow),
        pytest.param(("-n", "2"), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_texts_of_dialogues_are_those_of_a_plain_loop(
    options: tuple[str, ...], talks: Project, model: Path
) -> None:
    done = talks.run("--eval-device=cpu", *options, checkpoint=str(model), apart="-n" in options)
    assert done.ret == 0
    assert texts_of(talks) == by_a_loop(model, rows_of(talks))[0]


def test_a_server_is_sent_the_same_dialogues_turn_by_turn(talks: Project, model: Path) -> None:
    pytest.importorskip("aiohttp", reason="served models need aiohttp")
    with serving(model, limit=1024) as server:
        assert talks.run(checkpoint=f"{server.url}/v1").ret == 0
        texts = texts_of(talks)
        assert texts == by_a_loop(model, rows_of(talks))[0]
        asked = [body["messages"] for path, body in server.bodies if path.endswith("chat/completions")]
    for row, said in zip(rows_of(talks), texts, strict=True):
        turns = [turn for pair in zip(row["questions"], said, strict=True) for turn in pair]
        own = [
            [turn["content"] for turn in messages]
            for messages in asked
            if messages[0]["content"] == row["questions"][0]
        ]
        assert own == [turns[:end] for end in range(1, len(turns), 2)]


def talk(engine: CausalEngine, rows: list[dict[str, Any]]) -> list[list[str]]:
    """The texts of dialogues, each turn asked as soon as the one before is answered."""
    said: list[list[str]] = [[] for _ in rows]

    def ask(number: int) -> None:
        turns = []
        for question, text in zip(rows[number]["questions"], [*said[number], None], strict=False):
            turns.append({"role": "user", "content": question})
            turns += [] if text is None else [{"role": "assistant", "content": text}]

        def take(_: int, answer: Answer | Refusal | Exception) -> None:
            assert isinstance(answer, GenerateAnswer)
            said[number].append(answer.text)
            if len(said[number]) < len(rows[number]["questions"]):
                ask(number)

        engine.submit([Generate("", turns=turns, max_new_tokens=rows[number]["most"])], take)

    for number in range(len(rows)):
        ask(number)
    while [len(texts) for texts in said] != [len(row["questions"]) for row in rows]:
        engine.collect()
    return said


@ON_CPU
def test_nothing_of_the_former_turns_is_computed_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, rows = engine_for(model), made_rows()
    assert generates_together(engine)
    right, lengths = by_a_loop(model, rows)
    every, once = sum(map(sum, lengths)), sum(map(max, lengths))
    assert 1.5 * once < every, "each turn has all former ones in its prompt"
    computed = []
    for keeps in (True, False):
        if not keeps:
            monkeypatch.setattr(PrefixGroup, "row_of", lambda *_: None)
        engine.work_done.reset()
        assert talk(engine, rows) == right
        done = engine.work_done
        computed.append(done.computed - done.padded - done.decoded)
    assert computed[0] <= once < computed[1]
