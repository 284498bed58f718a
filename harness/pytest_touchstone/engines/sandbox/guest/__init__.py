"""The code that runs inside the sandbox: standard library only, bound read-only, without the rest of the harness.

    supervisor      takes jobs, has them run side by side, reports each result; the only one the harness talks to
    launcher        processes that serve requests and fork; one per slot forks programs, and waits for their end outside
                    of their namespaces, or ends them
    jail            the restrictions of a program: namespaces, limits, system calls; and its clock
    program_host    the program's process: runs it, answers calls of its functions
    test_runner     the process of the tests: runs them, one job after the other
    judge           decides by tests that call the program, and stands in for its objects
    values          plain data between the two, and what was raised in words
    framing         messages over sockets and pipes

The process of a program never holds its tests, nor anything that counts as a verdict: it only sends data.
"""
