"""The files that a tracker gets: copies in a folder of their own, without keys.

the parent     summary.json, results.csv, errors.log, report.html, and the plots that lie in the run's folder
each result    tasks.csv (a row per item; of programs the run's own table), samples.jsonl (the first of the first
               ``FIRST`` items)
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import file_name
from pytest_touchstone.core.keys import map_texts, redact_key_forms
from pytest_touchstone.core.text import csv_text
from pytest_touchstone.reports import png
from pytest_touchstone.reports.files import samples_of
from pytest_touchstone.reports.next_steps import token_limit
from pytest_touchstone.reports.plots import study_pictures
from pytest_touchstone.reports.trackers.mlflow import MLflow
from pytest_touchstone.reports.trackers.payload import (
    CheckpointBenchmark,
    ResultFiles,
    TrackedRun,
    Tracker,
    UploadResult,
    identity,
    tracked_runs,
)
from pytest_touchstone.reports.trackers.wandb import WandB
from pytest_touchstone.results import file_path
from pytest_touchstone.results.journal import (
    RecordLocation,
    journal_files,
    latest_with_locations,
    read_record_at,
)
from pytest_touchstone.results.records import Record, to_json
from pytest_touchstone.results.summary import SUMMARY, Summary, load_summary, whole_results
from pytest_touchstone.study.reading import load_study

FIRST: Final = 20
"""The number of items whose samples are sent."""

LARGEST: Final = 50_000_000
"""The bytes of a file that is sent; what is larger is named instead."""

PAGE: Final = "report.html"
PACKED: Final = (".html", ".png")
"""The kinds of file that are sent as they are: the page has no keys already, or is left out."""
OF_RUN: Final = (SUMMARY, "results.csv", "errors.log", PAGE)


class Artifacts:
    """The files to send, copied into ``target``. ``left_out`` names the files that are not sent, with the reason."""

    def __init__(self, summary: Summary, target: Path, secrets: SecretValues) -> None:
        self._summary = summary
        self._folder = Path(summary.directory)
        self._target = target
        self._secrets = secrets
        self.left_out: list[str] = []

    def of_run(self) -> dict[str, Path]:
        """Copy the files of the whole run, and return the copies by name. Raises ``OSError``."""
        paths = [file_path(self._folder, name) for name in OF_RUN]
        files = {}
        for path in (path for path in paths if path.is_file() and path.stat().st_size):
            if path.name == PAGE and (name := self._secret_in_texts()) is not None:
                self.left_out.append(f"{PAGE} (the run's texts hold the value of {name})")
            elif path.stat().st_size > LARGEST:
                self.left_out.append(f"{path.name} ({path.stat().st_size // 1_000_000} MB)")
            else:
                files[path.name] = self._written(f"run/{path.name}", path.read_bytes())
        return files

    def pictures(self) -> dict[str, Path]:
        """Draw the curves and bars of the run and return the files by name.

        There are none without matplotlib, or if the run's texts contain a secret.
        """
        if not png.available() or self._secret_in_texts() is not None:
            return {}
        study = load_study([str(self._folder)], output=self._folder.parent)
        drawn = {f"{picture.name}.png": png.png(picture) for picture in study_pictures(study)}
        return {name: self._written(f"plots/{name}", data) for name, data in drawn.items()}

    def of_results(self) -> dict[CheckpointBenchmark, ResultFiles]:
        """Write the files of each result, and return the paths with the sampling parameters.

        Raises ``OSError``, and ``HarnessError`` where the journal cannot be read.
        """
        placed: dict[CheckpointBenchmark, list[tuple[Record, RecordLocation]]] = {}
        for record, line in latest_with_locations(self._folder).values():
            placed.setdefault((record.checkpoint, record.benchmark), []).append((record, line))
        several = len({result.checkpoint for result in whole_results(self._summary)}) > 1
        result_files = {}
        for number, ((checkpoint, benchmark), records) in enumerate(placed.items()):
            lines = [line for record, line in records if record.status == "scored"][:FIRST]
            full_records = [read_record_at(line) for line in lines]
            prefix = file_name(f"{checkpoint}_{benchmark}" if several else benchmark)
            tasks = file_path(self._folder, f"{prefix}_tasks.csv")  # of programs
            files = {
                "tasks.csv": tasks.read_bytes()
                if tasks.is_file()
                else item_table([record for record, _ in records]),
                "samples.jsonl": b"".join(map(_samples, full_records)),
            }
            written = {name: self._written(f"{number}/{name}", data) for name, data in files.items() if data}
            result_files[checkpoint, benchmark] = ResultFiles(written, _asked(full_records))
        return result_files

    def _written(self, name: str, data: bytes) -> Path:
        path = self._target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if path.suffix in PACKED else self._secrets.removed_from(data))
        return path

    def _secret_in_texts(self) -> str | None:
        """Return the name of a secret variable that a record contains.

        The page packs its texts, so that they cannot be searched there.
        """
        return self._secrets.within(journal_files(self._folder))


def item_table(records: Sequence[Record]) -> bytes:
    """Return a CSV table with a row per item: its status and scores."""
    scores = list(dict.fromkeys(name for record in records for name in record.scores))
    rows: list[list[Any]] = [["example", "group", "status", "seconds", *scores, "message"]]
    for record in records:
        values = [record.scores.get(name) for name in scores]
        rows.append([record.example, record.group, record.status, record.seconds, *values, record.message])
    return csv_text(rows).encode("utf-8", "backslashreplace")


def _samples(record: Record) -> bytes:
    """Return an item as JSON lines: its program samples, else its exchanges."""
    fields = ("example", "group", "status", "scores", "exchanges")
    samples = samples_of(record) or [
        {name: value for name, value in to_json(record).items() if name in fields}
    ]
    lines = "".join(json.dumps(sample, ensure_ascii=False) + "\n" for sample in samples)
    return lines.encode("utf-8", "backslashreplace")


def _asked(records: Iterable[Record]) -> dict[str, float] | None:
    """Return the sampling parameters that all generation requests share. None without records."""
    settings: dict[str, set[float]] = {}
    records_read = list(records)
    for record in records_read:
        for exchange in (exchange for exchange in record.exchanges if exchange["kind"] == "Generate"):
            request = exchange["request"]
            settings.setdefault("num_samples", set()).add(request["samples"] if request["temperature"] else 1)
            settings.setdefault("temperature", set()).add(request["temperature"])
            settings.setdefault("max_new_tokens", set()).add(
                token_limit(exchange) or request["max_new_tokens"]
            )
    return (
        {name: values.pop() for name, values in settings.items() if len(values) == 1}
        if records_read
        else None
    )


SHORTEST: Final = 6
"""The characters of a value that is looked for: a shorter one is in every text by chance."""

_NAMES: Final = re.compile(
    r"(^|_)(API_?KEY|KEY|KEY_ID|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PAT|CREDENTIALS?)(_|$)", re.IGNORECASE
)


class SecretValues:
    """The secret values of an environment.

    Secrets are the values of variables with names such as ``API_KEY``, and passwords in URLs.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        names: dict[str, str] = {}
        for name, value in environ.items():
            for secret in (value if _NAMES.search(name) else "", _password(value)):
                if len(secret.strip()) >= SHORTEST:
                    names.setdefault(secret.strip(), name)
        # The longest first: one may be a part of another.
        self._names = dict(sorted(names.items(), key=lambda pair: -len(pair[0])))

    def removed(self, text: str) -> str:
        """Return a text with each secret replaced by its variable's name, and other keys removed."""
        for value, name in self._names.items():
            text = text.replace(value, f"[{name}]")
        return redact_key_forms(text)

    def removed_from(self, data: bytes) -> bytes:
        """Return the content of a text file without secrets."""
        text = data.decode("utf-8", "surrogateescape")
        return self.removed(text).encode("utf-8", "surrogateescape")

    def within(self, paths: Iterable[Path]) -> str | None:
        """Return the name of a variable with a value in one of the files. Raises ``OSError``."""
        values = {value.encode(): name for value, name in self._names.items()}
        for path in paths if values else ():
            with path.open("rb") as file:
                for line in file:
                    for value, name in values.items():
                        if value in line:
                            return name
        return None


def _password(value: str) -> str:
    try:
        return (urlsplit(value).password or "") if "://" in value else ""
    except ValueError:
        return ""


def trackers() -> tuple[Tracker, ...]:
    """Return the supported trackers."""
    return (MLflow(), WandB())


def track(folder: Path, tracker: Tracker, settings: Mapping[str, Any]) -> UploadResult:
    """Send what a tracker lacks of a finished run. Raises ``HarnessError``."""
    if (missing := tracker.missing()) is not None:
        raise HarnessError(missing)
    summary = load_summary(folder)
    secrets = SecretValues(os.environ)
    with tempfile.TemporaryDirectory(prefix="touchstone-track-") as target:
        artifacts = Artifacts(summary, Path(target), secrets)
        try:
            runs = tracked_runs(summary, artifacts.of_run(), artifacts.of_results())
        except OSError as error:
            raise HarnessError(f"{folder}: cannot be read: {error.strerror}") from error
        runs = [_without(secrets, run) for run in runs]
        sent = tracker.send(identity(summary), runs, settings, artifacts.pictures)
    return replace(sent, left_out=tuple(artifacts.left_out))


def _without(secrets: SecretValues, run: TrackedRun) -> TrackedRun:
    """Return a tracker's run without secrets in its texts."""
    names = ("key", "name", "params", "tags", "why_not")
    texts = {name: map_texts(getattr(run, name), secrets.removed) for name in names}
    points = (point._replace(name=secrets.removed(point.name)) for point in run.points)
    return replace(run, **texts, points=tuple(points))
