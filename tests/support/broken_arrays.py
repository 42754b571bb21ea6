"""Files of arrays with a damaged header, for which numpy raises neither ValueError nor OSError."""

import io
import struct
import zipfile


def npy(header: bytes) -> bytes:
    """Return an .npy file with a header of the caller's, and some data."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64)


HUGE = npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000,), }\n")
UNCLOSED = npy(b"((((((((\n")


def npz(name: str, content: bytes) -> bytes:
    """Return an .npz file with one member."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(f"{name}.npy", content)
    return stream.getvalue()
