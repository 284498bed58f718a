"""Distributed checkpoints are read as torch reads them, and broken or hostile ones are refused in a line."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import pickle
import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.checkpoints.formats.content import Tensor, TensorPart, hash_ranges
from pytest_touchstone.checkpoints.formats.dcp import read_distributed
from pytest_touchstone.core.errors import CheckpointError
from tests.support.distributed_files import changed_metadata, save_distributed
from tests.support.lines import naming


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    import torch

    state = {"model": {"a.weight": torch.arange(12.0).view(3, 4), "b": torch.ones(5).bfloat16()}}
    moments = {"state": {"a.weight": {"exp_avg": torch.zeros(3, 4)}}}
    return save_distributed({**state, "optimizer": moments, "step": 3}, tmp_path / "step-3")


def test_the_models_tensors_are_read_and_no_others(saved: Path) -> None:
    found = read_distributed(saved)
    assert {name: (one.dtype, one.shape) for name, one in found.items()} == {
        "a.weight": ("F32", (3, 4)),
        "b": ("BF16", (5,)),
    }
    one = found["a.weight"]
    import torch

    assert one.file.read_bytes()[one.begin : one.end] == torch.arange(12.0).numpy().tobytes()


def test_tensors_at_the_top_are_a_models_as_torchtitan_saves_them(tmp_path: Path) -> None:
    import torch

    state = {
        "norm.weight": torch.ones(4),
        "count": torch.tensor(3.0),
        "optimizer": {"norm.weight.exp_avg": torch.ones(4)},
    }
    found = read_distributed(save_distributed({**state, "train_state": {"step": 5}}, tmp_path / "step-5"))
    assert {name: one.shape for name, one in found.items()} == {"norm.weight": (4,), "count": ()}


@pytest.mark.parametrize("nested", [{"app": {"model": 1, "optim": 2}}, {"model": 1, "ema": {"model": 2}}])
def test_the_model_may_lie_deeper_or_beside_a_mean_of_it(nested: dict[str, Any], tmp_path: Path) -> None:
    import torch

    def made(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: made(one) for name, one in value.items()}
        return {"w": torch.zeros(value)}

    (tensor,) = read_distributed(save_distributed(made(nested), tmp_path / "s")).values()
    assert tensor.shape == (1,)


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_distributed(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


def of_a(metadata: Any) -> Any:
    return metadata.state_dict_metadata["model.a.weight"]


def moved(**values: Any) -> Callable[[Any], object]:
    """Changes of the place of ``a.weight``."""

    def change(metadata: Any) -> None:
        for index, place in metadata.storage_data.items():
            if index.fqn == "model.a.weight":
                vars(place).update(values)

    return change


def sized(*sides: int) -> Callable[[Any], object]:
    def change(metadata: Any) -> None:
        import torch

        of_a(metadata).size = torch.Size(sides)
        of_a(metadata).chunks[0].sizes = torch.Size(sides)

    return change


def without_a_place(metadata: Any) -> None:
    metadata.storage_data = {
        key: one for key, one in metadata.storage_data.items() if key.fqn != "model.a.weight"
    }


def twice(metadata: Any) -> None:
    """Two tensors in the same bytes."""
    places = {index.fqn: place for index, place in metadata.storage_data.items()}
    vars(places["model.b"]).update(vars(places["model.a.weight"]))


def many_chunks(metadata: Any) -> None:
    of_a(metadata).chunks *= 1000


def other_type(metadata: Any) -> None:
    import torch

    of_a(metadata).properties.dtype = torch.float64


def gap(metadata: Any) -> None:
    import torch

    of_a(metadata).size = torch.Size([4, 4])


def cyclic(metadata: Any) -> None:
    metadata.state_dict_metadata["model.c"] = metadata.state_dict_metadata
    of_a(metadata).chunks[0].sizes = metadata


def numbers_for_places(metadata: Any) -> None:
    metadata.storage_data = dict.fromkeys(metadata.storage_data, 7)


def nothing(metadata: Any) -> None:
    metadata.state_dict_metadata = {}


HOSTILE = {
    "elsewhere": (moved(relative_path="../other.distcp"), "which is not in its folder"),
    "absolute": (moved(relative_path="/etc/passwd"), "which is not in its folder"),
    "no text": (moved(relative_path=7), "missing"),
    "two lines": (moved(relative_path="a\nb"), "which is not in its folder"),
    "no places": (numbers_for_places, "no place for"),
    "missing": (moved(relative_path="__9_0.distcp"), "__9_0.distcp: missing"),
    "far": (moved(offset=10**15), "cut off"),
    "long": (moved(length=10**15), "cut off"),
    "negative": (moved(offset=-1), "impossible"),
    "truth": (moved(offset=True), "impossible"),
    "huge": (sized(10**15), "do not make its shape|is not the chunk|places for|place for a chunk"),
    "huge sides": (sized(10**15, 10**15), "is not the chunk"),
    "no place": (without_a_place, "places for"),
    "twice": (twice, "within another one's bytes"),
    "many": (many_chunks, "places for"),
    "type": (other_type, "is not the chunk"),
    "gap": (gap, "do not make its shape"),
    "cyclic": (cyclic, "impossible"),
    "nothing": (nothing, "no tensors of a model"),
    "compressed": (moved(transform_descriptors=["zstd"]), "compressed"),
    "shifted": (moved(offset=1), "cut off or broken|within another|no file of torch.save"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_metadata_that_do_not_fit_the_files_are_refused(kind: str, saved: Path) -> None:
    change, said = HOSTILE[kind]
    assert re.search(said, refusal(changed_metadata(saved, change)))


def test_metadata_that_run_code_are_refused_by_name_and_run_nothing(saved: Path) -> None:
    class Payload:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {saved / 'ran'}",)

    def change(metadata: Any) -> None:
        metadata.planner_data = Payload()

    assert "system" in refusal(changed_metadata(saved, change))
    assert not (saved / "ran").exists()


def test_members_of_enums_are_read_as_python_3_11_0_pickled_them(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING

    whole = read_distributed(saved)
    monkeypatch.setattr(
        _MEM_FORMAT_ENCODING, "__reduce_ex__", lambda member, _: (getattr, (type(member), member.name))
    )
    changed_metadata(saved, lambda _: None)
    assert b"getattr" in (saved / ".metadata").read_bytes()
    assert read_distributed(saved) == whole


def lookups() -> dict[str, tuple[Any, ...]]:
    """The arguments of calls of ``getattr`` that name no member of torch's enum."""
    from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, Metadata

    return {
        "dunder": (_MEM_FORMAT_ENCODING, "__class__"),
        "private": (_MEM_FORMAT_ENCODING, "_member_map_"),
        "number": (_MEM_FORMAT_ENCODING, 7),
        "other class": (Metadata, "TORCH_CONTIGUOUS_FORMAT"),
        "function": (getattr, "TORCH_CONTIGUOUS_FORMAT"),
        "table": ({}, "clear"),
        "default": (_MEM_FORMAT_ENCODING, "TORCH_CONTIGUOUS_FORMAT", 7),
    }


@pytest.mark.parametrize(
    "kind", ["dunder", "private", "number", "other class", "function", "table", "default"]
)
def test_any_other_attribute_is_refused(kind: str, saved: Path) -> None:
    class Lookup:
        def __reduce__(self) -> Any:
            return getattr, lookups()[kind]

    def change(metadata: Any) -> None:
        metadata.planner_data = Lookup()

    line = refusal(changed_metadata(saved, change))
    assert ".metadata" in line
    assert "getattr" in line or kind == "default"


@pytest.mark.parametrize(
    "content", [b"", b"x", b"\x80\x04.", b"\x80\x04K\x01.", b"\x80\x04}\x94h\x00h\x00s."]
)
def test_no_metadata_at_all_are_refused(content: bytes, saved: Path) -> None:
    (saved / ".metadata").write_bytes(content)
    assert ".metadata" in refusal(saved)


def test_any_beginning_of_the_metadata_is_refused(saved: Path) -> None:
    whole = (saved / ".metadata").read_bytes()
    for length in range(0, len(whole) - 1, 97):
        (saved / ".metadata").write_bytes(whole[:length])
        assert ".metadata" in refusal(saved)


def test_tuples_within_one_another_as_a_key_take_no_time(saved: Path) -> None:
    key: Any = "a"
    for _ in range(60):
        key = (key, key)
    # Python itself would take for ever to make the dictionary.
    content = pickle.dumps(key, 4).removesuffix(b".")
    (saved / ".metadata").write_bytes(b"\x80\x04}" + content.removeprefix(b"\x80\x04")[9:] + b"K\x01s.")
    refusal(saved)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5])
def test_a_file_that_was_cut_off_is_named(share: float, saved: Path) -> None:
    path = saved / "__0_0.distcp"
    os.truncate(path, int(path.stat().st_size * share))
    assert "__0_0.distcp: cut off" in refusal(saved)


def test_what_is_missing_of_the_optimizer_does_not_matter(saved: Path) -> None:
    whole = read_distributed(saved)
    path = saved / "__0_0.distcp"
    os.truncate(path, path.stat().st_size - 10)
    assert read_distributed(saved) == whole


def test_a_link_out_of_the_folder_is_refused(saved: Path, tmp_path: Path) -> None:
    (saved / "__0_0.distcp").rename(tmp_path / "real")
    (saved / "__0_0.distcp").symlink_to(tmp_path / "real")
    assert naming("__0_0.distcp", "link", tmp_path / "real").search(refusal(saved))


@st.composite
def grids(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[int]]]:
    """A shape, and along each side where its cells begin."""
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    cuts = [sorted({0, *draw(st.lists(st.integers(0, side - 1), max_size=2))}) for side in shape]
    return shape, cuts


@given(grid=grids())
def test_a_tensor_in_parts_has_the_hash_of_the_whole(
    grid: tuple[tuple[int, ...], list[list[int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    shape, cuts = grid
    numbers = {place: number for number, place in enumerate(itertools.product(*map(range, shape)))}
    path = tmp_path_factory.mktemp("parts") / "x"
    held, parts = b"", []
    for offsets in itertools.product(*cuts):
        ends = [
            min([*(one for one in starts if one > at), side])
            for at, starts, side in zip(offsets, cuts, shape, strict=True)
        ]
        sizes = tuple(end - at for at, end in zip(offsets, ends, strict=True))
        cell = bytes(numbers[place] for place in itertools.product(*map(range, offsets, ends)))
        assert len(cell) == prod(sizes)
        parts.append(TensorPart(offsets, Tensor("U8", sizes, path, len(held), len(held) + len(cell))))
        held += cell
    path.write_bytes(held)
    whole = Tensor("U8", shape, *parts[0].tensor[2:5], parts=tuple(parts))
    assert hash_ranges(whole.ranges) == hashlib.sha256(bytes(range(prod(shape)))).hexdigest()


def test_metadata_classes_are_those_of_this_torch(saved: Path) -> None:
    """A field that torch adds or renames shows here."""
    from torch.distributed.checkpoint import metadata

    assert {field.name for field in dataclasses.fields(metadata.Metadata)} >= {
        "state_dict_metadata",
        "storage_data",
    }
    assert read_distributed(saved)
