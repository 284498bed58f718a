"""The comparison of two checkpoints by columns that are made once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.compare.metric import compare_metric
from pytest_touchstone.study.differences import column_of, difference
from tests.support.compared import ran
from tests.support.known import known
from tests.support.studies import placed, study_of_candidates

ERROR = {"error": {"by": "mean", "of": "acc", "higher_is_better": False}}

VALUES = st.sampled_from([0.0, 1.0]) | st.sampled_from([0.0, 0.25, 1.0]) | st.none()


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(VALUES, VALUES, st.none() | st.sampled_from("xyz")), min_size=2, max_size=12),
    lower=st.booleans(),
)
def test_it_is_the_one_that_any_two_results_have(
    rows: list[tuple[float | None, float | None, str | None]], lower: bool
) -> None:
    before, after, clusters = (list(column) for column in zip(*rows, strict=True))
    if all(value is None for value in before) or all(value is None for value in after):
        return
    more = {"clusters": clusters, "aggregate": ERROR if lower else {}}
    study = study_of_candidates(
        [
            placed(ran(f"a/{place}", {"b": scores}, **more), "a", float(place))
            for place, scores in enumerate((before, after), start=1)
        ]
    )
    first, second = study.points
    for measure in study.measures:
        one, other = (point.candidate.entries["b"] for point in (first, second))
        expected = compare_metric(one, other, measure.metric, primary=True, level=study.level).comparison
        assert difference(study, first, second, measure) == expected


def test_a_column_is_made_once_and_counts_no_flips_of_scores_that_lack_an_item() -> None:
    study = study_of_candidates([placed(ran("a/1", {"b": {"acc": [1.0, 0.0], "f1": [0.5, None]}}), "a", 1.0)])
    entry = study.points[0].candidate.entries["b"]
    assert known(column_of(study, entry, "acc")) is column_of(study, entry, "acc")
    assert known(column_of(study, entry, "acc")).flips
    assert not known(column_of(study, entry, "f1")).flips
