"""Reports an error with a number of as many digits as its connection holds, which takes long to read."""

KIND = "stdio"
import os
import socket
import struct

with socket.socket(fileno=os.dup(3)) as end:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**24)
    most = end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2
    body = b'{"types": ["E"], "line": ' + b"7" * (most * 3 // 4) + b"}"
    end.sendall(struct.pack(">I", len(body)) + body)
os._exit(1)
