"""``--gate-sequential``: a benchmark is asked in a drawn order and stops once its verdict is settled.

order     the order of the items, and where there are looks
watch     whether what has been scored so far settles a verdict
"""
