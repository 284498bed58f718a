"""Reports an error that takes fifty times its size in memory once it is read, as large as its connection holds."""

KIND = "stdio"
import os
import socket
import struct

with socket.socket(fileno=os.dup(3)) as end:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**24)
    most = end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2
    body = b'{"types": [' + b"[]," * (most // 4) + b"[]]}"
    end.sendall(struct.pack(">I", len(body)) + body)
os._exit(1)
