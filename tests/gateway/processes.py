"""A gateway in a process of its own, which can be stopped, killed and started again on the same port."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from lamina.gateway import GatewaySettings
from tests.gateway.running import open_client
from tests.servers.ports import free_port

PROGRAM = (
    "import sys, msgspec\n"
    "from lamina.relay.config import GatewaySettings\n"
    "from lamina.gateway.server import run_server\n"
    "if __name__ == '__main__':\n"
    "    run_server(msgspec.json.decode(sys.argv[1], type=GatewaySettings))\n"
)


class GatewayProcess:
    """A gateway with these settings, at a port that stays the same. `process` runs it now."""

    process: asyncio.subprocess.Process

    def __init__(self, settings: GatewaySettings) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._settings = msgspec.structs.replace(settings, port=self.port)

    async def start(self) -> None:
        """Start it, and wait until it is ready."""
        settings = msgspec.json.encode(self._settings).decode()
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, settings, stderr=asyncio.subprocess.PIPE, start_new_session=True
        )
        async with open_client() as client:
            for _ in range(1_200):
                try:
                    async with client.get(f"{self.url}/readyz", headers={"x-lamina-token": "t"}) as answer:
                        if answer.status == 200:
                            return
                except (OSError, aiohttp.ClientError):
                    await asyncio.sleep(0.05)
        raise RuntimeError("the gateway did not start")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Tell it to stop."""
        os.kill(self.process.pid, number)

    async def kill(self, *, workers: bool = True) -> None:
        """End it without a chance to write anything, with its workers or without."""
        if self.process.returncode is not None:
            return
        if workers:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        await self.process.wait()

    async def wait_until_closed(self) -> None:
        """Wait until nobody listens any more."""
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except ConnectionRefusedError:
                return
            except ConnectionResetError:  # it was closed just now, with this in its queue
                continue
            writer.close()
            await asyncio.sleep(0.02)

    async def finish(self) -> tuple[int, list[dict[str, Any]], str]:
        """The status, the events of the log, and what stood in it that is no event."""
        async with asyncio.timeout(30):
            _, error = await self.process.communicate()
        events: list[dict[str, Any]] = []
        noise = ""
        for line in error.decode().splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                noise += f"{line}\n"
        assert self.process.returncode is not None
        return self.process.returncode, events, noise


@asynccontextmanager
async def run_process(settings: GatewaySettings) -> AsyncIterator[GatewayProcess]:
    """A gateway process until the context ends."""
    gateway = GatewayProcess(settings)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.kill()
