"""`python -m areal_core.workers --connect ADDRESS --name NAME --role ROLE`: one worker.

The run's key comes in the variable `AREAL_WORKER_KEY`, never on the command line.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from areal_core.errors import ArealError
from areal_core.workers.hello import KEY_VARIABLE
from areal_core.workers.host import HostOptions, host


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker; the exit code."""
    parser = argparse.ArgumentParser(prog="areal_core.workers", description="Run one worker of a run.")
    parser.add_argument("--connect", required=True, help="the controller's address: unix:/path or tcp:host:port")
    parser.add_argument("--name", required=True, help="name of this worker in the run")
    parser.add_argument("--role", required=True, help="engine, trainer, rollout, or module:Class of a service")
    parser.add_argument("--start", default="", help="what the controller calls this start, among all of this name")
    parser.add_argument("--listen", help="where other workers reach this one; beside the controller when left out")
    parser.add_argument("--lifeline", action="store_true", help="end when standard input does")
    options = HostOptions(**vars(parser.parse_args(arguments)))
    key = os.environ.pop(KEY_VARIABLE, "")
    if not key:
        parser.error(f"the run's key is missing: set {KEY_VARIABLE}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return _run(options, bytes.fromhex(key))


def _run(options: HostOptions, key: bytes) -> int:
    try:
        asyncio.run(host(options, key))
    except (ArealError, OSError) as error:
        logging.getLogger(__name__).error("worker %s: %s", options.name, error)
        return error.exit_code if isinstance(error, ArealError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
