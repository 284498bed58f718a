"""The next checkpoint's files are read while the last items of the one before are answered, where memory allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.checkpoints import CheckpointInfo, recognise
from harness.read_ahead import ReadAhead, available_bytes
from tests.tiny import tiny_causal


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> CheckpointInfo:
    (found,) = recognise(str(tiny_causal(tmp_path_factory.mktemp("tiny") / "one")), seq_len=None)
    return found


def test_a_checkpoint_is_read_once(info: CheckpointInfo) -> None:
    ahead = ReadAhead(lambda: 1 << 34)
    assert ahead.begin(info)
    ahead.close()
    assert not ahead.begin(info)


def test_nothing_is_read_where_memory_is_short_or_unknown(info: CheckpointInfo) -> None:
    size = (info.path / "model.safetensors").stat().st_size
    assert not ReadAhead(lambda: size).begin(info)
    assert not ReadAhead(lambda: None).begin(info)


def test_files_that_have_gone_are_left_to_whoever_loads_them(info: CheckpointInfo, tmp_path: Path) -> None:
    from dataclasses import replace

    ahead = ReadAhead(lambda: 1 << 34)
    ahead.begin(replace(info, path=tmp_path / "gone"))
    ahead.close()


def test_reading_ends_when_the_run_does(info: CheckpointInfo, tmp_path: Path) -> None:
    from dataclasses import replace

    large = tmp_path / "large.gguf"
    with large.open("wb") as file:
        file.truncate(1 << 34)
    ahead = ReadAhead(lambda: 1 << 40)
    assert ahead.begin(replace(info, format="gguf", path=large))
    ahead.close()


def test_linux_says_how_much_memory_there_is() -> None:
    assert (available_bytes() or 1) > 0


def test_a_fake_checkpoint_has_no_files() -> None:
    (fake,) = recognise("fake:causal", seq_len=None)
    assert not ReadAhead().begin(fake)
