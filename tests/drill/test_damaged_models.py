"""A checkpoint with a damaged file is the model that it was, or is refused in one line, soon, in little memory.

What a file without checksums cannot give away: other numbers in the place of a weight, another value of a setting,
lines that a list of words or merges ends before, names of two tensors of one shape changed for each other.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from pytest_touchstone.core.errors import HarnessError
from tests.drill.conftest import Drill
from tests.drill.limits import limited
from tests.drill.models import INDEXES, MODELS, TEXTS, misdescribed
from tests.drill.mutations import damaged
from tests.drill.readers import Reader, check_harmless, check_refusal

ENDS = ("refused", "as before", "another model")


def outcome(reader: Reader, path: Path, before: object) -> None:
    try:
        found = reader.read(path)
    except HarnessError as error:
        check_refusal(error)
        print(f"\n{error}\nrefused")
    else:
        print("\nas before" if repr(found) == repr(before) else "\nanother model")


def cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow if at % 4 else ()) for at, one in enumerate(MODELS)]
)
def test_a_damaged_checkpoint_answers_or_is_refused_in_one_line(name: str, drill: Drill, place: Path) -> None:
    reader = MODELS[name]
    (place / "given").mkdir()
    path = reader.example(place / "given")
    before = reader.read(path)
    whole = path.read_bytes()
    ways = [damaged, cut, *([misdescribed] if path.suffix == ".safetensors" else [])]
    for seed in drill.seeds(1, 15):
        draw = random.Random(seed)
        way = ways[(seed + list(MODELS).index(name)) % len(ways)]
        path.unlink(missing_ok=True)
        path.write_bytes(way(whole, draw))
        ended = limited(partial(outcome, reader, path, before), place)
        found = f"{name}, {way.__name__}, --drill-seed {seed}"
        assert not ended.fault, f"{found}: {ended.fault}\n{ended.text}"
        check_harmless(ended.text)
        assert "Traceback" not in ended.text, f"{found}: {ended.text}"
        end = ended.text.rpartition("\n")[0].rpartition("\n")[2]
        assert end in ENDS
        shows = way is misdescribed or (way is cut and name not in TEXTS) or name in INDEXES
        assert end != "another model" or not shows, f"{found}: another model"
        drill.figure("damaged checkpoints loaded", 1)
        drill.figure(f"damaged checkpoints: {end}", 1)
