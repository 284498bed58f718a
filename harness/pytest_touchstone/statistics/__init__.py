"""Statistics of results: pure functions; SciPy is imported only when one of them is called."""
