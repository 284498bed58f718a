"""Tasks of lm-evaluation-harness as benchmarks: its code makes prompts and scores, our engines answer.

``index`` finds tasks by name, ``tasks`` loads them with their data, ``documents`` makes their requests, ``benchmarks``
declares each as a benchmark, and ``aggregates`` computes the metrics that are no means. lm-evaluation-harness is
imported only once a task is asked for.
"""
