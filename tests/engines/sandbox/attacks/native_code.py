"""Writes machine code into memory that forks and starts a shell without the C library."""

KIND = "call"
import ctypes
import mmap


def call(number, *arguments):
    # mov rax, number; then the arguments in rdi, rsi, rdx; syscall; ret
    code = b"\x48\xb8" + number.to_bytes(8, "little")
    for load, value in zip((b"\x48\xbf", b"\x48\xbe", b"\x48\xba"), arguments):
        code += load + (value & (2**64 - 1)).to_bytes(8, "little")
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code + b"\x0f\x05\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return ctypes.CFUNCTYPE(ctypes.c_long)(address)()


def add(a, b):
    fork, vfork, execve, unshare, ptrace = 57, 58, 59, 272, 101
    path = ctypes.create_string_buffer(b"/bin/sh")
    for number, arguments in (
        (fork, ()),
        (vfork, ()),
        (unshare, (0x10000000,)),
        (ptrace, (16, 1, 0)),
        (execve, (ctypes.addressof(path), 0, 0)),
    ):
        if (found := call(number, *arguments)) >= 0:
            raise RuntimeError(f"ESCAPED: system call {number} gave {found}")
