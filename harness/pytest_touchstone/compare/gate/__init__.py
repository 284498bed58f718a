"""Gates: is a checkpoint good enough, and not worse than a baseline?

config      [tool.touchstone.gate] -> what a gate is to do
validate    what it names must be there
decide      verdicts, floors and drops -> passed, failed, or not valid
result      what reports show of a gate, as plain data
changes     what a run has changed against the best so far
"""
