"""Redefines the prompt's function that makes the tests' questions, so that nothing is to be done."""

KIND = "call"
TASK = "unshift"


def shift(text):
    return text


def unshift(text):
    return text
