"""Every causal and masked architecture of the installed Transformers, tiny and random, against plain loops over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.checkpoints import resolve
from harness.core.requests import (
    Answer,
    FillMask,
    FillMaskAnswer,
    Generate,
    GenerateAnswer,
    Loglikelihood,
    LoglikelihoodAnswer,
    PseudoLoglikelihood,
    Refusal,
    Request,
    RollingAnswer,
)
from harness.engines.base import Engine
from harness.engines.registry import open_engine
from harness.engines.settings import Dtype, ModelSettings
from tests.support.every_architecture import make
from tests.support.tiny import CORPUS

DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")

PAIRS = (
    ("The", " fox"),
    ("The quick brown fox", " jumps over the lazy dog"),
    (CORPUS[2], " She said"),
    (f"{CORPUS[2]} {CORPUS[0]}", " what is the answer"),
    (CORPUS[4][:12], CORPUS[4][12:20]),
)
TEXTS = ("The quick brown fox jumps", "a", CORPUS[1], CORPUS[4])
PROMPTS = ("She said that", CORPUS[0], "def add(a, b):")
NEW_TOKENS = 5
