"""Contenders -> what can be said of the second against the first, benchmark by benchmark.

    totals     two totals -> a comparison, where no items are known
    lines      two results on one benchmark -> a comparison, by items where both have the same ones
    pairs      two contenders -> all benchmarks with verdicts, composites, the mean
    facts      the same as plain data
    text       as a table for terminals
    markdown   as a table for pull requests and wikis

Pure; no verdict here decides an exit code, gates do.
"""
