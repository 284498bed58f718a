"""Gates: is a checkpoint good enough, and not worse than a baseline?

pairing     two saved results -> the scores of the items that they share, and what they do not share
judging     pairs -> comparisons -> verdicts, all benchmarks of a checkpoint together
config      [tool.touchstone.gate] -> a plan
baselines   which saved results a run is held against
pins        baselines that have a name
deciding    verdicts, floors and drops -> passed, failed, or not valid
report      what reports show of a gate, as plain data
"""
