"""Pictures as PNG, by matplotlib, which the extra ``plots`` has; nothing else needs it.

A PNG needs fonts for its letters: where this machine has none for Korean ones, they are written in Latin letters.
"""

from __future__ import annotations

import io
import unicodedata
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.reports.plots import COLOURS, Picture, PlotLine, PlotMarker, PlotText

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TEXT: Final = "#222222"
MARKS: Final = ("o", "s", "^", "D", "v", "x", "+", "h")
DPI, DPI_WIDE = 160, 110
"""The dots of an inch, and those of pictures that are wide, which take long."""

INCH: Final = 100
"""The picture's own units in an inch."""

POINT: Final = 72 / INCH

FONTS: Final = (
    *("Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "NanumBarunGothic", "Malgun Gothic"),
    *("Apple SD Gothic Neo", "AppleGothic", "UnDotum", "Baekmuk Dotum", "Source Han Sans KR"),
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Arial Unicode MS"),
)
"""Fonts with Korean letters, in the order in which they are taken."""


def available() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def png(picture: Picture) -> bytes:
    """Render a picture as PNG, whatever the user's matplotlib settings."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        fonts = _fonts()
        settings: Any = matplotlib.rcParams
        settings.update({"font.family": fonts, "text.parse_math": False})
        spelled = _speller(fonts)
        figure = Figure(
            figsize=(picture.width / INCH, picture.height / INCH),
            dpi=DPI if picture.width < 800 else DPI_WIDE,
        )
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, picture.width)
        axes.set_ylim(picture.height, 0)
        for depth, shape in enumerate(picture.parts):
            match shape:
                case PlotLine():
                    _add_lines(axes, shape, depth)
                case PlotMarker():
                    _add_mark(axes, shape, depth)
                case PlotText():
                    _add_words(axes, shape, spelled)
        buffer = io.BytesIO()
        canvas: Any = FigureCanvasAgg(figure)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            canvas.print_png(buffer, metadata={"Software": None}, pil_kwargs={"compress_level": 3})
        return buffer.getvalue()


def _colour(series: int | None) -> str:
    return TEXT if series is None else COLOURS[series % len(COLOURS)]


def _add_lines(axes: Axes, stroke: PlotLine, depth: int) -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    collection: Any
    if stroke.filled:
        collection = PolyCollection(stroke.runs, facecolors=_colour(stroke.series), linewidths=0)
    else:
        dashes = (0, tuple(dash / stroke.width for dash in stroke.dashes)) if stroke.dashes else "solid"
        width = stroke.width * POINT
        collection = LineCollection(
            stroke.runs, colors=_colour(stroke.series), linewidths=width, linestyles=[dashes]
        )
    collection.set(alpha=stroke.opacity, zorder=depth)
    axes.add_collection(collection, autolim=False)


def _add_mark(axes: Axes, mark: PlotMarker, depth: int) -> None:
    style: Any = {
        "color": _colour(mark.series),
        "alpha": 0.55 if mark.series is None else 1,
        "zorder": depth,
        "linestyle": "none",
        "scalex": False,
        "scaley": False,
    }
    size, marker = 3 if mark.small else 9, "x" if mark.series is None else MARKS[mark.series % len(MARKS)]
    axes.plot(*mark.at, marker=marker, markersize=size * POINT, **style)
    if mark.ring:
        axes.plot(*mark.at, marker="o", markersize=16 * POINT, fillstyle="none", **style)


def _add_words(axes: Axes, words: PlotText, spelled: Callable[[str], str]) -> None:
    style: Any = {
        "ha": {"start": "left", "middle": "center", "end": "right"}[words.anchor],
        "rotation": -words.angle,
    }
    style |= {"va": "center" if words.middle else "baseline", "rotation_mode": "anchor"}
    weight = "bold" if words.bold else "normal"
    size = words.size * POINT * 0.95  # DejaVu's letters are wide
    axes.text(
        *words.at, spelled(words.text), color=TEXT, alpha=words.opacity, size=size, weight=weight, **style
    )


def _fonts() -> list[str]:
    """Return the font families for text, a Korean one first where one is installed."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return [*[name for name in FONTS if name in installed][:1], "DejaVu Sans"]


def _speller(fonts: list[str]) -> Callable[[str], str]:
    """Return a function that transliterates the letters that no font covers."""
    from matplotlib.font_manager import findfont, get_font

    covered: set[int] = set()
    for family in fonts:
        covered |= get_font(findfont(family)).get_charmap().keys()
    return lambda text: "".join(letter if ord(letter) in covered else latin(letter) for letter in text)


def latin(letter: str) -> str:
    """Transliterate a letter: a Korean syllable by its name, others by decomposition, else ``?``."""
    name = unicodedata.name(letter, "")
    if name.startswith("HANGUL SYLLABLE "):
        return name.rpartition(" ")[2].lower()
    base_letter = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return base_letter or "?"
