"""No key and no home is in what a run leaves, nobody else may write to it, and what files name is not run or asked."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.requests import CallTests, RunProgram
from pytest_touchstone.reports.trackers.mlflow import MLflow
from pytest_touchstone.reports.trackers.payload import UploadResult
from pytest_touchstone.reports.trackers.wandb import WandB
from tests.drill.conftest import Drill
from tests.drill.readers import MANIFEST, READERS
from tests.support.model_server import serving
from tests.support.project import Project
from tests.support.pt_files import payload
from tests.support.runs import run
from tests.support.sandbox_here import opened_here

# In parts, so that no scan of this repository takes them for keys of somebody.
BODY: Final = "a1B2c3D4e5F6g7H8" * 2
KEYS: Final = {
    "OPENAI_API_KEY": f"sk-{BODY}0",
    "HF_TOKEN": f"hf_{BODY}1",
    "WANDB_API_KEY": "0123456789abcdef" * 2 + "01234567",
    "MLFLOW_TRACKING_PASSWORD": "correct-horse-battery-staple",
    "MLFLOW_TRACKING_TOKEN": f"{BODY}-2",
    "AWS_SECRET_ACCESS_KEY": f"{BODY}/3+x",
    "GITHUB_TOKEN": f"ghp_{BODY}4",
}
PASSWORD: Final = "open-Sesame-77"


def leaks(texts: dict[str, bytes], secrets: list[str]) -> list[str]:
    """The places that have one of the secrets, in the forms that it takes."""
    return [
        f"{place}: {secret[:6]}..."
        for place, content in texts.items()
        for secret in secrets
        if secret.encode() in content or json.dumps(secret)[1:-1].encode() in content
    ]


def files_below(*folders: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of all services in the environment."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return list(KEYS.values())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, outside the project, with the caches."""
    folder = tmp_path / "home-of-somebody"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "caches"))
    return folder


WITH_A_FAULT: Final = (
    'import os; assert example["n"] != 3, (os.environ["OPENAI_API_KEY"], os.path.expanduser("~/x"))'
)


def told(done: pytest.RunResult) -> dict[str, bytes]:
    return {"stdout": done.stdout.str().encode(), "stderr": done.stderr.str().encode()}


def test_a_run_leaves_no_key_and_no_home(
    pytester: pytest.Pytester, keys: list[str], home: Path, drill: Drill
) -> None:
    project = Project(pytester)
    project.write(extra=WITH_A_FAULT)
    done = project.run("--eval-set", "markdown=out.md", "--eval-config", "none.json")
    assert done.ret == 4
    finished = project.run("--eval-set", "markdown=out.md", "-v")
    assert finished.ret == 9, finished.stdout.str()
    (folder,) = project.runs
    places = files_below(folder, home) | told(done) | told(finished)
    places["out.md"] = (project.path / "out.md").read_bytes()
    assert len(places) > 10
    assert not leaks(places, keys)
    drill.figure("files searched for keys", len(places))
    # The terminal is the person's own, who has seen that path there before.
    assert not leaks({place: text for place, text in places.items() if place != "stdout"}, [str(home)])


@pytest.fixture
def run_with_a_fault(pytester: pytest.Pytester, keys: list[str], home: Path) -> Project:
    """A project with a run in which an item has told keys and the home."""
    project = Project(pytester)
    project.write(extra=WITH_A_FAULT)
    assert project.run().ret == 9
    return project


FORMS: Final = ("lm-eval", "every-eval-ever", "hub")


def test_what_is_exported_or_sent_has_no_key_and_no_home(
    run_with_a_fault: Project,
    keys: list[str],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = run_with_a_fault
    (folder,) = project.runs
    capsys.readouterr()  # of the run
    sent: dict[str, bytes] = {}

    def kept(_: Any, identity: str, runs: Sequence[Any], settings: Any, pictures: Any) -> UploadResult:
        sent["identity, runs, settings"] = repr((identity, runs, settings)).encode()
        for files in (*(one.files for one in runs), pictures()):
            sent.update({name: path.read_bytes() for name, path in files.items()})
        return UploadResult("there", len(runs), len(runs), 0, len(sent))

    for tracker in (MLflow, WandB):
        monkeypatch.setattr(tracker, "missing", lambda _: None)
        monkeypatch.setattr(tracker, "send", kept)
        assert main(["export", str(folder), f"--format={tracker.name}"]) == 0, capsys.readouterr().err
        assert len(sent) > 3
    for form in FORMS:
        words = ["--format", form, "-o", str(project.path / form), "--checkpoint", "fake-causal"]
        assert main(["export", str(folder), *words, "--root", str(project.path)]) == 0, (
            capsys.readouterr().err
        )
    written = files_below(*(project.path / form for form in FORMS))
    assert len(written) > len(FORMS)
    printed = capsys.readouterr()
    places = sent | written | {"printed": f"{printed.out}{printed.err}".encode()}
    assert not leaks(places, [*keys, str(home)])


def test_a_server_gets_its_key_and_nothing_else_does(
    pytester: pytest.Pytester, whole: Path, keys: list[str], home: Path, drill: Drill
) -> None:
    project = Project(pytester)
    with serving(whole, leaks=30) as server:
        assert server.headers == []
        leaking = project.run(checkpoint=f"{server.url}/v1")
        sent = {one.get("Authorization") for one in server.headers}
    assert sent == {f"Bearer {KEYS['OPENAI_API_KEY']}"}
    found = files_below(project.path / "results", home) | told(leaking)
    with serving(whole) as server:
        address = server.url.replace("http://", f"http://me:{PASSWORD}@")
        refused = project.run(checkpoint=f"{address}/v1")
        asked = project.run(checkpoint=f"{server.url}/v1?api_key={PASSWORD}")
    found |= files_below(project.path / "results", home) | told(refused)
    found |= {f"{name}, with a key": text for name, text in told(asked).items()}
    assert not leaks(found, [*keys, PASSWORD])
    drill.figure("files searched for keys", len(found))


def children() -> Iterator[tuple[str, bytes, bytes]]:
    """The command line and the environment of every process below this one."""
    waiting = [os.getpid()]
    while waiting:
        number = waiting.pop()
        for task in Path(f"/proc/{number}/task").glob("*"):
            with contextlib.suppress(OSError):
                below = [int(one) for one in (task / "children").read_text().split()]
                waiting += below
                for child in below:
                    place = Path(f"/proc/{child}")
                    yield str(child), (place / "cmdline").read_bytes(), (place / "environ").read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_programs_in_the_sandbox_are_told_no_key(keys: list[str], drill: Drill) -> None:
    before = {number for number, _, _ in children()}
    with closing(opened_here(workers=1)) as sandbox:
        program = (
            "import os, time\ntime.sleep(2)\ndef f():\n    return int(not os.environ.get('OPENAI_API_KEY'))"
        )
        tests = CallTests("assert f() == 1", names=("f",))
        outcome = sandbox.submit(RunProgram(program, tests, task="x", seconds=10))
        seen: dict[str, bytes] = {}
        while not outcome.done():
            seen |= {f"{number}, command": line for number, line, _ in children() if number not in before}
            seen |= {f"{number}, environment": line for number, _, line in children() if number not in before}
            time.sleep(0.05)
        assert outcome.result().outcome == "passed", outcome.result().detail
    assert len(seen) > 2
    assert not leaks(seen, keys)
    drill.figure("processes looked at", len(seen) // 2)


@pytest.mark.parametrize("mask", [0, 0o022])
def test_what_a_run_makes_may_be_written_by_its_owner_alone(
    pytester: pytest.Pytester, home: Path, mask: int, drill: Drill
) -> None:
    before = os.umask(mask)
    try:
        project = Project(pytester)
        assert project.run("--eval-set", "markdown=out.md").ret == 0
    finally:
        os.umask(before)
    (folder,) = project.runs
    made = [
        folder,
        *folder.rglob("*"),
        *(project.path / "results" / "saved").rglob("*"),
        project.path / "out.md",
    ]
    made += [path for path in home.rglob("*") if "kernels" not in path.parts]
    assert [
        str(path) for path in made if stat.S_IMODE(path.lstat().st_mode) & 0o002 and not path.is_symlink()
    ] == []
    drill.figure("files whose rights were looked at", len(made))


# What files name


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every attempt to reach another machine, none of which gets anywhere."""
    attempts: list[Any] = []

    def refuse(*what: Any, **_: Any) -> None:
        attempts.append(what)
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return attempts


ELSEWHERE: Final = "http://127.0.0.1:9/x"


def renamed(value: Any, name: str) -> Any:
    """The content of a file, in which every text is another one."""
    if isinstance(value, dict):
        return {key: renamed(one, name) for key, one in value.items()}
    if isinstance(value, list):
        return [renamed(one, name) for one in value]
    return name if isinstance(value, str) else value


def each_text(value: Any, name: str) -> Iterator[Any]:
    """The content of a file, in which each text in turn is another one, at the uppermost three levels."""
    yield renamed(value, name)
    if isinstance(value, dict):
        for key, one in value.items():
            if isinstance(one, str):
                yield {**value, key: name}
            elif isinstance(one, dict):
                yield from ({**value, key: inner} for inner in each_text(one, name))


NAMED: Final[dict[str, dict[str, Any]]] = {
    "config.json": {"_name_or_path": "org/model", "auto_map": {"AutoConfig": "org/code--mine.Mine"}},
    "tokenizer_config.json": {
        "name_or_path": "org/model",
        "auto_map": {"AutoTokenizer": ["org/code--mine.Mine", None]},
    },
    "adapter_config.json": {"base_model_name_or_path": "org/model", "revision": "main"},
    "generation_config.json": {"_from_model_config": ELSEWHERE},
}


@pytest.mark.parametrize(
    "name",
    [one for one in READERS if one.endswith(".json") or one in ("lm-eval", "tasks (JSON)")],
)
def test_no_name_in_a_file_reaches_the_network(
    name: str, tmp_path: Path, tried: list[Any], monkeypatch: pytest.MonkeyPatch, drill: Drill
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    reader = READERS[name]
    (tmp_path / "given").mkdir()
    path = reader.example(tmp_path / "given")
    content = json.loads(path.read_bytes())
    named = [one for text in (ELSEWHERE, "org/model", "hub:org/model") for one in each_text(content, text)]
    named = named if drill.whole else named[:: max(1, len(named) // 4)]
    if isinstance(content, dict):
        named.append({**content, **NAMED.get(name, {})})
    for one in named:
        path.write_text(json.dumps(one), encoding="utf-8")
        with contextlib.suppress(HarnessError):
            reader.read(path)
    assert tried == []
    drill.figure("files that name another machine", len(named))


TEMPLATE: Final = (
    "{% include 'http://127.0.0.1:9/x' %}{% import '/etc/passwd' as x %}{{ ''.__class__.__mro__ }}"
)


def test_no_template_reaches_the_network_or_another_file(
    whole: Path, tmp_path: Path, tried: list[Any]
) -> None:
    path = READERS["config.json"].example(tmp_path)
    (path.parent / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    READERS["config.json"].read(path)
    assert tried == []


def test_nothing_in_a_folder_of_results_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drill: Drill
) -> None:
    output, marker = tmp_path / "results", tmp_path / "it-ran"
    folder = run(output, "one", "checkpoint-100", when=3)
    (folder / "run.json").write_text(json.dumps(MANIFEST), encoding="utf-8")
    code = f"open({str(marker)!r}, 'w')\n"
    for place in (output, folder, folder / "details", folder / "items", output / "saved", tmp_path):
        place.mkdir(exist_ok=True)
        for name in (
            "conftest.py",
            "json.py",
            "sitecustomize.py",
            "rich.py",
            "usercustomize.py",
            "setup.py",
            "items-1.py",
        ):
            (place / name).write_text(code, encoding="utf-8")
        (place / "__pycache__").mkdir()
        (place / "data.pkl").write_bytes(pickle.dumps(payload(marker)))
        (place / "x.pth").write_text(f"import os; {code}", encoding="utf-8")
        (place / "results.yaml").write_text(
            f"!!python/object/apply:os.system ['touch {marker}']", encoding="utf-8"
        )
    monkeypatch.chdir(tmp_path)
    words = (
        *(["runs"], ["report", "one"], ["report", "one", "--format", "html"], ["study", "results"]),
        *(["compare", "one"], ["baseline", "plan"]),
    )
    for one in words:
        with contextlib.suppress(SystemExit):
            main([*one, "--output", "results"])
    main(["migrate", str(output / "results.yaml")])
    command = [
        sys.executable,
        "-c",
        "from pytest_touchstone.cli import main; main(['report', 'results/one'])",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True)
    assert not marker.exists()
    drill.figure("commands beside files that would run", len(words) + 2)
