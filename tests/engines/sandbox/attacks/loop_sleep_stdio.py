"""Reads more than there is, and sleeps."""

KIND = "stdio"
import sys
import time

sys.stdin.read()
time.sleep(1_000_000)
