"""The examples for clusters are well-formed, and name options that there are."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from harness.core.settings import settings_table
from harness.core.shard import parse_shard
from tests.support.places import ROOT

FOLDER = ROOT / "docs" / "scaling"
EXAMPLES = sorted(path for path in FOLDER.iterdir() if path.is_file())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_well_formed_and_its_options_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sh":
        assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
    else:
        assert all(isinstance(one, dict) for one in yaml.safe_load_all(text))
    known = {row.long_flag for row in settings_table().values()}
    assert set(re.findall(r"--eval-[a-z-]+", text)) <= known
    for shard in re.findall(r"--eval-shard[ ,]+(auto\S*?|\d+/\d+)(?=[\s,\]])", text):
        assert parse_shard(shard) == shard


def test_an_indexed_job_has_as_many_completions_as_shards() -> None:
    (job,) = yaml.safe_load_all((FOLDER / "kubernetes.yml").read_text(encoding="utf-8"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    words = container["command"]
    assert words[words.index("--eval-shard") + 1] == f"auto/{job['spec']['completions']}"
    assert job["spec"]["completionMode"] == "Indexed"


def test_each_example_is_on_the_page() -> None:
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert all(f"(scaling/{path.name})" in page for path in EXAMPLES)
