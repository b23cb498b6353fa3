"""A gateway that a suite puts between its clients and its servers.

The servers of a suite live in the process of the tests. Each is served on a socket of its own for
as long as a test needs it, and the gateway gets it over its API, because a gateway for each test
would take longer than the test.
"""

import asyncio
import contextlib
import contextvars
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import anyio
import anyio.to_thread
import uvicorn

# The gateway, or nothing: then clients reach the same sockets without it.
PROGRAM = os.environ.get("MCPVISOR")
# Without a gateway, whether clients connect as the suite has it.
DIRECT = PROGRAM is None and "SUITE_SOCKETS" not in os.environ
RELAY = Path(__file__).with_name("relay.py")
# `sharing` of servers that are programs, if it is not the default.
SHARING = os.environ.get("SUITE_SHARING")
WAIT = 10.0
# Whether the code that runs is that of a server, whose own clients do not go through the gateway.
in_server = contextvars.ContextVar("in_server", default=False)

CONFIGURATION = """
[gateway]
listen = "127.0.0.1:0"
data_dir = "data"
"""


LIST_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/list",
}
LIST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/list",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "suites", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}


class Gateway:
    def __init__(self, program):
        self.names = (f"s{number}" for number in itertools.count())
        self.directory = tempfile.TemporaryDirectory(prefix="suite-")
        here = Path(self.directory.name)
        (here / "config.toml").write_text(CONFIGURATION, encoding="utf-8")
        self.log = here / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [program, "serve", "--config", "config.toml"], cwd=here, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.url = self._address()
        self.token = (here / "data" / "api-token").read_text(encoding="utf-8").strip()

    def _address(self):
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            for line in self.log.read_text(encoding="utf-8").splitlines():
                message = json.loads(line)["message"] if line.startswith("{") else line
                if "serves http://" in message:
                    address = message.split("serves ", 1)[1].split()[0]
                    return address.removesuffix("/mcp")
            time.sleep(0.02)
        raise RuntimeError(f"the gateway does not serve: {self.log.read_text(encoding='utf-8')}")

    def stop(self):
        keep = os.environ.get("SUITE_LOG")
        self.process.terminate()
        self.process.wait()
        if keep:
            Path(keep).write_bytes(self.log.read_bytes())
        self.directory.cleanup()

    def ask(self, method, path, body=None, headers=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-Session-Token": self.token, "Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=WAIT) as response:
            return json.loads(response.read() or b"null")

    def add(self, name, server):
        """Adds a server and waits until the gateway has its lists."""
        if SHARING and server["transport"] == "stdio":
            self.write(name, server)
        else:
            self.ask("POST", "/config", {"name": name, **server})
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            shown = self.ask("GET", f"/api/servers/{name}")
            if shown["state"] == "up":
                break
            time.sleep(0.02)
        # A list waits until the server was listed for the first time.
        with contextlib.suppress(urllib.error.HTTPError):
            self.ask("POST", f"/mcp/server/{name}", LIST, LIST_HEADERS)

    def write(self, name, server):
        """Adds a program with a key that the API does not have."""
        keys = {"command": server["command"], "args": server["args"], "sharing": SHARING}
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        with (Path(self.directory.name) / "config.toml").open("a", encoding="utf-8") as file:
            file.write("\n".join([f"\n[servers.{name}]", *lines, ""]))
        self.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            with contextlib.suppress(urllib.error.HTTPError):
                self.ask("GET", f"/api/servers/{name}")
                return
            time.sleep(0.02)

    def remove(self, name):
        with contextlib.suppress(urllib.error.HTTPError):
            self.ask("DELETE", f"/config/{name}")


_gateway = None


def running():
    """The gateway of this process, or none if the tests run without one."""
    global _gateway
    if _gateway is None and PROGRAM:
        _gateway = Gateway(PROGRAM)
    return _gateway


def stop():
    global _gateway
    if _gateway is not None:
        _gateway.stop()
        _gateway = None


@contextlib.asynccontextmanager
async def behind(server, endpoint="mcp"):
    """Yields where clients reach a server: at the gateway, or at its own address without one."""
    gateway = await anyio.to_thread.run_sync(running)
    if gateway is None:
        yield server["url"]
        return
    name = next(gateway.names)
    await anyio.to_thread.run_sync(gateway.add, name, server)
    try:
        yield f"{gateway.url}/{endpoint}/server/{name}"
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(gateway.remove, name)


@contextlib.asynccontextmanager
async def served(app):
    """Serves an ASGI application on loopback, in the event loop of the test."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    # The loop of uvicorn itself looks only ten times a second whether it should end.
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    token = in_server.set(True)
    await server.startup(sockets=[listener])
    in_server.reset(token)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with anyio.CancelScope(shield=True):
            for each in server.servers:
                each.close()
            for connection in list(server.server_state.connections):
                connection.shutdown()
                connection.transport.abort()
            if tasks := list(server.server_state.tasks):
                _, stuck = await asyncio.wait(tasks, timeout=1)
                for task in stuck:
                    task.cancel()
            listener.close()


@contextlib.asynccontextmanager
async def program(run):
    """Yields a server that the gateway starts as a program; its pipe is connected to `run(reader, writer)`."""
    with tempfile.TemporaryDirectory(prefix="suite-") as directory:
        path = f"{directory}/socket"
        runs = set()

        async def connected(reader, writer):
            task = asyncio.current_task()
            runs.add(task)
            try:
                await run(reader, writer)
            finally:
                runs.discard(task)
                writer.close()

        # A message of a suite can be longer than what asyncio takes as a line.
        listener = await asyncio.start_unix_server(connected, path, limit=64 << 20)
        try:
            yield {"transport": "stdio", "command": sys.executable, "args": ["-ISE", str(RELAY), path]}
        finally:
            with anyio.CancelScope(shield=True):
                listener.close()
                for task in list(runs):
                    task.cancel()
                if runs:
                    await asyncio.wait(list(runs), timeout=5)
