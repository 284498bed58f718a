"""What runs inside the sandbox: standard library only, bound into it read-only, nothing of the harness beside it.

    hub      takes jobs, has them run side by side, says what became of each     (the only one the harness talks to)
    zygote   small processes that serve requests and fork
    keeper   one a slot: forks programs, waits outside of their namespaces for their end, or ends them
    jail     what a program is locked into: namespaces, limits, system calls
    agent    the program's side: runs it, answers calls of its functions
    tester   the tests' side, in a process of their own: decides about calls
    judging  the process that runs testers, one job after the other
    values   plain data between the two
    printed  comparison of printed text

A program's process never holds its tests, nor anything that counts as a verdict: what it says is data.
"""
