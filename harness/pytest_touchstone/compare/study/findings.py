"""Everything that a study finds by comparing its series, made once for all reports."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_touchstone.compare.study.advice import Advice, advice
from pytest_touchstone.compare.study.between import Between, Lengths, between, by_length
from pytest_touchstone.compare.study.forgetting import Forgetting, forgetting
from pytest_touchstone.compare.study.noise import Noise, noise
from pytest_touchstone.compare.study.points import Study
from pytest_touchstone.compare.study.pool import pools_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Series against series, by length, what was forgotten, the noise of measures, and what to do next."""

    between: tuple[Between, ...]
    lengths: tuple[Lengths, ...]
    forgetting: tuple[Forgetting, ...]
    noise: tuple[Noise, ...]
    advice: Advice


def find(study: Study) -> Findings:
    """The findings of a study."""
    pools = study.once(pools_of)
    found = between(study, pools)
    return Findings(
        between=tuple(found),
        lengths=tuple(by_length(study, pools)),
        forgetting=tuple(forgetting(study)),
        noise=tuple(noise(study, pools)),
        advice=advice(study, pools, found),
    )
