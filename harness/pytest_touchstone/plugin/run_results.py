"""The results of a run, read from its folder when a checkpoint is complete, and at the end.

Every collected item is checked against the journal, never against pytest's own counts: a worker that dies while it
sends a report can leave pytest with exit code 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.resolve import FailedToLoad
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.changes import changes_of
from pytest_touchstone.compare.standings import standings_of
from pytest_touchstone.core import eval_config
from pytest_touchstone.core.aggregation import facts_beside
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.engines.registry import identity
from pytest_touchstone.results.aggregate import summarize
from pytest_touchstone.results.journal import Journal, JournalFollower, journal_files, latest_records
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.reuse import REASKED, manifest_benchmarks
from pytest_touchstone.results.run_directory import RunDirectory, command_words, environment
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.store_entry import ItemScores, StoredResult, results_from_records
from pytest_touchstone.results.summary import CollectedItem, Summary


class RunResults:
    """The items of a run that has begun, and their records."""

    def __init__(self, directory: RunDirectory) -> None:
        self.items: Sequence[CollectedItem]
        self.items, self.declarations, self.deselected = directory.read_collected()
        self.checkpoints = {item.checkpoint for item in self.items}
        self._directory = directory
        self._manifest = directory.read_manifest()
        facts = {
            name for declaration in self.declarations.values() for name in facts_beside(declaration.aggregate)
        }
        # Two readers: the one that tells of records is asked only where somebody wants to be told.
        self._journal = JournalFollower(directory.path, kept_facts=facts)
        self._telling = JournalFollower(directory.path)
        self._records: dict[Path, list[Record]] = {}
        self._told: set[str] = set()
        self._saved: set[str] = set()
        several = len(self.checkpoints) > 1  # of a single one nobody asks when it is complete
        self.checkpoint_of = {item.item: item.checkpoint for item in self.items} if several else {}
        self._left = Counter(self.checkpoint_of.values())

    def write_manifest(
        self,
        run_facts: Mapping[str, Any],
        config: pytest.Config,
        infos: Iterable[CheckpointInfo],
        failed: list[FailedToLoad],
    ) -> dict[str, Any]:
        """Write ``run.json`` and return it; ``infos`` are the checkpoints that items ask.

        One of several that cannot be read, or changes meanwhile, has no fingerprint, and joins ``failed``. Raises
        ``pytest.UsageError`` where it is the only one.
        """
        rows = []
        for info in infos:
            row = info.plain() | {"fingerprint": None}
            try:
                row["fingerprint"] = identity(info)
            except HarnessError as error:
                if len(self.checkpoints) == 1:
                    raise pytest.UsageError(str(error)) from None
                failed.append(FailedToLoad(info.name, info.source, str(info.path), str(error)))
            rows.append(row)
        invocation = config.invocation_params
        manifest: dict[str, Any] = {
            **run_facts,
            **environment(invocation.args, invocation.dir, config.rootpath),
            "checkpoints": rows,
            "benchmarks": manifest_benchmarks(self.declarations),
        }
        own_settings = [
            declaration.settings for declaration in self.declarations.values() if declaration.settings
        ]
        if manifest.pop("demonstration", False) and own_settings:
            manifest["demonstration"] = eval_config.config_summary(command_words(manifest), own_settings)
        self._directory.write_manifest(manifest)
        self._manifest = self._directory.read_manifest()
        return self._manifest

    def reported(self, item: str) -> str | None:
        """Count a reported item; return its checkpoint if that is complete and one of several, else None."""
        checkpoint = self.checkpoint_of.pop(item, None)
        if checkpoint is None:
            return None
        self._left[checkpoint] -= 1
        return None if self._left[checkpoint] else checkpoint

    def new_records(self) -> list[Record]:
        """Return the records that the journal has gained, one per item."""
        new = [
            record for record in latest_records(self._telling.new()).values() if record.item not in self._told
        ]
        self._told |= {record.item for record in new}
        return new

    def of_checkpoint(self, name: str, seconds: float) -> Summary:
        """Return one checkpoint's results, and save them where later runs find them.

        Raises ``HarnessError`` where the journal cannot be read.
        """
        records = {item: record for item, record in self._read().items() if record.checkpoint == name}
        summary = self._summarize(
            records,
            [item for item in self.items if item.checkpoint == name],
            checkpoints=[row for row in self._manifest["checkpoints"] if row["name"] == name],
            seconds=seconds,
        )
        self.save(summary, records.values())
        self._saved.add(name)
        return summary

    def whole(self, why_lost: Callable[[str], str], seconds: float) -> tuple[Summary, list[Record]]:
        """Return the run's results and the records that they come from, one per item, without exchanges.

        Items that no process has recorded are now journalled as lost.
        """
        records = self._read()
        with Journal(self._directory.path, "lost") as journal:
            for item in self.items:
                if item.item not in records:
                    record = Record(**asdict(item), status="lost", message=why_lost(item.item))
                    records[item.item] = record
                    journal.append(record)
            journal.sync()
        summary = self._summarize(
            records,
            self.items,
            checkpoints=self._manifest["checkpoints"],
            deselected=self.deselected,
            seconds=seconds,
            usage=self._directory.read_usage(),
        )
        return summary, list(records.values())

    def forget(self) -> None:
        """Let go of items and records, when all has been made of them."""
        self.items, self._records = (), {}

    def _read(self) -> dict[str, Record]:
        """Return the records so far, one per item, in the order of the journal's files."""
        for path, record in self._journal.each():
            self._records.setdefault(path, []).append(record)
        return latest_records(record for path in sorted(self._records) for record in self._records[path])

    def _summarize(
        self, records: Mapping[str, Record], items: Sequence[CollectedItem], **more: Any
    ) -> Summary:
        usage = self._directory.read_usage()
        drifts = {row.checkpoint: row.engine["drift"] for row in usage if row.engine.get("drift")}
        return summarize(
            records,
            self.declarations,
            items,
            run_id=self._directory.run_id,
            directory=str(self._directory.path),
            manifest=self._manifest,
            drifts=drifts,
            **more,
        )

    def save(
        self, summary: Summary, records: Iterable[Record], *, keep: bool = True
    ) -> list[tuple[StoredResult, ItemScores]]:
        """Save each checkpoint's results for later runs; return them all.

        Results that are saved already, those of a shard and those not to be kept are not saved.
        """
        store = ResultStore(self._directory.path.parent)
        is_shard = self._manifest.get("settings", {}).get("shard") is not None
        results = results_from_records(summary, records)
        was_reasked = any(
            path.name == f"items-{REASKED}.jsonl" for path in journal_files(self._directory.path)
        )
        for saved, items in results if keep and not is_shard else ():
            # What speaks against a result may have been found after its last item.
            if items.examples and (saved.checkpoint not in self._saved or saved.invalid or was_reasked):
                store.save(saved, items)
        return results

    def changes(
        self, results: Iterable[tuple[StoredResult, ItemScores]], named: Sequence[StoredResult] = ()
    ) -> list[dict[str, Any]]:
        """Return the changes against the best saved results, or against ``named`` ones.

        A broken result is left out of the comparison.
        """
        run_results, store = [saved for saved, _ in results], ResultStore(self._directory.path.parent)
        names = dict.fromkeys(saved.benchmark for saved in run_results)
        try:
            earlier = [saved for name in names for saved in store.find(benchmark=name)]
        except HarnessError as error:
            self._directory.log(f"no changes against the best so far: {error}")
            return []
        for line in store.left_out:
            self._directory.log(line)
        return [change._asdict() for change in changes_of(run_results, earlier, named)]

    def leaders(self, results: Iterable[tuple[StoredResult, ItemScores]]) -> list[dict[str, Any]]:
        """Return the best of the run's checkpoints by each benchmark and composite, and over all items."""
        return [change._asdict() for change in standings_of(BenchmarkScores(*result) for result in results)]
