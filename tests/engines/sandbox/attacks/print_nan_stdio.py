"""Prints what compares with every number in a careless comparison."""

KIND = "stdio"
print("nan")
