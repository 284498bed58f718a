"""Results that stay: one entry for each run, checkpoint and benchmark, found by the checkpoint's fingerprint.

    OUTPUT/saved/FINGERPRINT/BENCHMARK@RUN_ID.json         what was scored, under which conditions, and the metrics
    OUTPUT/saved/FINGERPRINT/BENCHMARK@RUN_ID.items.json   the scores of the items

Gates find their baselines here, and runs what they need not score again. Every file is written whole or not at all and
belongs to one run, so runs at the same time do not meet.
"""
