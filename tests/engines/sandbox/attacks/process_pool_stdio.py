"""Has a pool of processes print, and waits for ever for them."""

KIND = "stdio"
import multiprocessing
import time

with multiprocessing.get_context("fork").Pool(4) as pool:
    pool.map(print, range(100))
    pool.map(time.sleep, [1000] * 4)
