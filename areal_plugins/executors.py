"""What an executor that starts worker processes elsewhere is made of; torch-free.

`Reception` gives each worker its arguments and variables, and receives it when it dials back;
`LinkedWorker` is the handle that comes of it, with heartbeats; `Body` is what the executor brings:
something that ends, says how, and can be ended. `spawn` starts one on the machine
where it is called, a `Process`.
"""

from __future__ import annotations

from areal_plugins.builtin.executors.process import Process, spawn
from areal_plugins.builtin.executors.reception import Reception
from areal_plugins.builtin.executors.worker import Body, LinkedWorker

__all__ = ["Body", "LinkedWorker", "Process", "Reception", "spawn"]
