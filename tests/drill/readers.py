"""Every reader of files, with an example that is right, and what must hold of whatever it accepts.

A reader raises a ``HarnessError``; many are commands of ``touchstone``, which draw what they accept too. One of a
cache, or of a run's small notes, takes damage for nothing, and never raises (``raises`` is false).
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.checkpoints.config_files import ModelConfig, read_json
from pytest_touchstone.checkpoints.fingerprint import FingerprintCache, fingerprint, stat_files
from pytest_touchstone.checkpoints.formats import format_of
from pytest_touchstone.checkpoints.formats.gguf import read_gguf
from pytest_touchstone.checkpoints.formats.weights import pickled_tensors, read_tensors, weights_of
from pytest_touchstone.cli import main
from pytest_touchstone.cli.benchmarks import known_specs, rows_of, table_of, validate_config
from pytest_touchstone.compare.baseline_source import open_source
from pytest_touchstone.compare.fidelity import _documents as documents
from pytest_touchstone.compare.formats.hub_export import _yaml_list as hub_results
from pytest_touchstone.compare.gate.accepted import read_accepted
from pytest_touchstone.compare.gate.config import read_gate_config
from pytest_touchstone.compare.load import read_file
from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.dataset import CANONICAL, read_lines
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.eval_config import ConfigFileError
from pytest_touchstone.core.files import parse_json, read_checked, read_regular
from pytest_touchstone.core.settings import load_project_settings, settings_table
from pytest_touchstone.core.tasks import benchmark_names_in, task_groups
from pytest_touchstone.engines.answers.files import read_answers
from pytest_touchstone.engines.http.calls import CallFailure, MalformedReplyError
from pytest_touchstone.engines.sandbox.cache import TextFiles
from pytest_touchstone.engines.transformers.agreement import _read_verified as read_ways
from pytest_touchstone.plugin.gate import read_schedules
from pytest_touchstone.reports.progress import ProgressLine
from pytest_touchstone.results import file_path
from pytest_touchstone.results.journal import read_record_at, records_with_locations
from pytest_touchstone.results.merging import read_share
from pytest_touchstone.results.reuse import CrashHistory, ItemKey, Reuse
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.store_entry import saved_from_json
from pytest_touchstone.results.summary import load_summary
from tests.support import gguf_files, korean_table
from tests.support.distributed_files import save_distributed
from tests.support.places import ROOT
from tests.support.pt_files import llama_pt
from tests.support.recorded import FOLDER, SCORES, TEXTS, RecordedServer, answers, probed
from tests.support.runs import run
from tests.support.tiny import pickle_weights, split_weights, tiny_adapter, tiny_causal, trainer_state

RUN: Final = ROOT / "tests" / "results" / "kept" / "20261122_041947_5582"
VERDICTS: Final = ROOT / "fixtures" / "conformance" / "verdicts"


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of files: ``example`` writes one into an empty folder and returns it, ``read`` reads it there."""

    name: str
    example: Callable[[Path], Path]
    read: Callable[[Path], object]
    raises: bool = True


def command(*words: object, codes: tuple[int, ...] = (0, 9)) -> str:
    """What a command prints; raises ``HarnessError`` with its line where it ends with 4."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    if code == 4 and not out.getvalue():
        lines = err.getvalue().removesuffix("\n")
        assert lines.startswith("touchstone: ")
        # Files that are left out have lines of their own before it.
        raise HarnessError(lines.rpartition("\ntouchstone: ")[2])
    if code == 4:  # a check that prints all faults, each in a line
        for line in out.getvalue().splitlines():
            check_refusal(HarnessError(line))
        return ""
    assert code in codes, f"exit code {code}"
    check_harmless(out.getvalue())
    return out.getvalue()


def check_harmless(text: str) -> None:
    """Nothing in it is obeyed by a terminal."""
    assert not set(text) & (set(map(chr, range(32))) - {"\n", "\t"} | {"\x7f", "\u202e", "\u2028"}), repr(
        text
    )


def check_refusal(error: HarnessError) -> None:
    """It is one line that a person can read."""
    said = str(error)
    assert said.strip()
    assert len(said) <= LONGEST, f"{len(said)} characters"
    assert "\n" not in said
    check_harmless(said)


LONGEST: Final = 1500
"""The characters of a refusal: a long path, a value of it, and what to do."""


# Rows, settings and programs


def lines(folder: Path, *rows: object, name: str = "rows.jsonl") -> Path:
    path = folder / name
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def _json(folder: Path, content: object, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _text(text: str, name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name

    return write


def _rows(path: Path) -> None:
    for row in read_lines(path):
        CANONICAL.encode(row.data)


ROWS: Final = [{"question": f"{n}+1=", "options": [str(n), None, {"a": 1.5}], "answer": n} for n in range(3)]
TASK: Final = {
    "num_fewshot": 5,
    "batch_size": 8,
    "limit": None,
    "metrics": ["acc"],
    "priority": "high",
    "timeout": 60,
}
CONFIG: Final = {
    "settings": {"device": "cpu"},
    "benchmarks": {"arc": {"enabled": True, "description": "", "tasks": ["arc_easy"]}, "gsm8k": {"limit": 2}},
    "tasks": {"arc_easy": {"enabled": True, "log_samples": True, "output_path": "out", **TASK}},
}
CONFIG_TOML: Final = """
[benchmarks.arc]
tasks = ["arc_easy"]

[tasks.arc_easy]
num_fewshot = 5
limit = 0.5
metrics = ["acc"]
"""
PROJECT: Final = """
[tool.touchstone]
checkpoint = ["runs/a", "runs/b"]
device = "cpu"
limit = 20
no-cache = true

[tool.touchstone.gate]
mode = "strict"
metric = "score"
margin = 0.02

[tool.touchstone.gate.benchmarks.real_coref]
max_drop = 0.05
floors = ["real@1 >= 0.60"]

[tool.touchstone.composites.mine]
"winogrande:acc" = 0.5
"real_coref:real@1" = 0.5

[tool.touchstone.groups]
mine = "arc_easy 5-shot, gsm8k"

[tool.touchstone.series.a]
parameters = "135M"
"""
GATE: Final = """
mode = "strict"
baseline = "main"
alpha = 0.1

[benchmarks.real_coref]
metric = "real@5"
floors = ["real@1 >= 0.60", "reachable>0.9"]
"""
DROP: Final = {
    **{"benchmark": "winogrande", "metric": "acc", "from": 0.6, "to": 0.5, "because": "x", "by": "Ann <a@b>"},
    **{"on": "2026-01-02", "run": "one", "checkpoint": "checkpoint-100", "fingerprint": "f", "items": 24},
    "conditions": {"shots": 5, "dtype": "float32"},
}
SAMPLES: Final = [
    {"task_id": "test/0", "completion": "    return 1"},
    {"prompt": "def f1():\n", "samples": ["    return 1", "    return 2"]},
    {"task_id": "test/1", "solution": "def f1(): return 1", "_identifier": "x"},
]
MODULE: Final = '''
from pytest_touchstone import Loglikelihood, benchmark

MORE = {"primary": "acc", "asks": Loglikelihood}


@benchmark(name="sums", version=1, data="sums/test", **MORE)
def test_sums(example):
    """Sums."""
'''


@cache
def _shipped() -> list[Benchmark]:
    return [one for one in known_specs(()) if one.name in ("arc_easy", "gsm8k")]


def _config(path: Path) -> None:
    """As ``touchstone benchmarks --config`` reads it, and shows what it enables."""
    file, faults = validate_config(path, _shipped())
    for line in faults:
        check_refusal(HarnessError(line))
    if faults:
        raise ConfigFileError(faults)
    check_harmless(table_of(file, rows_of(file, _shipped()), file.notes))


def _in_project(path: Path) -> None:
    """All that reads a pyproject.toml reads this one."""
    words: list[tuple[object, ...]] = [("study", "r"), ("baseline", "plan", "--output", "r")]
    if not (path.parent / "r").exists():
        run(path.parent / "r", "one", "checkpoint-100")
    load_project_settings(path)
    task_groups(path)
    with contextlib.chdir(path.parent):
        for one in words:
            command(*one)


def _answers(path: Path) -> None:
    file = read_answers(path)
    assert file.samples >= 1
    for row in file.rows:
        assert row.texts or row.choices
        assert all(isinstance(text, str) for text in row.texts)


def _verdict_rows(folder: Path) -> Path:
    return lines(
        folder,
        *({**one.data, "scorer": "bits_per_byte"} for one in read_lines(VERDICTS / "bits_per_byte.jsonl")),
    )


def _verdicts(path: Path) -> None:
    command("score", "--verdicts", path, codes=(0, 1))


def _system(path: Path) -> None:
    assert settings_table()["system"].read(str(path)).strip()


def _documents(path: Path) -> None:
    assert all(isinstance(text, str) and text.strip() for text in documents(path))


SETTINGS: Final = (
    Reader("rows", lambda folder: lines(folder, *ROWS), _rows),
    Reader("rows, packed", lambda folder: lines(folder, *ROWS, name="rows.jsonl.gz"), _rows),
    Reader(
        "eval config (JSON)",
        lambda folder: _json(folder, CONFIG, "asked.json"),
        _config,
    ),
    Reader("eval config (TOML)", _text(CONFIG_TOML, "asked.toml"), _config),
    Reader("pyproject.toml", _text(PROJECT, "pyproject.toml"), _in_project),
    Reader(
        "benchmarks of one's own", _text(MODULE, "test_sums.py"), lambda path: list(benchmark_names_in(path))
    ),
    Reader("samples of programs", lambda folder: lines(folder, *SAMPLES), _answers),
    Reader("verdicts", _verdict_rows, _verdicts),
    Reader(
        "config of lm-eval",
        _text("model: hf\ntasks: [arc_easy]\nlimit: 5\n", "c.yaml"),
        lambda path: command("migrate", path),
    ),
    Reader("system prompt", _text("Answer in one word.", "prompt.txt"), _system),
    Reader("texts", _text("A text.\n", "text.txt"), _documents),
    Reader("texts, as rows", lambda folder: lines(folder, {"text": "A text."}), _documents),
)


# Results


def _in_run(name: str, read: Callable[[Path], object], raises: bool = True, content: object = None) -> Reader:
    """A file of a run's folder, which ``read`` gets."""

    def example(folder: Path) -> Path:
        output = folder / "results"
        run(output, "one", "checkpoint-100", when=7)
        run(output, "two", "checkpoint-100", seed=1, when=9)
        for one in ("one", "two"):
            _json(output, {**MANIFEST, "run_id": one}, f"{one}/run.json")
        if content is not None:
            _json(output, content, name)
        (path,) = output.glob(name)
        return path

    return Reader(name.rpartition("/")[2], example, lambda path: read(_results_of(path)), raises)


def _results_of(path: Path) -> Path:
    return next(one for one in path.parents if one.name == "results")


def _commands(*all_words: str) -> Callable[[Path], None]:
    """Every command is given what the file is of; ``OUT`` is the results folder."""

    def read(output: Path) -> None:
        refused: list[HarnessError] = []
        for words in all_words:
            try:
                command(*(one.replace("OUT", str(output)) for one in words.split()))
            except HarnessError as error:
                check_refusal(error)
                refused.append(error)
        if refused:
            raise refused[0]

    return read


def _accepted(path: Path) -> None:
    for one in read_accepted(path):
        check_harmless(one.text)


def _share(output: Path) -> None:
    if (share := read_share(output / "one")) is not None:
        check_harmless(share.line)


def _live(output: Path) -> None:
    stream = io.StringIO()
    line = ProgressLine(output / "one", 9, stream, False, clock=itertools.count(0, 30).__next__)
    line.start()
    line.tick()
    line.stop()
    check_harmless(stream.getvalue())


def _reuse(output: Path) -> None:
    reuse = Reuse(output / "two")
    reuse.find("x", "checkpoint-100", "winogrande", "winogrande/1", "row of winogrande/1")


def _in_flight(output: Path) -> None:
    file_path(output / "two", "reuse.json").write_text(
        json.dumps({"sources": {"checkpoint-100": {"winogrande": [[str(output / "one"), "checkpoint-100"]]}}})
    )
    CrashHistory(Reuse(output / "two")).given_up(ItemKey("checkpoint-100", "winogrande", "winogrande/1"))


MANIFEST: Final = {
    **{
        "schema": 1,
        "began": 7.0,
        "run_id": "one",
        "command": ["evals/"],
        "rootdir": str(ROOT),
        "folder": ".",
    },
    **{
        "versions": {"python": "3"},
        "settings": {"seed": 1, "limit": 5},
        "benchmarks": {"winogrande": {"code": "c"}},
    },
    "checkpoints": [{"name": "checkpoint-100", "fingerprint": "f", "global_step": 100}],
}
SHARE_ROW: Final = {
    **{"schema": 1, "kind": "shard", "number": 1, "count": 2, "items": 9, "digest": "d", "cost": 0.5},
    **{"checkpoints": ["checkpoint-100"], "places": {"x": 3}},
}
PROGRESS_ROW: Final = {
    **{"schema": 1, "who": "main", "pid": 1, "space": "s", "doing": "winogrande"},
    **{"tokens": 900, "items": 9, "ended": 3, "work": 5.0, "done": 2.5},
}
REUSE_ROW: Final = {
    "schema": 1,
    "sources": {"checkpoint-100": {"winogrande": [["results/one", "checkpoint-100"]]}},
}
USAGE_ROW: Final = {
    **{
        "who": "main",
        "checkpoint": "checkpoint-100",
        "engine": {"tokens": 9, "notes": ["x"], "speculative": None},
    },
    **{"first_answer": 1.5, "devices": ["cpu"]},
}
SCHEDULE_ROW: Final = {
    "checkpoint": "c",
    "benchmark": "b",
    "items": ["i"],
    "examples": ["e"],
    "rows": ["r"],
    "analyses": [1],
}
ALL: Final = (
    "report OUT/one",
    "report OUT/one --format html",
    "runs --output OUT",
    "study OUT/one",
    "compare OUT/one OUT/two",
    "best OUT/one",
)
SAVED: Final = ("baseline list --output OUT", "baseline plan --output OUT", "baseline show one --output OUT")


def _exported(form: str, pattern: str) -> Callable[[Path], Path]:
    def example(folder: Path) -> Path:
        command(
            "export",
            RUN,
            "--format",
            form,
            "-o",
            folder / "out",
            "--root",
            ROOT,
            "--checkpoint",
            "fake-causal",
        )
        return next(iter(sorted((folder / "out").rglob(pattern))))

    return example


def read_results(path: Path) -> None:
    """A file of results can be compared, with itself too, whatever was accepted of it."""
    table = read_file(path, {})
    for bad in table.bad:
        check_harmless(str(bad))
        assert "\n" not in str(bad)
    for one in table.candidates:
        for entry in one.entries.values():
            values = [metric.value for metric in entry.saved.metrics.values()]
            assert all(value is not None and math.isfinite(value) for value in values)
            assert {len(column) for column in entry.items.scores.values()} <= {len(entry.items.examples)}
        if one.entries:
            pair = compare_pair(one, one)
            assert not pair.of_kind("worse")
            assert not pair.of_kind("better")
    if table.candidates:
        command("study", path)


def _own_table(name: str) -> Callable[[Path], Path]:
    return lambda folder: Path(shutil.copy(file_path(RUN, name), folder))


def _again(path: Path) -> None:
    """The card that is there is read when more is written into it."""
    command(
        "export", RUN, "--format", "hub", "-o", path.parent, "--root", ROOT, "--checkpoint", "fake-causal"
    )


HUB: Final = """
- dataset: {id: cais/mmlu, task_id: mmlu}
  value: 0.5
  date: 2026-01-02
  source: {url: https://example.org}
"""

RESULTS: Final = (
    _in_run("one/run.json", _commands(*ALL, "items OUT/one", "export OUT/one -o OUT/x")),
    _in_run("one/summary.json", _commands(*ALL)),
    _in_run(
        "one/details/collected.json", _commands("items OUT/one", "items OUT/one --wrong", "report OUT/one")
    ),
    _in_run(
        "one/items/items-main.jsonl", _commands("items OUT/one", "compare OUT/one OUT/two", "score OUT/one")
    ),
    _in_run("saved/*/winogrande@one.json", _commands(*SAVED)),
    _in_run("saved/*/winogrande@one.items.json", _commands(*SAVED)),
    _in_run(
        "baselines/main.json",
        _commands("baseline show --output OUT", "baseline list --output OUT"),
        content={
            **{
                "schema": 1,
                "kind": "baseline",
                "name": "main",
                "run_id": "one",
                "checkpoint": "checkpoint-100",
                "fingerprint": "f",
            },
        },
    ),
    _in_run("one/details/shard.json", _share, content=SHARE_ROW),
    _in_run(
        "one/details/schedules.json",
        lambda output: read_schedules(output / "one"),
        content={"schema": 1, "schedules": [SCHEDULE_ROW]},
    ),
    _in_run(
        "one/details/effort-main.json",
        lambda output: RunDirectory(output / "one").read_usage(),
        content=[USAGE_ROW],
    ),
    _in_run("one/details/progress-main.json", _live, False, PROGRESS_ROW),
    _in_run(
        "one/details/in-flight-main.json",
        _in_flight,
        False,
        {"schema": 1, "items": [["checkpoint-100", "winogrande", "winogrande/1"]]},
    ),
    _in_run("two/details/reuse.json", _reuse, content=REUSE_ROW),
    Reader("gate plan", _text(GATE, "gate.toml"), lambda path: read_gate_config(path, required=True)),
    Reader(
        "accepted drops",
        lambda folder: _json(folder, {"schema": 1, "kind": "accepted", "accepted": [DROP]}, "a.json"),
        _accepted,
    ),
    Reader("lm-eval", _exported("lm-eval", "results*.json"), read_results),
    Reader(
        "lm-eval, samples",
        _exported("lm-eval", "samples*.jsonl"),
        lambda path: read_results(next(iter(path.parent.glob("results*.json")))),
    ),
    Reader(
        "korean table (CSV)",
        lambda folder: korean_table.write(folder / "x.csv", korean_table.row(), korean_table.row("b", 200)),
        read_results,
    ),
    Reader("korean table (JSON)", _own_table("fake-masked_results.json"), read_results),
    Reader("tasks (JSON)", _own_table("fake-causal_results.json"), read_results),
    Reader("hub results", _text(HUB, "mmlu.yaml"), hub_results),
    Reader("hub card", _exported("hub", "README.md"), _again),
)


# Checkpoints


def _resolved(path: Path) -> list[Any]:
    """What ``touchstone checkpoint show`` says of the folder, or of the file."""
    own = path.suffix in (".pt", ".gguf")
    command("checkpoint", "show", path if own else folder_of(path))
    return resolve(str(path if own else folder_of(path)), seq_len=None)


def folder_of(path: Path) -> Path:
    """The folder of the checkpoint, or of the adapter, that a file is of."""
    return next(one for one in path.parents if one.name in ("checkpoint-7", "lora"))


def _causal(
    name: str, *, content: str | None = None, change: Callable[[Path], object] = lambda _: None
) -> Callable[[Path], Path]:
    """A file of a folder with a tiny causal model."""

    def example(folder: Path) -> Path:
        made = trainer_state(tiny_causal(folder / "checkpoint-7"), global_step=7, epoch=0.5)
        change(made)
        if content is not None:
            (made / name).write_text(content, encoding="utf-8")
        return made / name

    return example


def _adapter(name: str) -> Callable[[Path], Path]:
    def example(folder: Path) -> Path:
        return tiny_adapter(folder / "lora", tiny_causal(folder / "base")) / name

    return example


def _llama(folder: Path) -> Path:
    tiny_causal(folder / "base")
    shutil.copy(folder / "base" / "tokenizer.json", folder)
    return llama_pt(folder / "checkpoint_best.pt")


def _gguf(folder: Path) -> Path:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    made = tiny_causal(folder / "base")
    keys = {
        **gguf_files.model_keys(
            "llama",
            **{"attention.layer_norm_rms_epsilon": 1e-6, "vocab_size": 400, "attention.head_count_kv": 2},
        ),
        **gguf_files.tokenizer_keys(AutoTokenizer.from_pretrained(made)),
    }
    tensors = gguf_files.tensors_of(AutoModelForCausalLM.from_pretrained(made), "llama")
    return gguf_files.write(folder / "model.gguf", keys, tensors)


def _distributed(name: str) -> Callable[[Path], Path]:
    def example(folder: Path) -> Path:
        from safetensors.torch import load_file

        made = tiny_causal(folder / "base")
        state = {"model": load_file(made / "model.safetensors"), "optimizer": {"step": 3}}
        place = save_distributed(state, folder / "checkpoint-7")
        for path in made.iterdir():
            if path.suffix == ".json":
                shutil.copy(path, place)
        return place / name

    return example


def _served(path: Path) -> None:
    """A server that gives the replies of the file."""
    asked = [(row["path"], row["body"]) for row in json.loads(RECORDED.read_text(encoding="utf-8"))]
    try:
        replies = parse_json(read_regular(path))
        if not isinstance(replies, list) or len(replies) != len(asked):
            raise ValueError("another number of replies")
    except (OSError, ValueError) as error:
        raise HarnessError("no replies") from error
    rows = [
        {"path": where, "body": body, "status": 200, "reply": reply}
        for (where, body), reply in zip(asked, replies, strict=True)
    ]
    server = RecordedServer("damaged", rows)

    def ask(path: str, body: Mapping[str, Any] | None) -> Any | CallFailure:
        try:
            return server.ask(path, body)
        except AssertionError:  # with other answers it is asked other things
            return CallFailure("HTTP 404", "refused", 404, "")

    try:
        info = probed(ask)
        for requests in (SCORES, TEXTS):
            for answer in answers(info, ask, requests):
                assert math.isfinite(getattr(answer, "logprob", 0.0))
    except MalformedReplyError as error:
        raise HarnessError(str(error)) from error


def _replies(folder: Path) -> Path:
    rows = json.loads(RECORDED.read_text(encoding="utf-8"))
    return _json(folder, [row["reply"] for row in rows], "replies.json")


RECORDED: Final = FOLDER / "vllm-0.32.json"

CHECKPOINTS: Final = (
    Reader("config.json", _causal("config.json"), _resolved),
    Reader("generation_config.json", _causal("generation_config.json"), _resolved),
    Reader("tokenizer_config.json", _causal("tokenizer_config.json"), _resolved),
    Reader("tokenizer.json", _causal("tokenizer.json"), _resolved),
    Reader("trainer_state.json", _causal("trainer_state.json"), _resolved),
    Reader("model.safetensors", _causal("model.safetensors"), _resolved),
    Reader(
        "model.safetensors.index.json",
        _causal("model.safetensors.index.json", change=split_weights),
        _resolved,
    ),
    Reader("pytorch_model.bin", _causal("pytorch_model.bin", change=pickle_weights), _resolved),
    Reader("adapter_config.json", _adapter("adapter_config.json"), _resolved),
    Reader("adapter_model.safetensors", _adapter("adapter_model.safetensors"), _resolved),
    Reader("llama .pt", _llama, _resolved),
    Reader("GGUF", _gguf, _resolved),
    Reader("DCP metadata", _distributed(".metadata"), _resolved),
    Reader("DCP weights", _distributed("__0_0.distcp"), _resolved),
    Reader("replies of a server", _replies, _served),
)

# Caches


def _fingerprints(path: Path) -> None:
    cache = FingerprintCache(path.parent)
    (info,) = resolve(str(path.parent / "checkpoint-7"), seq_len=None)
    assert len(fingerprint(info, cache)) == 64


def _fingerprint_entry(folder: Path) -> Path:
    tiny_causal(folder / "checkpoint-7")
    for one in (folder / "checkpoint-7").iterdir():
        os.utime(one, (1, 1))
    (info,) = resolve(str(folder / "checkpoint-7"), seq_len=None)
    cache = FingerprintCache(folder)
    cache.keep(str(info.path), stat_files(format_of(info).files(info)), "f" * 64, time.time_ns() + 10**12)
    return next(folder.glob("*.json"))


def _programs_entry(folder: Path) -> Path:
    TextFiles(folder, 10).keep("key", ["passed", "detail"])
    return next(path for path in folder.rglob("*") if path.is_file())


def _programs(path: Path) -> None:
    found = TextFiles(path.parent, 10).find("key")
    assert found is None or all(isinstance(one, str) for one in found)


CACHES: Final = (
    Reader("fingerprints", _fingerprint_entry, _fingerprints, False),
    Reader("verdicts of programs", _programs_entry, _programs, False),
    Reader("ways of a model", _text(json.dumps(["fused"]), "ways.json"), read_ways, False),
)

# Readers that are functions of one file alone


def _journal(path: Path) -> None:
    damaged: list[str] = []
    for record, place in records_with_locations(path, damaged):
        assert read_record_at(place).item == record.item
    for line in damaged:
        check_refusal(HarnessError(line))
    list(records_with_locations(path, damaged, heads=True))


def _saved(path: Path) -> None:
    """As a store reads it, which names the file besides."""
    try:
        saved_from_json(read_checked(path))
    except (OSError, ValueError) as error:
        raise HarnessError(str(error)) from error


def _example(name: str) -> Callable[[Path], Path]:
    (found,) = (one.example for one in (*RESULTS, *CHECKPOINTS) if one.name == name)
    return found


ALONE: Final = (
    Reader("lines of a journal", _example("items-main.jsonl"), _journal),
    Reader("summary", _example("summary.json"), lambda path: load_summary(path.parent)),
    Reader("saved result", _example("winogrande@one.json"), _saved),
    Reader(
        "baseline, by its file",
        _example("winogrande@one.json"),
        lambda path: open_source(str(path), _results_of(path), folder=path.parent),
    ),
    Reader(
        "baseline, by its run",
        _example("summary.json"),
        lambda path: open_source(str(path), _results_of(path), folder=path.parent),
    ),
    Reader("header of safetensors", _example("model.safetensors"), read_tensors),
    Reader("header of GGUF", _example("GGUF"), read_gguf),
    Reader(
        "index of shards",
        _example("model.safetensors.index.json"),
        lambda path: weights_of(path.parent),
    ),
    Reader("pickled tensors", _example("pytorch_model.bin"), pickled_tensors),
    Reader("config of a model", _example("config.json"), lambda path: read_json(path, ModelConfig)),
    *(
        one
        for one in (*SETTINGS, *RESULTS, *CHECKPOINTS)
        if one.name
        in (
            *(
                "rows",
                "eval config (JSON)",
                "eval config (TOML)",
                "gate plan",
                "accepted drops",
                "hub results",
            ),
            *("samples of programs", "tasks of programs", "task of lm-eval", "replies of a server"),
        )
    ),
)

READERS: Final = {one.name: one for one in (*SETTINGS, *RESULTS, *CHECKPOINTS, *CACHES)}
