"""The benchmarks that README and documentation show run as they stand."""

from __future__ import annotations

import json
import re
import textwrap

import pytest

from tests.support.places import ROOT
from tests.support.project import ALONE


def blocks(file: str) -> dict[str, str]:
    """The code blocks of a document that declare a benchmark, by its name."""
    text = (ROOT / file).read_text(encoding="utf-8")
    found = [textwrap.dedent(block) for block in re.findall(r"(?:^(?: {4}.*)?\n)+", text, re.MULTILINE)]
    return {name[1]: block for block in found if (name := re.search(r'@benchmark\(\s*"(\w+)"', block))}


EXAMPLES = {**blocks("README.md"), **blocks("docs/benchmarks.md")}
RIDDLES = [{"question": f"{n}+1=", "options": [str(n), str(n + 1)], "answer": 1} for n in range(5)]


def test_each_document_shows_one() -> None:
    assert list(EXAMPLES) == ["capitals", "riddles", "sums", "talks", "doubles"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_benchmark_as_documented_runs(pytester: pytest.Pytester, name: str) -> None:
    data = pytester.mkdir("data") / "riddles"
    data.mkdir()
    for split in ("test", "train"):
        (data / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in RIDDLES))
    (pytester.path / f"test_{name}.py").write_text(re.split(r"\n(?:\$ )?pytest ", EXAMPLES[name])[0])
    options = ["--checkpoint", "fake:causal", "--eval-data", "data", "--eval-sandbox", "none"]
    done = pytester.runpytest(*options, *ALONE)
    assert done.ret == 0
    (summary,) = pytester.path.glob("results/*/summary.json")
    (result,) = json.loads(summary.read_text())["results"]
    assert result["scored"] == {"capitals": 3, "riddles": 5, "sums": 10, "talks": 1, "doubles": 1}[name]
