"""Programs run in the sandboxes of a cluster's nodes, with the verdicts of this machine's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_touchstone.core.errors import SandboxError
from pytest_touchstone.core.requests import CallTests, InputOutputTests, RunProgram, RunProgramAnswer
from pytest_touchstone.engines.replicas.programs import ClusterPrograms, ProgramHost
from pytest_touchstone.engines.replicas.ray_cluster import target_of
from pytest_touchstone.engines.sandbox import SandboxSettings
from pytest_touchstone.engines.sandbox.cache import judging_code
from tests.support import simulated_ray
from tests.support.lines import naming
from tests.support.sandbox_here import opened_here

CALLS = CallTests(code="assert f(2) == 4\nassert f(3) == 9", names=("f",))

FORGING = "import sys, os\n\ndef f(x):\n    print('passed')\n    sys.stdout.flush()\n    os._exit(0)\n"


def programs() -> list[RunProgram]:
    texts = [
        "def f(x): return x * x",
        "def f(x): return x",
        "def f(x): raise ValueError(x)",
        FORGING,
        "def f(",
        "",
    ]
    found = [RunProgram(text, CALLS, task="squares") for text in texts]
    pairs = InputOutputTests(pairs=(("2\n", "4\n"), ("3\n", "9\n")))
    return [
        *found,
        *(RunProgram(text, pairs, task="prints") for text in ("print(int(input()) ** 2)", "print(4)")),
    ]


class Host:
    """A node's sandbox that says who has run a program."""

    def __init__(self, settings: SandboxSettings, judged_by: str) -> None:
        self.name = ""

    def fault(self) -> str | None:
        return {"bare": "there is no bubblewrap (bwrap)", "old": "its Python is another"}.get(self.name)

    def run(self, request: RunProgram) -> RunProgramAnswer:
        if self.name == "broken":
            raise simulated_ray.ActorDiedError("The actor died")
        if request.program == "odd":
            raise simulated_ray.RayTaskError("ValueError: no")
        return RunProgramAnswer("passed", self.name)


class Nodes:
    """A cluster of nodes of these names."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.exceptions = SimpleNamespace(**{one.__name__: one for one in simulated_ray.EXCEPTIONS})
        self.pool = ThreadPoolExecutor(4)
        self.ended: list[str] = []

    def nodes(self) -> list[dict[str, Any]]:
        head = {"NodeID": "head", "Alive": True, "Resources": {}}
        return [
            head,
            *(
                {
                    "NodeID": f"{n + 1:056x}",
                    "NodeManagerHostname": name,
                    "Alive": True,
                    "Resources": {"CPU": 2.0},
                }
                for n, name in enumerate(self.names)
            ),
        ]

    def remote(self, **options: Any) -> Any:
        assert options["num_cpus"] == 0
        name = self.names[int(options["scheduling_strategy"].node_id, 16) - 1]

        def made(kind: type[Any]) -> Any:
            def begin(*arguments: Any) -> Any:
                host = kind(*arguments)
                host.name = name
                return SimpleNamespace(
                    name=name,
                    fault=SimpleNamespace(remote=lambda: self._call(host.fault)),
                    run=SimpleNamespace(remote=lambda request: self._call(host.run, request)),
                )

            return SimpleNamespace(remote=begin)

        return made

    def _call(self, method: Any, *arguments: Any) -> Any:
        future: Future[Any] = self.pool.submit(method, *arguments)
        return SimpleNamespace(future=lambda: future, result=future.result)

    def get(self, call: Any, timeout: float) -> Any:
        return call.result(timeout)

    def kill(self, actor: Any) -> None:
        self.ended.append(actor.name)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("ray", reason="the package ray is not installed")

    def on(*names: str) -> tuple[ClusterPrograms, Nodes, list[str]]:
        nodes, said = Nodes(*names), list[str]()
        monkeypatch.setattr("pytest_touchstone.engines.replicas.programs.start", lambda target: nodes)
        kind: Any = Host
        return ClusterPrograms(SandboxSettings(), target_of("ray"), said.append, kind), nodes, said

    return on


def test_a_node_without_a_sandbox_or_with_other_code_is_not_used_and_is_named(opened: Any) -> None:
    runner, nodes, said = opened("a", "bare", "old", "b")
    answers = [runner.submit(replace(one, task=f"t{n}")) for n in range(10) for one in programs()]
    assert {one.result().detail for one in answers} == {"a", "b"}
    bare, old = said
    assert naming("node bare", "bubblewrap (bwrap)").search(bare)
    assert naming("node old", "Python").search(old)
    runner.close()
    assert sorted(nodes.ended) == ["a", "b", "bare", "old"]


def test_without_any_sandbox_the_reasons_are_told(opened: Any) -> None:
    with pytest.raises(SandboxError, match=naming("node bare", "bubblewrap")):
        opened("bare")
    with pytest.raises(SandboxError, match=naming("Ray", "CPUs")):
        opened()


def test_equal_programs_run_once(opened: Any) -> None:
    runner, _, _ = opened("a")
    first, second = programs()[:2]
    assert runner.submit(first) is runner.submit(first)
    assert runner.submit(first) is not runner.submit(second)


def test_a_program_whose_node_has_died_runs_on_another(opened: Any) -> None:
    runner, _, _ = opened("broken", "a")
    answers = [runner.submit(one) for one in programs()]
    assert [answer.result().detail for answer in answers] == ["a"] * len(programs())
    runner, _, _ = opened("broken")
    with pytest.raises(SandboxError, match=naming("node broken", "The actor died")):
        runner.run(programs()[0])


def test_an_error_of_the_sandbox_is_not_tried_again(opened: Any) -> None:
    runner, _, _ = opened("a", "b")
    with pytest.raises(SandboxError, match=naming("node a", "ValueError: no")):
        runner.run(replace(programs()[0], program="odd"))


@pytest.fixture
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="the package ray is not installed")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.mark.slow
def test_verdicts_of_a_real_node_are_those_of_this_machine(cluster: None) -> None:
    with opened_here(workers=1) as sandbox:
        right = [sandbox.run(one) for one in programs()]
    with ClusterPrograms(SandboxSettings(workers=1), target_of("ray")) as runner:
        found = [one.result() for one in [runner.submit(one) for one in programs()]]
    assert [repr(replace(one, seconds=0.0)) for one in found] == [
        repr(replace(one, seconds=0.0)) for one in right
    ]
    assert [one.outcome for one in found].count("passed") == 2


def test_a_host_opens_this_machine_s_sandbox_and_judges_by_it() -> None:
    with opened_here(workers=1) as sandbox:
        right = [sandbox.run(one) for one in programs()]
    host = ProgramHost(SandboxSettings(workers=1), judging_code())
    assert host.fault() is None
    found = [host.run(one) for one in programs()]
    host._opened().close()
    assert [replace(one, seconds=0.0) for one in found] == [replace(one, seconds=0.0) for one in right]


def test_a_host_whose_code_is_another_cannot_be_used() -> None:
    fault = ProgramHost(SandboxSettings(workers=1), "another").fault()
    assert naming("Python", "code").search(str(fault))
