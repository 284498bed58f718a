"""From what the user typed to checkpoints.

runs/a/checkpoint-655             a folder that save_pretrained or a Trainer wrote
runs/lora/checkpoint-6000         a LoRA adapter of the PEFT library, with the base that it names
checkpoint_best.pt                a model of Llama's reference code, with one prediction head or several
models/llama                      the same as a folder with params.json
model.gguf                        a GGUF file
'runs/*/checkpoint-*'             a glob, in the order of folders, then of steps
builtin:ko-mlm-tiny               the last step; builtin:ko-mlm-tiny/nouns/checkpoint-300 any saved one
builtin:smollm2-135m              once ``touchstone fetch smollm2-135m`` has brought it
builtin:mtp-tiny                  a model with four prediction heads
hub:ORG/NAME, ORG/NAME            on the Hugging Face Hub
fake:causal, fake:masked          no model: answers come from hashes, for trying out a benchmark
"""

from __future__ import annotations

import glob
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from harness.checkpoints.adapters import is_adapter, recognise_adapter
from harness.checkpoints.builtin import KO_MLM, NAMES, SMOLLM2, builtin_path, step_of
from harness.checkpoints.folders import limited, recognise_folder
from harness.checkpoints.gguf_header import read_gguf
from harness.checkpoints.hub import fetch_from_hub, hub_id
from harness.checkpoints.info import CheckpointInfo, Kind
from harness.checkpoints.mtp import FILES, has_params, recognise_params, recognise_pt
from harness.errors import CheckpointError

_FAKE_LENGTH: Final = 2048
_GGUF_LENGTH: Final = 2048


_FILES: Final = (".gguf", *FILES)


class _Asked(NamedTuple):
    """What the user typed, and the options that go with it."""

    source: str
    seq_len: int | None
    base_model: str | None = None
    trust_remote_code: bool = False


def recognise(
    source: str, *, seq_len: int | None, base_model: str | None = None, trust_remote_code: bool = False
) -> list[CheckpointInfo]:
    """The checkpoints that ``source`` names, at least one; nothing is loaded, and torch is not imported.

    ``seq_len``, ``base_model`` and ``trust_remote_code`` are the values of the options ``--eval-seq-len`` and so on.
    Raises ``CheckpointError`` (one line) when a checkpoint is missing or broken.
    """
    asked = _Asked(source, seq_len, base_model, trust_remote_code)
    if source.startswith("fake:"):
        return [_fake(source, seq_len)]
    if source.startswith("builtin:"):
        return [_builtin(asked)]
    if source.startswith(("http://", "https://")):
        raise CheckpointError(
            f"{source}: served models are not supported yet; give a folder, a file or a Hub id (ORG/NAME)"
        )
    if "\0" in source:
        raise CheckpointError(f"{source!r}: no path; check --checkpoint")
    path = Path(source).expanduser()
    if _exists(path):
        return [_local(path, asked)]
    if glob.has_magic(source):
        return [_local(match, asked) for match in _expand(source)]
    if (name := hub_id(source)) is not None:
        info = _local(fetch_from_hub(name, code=trust_remote_code), asked)
        return [replace(info, name=name.split("/")[-1])]
    raise CheckpointError(f"{source}: no such file or folder; check the path")


def default_checkpoints(*, seq_len: int | None = None) -> list[CheckpointInfo]:
    """The builtin checkpoints that are there, for a run without ``--checkpoint``; may be empty."""
    found = []
    for name in (KO_MLM, SMOLLM2):
        try:
            builtin_path(name)
        except CheckpointError:
            continue
        found += recognise(f"builtin:{name}", seq_len=seq_len)
    return found


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a name too long, a folder that may not be entered
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def _local(path: Path, asked: _Asked) -> CheckpointInfo:
    try:
        return _recognised(path, asked)
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or path}: cannot be read ({error.strerror}); check the rights"
        ) from error


def _recognised(path: Path, asked: _Asked) -> CheckpointInfo:
    source, seq_len = asked.source, asked.seq_len
    base = None if asked.base_model is None else Path(asked.base_model).expanduser()
    if path.is_dir():
        if is_adapter(path):
            return recognise_adapter(path, source, asked.base_model, partial(_base, asked))
        if has_params(path):
            return recognise_params(path, source, seq_len, base)
        return recognise_folder(path, source, seq_len, trust_remote_code=asked.trust_remote_code)
    if path.suffix == ".gguf":
        return _gguf(path, source, seq_len)
    if path.suffix in FILES:
        return recognise_pt(path, source, seq_len, base)
    raise CheckpointError(
        f"{path}: neither a checkpoint folder nor a .gguf or .pt file; give the folder that holds config.json"
    )


def _base(asked: _Asked, source: str) -> list[CheckpointInfo]:
    """The base of an adapter, which is no adapter itself."""
    if is_adapter(Path(source).expanduser()):
        raise CheckpointError(f"{source}: an adapter itself; give the model that it was trained on")
    return recognise(source, seq_len=asked.seq_len, trust_remote_code=asked.trust_remote_code)


def _gguf(path: Path, source: str, seq_len: int | None) -> CheckpointInfo:
    header = read_gguf(path)
    return CheckpointInfo(
        name=path.stem,
        source=source,
        path=path,
        kind="causal",
        format="gguf",
        model_type=header.architecture,
        architecture=f"{header.architecture} (gguf)",
        seq_len=limited(path, header.context_length or _GGUF_LENGTH, seq_len),
        parameters=header.parameters,
        dtype=header.dtype,
    )


def _builtin(asked: _Asked) -> CheckpointInfo:
    name = asked.source.removeprefix("builtin:")
    info = _local(builtin_path(name), asked)
    return replace(info, name=name) if name in NAMES else info


def _fake(source: str, seq_len: int | None) -> CheckpointInfo:
    kinds: dict[str, Kind] = {"fake:causal": "causal", "fake:masked": "masked"}
    if source not in kinds:
        raise CheckpointError(f"{source}: unknown; use fake:causal or fake:masked")
    return CheckpointInfo(
        name=source.replace(":", "-"),
        source=source,
        path=Path(source),
        kind=kinds[source],
        format="fake",
        model_type="fake",
        architecture="answers from hashes, no model",
        seq_len=limited(Path(source), _FAKE_LENGTH, seq_len),
    )


def _expand(pattern: str) -> list[Path]:
    """The folders and files of weights that match, by their folder, then by the number at the end of their name."""
    # pathlib refuses absolute patterns, hence the module glob.
    matches = glob.glob(str(Path(pattern).expanduser()), recursive=True)  # noqa: PTH207
    found = [path for path in map(Path, matches) if path.is_dir() or path.suffix in _FILES]
    if not found:
        raise CheckpointError(
            f"{pattern}: matches no folder and no .gguf or .pt file; check the pattern (and quote it)"
        )
    return sorted(found, key=lambda path: (_natural(path.parent), step_of(path), path.name))


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """A key that sorts numbers in names by value."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", str(path))]
