"""What an executor is made of: the service of each role, and the errors that its handles raise.

`make_service(role, dial, threaded)` makes what a worker runs; `methods_of` names what may be called on it.

For workers that are processes, here or elsewhere, `Reception` gives each its arguments and variables, and
receives it when it dials back; `LinkedWorker` is the handle that comes of it, with heartbeats; a `Body` is what
the executor brings: something that ends, says how, and can be ended. `spawn` makes one of a command, a
`Process` of the machine that it is called on, and a `Reaper` kills those that outlive who started them.
"""

from __future__ import annotations

from areal_core.errors import Remote, RemoteError, WorkerLost
from areal_core.workers.build import import_files
from areal_core.workers.faults import as_remote
from areal_core.workers.service import Dial, Method, Service, make_service, methods_of
from areal_plugins.builtin.executors.process import Process, Reaper, spawn
from areal_plugins.builtin.executors.reception import Reception
from areal_plugins.builtin.executors.worker import Body, LinkedWorker

__all__ = [
    "Body",
    "Dial",
    "LinkedWorker",
    "Method",
    "Process",
    "Reaper",
    "Reception",
    "Remote",
    "RemoteError",
    "Service",
    "WorkerLost",
    "as_remote",
    "import_files",
    "make_service",
    "methods_of",
    "spawn",
]
