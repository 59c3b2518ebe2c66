"""As close to an NPU as a machine without one gets: run as a worker's program, with a rank and a rendezvous.

torch lets a device name be claimed (`rename_privateuse1_backend`), and gloo can be registered as `hccl`;
tensors themselves stay on the processor.
"""

from __future__ import annotations

import json
import os
import sys
import types

import torch
import torch.distributed as dist
from areal_plugin_ascend import VISIBLE, areal_platforms


def claim_npu() -> None:
    visible = [part for part in os.environ.get(VISIBLE, "").split(",") if part]
    module = types.ModuleType("torch.npu")
    module.device_count = lambda: len(visible)
    module.is_available = lambda: bool(visible)
    module.current_device = lambda: 0
    torch.utils.rename_privateuse1_backend("npu")
    torch._register_device_module("npu", module)
    dist.Backend.register_backend("hccl", dist.ProcessGroupGloo, devices=["cpu", "npu"])


def main(rank: int, size: int, meeting: str) -> None:
    (descriptor,) = areal_platforms()
    capabilities = descriptor.capabilities
    claim_npu()
    device = torch.device(capabilities.device, 0)
    dist.init_process_group(capabilities.collective, init_method=f"file://{meeting}", rank=rank, world_size=size)
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    found = {
        "device": str(device),
        "devices": getattr(torch, capabilities.device).device_count(),
        "backend": dist.get_backend(),
        "sum": total.item(),
        "visible": os.environ[VISIBLE],
        "timeout": os.environ["HCCL_CONNECT_TIMEOUT"],
    }
    dist.destroy_process_group()
    sys.stdout.write(json.dumps(found))


main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
