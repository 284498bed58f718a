"""The shipped datasets: each says where it comes from, and the whole ones are the authors' own files."""

from __future__ import annotations

import hashlib
import json

from tests.support.places import ROOT

DATA = ROOT / "fixtures" / "data"
DATASETS = sorted(path for path in DATA.iterdir() if path.is_dir())


def test_a_dataset_names_its_source_and_its_licence() -> None:
    for dataset in DATASETS:
        text = (dataset / "README.md").read_text(encoding="utf-8")
        assert "Source: " in text, dataset.name
        assert "Licence: " in text, dataset.name
        assert list(dataset.rglob("*.jsonl")), dataset.name


def test_humaneval_is_whole_and_has_its_licence_beside_it() -> None:
    rows = (DATA / "humaneval" / "HumanEval.jsonl").read_bytes()
    assert (
        hashlib.sha256(rows).hexdigest() == "1d49078ba3e2b196b9344535bef34a43021f038fad9561d6ee7c53450609a6a2"
    )
    assert "Copyright (c) OpenAI" in (DATA / "humaneval" / "LICENSE").read_text(encoding="utf-8")


def test_the_prompt_of_mbpp_can_show_its_three_examples() -> None:
    lines = (DATA / "mbpp" / "prompt.jsonl").read_text(encoding="utf-8").split("\n")
    assert [json.loads(line)["task_id"] for line in lines if line] == list(range(1, 11))
