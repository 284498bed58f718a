"""``report.html``: a run, a study or a comparison on one page without network access or other files.

The summary is HTML, readable without JavaScript. The items are data that ``page.js`` shows: columns to filter by, and
texts in compressed chunks. ``builder`` puts both together.

The contract of the data, format 3. Every element below is a data block (``<script type=...>`` that browsers do not
run).

``<script type="application/json" id="page-meta">``, with ``<``, ``>`` and ``&`` escaped as in JSON::

    {"format": 3, "title": TEXT, "kind": "run" | "comparison" | "study",
     "runs": [{"id", "label", "checkpoints": [{"name", "series", "step", "epoch", "fingerprint"}]}],
     "benchmarks": [{"name", "primary": SCORE, "metrics": [SCORE], "groups": [TEXT], "fields": [NAME],
                     "higher_is_better": BOOL}],
     "statuses": ["scored", "skipped", "error", "timeout", "lost"],
     "parts": [{"columns": ELEMENT_ID, "texts": [ELEMENT_ID], "run": INDEX, "checkpoint": INDEX (in its run),
                "benchmark": INDEX, "items": NUMBER, "size": ITEMS_PER_CHUNK}],
     "verdicts": [{"a": {"run", "checkpoint"}, "b": {...}, "benchmark": INDEX | null, "metric", "verdict", "why",
                   "points", "low", "high" (of the difference, as scores), "p", "p_adjusted", "n", "gained", "lost",
                   "paired"}],
     "notes": [TEXT]}

A verdict is of b against a over all items, as ``touchstone compare`` has it, the pooled one without a benchmark; only
pairs that were computed are there.

A part is one checkpoint on one benchmark. Its columns are one JSON object, packed (``items``). All arrays have a member
per item, in the order in which items were collected::

    {"example": [TEXT], "status": [INDEX of statuses], "right": [1 | 0 | null], "metrics": {SCORE: [NUMBER | null]},
     "group": [INDEX of the benchmark's groups | null], "length": [CHARACTERS of the question], "seconds": [NUMBER],
     "tokens": [NUMBER of the answers], "error": {"values": [TEXT], "codes": [INDEX | null]}, "invalid": [1 | 0],
     "repeats": [NUMBER of samples], "passed": [NUMBER of those that are right | null], "rank": [STEP],
     "fields": {NAME: {"values": [TEXT | NUMBER | BOOL], "codes": [INDEX | null]}}}

``rank`` has an example's place among those of the page, in natural order, as the step from that of the item before.
``error`` is the class of the exception, the fault's status, or the outcome of the programs if not all passed.

A chunk of texts (``id="texts-PART-CHUNK"``) has those of ``size`` items: texts of JSON with U+0000 between them, first
``[[LEAD, NUMBER_OF_ITEMS]]``, the beginnings of first questions, each with the number of items in a row that share it,
then an object per item::

    {"asked": [{"kind", "question", "turns": [[ROLE, TEXT]],
                "choices": [{"text", "logprob", "chosen", "right"}], "answers": [{"text", "remark"}]}],
     "programs": [{"text", "outcome", "detail"}], "extracted": {RULE: TEXT | null}, "gold": TEXT, "row": {NAME: VALUE},
     "message": TEXT, "notes": [TEXT]}

Fields that are empty or false are left out. The first ``question`` is what follows the item's lead. ``kind`` is that of
the request (``core.requests``), or ``choices``. An item with samples has them all in ``answers`` of its question; its
programs follow in the same order.
"""

from __future__ import annotations
