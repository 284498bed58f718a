"""Takes SIGALRM and stops every timer, then never ends."""

KIND = "call"
import signal

for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
    signal.setitimer(timer, 0)
for name in (
    "SIGALRM",
    "SIGVTALRM",
    "SIGPROF",
    "SIGXCPU",
    "SIGTERM",
    "SIGINT",
    "SIGHUP",
    "SIGUSR1",
    "SIGUSR2",
):
    signal.signal(getattr(signal, name), signal.SIG_IGN)


def add(a, b):
    while True:
        pass
