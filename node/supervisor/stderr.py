"""Standard error of a child: passed on line by line up to a limit, because codecs write lines about the images of any client.

    child: standard error ──pipe──► thread of the supervisor ──► standard error of the supervisor

Control characters are passed on as escapes. Bytes beyond the limit are counted, and the log tells the count.
"""

import errno
import fcntl
import os
import select
import sys
import threading
import time
from contextlib import suppress
from contextvars import copy_context

import structlog

from cluster_serving.client.servers.process.printable import printable_lines

log = structlog.get_logger(__name__)

_BYTES_A_SECOND = 4096
_BURST_BYTES = 512 << 10  # room for the stacks of a crash, and for all that a framework writes while it loads
_LONGEST_LINE = 8192
_TELL_S = 10.0
_PIPE_BYTES = 1 << 20  # with the pause: a child that writes 50 MB/s does not wait for the supervisor
_PAUSE_S = 0.02
"""Pause after each read beyond the limit, so that a flood of short lines costs the supervisor no core."""
_END_S = 0.5


class Limit:
    """Bytes that may pass: `_BURST_BYTES` at once, and `_BYTES_A_SECOND` in the long run. `now_s`: monotonic time in seconds."""

    def __init__(self, now_s: float) -> None:
        self._left = float(_BURST_BYTES)
        self._seen_s = now_s

    def room(self, now_s: float) -> int:
        """Return how many bytes may pass now."""
        self._left = min(_BURST_BYTES, self._left + (now_s - self._seen_s) * _BYTES_A_SECOND)
        self._seen_s = now_s
        return int(self._left)

    def spend(self, size: int) -> None:
        """Count bytes that have passed, at most `room`."""
        self._left -= size


class StandardError:
    """Pipe for the standard error of a child, and the thread that passes the lines on.

    Args:
        name: name of the child in logs.

    Raises:
        OSError: the pipe or the thread cannot be made.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._limit = Limit(time.monotonic())
        self._line = b""
        """Beginning of a line without an end yet."""
        self._left_out = 0
        self._told_s = float("-inf")
        self._descriptor, self.for_child = os.pipe()
        with suppress(OSError):  # this user has many large pipes already
            fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        run = copy_context().run  # with the names of process and job for the log
        self._thread = threading.Thread(target=run, args=(self._run,), name=f"stderr of {name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            os.close(self._descriptor)
            self.close_for_child()
            raise OSError(errno.EAGAIN, str(error)) from error

    def close_for_child(self) -> None:
        """Close the writing end in this process, after the child has been started or could not be started."""
        os.close(self.for_child)

    def join(self) -> None:
        """Wait until the last words of a dead child are passed on, unless a process of the child's own keeps the pipe open."""
        self._thread.join(_END_S)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while True:
            quiet = not poll.poll(_TELL_S * 1000 if self._left_out else None)
            if quiet or time.monotonic() > self._told_s + _TELL_S:
                self._tell()
            if quiet:
                continue
            chunk = os.read(self._descriptor, _PIPE_BYTES)
            if not chunk:
                break
            self._pass_on(chunk)
            if self._left_out:
                time.sleep(_PAUSE_S)
        if self._line:
            self._pass_on(b"\n")
        self._tell()
        os.close(self._descriptor)

    def _pass_on(self, chunk: bytes) -> None:
        """Write the complete lines that the limit allows. A line longer than `_LONGEST_LINE` is written in parts."""
        content = self._line + chunk
        end = len(content) if len(content) - content.rfind(b"\n") > _LONGEST_LINE else content.rfind(b"\n") + 1
        content, self._line = content[:end], content[end:]
        room = self._limit.room(time.monotonic())
        passed = content if end <= room else content[: content.rfind(b"\n", 0, room) + 1]
        self._limit.spend(len(passed))
        self._left_out += end - len(passed)
        if passed:
            text = printable_lines(passed.decode(errors="backslashreplace").removesuffix("\n"))
            with suppress(OSError):  # as for a line of the log: a full disk must not end a node
                sys.stderr.write(f"{text}\n")
                sys.stderr.flush()

    def _tell(self) -> None:
        if self._left_out:
            log.warning("standard error is cut", child=self._name, left_out_bytes=self._left_out)
            self._left_out, self._told_s = 0, time.monotonic()
