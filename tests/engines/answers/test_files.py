"""Files of answers of every kind are read alike, and what is wrong with one is a line."""

from __future__ import annotations

import json
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.errors import DataError
from pytest_touchstone.engines.answers import files
from pytest_touchstone.engines.answers.files import AnswerFile, RecordedChoice, read_answers
from tests.support.rows import write_jsonl

INSPECT: dict[str, Any] = {
    "status": "success",
    "eval": {"task": "gsm8k", "model": "openai/m"},
    "plan": {"config": {"max_tokens": 64, "temperature": 0.5}},
}
SAMPLE: dict[str, Any] = {
    "id": 3,
    "epoch": 1,
    "input": "What is 2 + 2?",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Solve: What is 2 + 2?"}]},
        {"role": "assistant", "content": "It is 4."},
    ],
    "output": {"choices": [{"message": {"content": "It is 4."}, "stop_reason": "max_tokens"}]},
    "scores": {"match": {"value": "C", "answer": "4"}},
}


def read(path: Path, content: object, **options: str) -> AnswerFile:
    path.write_text(json.dumps(content), encoding="utf-8")
    return read_answers(path, **options)


def lm_eval(rule: str, value: float, **more: Any) -> dict[str, Any]:
    return {
        "doc_id": 7,
        "doc_hash": "h",
        "doc": {"question": "What is 2 + 2?", "id": "q7"},
        "arguments": {
            "gen_args_0": {"arg_0": "Q: What is 2 + 2?", "arg_1": {"until": ["Q:"], "max_gen_toks": 9}}
        },
        "resps": [[" It is 4."]],
        "filtered_resps": ["4"],
        "filter": rule,
        "metrics": ["exact_match"],
        "exact_match": value,
        **more,
    }


def test_the_lines_of_several_filters_are_one_document_of_lm_eval(tmp_path: Path) -> None:
    folder = tmp_path / "ORG__MODEL"
    folder.mkdir()
    path = folder / "samples_gsm8k_2026.jsonl"
    write_jsonl(
        path, [lm_eval("strict-match", 0.0), lm_eval("flexible-extract", 1.0, filtered_resps=["four"])]
    )
    (folder / "results_2026.json").write_text('{"n-shot": {"gsm8k": 5}}')
    file = read_answers(path)
    (row,) = file.rows
    assert (row.texts, row.provenance.prompt) == ((" It is 4.",), "Q: What is 2 + 2?")
    assert row.provenance.verdicts == {"exact_match_strict": 0.0, "exact_match_flexible": 1.0}
    assert row.provenance.extracted == {"exact_match_strict": "4", "exact_match_flexible": "four"}
    assert (file.model, file.asked["shots"], file.asked["max_new_tokens"]) == ("ORG/MODEL", 5, 9)


def test_log_likelihoods_of_lm_eval_are_choices_in_the_forms_of_all_releases(tmp_path: Path) -> None:
    row = lm_eval("none", 1.0, arguments=[["Q", " a"], ["Q", " b"]])
    for responses in ([[[-1.5, True]], [[-2.0, False]]], [[["-1.5", "True"]], [["-2.0", "False"]]]):
        path = write_jsonl(tmp_path / "samples_x_1.jsonl", [{**row, "resps": responses}])
        assert read_answers(path).rows[0].choices == (
            RecordedChoice("Q", " a", -1.5, True),
            RecordedChoice("Q", " b", -2.0, False),
        )


def test_a_log_of_inspect_is_read_packed_and_as_json(tmp_path: Path) -> None:
    plain = read(tmp_path / "log.json", {**INSPECT, "samples": [SAMPLE]})
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", json.dumps(INSPECT))
        archive.writestr("samples/3_epoch_1.json", json.dumps(SAMPLE))
        archive.writestr("_journal/start.json", "no JSON")
    packed = read_answers(tmp_path / "log.eval")
    assert plain.rows == packed.rows
    (row,) = packed.rows
    assert (row.texts, row.chat, row.cut) == (("It is 4.",), True, True)
    assert row.provenance.verdicts == {"match": 1.0}
    assert row.provenance.prompt == "Solve: What is 2 + 2?"
    assert (packed.model, packed.asked["max_new_tokens"]) == ("openai/m", 64)


def test_predictions_of_opencompass_are_read_with_their_conversations(tmp_path: Path) -> None:
    prompt = [{"role": "HUMAN", "prompt": "What is 2 + 2?"}]
    file = read(tmp_path / "gsm8k.json", {"0": {"origin_prompt": prompt, "prediction": "4", "gold": "4"}})
    assert file.kind == "predictions of OpenCompass"
    assert (file.rows[0].provenance.prompt, file.rows[0].texts) == ("What is 2 + 2?", ("4",))


def test_results_of_evalplus_have_programs_and_both_verdicts(tmp_path: Path) -> None:
    sample = {"task_id": "HumanEval/0", "solution": "x = 1", "base_status": "pass", "plus_status": "fail"}
    file = read(tmp_path / "s_eval_results.json", {"eval": {"HumanEval/0": [sample, sample]}})
    assert file.samples == 2
    assert file.rows[0].provenance.verdicts == {"base_pass@1": 1.0, "pass@1": 0.0}
    assert file.rows[0].provenance.program == "solution"


def test_outputs_of_livecodebench_have_programs_and_its_verdict(tmp_path: Path) -> None:
    row = {"question_id": "abc300_a", "output_list": ["Here:"] * 2, "code_list": ["x = 1", ""], "pass@1": 0.5}
    file = read(tmp_path / "s_eval_all.json", [row])
    assert file.rows[0].ids == {"question_id": "abc300_a"}
    assert file.rows[0].texts == ("x = 1", "")
    assert file.rows[0].provenance.verdicts == {"pass@1": 0.5}
    assert file.rows[0].provenance.program == "solution"
    del row["code_list"]
    assert read(tmp_path / "s.json", [row]).rows[0].provenance.program == ""


def test_the_answer_of_any_json_is_found_or_named(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"id": 1, "mine": "A", "response": "B", "correct": True}])
    assert read_answers(path).rows[0].texts == ("B",)
    assert read_answers(path, answer="mine").rows[0].texts == ("A",)
    assert read_answers(path).rows[0].provenance.verdicts == {"correct": 1.0}
    assert read_answers(path, id_field="mine").rows[0].ids == {"mine": "A"}
    rows = read(tmp_path / "a.json", [{"mine": "A", "key": 3, "k": 1}], answer="mine", id_field="k").rows
    assert (rows[0].texts, rows[0].ids) == (("A",), {"k": "1"})


@pytest.mark.parametrize(
    ("rows", "samples"),
    [
        ([{"id": 1, "responses": ["a", "b"]}, {"id": 2, "responses": ["a", "b", "c"]}], 2),
        ([{"id": 1, "response": "a"}, {"id": 1, "response": "b"}], 2),
        ([{"response": "a"}, {"response": "b"}], 1),
    ],
)
def test_samples_are_a_list_or_lines_of_one_name(tmp_path: Path, rows: list[Any], samples: int) -> None:
    assert read_answers(write_jsonl(tmp_path / "a.jsonl", rows)).samples == samples


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"id": 1}', "no field that could be its answer"),
        ('{"id": 1, "response": {"a": 1}, "prompt": 3}', "is no text|and no text"),
        ('{"id": 1, "response": null}', "and no text"),
        (f'{{"id": 1, "response": 1{"0" * 400}}}', "too large"),
        (f'{{"id": 1, "response": "x", "score": 1{"0" * 400}}}', "too large"),
        ("[1]", "a list, not a JSON object"),
        ('{"id": 1, "response": NaN}', "is 'nan' and no text"),
        (json.dumps({**lm_eval("none", 1.0), "resps": [[[float("nan"), True]]]}), "no log-likelihood"),
        ("{", "row 1: not valid JSON"),
        ("", "holds no answers"),
        (
            json.dumps({**lm_eval("none", 1.0), "resps": [[["x", 1]]], "arguments": [["a", "b"]]}),
            "no log-likelihood",
        ),
        (json.dumps({**lm_eval("none", 1.0), "arguments": "x"}), "stands where a list belongs"),
    ],
)
def test_a_file_that_is_none_of_answers_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=said) as error:
        read_answers(path)
    assert str(error.value).startswith(f"{path}: ") or "a.jsonl" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_log_that_is_packed_wrongly_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("header.json", json.dumps(INSPECT))
    content = bytearray(path.read_bytes())
    content[60:70] = bytes(10)
    path.write_bytes(content)
    with pytest.raises(DataError, match="no file of answers"):
        read_answers(path)


def test_the_model_of_results_beside_samples_is_a_text(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "samples_t_D.jsonl", [lm_eval("none", 1.0)])
    (tmp_path / "results_D.json").write_text('{"model_name": {"a": 1}}')
    assert read_answers(tmp_path / "samples_t_D.jsonl").model == "{'a': 1}"


def test_a_log_that_unpacks_to_far_more_than_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_PACKED", 10)
    with zipfile.ZipFile(tmp_path / "bomb.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps(INSPECT))
        archive.writestr("samples/1.json", json.dumps({**SAMPLE, "input": "0" * 10_000_000}))
    with pytest.raises(DataError, match="it unpacks to"):
        read_answers(tmp_path / "bomb.eval")


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "details.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="pip install pyarrow"):
        read_answers(tmp_path / "details.parquet")


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def test_parquet_of_any_program_is_read_as_its_lines_would_be(tmp_path: Path) -> None:
    rows = [{"id": n, "response": f"{n}", "k": "x"} for n in range(200)]
    path = write_parquet(tmp_path / "a.parquet", rows)
    assert read_answers(path).rows == read_answers(write_jsonl(tmp_path / "a.jsonl", rows)).rows
    assert read_answers(path, answer="k", id_field="response").rows[199].ids == {"response": "199"}


def test_parquet_that_unpacks_to_more_than_its_metadata_may_say_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet(tmp_path / "a.parquet", [{"id": n, "response": "x" * 10_000} for n in range(5_000)])
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(files, "MOST_UNPACKED", 10_000_000)
    with pytest.raises(DataError, match="it unpacks to"):
        read_answers(path)


def test_details_of_lighteval_are_read_in_their_present_form(tmp_path: Path) -> None:
    row = {
        "doc": {"query": "What is 2 + 2?", "choices": ["4", "5"], "id": "0"},
        "model_response": {"input": "Q: What is 2 + 2?", "text": ["4"], "logprobs": [-1.0, -2.0]},
        "metric": {"acc": 1.0},
    }
    path = write_parquet(tmp_path / "details_x.parquet", [row])
    (read_row,) = read_answers(path).rows
    assert [choice.logprob for choice in read_row.choices] == [-1.0, -2.0]
    assert read_row.provenance.verdicts == {"acc": 1.0}
    row = {**row, "model_response": {"logprobs": [-1.0, float("nan")]}}
    with pytest.raises(DataError, match="no log-likelihood"):
        read_answers(write_parquet(path, [row]))


@pytest.mark.parametrize("options", [{"answer": "response"}, {"id_field": "id"}])
def test_fields_are_not_named_in_a_file_that_has_its_own(tmp_path: Path, options: dict[str, str]) -> None:
    row = {"full_prompt": "Q", "predictions": ["4"], "response": "5", "id": "1"}
    rows = {"0": {"origin_prompt": "Q", "prediction": "4", "response": "5", "id": "1"}}
    write_parquet(tmp_path / "a.parquet", [row])
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "b.json").write_text(json.dumps({**INSPECT, "samples": [SAMPLE]}))
    for name in ("a.parquet", "a.json", "b.json"):
        with pytest.raises(DataError, match="--answer and --id"):
            read_answers(tmp_path / name, **options)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["eval", "samples", "resps", "arguments", "prediction", "output", "messages", "id", "doc"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(content=JSON, ending=st.sampled_from([".json", ".jsonl"]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_is_read_or_refused(content: object, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{ending}"
    path.write_text(json.dumps(content))
    with suppress(DataError):
        assert read_answers(path).rows
