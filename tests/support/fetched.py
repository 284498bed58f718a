"""What is too large for the repository: the tests of it are skipped where it was not fetched, but not in CI."""

from __future__ import annotations

import os

import pytest

from pytest_touchstone.checkpoints.builtin import SMOLLM2, cache_folder

needs_smollm2 = pytest.mark.skipif(
    not os.environ.get("CI") and not any(cache_folder(SMOLLM2).glob("*.gguf")),
    reason=f"builtin:{SMOLLM2} is not fetched; run: touchstone checkpoint fetch {SMOLLM2}",
)
