"""Made-up runs on disk, for the tests of what is read from them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_touchstone.reports.files import write_results
from pytest_touchstone.results.aggregate import summarize
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.store_entry import results_from_records
from pytest_touchstone.results.summary import Declaration
from tests.support import summaries


def run(
    output: Path,
    run_id: str,
    *names: str,
    seed: int = 0,
    when: int = 0,
    declarations: Mapping[str, Declaration] | None = None,
    change: Callable[[list[Record]], list[Record]] = list,
    **settings: Any,
) -> Path:
    """The folder of a made-up run, with its journal and its saved results: of two benchmarks, or those declared.

    ``change`` returns the records that the run has in place of the made-up ones.
    """
    declared = declarations or {name: summaries.DECLARATIONS[name] for name in ("winogrande", "real_coref")}
    folder = output / run_id
    folder.mkdir(parents=True)
    items = summaries.collect([*declared], list(names))
    records = [dataclasses.replace(one, row=f"row of {one.example}") for one in summaries.score(items, seed)]
    records = change(records)
    summary = summarize(
        records,
        declared,
        items,
        run_id=run_id,
        directory=str(folder),
        manifest={"settings": {"seed": 1234, "workers": 2, **settings}, "began": float(when)},
        checkpoints=[
            {**summaries.checkpoint_row(name, 100), "fingerprint": name.encode().hex() * 8} for name in names
        ],
    )
    write_results(summary)
    RunDirectory(folder).write_collected(items, {one.name: one for one in summary.declarations}, [])
    with Journal(folder, "main") as journal:
        for record in records:
            journal.append(record)
    for saved, kept in results_from_records(summary, records):
        ResultStore(output).save(saved, kept)
    os.utime(folder / "summary.json", (when, when))
    return folder
