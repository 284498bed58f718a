"""Pictures as PNG, by matplotlib."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.reports.png import latin
from tests.support.lines import missing
from tests.support.published import published


def test_korean_letters_that_no_font_has_are_written_in_latin_ones() -> None:
    assert "".join(map(latin, "한국어 é中")) == "hangugeo e?"


@pytest.mark.slow
def test_a_study_is_drawn_into_the_folder_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    assert main(["study", str(published(tmp_path)), "-o", str(tmp_path / "p")]) == 0
    assert not missing(capsys.readouterr().out, "7 pictures", "PNG and SVG")
    names = sorted(path.name for path in (tmp_path / "p").glob("*.png"))
    assert names == [
        *(
            "bars_composites.png",
            "bars_ko_lambada.png",
            "bars_real_coref.png",
            "curve_ko_lambada-lambada@1.png",
        ),
        *("curve_real_coref-real@1.png", "curve_real_coref-real@5.png", "curve_score.png"),
    ]
    for name in names:
        image = Image.open(io.BytesIO((tmp_path / "p" / name).read_bytes()))
        assert image.width > 700
        assert image.getextrema() != ((255, 255), (255, 255), (255, 255), (255, 255))
        svg = (tmp_path / "p" / name).with_suffix(".svg").read_text(encoding="utf-8")
        assert not re.search(r"href=\"https?:|<script", svg)
