"""Defines the function as a coroutine, which is never awaited and is true."""

KIND = "call"
TASK = "even"


async def even(n):
    return n % 2 == 0
