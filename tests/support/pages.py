"""Pages made of nothing: the data of made-up items in the form of ``pytest_touchstone.reports.page``, of any size."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Sequence
from typing import Any, Final

from pytest_touchstone.reports.page.builder import assemble_page
from pytest_touchstone.reports.page.items import BETWEEN, CHUNK, ENCODER, chunk_text, pack_text
from pytest_touchstone.reports.page.payload import DataBlock
from pytest_touchstone.results.records import STATUSES

WORDS: Final = (
    "the river carries seven stones past an old mill while children count apples and birds on every branch near water "
    "light grows where quiet towns keep their bridges open for trains that never stop between two long fields"
)
HOSTILE: Final = (
    '<script>window.harmed = "script"</script>',
    '<img src="https://attacker.example/a.png" onerror="window.harmed = \'image\'">',
    "<a href=\"javascript:window.harmed='link'\">click</a>",
    "\x1b[31mred\x1b[0m \x1b]8;;https://attacker.example\x07link\x1b]8;;\x07",
    '</script><script>window.harmed = "closed"</script>',
    "</pre></section><style>@import url(https://attacker.example/a.css); * { display: none }</style>",
    "<iframe srcdoc=\"<script>parent.harmed = 'frame'</script>\"></iframe> \u202etxt.exe",
    '<svg onload="window.harmed = \'svg\'"></svg><base href="https://attacker.example/">',
)
"""Completions that would do harm if they were markup."""

Meta = dict[str, Any]


def page(meta: Meta, blocks: Sequence[DataBlock]) -> str:
    """Return a page of this data, its summary a heading and a table."""
    table = "<table><thead><tr><th>metric</th></tr></thead><tbody><tr><td>acc</td></tr></tbody></table>"
    return assemble_page(f"<h1>Made up</h1><p class='faint'>The summary.</p>{table}", meta, blocks)


def unpacked(signs: str) -> str:
    """Return the text that ``pack_text`` was given."""
    raw = base64.b85decode(signs.encode("ascii").translate(bytes.maketrans(b".,:", b"<>&")))
    return gzip.decompress(raw).decode("utf-8")


def chunk_items(text: str) -> list[dict[str, Any]]:
    """Return the items that ``chunk_text`` was given."""
    leads, *items = map(json.loads, text.split(BETWEEN))
    each = [lead for lead, many in leads for _ in range(many)]
    for item, lead in zip(items, each, strict=True):
        if lead:
            item["asked"][0]["question"] = lead + item["asked"][0]["question"]
    return items


def items_of(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the items of a part's columns, one dictionary each."""
    plain = {
        name: columns[name]
        for name in ("example", "status", "right", "group", "seconds", "tokens", "invalid")
    }
    coded = {"error": columns["error"], **columns["fields"]}
    for name, column in coded.items():
        plain[name] = [None if code is None else column["values"][code] for code in column["codes"]]
    plain |= columns["metrics"]
    return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]


def made(
    benchmarks: Sequence[str] = ("facts", "sums", "programs"),
    checkpoints: int = 3,
    items: int = 300,
    *,
    kind: str = "run",
    runs: int = 1,
    hostile: bool = False,
) -> tuple[Meta, list[DataBlock]]:
    """Return meta data and blocks: every checkpoint of every run answers ``items`` items of each benchmark."""
    meta: Meta = {
        "format": 3,
        "title": "Made up",
        "kind": kind,
        "runs": [
            {
                "id": f"run-{run}",
                "label": f"run {run}",
                "checkpoints": [
                    {
                        "name": f"step-{100 * (one + 1)}",
                        "series": "toy",
                        "step": 100 * (one + 1),
                        "epoch": one + 1,
                    }
                    for one in range(checkpoints)
                ],
            }
            for run in range(runs)
        ],
        "benchmarks": [
            {
                "name": name,
                "primary": "acc",
                "metrics": ["acc", "acc_norm"],
                "groups": ["history", "physics", "law"],
                "fields": ["source", "level", "url"],
                "higher_is_better": True,
            }
            for name in benchmarks
        ],
        "statuses": list(STATUSES),
        "parts": [],
        "verdicts": [],
        "notes": [],
    }
    blocks: list[DataBlock] = []
    for run in range(runs):
        for checkpoint in range(checkpoints):
            for number, name in enumerate(benchmarks):
                place = len(meta["parts"])
                columns, texts = _part(name, run * checkpoints + checkpoint, items, number * items, hostile)
                chunks = [pack_text(chunk_text(some)) for some in texts]
                names = [f"texts-{place}-{chunk}" for chunk in range(len(chunks))]
                blocks += [DataBlock(f"columns-{place}", columns), *map(DataBlock, names, chunks)]
                part = {"columns": f"columns-{place}", "texts": names, "run": run}
                part |= {"checkpoint": checkpoint, "benchmark": number, "items": items, "size": CHUNK}
                meta["parts"].append(part)
    return meta, blocks


def _part(
    benchmark: str, candidate: int, items: int, first: int, hostile: bool
) -> tuple[str, list[list[Any]]]:
    sure = random.Random(f"{benchmark}")
    skill = random.Random(f"{benchmark} {candidate}")
    columns: dict[str, Any] = {
        name: [] for name in ("example", "status", "right", "group", "length", "seconds")
    }
    columns |= {name: [] for name in ("tokens", "invalid", "repeats", "passed")}
    scores: dict[str, list[float | None]] = {"acc": [], "acc_norm": []}
    errors: list[int | None] = []
    fields: dict[str, Any] = {"source": {"values": ["web", "book"], "codes": []}}
    fields |= {"level": {"values": [1, 2, 3], "codes": []}, "url": {"values": [], "codes": []}}
    shots = [_shots(group) for group in range(3)]
    texts = []
    for item in range(items):
        hard, group = sure.random(), 3 * item // items
        status = (0, 2, 3)[1 + item % 2] if item % 97 == 96 else 0
        right = None if status else int(skill.gauss(0.55 + 0.01 * candidate, 0.12) > hard)
        columns["example"].append(f"{benchmark}/{item}")
        columns["status"].append(status)
        columns["right"].append(right)
        columns["group"].append(group)
        columns["seconds"].append(round(skill.random(), 4))
        columns["tokens"].append(skill.randrange(1, 60))
        columns["invalid"].append(int(item % 41 == 40))
        columns["repeats"].append(4 if benchmark == "programs" else 1)
        columns["passed"].append((2 if right else 1) if benchmark == "programs" and not status else None)
        scores["acc"].append(None if right is None else float(right))
        scores["acc_norm"].append(None if right is None else float(sure.random() > 0.4))
        errors.append(None if not status else status - 2)
        fields["source"]["codes"].append(item % 2)
        fields["level"]["codes"].append(item % 3)
        fields["url"]["values"].append(f"https://example.org/{item}")
        fields["url"]["codes"].append(item)
        question = f"{shots[group]}Question: number {item}: {_words(sure, 60)}?\nAnswer:"
        text = _texts(benchmark, question, right, sure, skill)
        if hostile and item < len(HOSTILE):
            text = _with(text, HOSTILE[item])
            columns["example"][-1] = f"{benchmark}/{item}{HOSTILE[item]}"
        if status:
            text = {"asked": text["asked"][:1], "message": "RuntimeError: out of memory"}
        columns["length"].append(len(text["asked"][0]["question"]))
        texts.append(text)
    columns |= {"metrics": scores, "error": {"values": ["RuntimeError", "timeout"], "codes": errors}}
    columns |= {"fields": fields, "rank": [first, *[1] * (items - 1)]}
    return pack_text(ENCODER.encode(columns)), [
        texts[first : first + CHUNK] for first in range(0, items, CHUNK)
    ]


def _shots(group: int) -> str:
    some = random.Random(group)
    return "".join(f"Question: {_words(some, 60)}?\nAnswer: {_words(some, 8)}\n\n" for _ in range(5))


def _texts(
    benchmark: str, question: str, right: int | None, sure: random.Random, skill: random.Random
) -> dict[str, Any]:
    row = {"topic": _words(sure, 4), "solution": _words(sure, 20)}
    if benchmark == "sums":
        gold = sure.randrange(100, 999)
        said = gold if right else gold + skill.randrange(1, 9)
        answer = f" {_words(skill, 40)}\nSo {_words(sure, 20)} and the total is {said}.\n#### {said}"
        answers = [{"text": answer, "remark": "ended at a stop sequence, 61 tokens"}]
        asked = {"kind": "Generate", "question": question, "answers": answers}
        return {
            "asked": [asked],
            "extracted": {"strict": str(said), "flexible": None},
            "gold": str(gold),
            "row": row,
        }
    if benchmark == "programs":
        code = [
            f"def f(x):\n    # {_words(sure, 9)} {_words(skill, 2)}\n    return x + {n + (0 if right else 1)}\n"
            for n in range(4)
        ]
        outcomes = ["passed" if right else "failed", "failed", "timeout", "passed"]
        programs = [
            {
                "text": text,
                "outcome": outcome,
                "detail": "" if outcome == "passed" else "AssertionError: f(1) == 2",
            }
            for text, outcome in zip(code, outcomes, strict=True)
        ]
        answers = [{"text": text, "remark": "ended by itself, 30 tokens"} for text in code]
        asked = {"kind": "Generate", "question": question, "turns": _turns(question), "answers": answers}
        return {
            "asked": [asked],
            "programs": programs,
            "row": row,
            "notes": ["of a long question the end is kept"],
        }
    options = [_words(sure, 5) for _ in range(4)]
    due = sure.randrange(4)
    chosen = due if right else (due + 1) % 4
    choices = [
        {
            "text": text,
            "logprob": -9.0 - abs(place - chosen) - skill.random(),
            "chosen": place == chosen,
            "right": place == due,
        }
        for place, text in enumerate(options)
    ]
    return {"asked": [{"kind": "choices", "question": question, "choices": choices}], "row": row}


def _turns(question: str) -> list[list[str]]:
    return [["system", "You write programs."], ["user", question]]


def _with(text: dict[str, Any], planted: str) -> dict[str, Any]:
    """Return the texts of an item with this planted in every one."""
    asked = text["asked"][0]
    return {
        "asked": [
            {
                **{"kind": "Generate", "question": f"{planted}\n{asked['question']}"},
                "choices": [{"text": planted, "logprob": -1.0, "chosen": True, "right": False}],
                "answers": [{"text": planted, "remark": planted}],
                "turns": [["user", planted], [planted, planted]],
            }
        ],
        **{"extracted": {planted: planted}, "gold": planted, "row": {planted: planted}, "notes": [planted]},
        **{"programs": [{"text": planted, "outcome": planted, "detail": planted}], "message": planted},
    }


def _words(some: random.Random, many: int) -> str:
    return " ".join(some.choices(WORDS.split(), k=many))
