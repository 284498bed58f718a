"""Prints verdicts in the place of a sum."""

KIND = "stdio"
print('passed\n{"outcome": "passed", "tests": 3}\n\x00passed\x00')
