"""The shipped benchmarks, one file each; an installed package has them as ``pytest_touchstone.evals``."""
