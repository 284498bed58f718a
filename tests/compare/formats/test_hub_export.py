"""A run in a model's repository: files that the Hub's own classes read, and that keep what was there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard, parse_eval_result_entries

from pytest_touchstone.compare.formats.export import ExportedCheckpoint, how_asked
from pytest_touchstone.compare.formats.hub_export import hub_files
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.files import write_atomic
from tests.support.exports import finished
from tests.support.lines import missing

PLACES = {
    "winogrande": {"path": "allenai/winogrande", "config": "winogrande_xl", "split": "validation"},
    "lambada_openai": {"path": "EleutherAI/lambada_openai", "split": "test"},
}


def export_of(benchmarks: list[str], *, invalid: str | None = None, **more: Any) -> ExportedCheckpoint:
    summary, samples = finished(benchmarks)
    declarations = [replace(one, hub=PLACES.get(one.name, {})) for one in summary.declarations]
    results = [
        replace(one, invalid=invalid) if one.benchmark == "winogrande" else one for one in summary.results
    ]
    asked = how_asked(one.record for one in samples)
    whole = replace(summary, declarations=declarations, results=results)
    return ExportedCheckpoint(summary=whole, checkpoint="runs/a", samples=[], asked=asked, **more)


def written(folder: Path, export: ExportedCheckpoint) -> list[str]:
    files, notes = hub_files(export, folder)
    for name, content in files.items():
        write_atomic(folder / name, content)
    return notes


def test_a_leaderboards_entry_has_the_primary_metric_and_all_that_must_be_known_of_it(tmp_path: Path) -> None:
    export = export_of(["winogrande", "lambada_openai"], source="https://example.org/r")
    assert not missing(written(tmp_path, export)[0], "2 results", ".eval_results/")
    (entry,) = parse_eval_result_entries(
        yaml.safe_load((tmp_path / ".eval_results" / "winogrande.yaml").read_text())
    )
    metric = export.results[0].metrics["acc"]
    assert (entry.dataset_id, entry.task_id, entry.value) == (
        "allenai/winogrande",
        "winogrande_xl",
        metric.value,
    )
    assert (entry.source_url, entry.date) == ("https://example.org/r", "2026-01-02T03:04:05Z")
    notes = str(entry.notes)
    for part in (
        f"95% interval {metric.low:.4f} to {metric.high:.4f} (Wilson)",
        "12 items",
        "5-shot",
        "prompts sha256 ",
    ):
        assert part in notes
    (lambada,) = yaml.safe_load((tmp_path / ".eval_results" / "lambada_openai.yaml").read_text())
    assert lambada["dataset"] == {"id": "EleutherAI/lambada_openai", "task_id": "default"}


def test_a_card_has_every_metric_with_its_interval(tmp_path: Path) -> None:
    written(tmp_path, export_of(["winogrande", "lambada_openai"], model_id="org/a-1b"))
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.model_name == "a-1b"
    found = {(one.dataset_name, one.metric_name): one for one in card.data.eval_results}
    assert {*found} == {
        ("winogrande", "acc"),
        *(("lambada_openai", name) for name in ("acc", "logprob", "perplexity")),
    }
    acc = found["winogrande", "acc"]
    assert (acc.dataset_type, acc.dataset_config) == ("allenai/winogrande", "winogrande_xl")
    assert acc.dataset_args == {"num_few_shot": 5}
    assert acc.metric_args["n"] == 12
    assert acc.metric_args["low"] < acc.metric_value < acc.metric_args["high"]
    assert len(acc.metric_args["prompts_sha256"]) == 64


CARD = """---
license: apache-2.0
model-index:
- name: mine
  results:
  - task: {type: text-generation}
    dataset: {type: allenai/winogrande, name: winogrande, config: winogrande_xl, split: validation}
    metrics:
    - {type: accuracy, value: 0.1}
  - task: {type: text-generation}
    dataset: {type: other/set, name: Other}
    metrics:
    - {type: accuracy, value: 0.2}
    note: kept
tags: [a]
---

# Mine

Words.
"""


def test_a_card_that_is_there_keeps_all_but_the_results_of_the_same_tasks(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(CARD.replace("\n", "\r\n").encode())
    export = export_of(["winogrande"])
    assert not missing(written(tmp_path, export)[-1], "README.md", "1 result")
    text = (tmp_path / "README.md").read_bytes().decode()
    assert text.endswith("---\r\n\r\n# Mine\r\n\r\nWords.\r\n")
    data = yaml.safe_load(text.split("---")[1])
    assert (data["license"], data["tags"], data["model-index"][0]["name"]) == ("apache-2.0", ["a"], "mine")
    other, ours = data["model-index"][0]["results"]
    assert other["note"] == "kept"
    assert ours["metrics"][0]["value"] == export.results[0].metrics["acc"].value
    before = text
    written(tmp_path, export)
    assert (tmp_path / "README.md").read_bytes().decode() == before


def test_results_of_other_tasks_in_the_same_file_are_kept(tmp_path: Path) -> None:
    place = tmp_path / ".eval_results" / "winogrande.yaml"
    theirs = {
        "dataset": {"id": "allenai/winogrande", "task_id": "winogrande_s"},
        "value": 0.3,
        "verifyToken": "x",
    }
    write_atomic(place, yaml.safe_dump([theirs]))
    written(tmp_path, export_of(["winogrande"]))
    written(tmp_path, export_of(["winogrande"]))
    first, ours = yaml.safe_load(place.read_text())
    assert first == theirs
    assert ours["dataset"]["task_id"] == "winogrande_xl"


def test_what_is_not_valid_or_on_no_hub_is_said_and_left_out(tmp_path: Path) -> None:
    notes = written(tmp_path, export_of(["winogrande", "real_coref"], invalid="too many texts were cut off"))
    assert "not valid, left out: winogrande" in notes
    assert any(not missing(note, "in the card alone", "real_coref") for note in notes)
    assert not (tmp_path / ".eval_results").exists()
    names = {one.dataset_name for one in ModelCard.load(tmp_path / "README.md").data.eval_results}
    assert names == {"real_coref"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README.md", "---\na: [\n---\n"),
        ("README.md", "---\n- a\n---\n"),
        ("README.md", "---\nmodel-index: 3\n---\n"),
        ("README.md", "---\nmodel-index: [{name: x}]\n---\n"),
        ("README.md", "---\nmodel-index: [{name: x, results: [4]}]\n---\n"),
        ("README.md", "---\na: " + "[" * 5000 + "\n---\n"),
        ("README.md", "---\na: !!python/object/apply:os.system [id]\n---\n"),
        (".eval_results/winogrande.yaml", "a: 1"),
        (".eval_results/winogrande.yaml", "- {"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_stays_as_it_is(
    tmp_path: Path, name: str, content: str
) -> None:
    write_atomic(tmp_path / name, content)
    with pytest.raises(DataError) as caught:
        hub_files(export_of(["winogrande"]), tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (tmp_path / name).read_text() == content


def test_a_card_that_grows_when_it_is_read_is_written_in_its_own_size(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    bomb = "\n".join(lines)
    results = "model-index: [{name: x, results: [{dataset: {type: *a11}}]}]"
    write_atomic(tmp_path / "README.md", f"---\n{bomb}\n{results}\n---\n")
    files, _ = hub_files(export_of(["winogrande"]), tmp_path)
    assert len(files["README.md"]) < 10_000
