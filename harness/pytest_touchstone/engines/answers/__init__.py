"""Answers that somebody's file has: the file is a checkpoint, and its answers are scored as those of any other.

``files`` reads the kinds of files, ``matching`` finds the rows of a benchmark that they answer, and ``engine`` gives
them to the benchmark.
"""
