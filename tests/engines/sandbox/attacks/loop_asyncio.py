"""Runs an event loop for ever that swallows being cancelled."""

KIND = "call"
import asyncio


async def wait():
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            pass


def add(a, b):
    asyncio.run(wait())
