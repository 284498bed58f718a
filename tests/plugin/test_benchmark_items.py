"""Items of benchmarks are pytest's items for everybody who looks at them, and change as those do."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_touchstone.plugin.benchmark_items import NODE_ID, BenchmarkItem
from tests.support.project import Project

STYLED = """
import pytest
from pytest_touchstone import Loglikelihood, benchmark


@pytest.mark.parametrize("style", [pytest.param("polite", marks=pytest.mark.kind), "terse"])
@pytest.mark.parametrize("tone", [1, 2])
@pytest.mark.sums
@benchmark(name="styled", version=1, data="sums/test", asks=Loglikelihood, primary="acc")
def test_styled(example, style, tone, fewshot):
    answer = yield Loglikelihood(example["q"], f" {style} {tone}")
    return {"acc": answer.is_greedy}
"""

INI = "[pytest]\nmarkers =\n    sums: sums\n    kind: kind\n    later: later\n"

HAS_IDS = hasattr(pytest.Item, "id")
"""Nodes have an id that is no text, since pytest 9.2."""


class Seen:
    """Keeps the items of a run, and does something to them."""

    def __init__(self, change: Any = None) -> None:
        self.items: list[Any] = []
        self.during: list[Any] = []
        self._change = change

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.items = list(items)
        if self._change is not None:
            self._change(items)

    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self.during.append(look(item))


def look(item: Any) -> dict[str, Any]:
    """Return what plugins look at."""
    callspec = item.callspec
    names = ["name", "nodeid", "originalname", "fixturenames", "location", "path", "function", "cls"]
    names += ["id"] if HAS_IDS else []
    return {
        **{name: getattr(item, name) for name in names},
        "keywords": dict(item.keywords._markers),
        "all keywords": list(item.keywords),
        "own marks": list(item.own_markers),
        "marks": list(item.iter_markers()),
        "closest": item.get_closest_marker("sums"),
        "extra": set(item.extra_keyword_matches) | item.listextrakeywords(),
        "params": dict(callspec.params),
        "indices": dict(callspec.indices),
        "scopes": dict(callspec._arg2scope),
        "ids": [*callspec._idlist, callspec.id],
        "names": item.listnames(),
        "report": item.reportinfo(),
        "text": repr(item).replace("BenchmarkItem", "Function"),
        "properties": list(item.user_properties),
        "stash": len(item.stash),
    }


def made_by_pytest(item: Any) -> Any:
    """Return an item as pytest makes it of the same parameters."""
    callspec = item.callspec
    return pytest.Function.from_parent(
        item.parent,
        name=f"{item.originalname}[{callspec.id}]",
        callspec=callspec,
        fixtureinfo=item._fixtureinfo,
        keywords={callspec.id: True},
        originalname=item.originalname,
    )


def styled(project: Project, rows: int = 5) -> None:
    project.rows(rows)
    (project.path / "test_sums.py").write_text(STYLED)
    (project.path / "pytest.ini").write_text(INI)


def test_an_item_looks_as_if_pytest_had_made_it(project: Project) -> None:
    styled(project)
    found: list[tuple[Any, Any]] = []
    seen = Seen(lambda items: found.extend((look(item), look(made_by_pytest(item))) for item in items))
    project.run("--collect-only", plugins=[seen])
    assert len(found) == 20
    assert all(isinstance(item, BenchmarkItem) and isinstance(item, pytest.Function) for item in seen.items)
    for mine, pytests in found:
        assert mine == pytests
    assert [one["name"] for one, _ in found][:6] == [
        *(f"test_styled[1-polite-styled/{n}]" for n in range(5)),
        "test_styled[1-terse-styled/0]",
    ]
    assert [one["indices"]["example"] for one, _ in found] == list(range(20))


def test_what_a_plugin_changes_stays_with_the_item(project: Project) -> None:
    styled(project)
    key = pytest.StashKey[str]()

    def change(items: list[Any]) -> None:
        first = items[0]
        first.add_marker("later")
        first.keywords["word"] = 1
        first.extra_keyword_matches.add("extra")
        first.user_properties.append(("who", "me"))
        first.stash[key] = "kept"
        first.callspec.params["style"] = "loud"
        first.callspec.indices["style"] = 99
        first.note = "mine"

    seen = Seen(change)
    project.run(plugins=[seen]).assert_outcomes(passed=20)
    first, second = seen.during[:2]
    assert (first["keywords"]["word"], first["params"]["style"], first["indices"]["style"]) == (1, "loud", 99)
    assert first["closest"] is not None
    assert first["own marks"][-1].name == "later"
    assert first["extra"] == {"extra"}
    assert ("who", "me") in first["properties"]
    assert (seen.items[0].stash[key], seen.items[0].note) == ("kept", "mine")
    assert "word" not in second["keywords"]
    assert second["params"]["style"] == "polite"
    assert "later" not in second["keywords"]
    assert first["marks"] != second["marks"]
    assert not hasattr(seen.items[1], "note")


def test_a_node_id_that_a_plugin_sets_is_that_of_the_item(project: Project) -> None:
    def change(items: list[Any]) -> None:
        other = "elsewhere.py::test_other[1]"
        setattr(items[0], NODE_ID, made_by_pytest(items[0]).id.parse(other) if HAS_IDS else other)

    seen = Seen(change)
    project.run(plugins=[seen])
    assert seen.during[0]["nodeid"] == "elsewhere.py::test_other[1]" == seen.items[0].nodeid
    assert seen.during[1]["nodeid"] == "test_sums.py::test_sums[sums/1]"


def test_items_that_have_run_keep_nothing_that_can_be_made_again(project: Project) -> None:
    styled(project)
    seen = Seen()
    project.run(plugins=[seen]).assert_outcomes(passed=20)
    assert len(seen.during) == 20
    assert all(vars(item) == {} for item in seen.items)


def test_parameters_may_be_given_after_all_others(project: Project) -> None:
    class Late:
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> Any:
            found = yield
            metafunc.parametrize("late", ["a", "b"])
            return found

    class Register:
        def pytest_pycollect_makeitem(self, collector: pytest.Module, name: str) -> None:
            if name == "test_sums" and not collector.config.pluginmanager.has_plugin("late"):
                collector.config.pluginmanager.register(Late(), "late")

    text = (
        (project.path / "test_sums.py").read_text().replace("(example, fewshot)", "(example, fewshot, late)")
    )
    (project.path / "test_sums.py").write_text(text.replace('{"acc"', '{"late": late == "a", "acc"'))
    seen = Seen()
    project.run(plugins=[seen, Register()]).assert_outcomes(passed=40)
    names = {one["name"] for one in seen.during}
    assert names == {f"test_sums[sums/{n}-{late}]" for n in range(20) for late in "ab"}
    assert all(one["nodeid"].endswith(f"-{one['params']['late']}]") for one in seen.during)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (("-m", "kind"), 10),
        (("-m", "sums and not kind"), 10),
        (("-k", "terse and 3"), 2),
        (("test_sums.py::test_styled[1-terse-styled/3]",), 1),
        (("--deselect", "test_sums.py::test_styled[1-terse-styled/3]"), 19),
    ],
)
def test_items_are_chosen_as_ever(project: Project, arguments: tuple[str, ...], count: int) -> None:
    styled(project)
    project.run(*arguments).assert_outcomes(passed=count, deselected=20 - count if count > 1 else 0)


def test_reports_that_share_what_is_alike_are_those_that_were_made(project: Project) -> None:
    class Reports:
        def __init__(self) -> None:
            self.made: list[dict[str, Any]] = []
            self.again: list[Any] = []

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            self.made.append({**vars(report), "id": report.nodeid})

        def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
            self.again = [terminalreporter.stats[""], terminalreporter.stats["passed"]]

    reports = Reports()
    project.run(plugins=[reports]).assert_outcomes(passed=20)
    around, passed = reports.again
    assert (len(around), len(passed)) == (40, 20)
    for kept, made in (
        (around, [one for one in reports.made if one["when"] != "call"]),
        (passed, [one for one in reports.made if one["when"] == "call"]),
    ):
        for report, was in zip(kept, made, strict=True):
            assert isinstance(report, pytest.TestReport)
            assert report.passed
            assert report.nodeid == was["id"]
            assert report.user_properties == was["user_properties"]
            assert vars(report) == {name: value for name, value in was.items() if name != "id"}
            assert report._to_json()["nodeid"] == was["id"]


def test_every_report_is_listed_that_is_asked_for(project: Project) -> None:
    found = project.run("-rA", "--durations=0", "-vv", "--junitxml=out.xml")
    text = found.stdout.str()
    durations, summary = text.partition("slowest durations")[2].split("short test summary info")
    for n in range(20):
        mine = [line.split()[1] for line in durations.splitlines() if f"[sums/{n}]" in line]
        assert sorted(mine) == ["call", "setup", "teardown"]
        assert summary.count(f"test_sums[sums/{n}]") == 1
    assert (project.path / "out.xml").read_text().count("<testcase ") == 20
