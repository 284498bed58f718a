"""Makes the system calls of the kernel's 32-bit interfaces, which have other numbers."""

KIND = "call"
import ctypes
import mmap

libc = ctypes.CDLL(None, use_errno=True)


def add(a, b):
    if (child := libc.syscall(0x40000000 + 57)) >= 0:
        raise RuntimeError(f"ESCAPED: forked by x32, {child}")
    # push rbx; mov eax, 2 (fork of i386); int 0x80; pop rbx; ret
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(b"\x53\xb8\x02\x00\x00\x00\xcd\x80\x5b\xc3")
    found = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()
    if found >= 0:
        raise RuntimeError(f"ESCAPED: forked by i386, {found}")
