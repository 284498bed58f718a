"""Comparisons: of two results, or of a new one with baselines.

judge, metric, pair           comparisons and verdicts: of items, of a metric, of two candidates
candidate, load, formats/     what a user names -> candidates, whatever form their results have
baselines, gate/, sequential  a run compared with saved results, perhaps settled early
standings, changes            the best of several checkpoints, and changes against the best so far
"""
