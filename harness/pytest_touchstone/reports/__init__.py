"""Reports of a finished run. Each reads the ``Summary`` and nothing else; none computes a score."""
