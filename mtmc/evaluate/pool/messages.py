"""Messages between two processes over a socket: eight bytes of length, then the body."""

from __future__ import annotations

import socket


def read_message(source: socket.socket) -> bytes:
    """One message: eight bytes of length, then the body. Raises: EOFError if the other side closed first."""
    size = int.from_bytes(read_exactly(source, 8), "little")
    return read_exactly(source, size)


def write_message(target: socket.socket, body: bytes) -> None:
    """Inverse of `read_message`. Raises: OSError if the other side is gone."""
    target.sendall(len(body).to_bytes(8, "little") + body)


def read_exactly(source: socket.socket, size: int) -> bytes:
    """So many bytes. Raises: EOFError if the other side closed first."""
    parts = bytearray()
    while len(parts) < size:
        part = source.recv(min(1 << 20, size - len(parts)))
        if not part:
            raise EOFError(f"{len(parts)} of {size} bytes came before the other side closed")
        parts += part
    return bytes(parts)
