"""Never ends, before a test can run."""

KIND = "call"
while True:
    pass
