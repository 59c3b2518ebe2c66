"""Wires between machines."""

import asyncio
import socket

from areal_core.workers.address import KEEP_ALIVE, Listener, connect
from areal_core.workers.wire import Wire


def test_both_ends_of_a_wire_notice_when_the_other_machine_is_gone() -> None:
    async def ends() -> list[Wire]:
        accepted: asyncio.Queue[Wire] = asyncio.Queue()
        listener = Listener(accepted.put)
        await listener.bind("tcp:127.0.0.1:0")
        wires = [await connect(listener.address), await accepted.get()]
        for wire in wires:
            options = wire._transport.get_extra_info("socket")
            assert options.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            for option, value in KEEP_ALIVE.items():
                assert options.getsockopt(socket.IPPROTO_TCP, getattr(socket, option)) == value
            wire.close()
        await listener.close()
        return wires

    assert len(asyncio.run(ends())) == 2
