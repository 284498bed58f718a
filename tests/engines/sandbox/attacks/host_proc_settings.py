"""Writes to the kernel's settings."""

KIND = "call"


def add(a, b):
    for name in (
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sysrq-trigger",
        "/proc/self/oom_score_adj",
        "/sys/kernel/uevent_helper",
        "/sys/fs/cgroup/release_agent",
        "/proc/sys/kernel/ns_last_pid",
    ):
        try:
            with open(name, "r+") as file:
                text = "-1000" if name.endswith("adj") else file.read()
                file.seek(0)
                file.write(text)
        except OSError:
            continue
        raise RuntimeError(f"ESCAPED: wrote to {name}")
