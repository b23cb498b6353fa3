"""Public servers in the sandbox that they have by default, without a line of configuration: each has to list the same
tools as without one. The first four, or all with REAL_PUBLIC=all; REAL_PUBLIC=WORD takes those that have the word."""

import json
import os
import shutil
import subprocess
import tempfile
import time

from support import HERE, Failed, Gateway, Table

FEW = 4
# Servers of one gateway: they start a few at a time.
BATCH = 4
# Longest wait for the servers of one gateway, which may have to be downloaded, in seconds.
PATIENCE = 180.0
# A server that was started this often without success does not work.
STARTS_MAX = 2
# What is downloaded first is downloaded within the sandbox.
LEVELS = ["standard", "off"]
# Longest wait for the tools of servers that are up, in seconds.
LISTS_WAIT = 20.0


class Server:
    def __init__(self, number, line, directory):
        words = line.replace("DIRECTORY", str(directory)).split()
        self.variables = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            self.variables[name] = value
        self.program, *self.arguments = words
        package = next(word for word in self.arguments if not word.startswith("-"))
        self.row = package.replace("==", "@").rpartition("@")[0] or package
        self.name = f"s{number}"
        self.tools = {}

    def config(self, place):
        """The entry of a file that sets nothing but what the server's documentation asks for."""
        program, arguments = self.program, self.arguments
        if program == "npx":
            arguments = ["-y", *arguments]
        else:
            program, = place.installed("uv", program)
        pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in self.variables.items())
        return (
            f"[servers.{self.name}]\ncommand = {json.dumps(program)}\nargs = {json.dumps(arguments)}\n"
            f"env = {{ {pairs} }}\n"
        )


def chosen(directory):
    lines = (HERE / "public.txt").read_text().splitlines()
    lines = [line for line in lines if line and not line.startswith("#")]
    wanted = os.environ.get("REAL_PUBLIC", "")
    if not wanted:
        lines = lines[:FEW]
    elif wanted != "all":
        lines = [line for line in lines if any(word in line for word in wanted.split(","))]
    return [Server(number, line, directory) for number, line in enumerate(lines)]


def test(place, directory):
    table = Table([*LEVELS, "same"], {}, {})
    work = directory / "public"
    work.mkdir()
    servers = chosen(work)
    # Not below `/tmp`, of which each server has its own.
    home = tempfile.mkdtemp(prefix="home-", dir=place.root)
    if os.path.exists(npmrc := os.path.expanduser("~/.npmrc")):
        shutil.copy(npmrc, home)
    try:
        for start in range(0, len(servers), BATCH):
            batch = servers[start : start + BATCH]
            for level in LEVELS:
                reasons = listed(place, batch, level, home)
                for server in batch:
                    table.run(server.row, level, lambda: told(reasons.get(server.name)))
            for server in batch:
                table.run(server.row, "same", lambda: same(server))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return table


def told(reason):
    if reason:
        raise Failed(reason)


def same(server):
    missing = set(server.tools.get("off", [])) ^ set(server.tools.get("standard", []))
    if missing:
        raise Failed(f"other tools: {', '.join(sorted(missing))}")
    if not server.tools.get("standard"):
        raise Failed("no tools")


def listed(place, servers, level, home):
    """Starts the servers, keeps the tools of each, and returns why some did not start."""
    head = f"[supervision]\nmax_restarts = {STARTS_MAX}\n"
    config = "".join(server.config(place) for server in servers)
    gateway = Gateway(place, config, home=home, head=head, level=level)
    try:
        wait(gateway, PATIENCE, lambda server: server["state"] == "up" or has_failed(server))
        shown = wait(gateway, LISTS_WAIT, lambda server: server.get("items") or has_failed(server))
        tools = json.loads(subprocess.run(
            [*gateway.program, "tools", "ls", "--json"], capture_output=True, text=True, check=True
        ).stdout)
        for server in servers:
            server.tools[level] = [tool["name"] for tool in tools if tool["server"] == server.name]
        return {name: reason(server) for name, server in shown.items() if server["state"] != "up"}
    finally:
        gateway.close()


def shared(server):
    return (server.get("connection") or {}).get("shared") or {}


def has_failed(server):
    return server["state"] == "broken" or shared(server).get("restarts", 0) >= STARTS_MAX


def wait(gateway, patience, is_settled):
    """Waits until all servers are settled, but no longer; their status by name."""
    deadline = time.monotonic() + patience
    while True:
        shown = {server["name"]: server for server in gateway.status()["servers"]}
        if all(is_settled(server) for server in shown.values()) or time.monotonic() > deadline:
            return shown
        time.sleep(0.5)


def reason(server):
    told = [server["state"], server.get("reason") or "", shared(server).get("last_exit") or ""]
    return " · ".join(word for word in told if word)
