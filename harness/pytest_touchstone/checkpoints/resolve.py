"""The checkpoints that the text of a user names.

runs/a/checkpoint-655             a folder that save_pretrained or a Trainer wrote
runs/lora/checkpoint-6000         a LoRA adapter of the PEFT library, with the base that it names
checkpoint_best.pt                a model of Llama's reference code, with one prediction head or several
models/llama                      the same as a folder with params.json
step-1000                         a distributed checkpoint (FSDP, torchtitan, OLMo-core)
model.gguf                        a GGUF file
runs/a                            no checkpoint itself, but it holds some: all of them
'runs/a/**'                       all of them and a model in runs/a itself
'runs/*/checkpoint-*'             a glob, in the order of folders, then of steps
builtin:ko-mlm-tiny               the last step; builtin:ko-mlm-tiny/nouns/checkpoint-300 any saved one
'builtin:ko-mlm-tiny/*'           all of them
builtin:smollm2-135m              once ``touchstone checkpoint fetch smollm2-135m`` has brought it
builtin:mtp-tiny                  a model with four prediction heads
hub:ORG/NAME, ORG/NAME            on the Hugging Face Hub
http://HOST:PORT/v1               a model that a server has (``?model=NAME`` where it has several)
vllm:PATH, sglang:PATH            a model at a server that is started for it
llama-server:PATH.gguf            the same with llama.cpp
answers:FILE                      no model: a file of answers, of any harness (``engines.answers``)
fake:causal, fake:masked          no model: answers come from hashes, for trying out a benchmark

A folder that is no checkpoint itself but holds some (up to three levels down) stands for all of them, also where a
glob matches it. Nothing within a checkpoint is one (an optimizer's state, ``global_step500``), unless it has the files
of one.

``find_checkpoints`` has those of a run, by series and step, without those that ``--eval-steps`` leaves out. A series is
a folder. Within it those with a number at the end of their names come first (``checkpoint-100``,
``checkpoint_epoch_3.pt``); those with the same stem are ordered by step. Then come the others (``final``,
``checkpoint_best.pt``), and last a model in the series' own folder. One of
several checkpoints that fails to load does not keep the others from being scored: it is listed apart, and the run says
so and is not complete. Where none can be used the run does not begin.

The grammar of ``--eval-steps``:

    300            that step
    100,300        each of them
    300:           from 300 up
    :600           up to 600, which is among them
    100:600:100    from 100 to 600 in steps of 100: 100, 200, ... 600
    ::500          every 500th

Parts with commas between them add up: ``25,300:``.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from pytest_touchstone.checkpoints.builtin import (
    KO_MLM,
    NAMES,
    SMOLLM2,
    builtin_path,
    builtin_pattern,
    step_of,
)
from pytest_touchstone.checkpoints.config_files import readable, step_in_name
from pytest_touchstone.checkpoints.formats import formats
from pytest_touchstone.checkpoints.formats.base import (
    ENGINES,
    OWN_ENGINES,
    CheckpointRequest,
    CheckpointResources,
    SchemeHandler,
)
from pytest_touchstone.checkpoints.formats.content import TOKENIZER
from pytest_touchstone.checkpoints.formats.distributed import is_inner
from pytest_touchstone.checkpoints.formats.llama import SIDE
from pytest_touchstone.checkpoints.formats.transformers import TransformersFormat
from pytest_touchstone.checkpoints.info import CheckpointInfo, unique_names
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.hooks import load_plugins
from pytest_touchstone.core.text import similar_names

_TARGETS: Final = {"builtin:", "hub:"}

_FILES: Final = (
    *("config.json", "generation_config.json", "adapter_config.json"),
    *("*.safetensors", "*.safetensors.index.json"),
    *TOKENIZER,
)
"""Config, safetensors and tokenizer: no pickled weights, no code."""

_TARGET: Final = re.compile(r"[A-Za-z][\w+.-]+:(//)?")
_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


_DEEPEST: Final = 3
"""The number of levels below a folder that are searched."""

_QUANTISED: Final = re.compile(r"[._-](I?Q\d\w*|B?F16|F32)\.gguf$", re.IGNORECASE)
"""The part of a GGUF file's name that says how its numbers are stored."""


class FailedToLoad(NamedTuple):
    """A checkpoint that failed to load, with a one-line reason."""

    name: str
    source: str
    path: str
    message: str


@dataclass(slots=True)
class FoundCheckpoints:
    """The checkpoints of a source in order, failed ones, and notes about skipped paths."""

    infos: list[CheckpointInfo] = field(default_factory=list)
    failed: list[FailedToLoad] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def resolve(
    source: str,
    *,
    seq_len: int | None,
    base_model: str | None = None,
    trust_remote_code: bool = False,
    lasting: CheckpointResources | None = None,
    served: bool = False,
) -> list[CheckpointInfo]:
    """Return the checkpoints that a source names, at least one.

    Weights are not loaded, and torch is not imported.

    ``seq_len``, ``base_model`` and ``trust_remote_code`` are the values of the options ``--eval-seq-len`` and so on.
    ``lasting`` holds what is started for them; without it nothing is. ``served``: a server is to load the weights.
    Raises ``CheckpointError`` (one line) when a checkpoint is missing or fails to load.
    """
    checkpoints = find(
        source,
        seq_len=seq_len,
        base_model=base_model,
        trust_remote_code=trust_remote_code,
        lasting=lasting,
        served=served,
    )
    if checkpoints.failed:
        raise CheckpointError(checkpoints.failed[0].message)
    return checkpoints.infos


def find(
    source: str,
    *,
    seq_len: int | None,
    base_model: str | None = None,
    trust_remote_code: bool = False,
    options: Mapping[str, str] = MappingProxyType({}),
    lasting: CheckpointResources | None = None,
    served: bool = False,
) -> FoundCheckpoints:
    """Return the checkpoints that a source names, and those of several that fail to load.

    ``options`` are settings by the names that they have in ``TARGET?NAME=VALUE``; a target takes those that it
    declares and ``source`` does not name itself.

    Raises ``CheckpointError`` where ``source`` names a single checkpoint that fails to load, or none at all.
    """
    source = _with_lower_scheme(source)
    by_person = partial(resolve, seq_len=seq_len, trust_remote_code=trust_remote_code)
    by_file = partial(resolve_from_file, seq_len=seq_len, trust_remote_code=trust_remote_code)
    asked = CheckpointRequest(
        *(source, seq_len, base_model, trust_remote_code),
        resolve_base=by_person if base_model else by_file,
        lasting=lasting,
        served=served,
    )
    path = _parse_path(source)
    if (owner := _scheme_handler(source)) is not None:
        target, _, query = source.partition("?")
        in_target = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := sorted(in_target.keys() - owner.options.keys()):
            option_help = (
                "; ".join(f"{name}: {text}" for name, text in owner.options.items()) or "it has none"
            )
            raise CheckpointError(f"{source}: no option {unknown[0]!r}; {option_help}")
        declared = {name: value for name, value in options.items() if name in owner.options}
        return FoundCheckpoints([owner.inspect(Path(target), replace(asked, options=declared | in_target))])
    with readable(path):
        if source.startswith("builtin:") and glob.has_magic(source):
            return _inspect_several(*expand_pattern(builtin_pattern(source.removeprefix("builtin:"))), asked)
        if _exists(path):
            if path.is_dir() and not is_checkpoint(path) and (paths := checkpoints_below(path)):
                return _inspect_several(paths, [], asked)
        elif glob.has_magic(source):
            return _inspect_several(*expand_pattern(source), asked)
    return FoundCheckpoints([_inspect_single(asked)])


def resolve_from_file(
    name: str, *, seq_len: int | None = None, trust_remote_code: bool = False
) -> list[CheckpointInfo]:
    """Return the checkpoint that a checkpoint's own file names: a path, builtin or Hub id.

    The author of the file is not the person who runs the evaluation. So no server is asked or started, no pattern is
    expanded, and only snapshots of the Hub that are already in the local cache are used.

    Raises ``CheckpointError`` as ``resolve`` does.
    """
    path = _parse_path(name)
    if (
        not _exists(path)
        and not name.startswith(tuple(_TARGETS))
        and (_scheme_handler(name) or _TARGET.match(name))
    ):
        raise CheckpointError(
            f"{name}: a file of a checkpoint may name a path, builtin:NAME or ORG/NAME, and nothing else"
        )
    return [
        _inspect_single(CheckpointRequest(name, seq_len, trust_remote_code=trust_remote_code), fetch=False)
    ]


def _inspect_single(asked: CheckpointRequest, *, fetch: bool = True) -> CheckpointInfo:
    """Inspect a single checkpoint: a path, a builtin one, or a snapshot of the Hub.

    The Hub is asked only with ``fetch``. Raises ``CheckpointError`` if the checkpoint does not exist.
    """
    source = asked.source
    if source.startswith("builtin:"):
        name = source.removeprefix("builtin:")
        info = _inspect_local(builtin_path(name), asked)
        return replace(info, name=name) if name in NAMES else info
    path = _parse_path(source)
    if _exists(path):
        return _inspect_local(path, asked)
    hub_id = source.removeprefix("hub:")
    if hub_id != source and not _ID.fullmatch(hub_id):
        raise CheckpointError(f"{source}: no Hub id; write hub:ORGANISATION/NAME")
    if hub_id != source or is_hub_id(source):
        info = _inspect_local(_download(hub_id, asked.trust_remote_code, fetch), asked)
        return replace(info, name=hub_id.split("/")[-1])
    if target := _TARGET.match(source):
        listed = [owner for owner in _scheme_handlers() if getattr(owner, "listed", True)]
        raise CheckpointError(
            f"{source}: no such file, and nothing here takes {target[0]!r}; known are folders, files, ORG/NAME, "
            f"{', '.join(sorted(_TARGETS | {prefix for owner in listed for prefix in owner.targets}))}"
        )
    advice = f"the builtin checkpoint is builtin:{source}" if source in NAMES else _suggest_path(path)
    raise CheckpointError(f"{source}: no such file or folder; {advice}")


MOST_NAMES: Final = 10_000
"""The names of a folder among which the nearest one is looked for."""


def _suggest_path(path: Path) -> str:
    """Suggest the existing path that is most like a missing one, as a question."""
    folder = next((parent for parent in path.parents if parent.is_dir()), Path())
    wrong, *rest = path.relative_to(folder).parts or ("",)
    with suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in itertools.islice(entries, MOST_NAMES)]
        # Another step is no misspelling.
        names = [name for name in names if re.sub(r"\d+", "", name) != re.sub(r"\d+", "", wrong)]
        if near := similar_names(wrong, names):
            suggestion = folder.joinpath(near[0], *rest)
            return f"did you mean {suggestion if suggestion.exists() else folder / near[0]}?"
    return "check the path"


def _scheme_handlers() -> list[SchemeHandler]:
    """Return the formats and engines with schemes of their own."""
    ours = (pkgutil.resolve_name(name)() for name in OWN_ENGINES)
    kinds = (*formats(), *ours, *load_plugins(ENGINES, CheckpointError))
    return [kind for kind in kinds if isinstance(kind, SchemeHandler)]


def _scheme_handler(source: str) -> SchemeHandler | None:
    """Return the format or engine that handles the scheme of a source, else None."""
    return next((owner for owner in _scheme_handlers() if source.startswith(tuple(owner.targets))), None)


def _with_lower_scheme(source: str) -> str:
    """Lower the case of a target's scheme; return any other source unchanged.

    Schemes have no case (RFC 3986, section 3.1).
    """
    scheme = _TARGET.match(source)
    if scheme is None or _exists(_parse_path(source)):
        return source
    lowered = scheme[0].lower() + source[scheme.end() :]
    return lowered if lowered.startswith(tuple(_TARGETS)) or _scheme_handler(lowered) else source


def _inspect_several(
    matches: Sequence[Path], others: Sequence[Path], asked: CheckpointRequest
) -> FoundCheckpoints:
    """Inspect each path once, in the order of their series.

    Paths that fail to load are listed apart; a single one that fails raises ``CheckpointError``.
    """
    checkpoints = FoundCheckpoints(
        left_out=[f"checkpoint {path}: no checkpoint, and holds none" for path in others]
    )
    paths = list({_absolute(path): path for path in reversed(matches)}.values())[::-1]
    for path in paths:
        try:
            checkpoints.infos.append(_inspect_local(path, asked))
        except CheckpointError as error:
            if len(paths) == 1:
                raise
            checkpoints.failed.append(FailedToLoad(path.name, asked.source, str(path), str(error)))
    checkpoints.infos = [info for _, info in sort_series(checkpoints.infos)]
    return checkpoints


def expand_pattern(pattern: str) -> tuple[list[Path], list[Path]]:
    """Expand a glob to checkpoints, and to other paths that it matches.

    A folder of checkpoints stands for those below it.

    Raises ``CheckpointError`` where it matches no checkpoint.
    """
    # pathlib refuses absolute patterns, hence the module glob.
    matches = [Path(path) for path in glob.glob(str(Path(pattern).expanduser()), recursive=True)]  # noqa: PTH207
    recursive = "**" in Path(pattern).parts
    paths: list[Path] = []
    others: list[Path] = []
    for path in matches:
        if path.is_file():
            if is_checkpoint(path) and not (recursive and is_checkpoint(path.parent)):
                paths.append(path)
        elif is_checkpoint(path) or (_is_named_checkpoint(path) and not is_checkpoint(path.parent)):
            paths.append(path)
        elif not recursive and (held := checkpoints_below(path)):
            paths += held
        elif not recursive:
            others.append(path)
    if not paths:
        seen = "" if others or matches else "; check the pattern (and quote it)"
        raise CheckpointError(
            f"{pattern}: matches no folder{' of a checkpoint' if others else ''} and no .gguf or .pt file"
            f"{seen or '; give the folders that hold config.json'}"
        )
    return paths, others


def is_checkpoint(path: Path) -> bool:
    """Return whether a format detects a checkpoint at a path, complete or not.

    Files that a trainer leaves beside weights are not checkpoints, nor is the inner folder of one.
    """
    if (path.is_file() and SIDE.match(path.name)) or is_inner(path):
        return False
    return any(checkpoint_format.detect(path) for checkpoint_format in formats())


def checkpoints_below(folder: Path, deeper: int = _DEEPEST) -> list[Path]:
    """List the checkpoints below a folder that is not a checkpoint itself.

    At most ``deeper`` levels of folders are searched.
    """
    checkpoints: list[Path] = []
    is_whole = is_checkpoint(folder)
    for path in sorted(folder.iterdir(), key=lambda child: natural_key(child.name)):
        if path.name.startswith("."):
            continue
        if path.is_file():
            if not is_whole and is_checkpoint(path):
                checkpoints.append(path)
        elif path.is_dir():
            if is_checkpoint(path) or _is_named_checkpoint(path):
                checkpoints.append(path)
            if deeper > 1 and not _is_named_checkpoint(path):
                checkpoints += checkpoints_below(path, deeper - 1)
    return checkpoints


def _is_named_checkpoint(folder: Path) -> bool:
    """Return whether a folder's name is a trainer's name for a checkpoint.

    An empty folder of such a name is then reported, not skipped.
    """
    return step_in_name(folder.name) is not None


def _absolute(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 -- Path.resolve would follow links


def default_checkpoints(*, seq_len: int | None = None) -> list[CheckpointInfo]:
    """Return the installed builtin checkpoints, for a run without ``--checkpoint``; may be empty."""
    checkpoints = []
    for name in (KO_MLM, SMOLLM2):
        try:
            builtin_path(name)
        except CheckpointError:
            continue
        checkpoints += resolve(f"builtin:{name}", seq_len=seq_len)
    return checkpoints


def _parse_path(text: str) -> Path:
    if "\0" in text:
        raise CheckpointError(f"{text!r}: no path; check it")
    try:
        return Path(text).expanduser()
    except RuntimeError:  # of a user who is not there
        return Path(text)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a name too long, a folder that may not be entered
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def _inspect_local(path: Path, asked: CheckpointRequest) -> CheckpointInfo:
    with readable(path):
        for checkpoint_format in formats():
            if checkpoint_format.detect(path):
                return checkpoint_format.inspect(path, asked)
        if path.is_dir():
            return TransformersFormat().inspect(path, asked)  # which says what is missing
    raise CheckpointError(
        f"{path}: neither a checkpoint folder nor a .gguf or .pt file; give the folder that holds config.json"
    )


def is_hub_id(text: str) -> bool:
    """Return whether a text is ``ORG/NAME`` and not the beginning of a local path.

    ``ORG`` must not be a local folder, so that a mistyped path never reaches the network.
    """
    return bool(_ID.fullmatch(text)) and not Path(text.split("/", maxsplit=1)[0]).exists()


def _download(name: str, code: bool, fetch: bool) -> Path:
    """Return the local folder of a Hub snapshot, fetching missing files with ``fetch``.

    Python files are fetched only with ``code``. Every failure is a one-line ``CheckpointError``.
    """
    from huggingface_hub import snapshot_download

    try:
        wanted = [*_FILES, *(["*.py"] if code else [])]
        return Path(snapshot_download(name, allow_patterns=wanted, local_files_only=not fetch))
    except (OSError, ValueError, RuntimeError) as error:
        if not fetch:
            raise CheckpointError(
                f"{name}: a file of the checkpoint names it, and it is not here; nothing is fetched because a file "
                f"says so: give --eval-base-model {name}"
            ) from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"{name}: no such local path, and not available on the Hub ({reason}); "
            "check the name, the network and HF_TOKEN"
        ) from error


# Steps of a series


@dataclass(frozen=True, slots=True)
class StepFilter:
    """The steps of ``--eval-steps``, as ranges with both ends included.

    Each range is its first step, its last step (infinite for an open range), and its stride or None.
    """

    text: str
    ranges: tuple[tuple[int, float, int | None], ...]

    def has(self, step: float) -> bool:
        """Return whether a step (or epoch) is selected."""
        return any(
            first <= step <= last and (every is None or (step - first) % every == 0)
            for first, last, every in self.ranges
        )


def parse_steps(text: str) -> StepFilter:
    """Parse the value of ``--eval-steps``; raise ``ValueError`` with the expected form."""
    ranges = []
    for range_text in map(str.strip, text.split(",")):
        match = re.fullmatch(r"(\d*)(?:(:)(\d*)(?::(\d+))?)?", range_text)
        if match is None or range_text in ("", ":"):
            raise ValueError("START:STOP:STEP or a list (300:, :600, 100:600:100, 100,300)")
        start, colon, stop, every = match.groups()
        first = int(start or 0)
        last = first if not colon else int(stop) if stop else math.inf
        if last < first:
            raise ValueError(f"{last}:{first}, the lower end first")
        if every is not None and not int(every):
            raise ValueError(f"{start}:{stop}:1 or more, no steps of 0")
        ranges.append((first, last, int(every) if every else None))
    return StepFilter(text, tuple(ranges))


# The order of a series


def sort_series(infos: Iterable[CheckpointInfo]) -> Iterator[tuple[str, CheckpointInfo]]:
    """Sort checkpoints by series and step, each with the folder of its series.

    A served model has no series.
    """
    checkpoints = list(infos)
    parents = {_absolute(info.path.parent) for info in checkpoints if not info.served}
    members = []
    for info in checkpoints:
        holds_others = _absolute(info.path) in parents
        series = "" if info.served else str(info.path if holds_others else info.path.parent)
        members.append((series, info))
    return iter(sorted(members, key=lambda member: _sort_key(*member)))


def training_progress(info: CheckpointInfo) -> float | None:
    """Return the progress of a checkpoint in its training, None where it is unknown.

    It is the trainer's step, else the number at the end of the checkpoint's name, else the epoch.
    """
    if info.training.global_step is not None:
        return info.training.global_step
    if info.served:
        return None  # the number in its name is its version or size
    number = trailing_number(info.path)
    return info.training.epoch if number is None else number


def trailing_number(path: Path) -> int | None:
    """Return the number at the end of a name, None without one.

    The quantization type in the name of a GGUF file (``Q4_1``) is not such a number.
    """
    number = step_of(Path(_QUANTISED.sub("", path.name)))
    is_snapshot = re.fullmatch(r"[0-9a-f]{40}", path.name)  # of the Hub, named by its hash
    return None if number < 0 or is_snapshot else number


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key that orders names by the values of the numbers in them."""
    return [(1, int(token), "") if token.isdecimal() else (0, 0, token) for token in re.split(r"(\d+)", text)]


def _sort_key(series: str, info: CheckpointInfo) -> tuple[Any, ...]:
    name = info.path.name
    numbered = trailing_number(info.path) is not None
    alike = re.sub(r"\d+(\.\w+)?$", "", _QUANTISED.sub("", name)) if numbered else ""
    progress = training_progress(info)
    is_series_folder = _absolute(Path(series)) == _absolute(info.path)
    position = float("inf") if progress is None else progress
    return (
        natural_key(_absolute(Path(series))),
        is_series_folder,
        not numbered,
        alike,
        position,
        natural_key(name),
        info.seq_len,
    )


# The checkpoints of a run


def find_checkpoints(
    sources: Sequence[str],
    *,
    steps: StepFilter | None = None,
    seq_len: int | None = None,
    base_model: str | None = None,
    trust_remote_code: bool = False,
    options: Mapping[str, str] = MappingProxyType({}),
    lasting: CheckpointResources | None = None,
) -> FoundCheckpoints:
    """Return the checkpoints of a run under unique names, by default the builtin ones.

    ``steps`` is the filter of ``--eval-steps``; the other arguments are those of ``find``.

    Raises ``CheckpointError`` (one line) where a single one, or all of them, failed to load, or ``steps`` leaves
    none.
    """
    checkpoints = FoundCheckpoints()
    if not sources:
        checkpoints.infos = default_checkpoints(seq_len=seq_len)
    for source in sources:
        try:
            resolved = find(
                source,
                seq_len=seq_len,
                base_model=base_model,
                trust_remote_code=trust_remote_code,
                options=options,
                lasting=lasting,
            )
        except CheckpointError as error:
            if len(sources) == 1:
                raise
            checkpoints.failed.append(FailedToLoad(Path(source).name, source, source, str(error)))
            continue
        checkpoints.infos += resolved.infos
        checkpoints.failed += resolved.failed
        checkpoints.left_out += resolved.left_out
    members = sort_series(checkpoints.infos) if sources else (("", info) for info in checkpoints.infos)
    checkpoints.infos = [
        replace(info, training=replace(info.training, series=folder or None, step=training_progress(info)))
        for folder, info in members
    ]
    checkpoints.failed = list(
        {_absolute(Path(failure.path)): failure for failure in checkpoints.failed}.values()
    )
    if steps is not None:
        _select_steps(checkpoints, steps)
    checkpoints.infos = unique_names(checkpoints.infos)
    if checkpoints.failed and not checkpoints.infos:
        raise CheckpointError(no_checkpoint_message([failure.message for failure in checkpoints.failed]))
    return checkpoints


def no_checkpoint_message(messages: Sequence[str]) -> str:
    """Return the error line of a run in which no checkpoint can be used.

    It has each checkpoint's reason, shortened where there are many.
    """
    if len(messages) == 1:
        return messages[0]
    most = max(60, 1000 // len(messages))  # a message has 1,200 characters at most
    reasons = (message if len(message) <= most else f"{message[: most - 4]} ..." for message in messages)
    numbered = "; ".join(f"({number}) {reason}" for number, reason in enumerate(reasons, 1))
    return f"none of the {len(messages)} checkpoints can be used: {numbered}"


def _select_steps(checkpoints: FoundCheckpoints, steps: StepFilter) -> None:
    """Keep the checkpoints of the selected steps.

    A checkpoint without a step is skipped with a note.
    """
    there = [info.step for info in checkpoints.infos]
    without = [info.name for info in checkpoints.infos if info.step is None]
    checkpoints.infos = [info for info in checkpoints.infos if info.step is not None and steps.has(info.step)]
    numbers = [(trailing_number(Path(failure.path)), failure) for failure in checkpoints.failed]
    checkpoints.failed = [failure for number, failure in numbers if number is not None and steps.has(number)]
    if not checkpoints.infos and not checkpoints.failed:
        step_names = [f"{step:g}" for step in sorted({step for step in there if step is not None})]
        if len(step_names) > 12:
            step_names = [*step_names[:6], "...", *step_names[-6:]]
        advice = f"there are {', '.join(step_names)}" if step_names else "none of the checkpoints has a step"
        raise CheckpointError(f"--eval-steps {steps.text}: no checkpoint of these steps; {advice}")
    checkpoints.left_out += [
        f"checkpoint {name}: has no step, and --eval-steps asks for some" for name in without
    ]
