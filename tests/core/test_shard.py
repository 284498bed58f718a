"""A shard is named by the option, or by the variables of the job's array or matrix."""

from __future__ import annotations

import pytest

from pytest_touchstone.core.errors import OptionError
from pytest_touchstone.core.shard import Shard, parse_shard, shard_of


def slurm(number: int, least: int = 1, most: int = 5, count: int = 5) -> dict[str, str]:
    values = {"ID": number, "MIN": least, "MAX": most, "COUNT": count}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in values.items()}


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ("2/5", {"CI_NODE_INDEX": "4", "CI_NODE_TOTAL": "9"}, (2, 5)),
        ("auto", slurm(2), (2, 5)),
        ("auto", slurm(0, 0, 4), (1, 5)),
        ("auto/5", slurm(3, 3, 7, 2), (3, 5)),
        ("auto/5", {"JOB_COMPLETION_INDEX": "0"}, (1, 5)),
        ("auto/5", {"JOB_COMPLETION_INDEX": "4"}, (5, 5)),
        ("auto", {"CI_NODE_INDEX": "5", "CI_NODE_TOTAL": "5"}, (5, 5)),
        ("auto/5", {"CI_NODE_INDEX": "5", "CI_NODE_TOTAL": "5"}, (5, 5)),
        ("auto", {"CI_NODE_TOTAL": "1", "TOUCHSTONE_JOB_INDEX": "0", "TOUCHSTONE_JOB_TOTAL": "3"}, (1, 3)),
    ],
)
def test_a_shard_is_numbered_from_one(text: str, environ: dict[str, str], expected: tuple[int, int]) -> None:
    assert shard_of(parse_shard(text), environ) == Shard(*expected)


@pytest.mark.parametrize(
    "text", ["", "0/5", "6/5", "2", "2/", "/5", "2/0", "auto/0", "auto/", "2/5/7", "-1/5", "slurm"]
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"shard|NUMBER/COUNT"):
        parse_shard(text)


@pytest.mark.parametrize(
    ("text", "environ", "says"),
    [
        (
            "auto",
            {},
            "none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, CI_NODE_INDEX, TOUCHSTONE_JOB_INDEX is set",
        ),
        ("auto", slurm(1) | {"CI_NODE_INDEX": "1"}, "SLURM_ARRAY_TASK_ID and CI_NODE_INDEX are both set"),
        ("auto", slurm(3, 3, 3, 1), "does not tell of how many"),
        ("auto", slurm(3, 1, 9, 5), "does not tell of how many"),
        ("auto/5", slurm(0, 0, 4), "number the tasks from 1: --array=1-5"),
        ("auto", {"JOB_COMPLETION_INDEX": "0"}, "completions"),
        ("auto/5", {"JOB_COMPLETION_INDEX": "5"}, "JOB_COMPLETION_INDEX=5 is none of 5 shards"),
        ("auto/4", {"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "5"}, "CI_NODE_TOTAL is 5"),
        ("auto", {"CI_NODE_INDEX": "one", "CI_NODE_TOTAL": "5"}, "CI_NODE_INDEX is 'one'"),
        ("auto", {"CI_NODE_INDEX": "1"}, "CI_NODE_TOTAL is ''"),
    ],
)
def test_an_environment_that_does_not_tell_is_refused(text: str, environ: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as error:
        shard_of(text, environ)
    assert says in str(error.value)
