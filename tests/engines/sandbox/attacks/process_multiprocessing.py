"""Starts processes and a manager through multiprocessing, and leaves them."""

KIND = "call"
import multiprocessing
import time


def add(a, b):
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        context.Process(target=time.sleep, args=(1000,)).start()
    context.Manager().list().append("passed")
