"""A checkpoint format that somebody installs: inspected, fingerprinted, loaded and scored like ours."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.errors import CheckpointError
from tests.support.installed import install_package, run_pytest, touchstone

BENCHMARK = """
from pytest_touchstone import FillMask, benchmark


@benchmark(name="nouns", version=1, data="nouns/test", asks=FillMask, primary="logprob")
def test_nouns(example):
    '''How likely the noun is.'''
    answer = yield FillMask(example["text"], target=example["noun"])
    return {"logprob": answer.target_logprob or 0.0}
"""


def test_an_installed_format_is_scored_as_what_it_holds(tmp_path: Path) -> None:
    install_package(tmp_path / "site", "zipped_checkpoints")
    (folder,) = (info.path for info in resolve("builtin:ko-mlm-tiny", seq_len=None))
    (tmp_path / "packed").mkdir()
    archive = shutil.make_archive(str(tmp_path / "packed" / "step-1200"), "zip", folder)
    (tmp_path / "test_nouns.py").write_text(BENCHMARK, encoding="utf-8")
    data = tmp_path / "data" / "nouns"
    data.mkdir(parents=True)
    rows = [
        {"text": "서울은 한국의 [MASK]이다.", "noun": "수도"},
        {"text": "그는 [MASK]에 갔다.", "noun": "학교"},
    ]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (data / "test.jsonl").write_text(lines, encoding="utf-8")

    checkpoints = ("--checkpoint", "packed", "--checkpoint", str(folder))
    done = run_pytest(*checkpoints, packages=tmp_path / "site", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    (path,) = (tmp_path / "results").glob("*/summary.json")
    summary = json.loads(path.read_text(encoding="utf-8"))
    first, second = (one["metrics"]["logprob"]["value"] for one in summary["results"])
    assert first == second < 0
    by_format = {one["format"]: one for one in summary["checkpoints"]}
    assert set(by_format) == {"zip", "folder"}
    packed = by_format["zip"]
    assert len(packed["fingerprint"]) == 64

    shown = touchstone(
        "checkpoint", "show", archive, "--format", "json", packages=tmp_path / "site", cwd=tmp_path
    )
    assert (f'"{packed["fingerprint"]}"' in shown.stdout, '"zip"' in shown.stdout) == (True, True)
    with pytest.raises(CheckpointError, match="neither a checkpoint folder"):
        resolve(archive, seq_len=None)
