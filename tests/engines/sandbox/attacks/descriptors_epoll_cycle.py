"""Has descriptors that wait for events wait for each other, as deep as can be."""

KIND = "call"
import select


def add(a, b):
    held = []
    for _ in range(200):
        try:
            one = select.epoll()
            for other in held[-40:]:
                one.register(other.fileno(), select.EPOLLIN | select.EPOLLET)
                other.register(one.fileno(), select.EPOLLIN)
            held.append(one)
        except OSError:
            continue
    for one in held:
        try:
            one.register(3, select.EPOLLIN | select.EPOLLET | select.EPOLLEXCLUSIVE)
        except OSError:
            continue
    select.select([one.fileno() for one in held], [], [], 0.1)
