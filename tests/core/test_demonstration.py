"""The demonstration: its table is about the shipped benchmarks and no others, and its options change nothing else."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from pytest_touchstone.core.benchmark import Benchmark, Dataset, declared
from pytest_touchstone.core.eval_config import AS_THE_RUN, FILE, REST, Asking, as_line, asking_of, told
from pytest_touchstone.core.files import load_module, shipped_evals
from pytest_touchstone.core.requests import Generate, Loglikelihood

WITHOUT_DATA = {"apps_stdin", "ko_lambada"}


def shipped_specs() -> dict[str, Benchmark]:
    modules = [
        load_module(path, f"demonstrated_{path.stem}") for path in sorted(shipped_evals().glob("test_*.py"))
    ]
    specs = [declared(value) for module in modules for value in vars(module).values()]
    return {spec.name: spec for spec in specs if spec is not None}


def table() -> dict[str, dict[str, object]]:
    return tomllib.loads((shipped_evals() / FILE).read_text(encoding="utf-8"))


def spec(folder: Path, name: str = "gsm8k") -> Benchmark:
    return Benchmark(
        name=name, version=1, data=Dataset(local="a/b"), asks=(Generate,), primary="acc", folder=folder
    )


def test_the_table_is_about_shipped_benchmarks_and_the_others_are_left_out() -> None:
    shipped, own = shipped_specs(), {name: row for name, row in table().items() if name != REST}
    assert own.keys() < shipped.keys()
    assert asking_of(shipped["piqa"]).left_out == table()[REST]["left_out"]
    for name, row in own.items():
        sized = {"limit", "max_new_tokens"} if Generate in shipped[name].asks else {"limit"}
        assert row.keys() == ({"left_out"} if "left_out" in row else set() if name in WITHOUT_DATA else sized)


def test_only_shipped_benchmarks_are_reduced(tmp_path: Path) -> None:
    assert asking_of(spec(tmp_path)) == AS_THE_RUN
    assert asking_of(spec(shipped_evals())).settings == table()["gsm8k"]


@pytest.mark.parametrize(("most", "chat"), [(1, None), (64, None), (64, 32), (64, 768)])
def test_a_limit_of_tokens_counts_for_both_forms_of_a_question(most: int, chat: int | None) -> None:
    request = Generate("a", max_new_tokens=500, stop=("b",), turns_max_new_tokens=chat)
    asked = Asking(max_new_tokens=most).request(request)
    assert asked == Generate("a", max_new_tokens=most, stop=("b",))
    assert Asking(limit=3).request(request) is request
    assert Asking(max_new_tokens=most).request(Loglikelihood("a", "b")) == Loglikelihood("a", "b")


def test_what_is_given_by_hand_goes_before_the_table() -> None:
    asking = Asking(limit=8, max_new_tokens=64)
    assert asking.without({"max_new_tokens", "seed"}).settings == {"limit": 8}
    assert Asking(left_out="because").without({"limit"}).left_out == "because"


def test_the_line_has_commands_that_can_be_pasted() -> None:
    made = told(["pytest", "evals/", "-k", "not math"], [{"limit": 4, "max_new_tokens": 9}, {"limit": 32}])
    assert made["what"] == (
        "demonstration on the builtin checkpoints: 4 rows of benchmarks that ask for texts, samples of the others"
    )
    call = "pytest evals/ -k 'not math'"
    assert (made["all"], made["own"]) == (f"{call} --eval-limit all", f"{call} --checkpoint PATH")
    assert as_line(made).endswith(f"(all rows: {made['all']}; your own: {made['own']})")
