"""Distributed checkpoints for tests, by torch's own writer."""

from __future__ import annotations

import os
import pickle
import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any


def save_distributed(state: dict[str, Any], folder: Path) -> Path:
    """Writes what a training on one rank writes; returns the folder."""
    from torch.distributed.checkpoint.state_dict_saver import save

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no process group, which is as meant
        save(state, checkpoint_id=folder, no_dist=True)
    return folder


def save_on_two_ranks(state: dict[str, Any], folder: Path) -> Path:
    """Writes what a training on two ranks writes: tensors sharded by rows, by columns or not at all, in turn."""
    from torch.multiprocessing.spawn import spawn

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn(_rank, args=(port, state, str(folder)), nprocs=2)
    return folder


def _rank(rank: int, port: int, state: dict[str, Any], folder: str) -> None:
    import torch.distributed as dist
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    warnings.simplefilter("ignore")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    shared = {}
    for number, (name, tensor) in enumerate(state.items()):
        by = [Shard(0), Shard(min(1, tensor.dim() - 1)), Replicate()][number % 3]
        shared[name] = distribute_tensor(tensor, mesh, [by])
    moments = {"state": {name: {"exp_avg": tensor} for name, tensor in shared.items()}}
    writer = FileSystemWriter(folder)
    save({"model": shared, "optimizer": moments, "step": 7}, storage_writer=writer)
    dist.destroy_process_group()


def changed_metadata(folder: Path, change: Callable[[Any], object]) -> Path:
    """Changes the metadata as a stranger could; returns the folder."""
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    change(metadata)
    path.write_bytes(pickle.dumps(metadata))
    return folder
