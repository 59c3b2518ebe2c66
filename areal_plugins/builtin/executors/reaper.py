"""`python reaper.py [FOLDER]`: ends the workers that outlive their controller, whatever hangs in them.

A worker sees by itself that its controller is gone, but not while code in it holds the interpreter's lock:
then none of its threads runs; nor does one that has only begun to start. This process runs nothing of theirs.
It reads their numbers from its standard input, a line each, and when that ends, as it does with the controller,
it gives them a while and kills the rest. Then it removes FOLDER, where their sockets are.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

GRACE = 7.0
"""Seconds for the workers to end by themselves, with all that they started; they give up after 5."""


def main() -> None:
    """Watch, then kill."""
    watched: dict[int, int] = {}
    for line in sys.stdin.buffer:
        _forget(watched, 0)
        with suppress(ProcessLookupError):
            watched[os.pidfd_open(int(line))] = int(line)
    give_up = time.monotonic() + GRACE
    while watched and (left := give_up - time.monotonic()) > 0:
        _forget(watched, left)
    for leader in watched.values():
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
    for folder in sys.argv[1:]:
        import shutil  # takes longer than all else here

        shutil.rmtree(folder, ignore_errors=True)


def _forget(watched: dict[int, int], seconds: float) -> None:
    """Drop those that have ended, once one has or so long has passed."""
    poll = select.poll()
    for handle in watched:
        poll.register(handle, select.POLLIN)
    for handle, _ in poll.poll(seconds * 1000):
        os.close(handle)
        del watched[handle]


if __name__ == "__main__":
    main()
