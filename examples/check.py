#!/usr/bin/env python3
"""Asks Steadfast whether a plan may run. Usage: check.py IMAGE INSTRUCTION PLAN

Exit code: 0 permit, 4 the planner refused, 3 veto. Silence, a bus error and a missing name are vetoes too.
Needs `pip install dbus-fast`. The bus is the system bus, or the one that STEADFAST_BUS_ADDRESS names.
"""
import asyncio
import fcntl
import os
import sys
import time

from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

NAME, PATH = "org.steadfast.Guard1", "/org/steadfast/Guard1"
DEADLINE_MS = 5000  # the guard's; ours lies a little behind it, so that its own answer still arrives
PATIENCE_S = DEADLINE_MS / 1000 + 0.5
EXIT = {"permit": 0, "refusal": 4}


def sealed(image: bytes) -> int:
    """A memfd that can never change again; the guard takes nothing else."""
    fd = os.memfd_create("image", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(image)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return fd


async def check(image: bytes, instruction: str, plan: str) -> tuple[str, str, bytes]:
    """The verdict, its reason and the permit. In mode shadow the verdict is none of the three and binds nobody."""
    # The stamp is on the boot clock and belongs to the moment the picture was taken.
    stamp_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    options = {"deadline_ms": Variant("u", DEADLINE_MS), "image_stamp_ns": Variant("t", stamp_ns)}
    address = os.environ.get("STEADFAST_BUS_ADDRESS")
    bus = await MessageBus(address, BusType.SYSTEM, negotiate_unix_fd=True).connect()
    fd = sealed(image)
    try:
        call = Message(destination=NAME, path=PATH, interface=NAME, member="Check", signature="hssa{sv}",
                       body=[0, instruction, plan, options], unix_fds=[fd])
        reply = await bus.call(call)
    finally:
        os.close(fd)
        bus.disconnect()
    if reply is None or reply.message_type is not MessageType.METHOD_RETURN:
        return "veto", reply.error_name if reply else "no reply", b""
    verdict, reason, _malleability, permit, _details = reply.body
    return verdict, reason, permit


try:
    with open(sys.argv[1], "rb") as file:
        asked = check(file.read(), sys.argv[2], sys.argv[3])
    verdict, reason, permit = asyncio.run(asyncio.wait_for(asked, PATIENCE_S))
except Exception as error:  # whatever it is, nobody said yes
    verdict, reason, permit = "veto", f"{type(error).__name__}: {error}", b""
print(verdict, reason, permit.hex())
sys.exit(EXIT.get(verdict, 3))
