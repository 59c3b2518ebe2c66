"""What an executor is made of: the service of each role, and the errors that its handles raise.

`make_service(role, dial, threaded)` makes what a worker runs; `methods_of` names what may be called on it.
"""

from __future__ import annotations

from areal_core.errors import Remote, RemoteError, WorkerLost
from areal_core.workers.build import import_files
from areal_core.workers.faults import as_remote
from areal_core.workers.service import Dial, Method, Service, make_service, methods_of

__all__ = [
    "Dial",
    "Method",
    "Remote",
    "RemoteError",
    "Service",
    "WorkerLost",
    "as_remote",
    "import_files",
    "make_service",
    "methods_of",
]
