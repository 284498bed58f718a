"""Pickles are read as torch reads them, without torch."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import pytest

from pytest_touchstone.checkpoints.formats.content import Tensor
from pytest_touchstone.checkpoints.formats.torch_pickle import read_objects, read_pickled
from pytest_touchstone.core.errors import CheckpointError


def test_tensors_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    """Types, shapes, views of one storage, and the very bytes."""
    import torch

    storage = torch.arange(24, dtype=torch.float32)
    held = {
        "plain": torch.randn(3, 4),
        "view": storage[4:10].view(2, 3),
        "whole": storage,
        "transposed": torch.randn(3, 5).T,
        "number": torch.tensor(2.5),
        "empty": torch.zeros(0, 7),
        "half": torch.randn(4).half(),
        "bfloat16": torch.randn(4, 2).bfloat16(),
        "truth": torch.tensor([True, False]),
        "unsigned": torch.arange(5).to(torch.uint16),
        "long": torch.arange(5),
        "float8": torch.randn(8).to(torch.float8_e4m3fn),
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
    }
    torch.save(held, tmp_path / "x.pt")
    found = read_pickled(tmp_path / "x.pt")
    assert found.keys() == held.keys()
    content = (tmp_path / "x.pt").read_bytes()
    for name, tensor in held.items():
        one = found[name]
        assert isinstance(one, Tensor)
        assert one.shape == tuple(tensor.shape)
        if tensor.is_contiguous():
            flat = tensor.detach().reshape(-1)
            wanted = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
            assert content[one.begin : one.end] == wanted
            assert one.strides is None
        else:
            assert one.strides is not None


def test_plain_values_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    import torch

    held = {
        "a": [1, 2.5, None, True, "한국어"],
        "b": {"c": (1, (2, 3))},
        "big": 1 << 70,
        "size": torch.Size([2, 3]),
    }
    torch.save(held, tmp_path / "x.pt")
    found = read_pickled(tmp_path / "x.pt")
    assert found == held


SET_ITEM = pickle.BININT1 + b"\0" + pickle.BININT1 + b"\7" + pickle.SETITEM
SET_ITEMS = pickle.MARK + SET_ITEM[:-1] + pickle.SETITEMS


@pytest.mark.parametrize("set_items", [SET_ITEM, SET_ITEMS], ids=["SETITEM", "SETITEMS"])
def test_items_are_set_in_dictionaries_alone(tmp_path: Path, set_items: bytes) -> None:
    """Python's machine would set the item of a list, and update a set."""
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.EMPTY_DICT + set_items + pickle.STOP)
    assert read_objects(path) == {0: 7}
    a_list = pickle.EMPTY_LIST + pickle.BININT1 + b"\1" + pickle.APPEND
    for target in (a_list, pickle.EMPTY_SET):
        path.write_bytes(pickle.PROTO + b"\4" + target + set_items + pickle.STOP)
        with pytest.raises(CheckpointError, match=r"UnpicklingError"):
            read_objects(path)


@pytest.mark.parametrize("append", [pickle.APPEND, pickle.APPENDS], ids=["APPEND", "APPENDS"])
def test_values_are_appended_to_lists_alone(tmp_path: Path, append: bytes) -> None:
    path = tmp_path / "x.pkl"
    mark = pickle.MARK if append == pickle.APPENDS else b""
    value = mark + pickle.BININT1 + b"\7" + append
    path.write_bytes(pickle.EMPTY_LIST + value + pickle.STOP)
    assert read_objects(path) == [7]
    path.write_bytes(pickle.PROTO + b"\4" + pickle.EMPTY_DICT + value + pickle.STOP)
    with pytest.raises(CheckpointError, match=r"UnpicklingError"):
        read_objects(path)


@pytest.mark.parametrize("flag", [0x1, 0x20, 0x40])
def test_an_encrypted_or_patched_record_is_refused_in_one_line(flag: int, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps({}, 2))
    content = bytearray(path.read_bytes())
    content[6] |= flag
    content[content.index(b"PK\x01\x02") + 8] |= flag
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="broken, its pickle cannot be read"):
        read_pickled(path)
