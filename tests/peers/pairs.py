"""Every pair of a client and a server on another SDK, with a gateway between them."""

import itertools
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).parent
PATIENCE = 30.0

# A program on an SDK, and what it is told about how to connect: over which transport, or as which
# revision. rmcp 0.10 has HTTP+SSE and, unless it is told otherwise, 2025-03-26.
CLIENTS = [
    ("mcp 1.30.0", "legacy"),
    ("mcp 1.30.0", "sse"),
    ("mcp 2.3.0", "legacy"),
    ("mcp 2.3.0", "2026-07-28"),
    ("rmcp 0.10", "2025-06-18"),
    ("rmcp 0.10", "2025-03-26"),
]
SERVERS = [
    ("mcp 1.30.0", "stdio"),
    ("mcp 1.30.0", "http"),
    ("mcp 1.30.0", "sse"),
    ("mcp 2.3.0", "stdio"),
    ("mcp 2.3.0", "http"),
    ("rmcp 0.10", "2025-06-18"),
]


def program(target, sdk, kind):
    """The beginning of the command line."""
    name, version = sdk.split()
    if name == "rmcp":
        return [str(target / "peers" / "debug" / "peer-rmcp"), kind]
    python = target / "peers" / f"mcp-{version}" / "bin" / "python"
    return [str(python), str(HERE / "python" / f"{kind}_v{version[0]}.py")]


def until(what, condition):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if found := condition():
                return found
        except (OSError, ValueError):
            pass
        time.sleep(0.02)
    raise TimeoutError(f"waited without result until {what}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_server(target, server, processes):
    """What the configuration says of the server."""
    sdk, mode = server
    command = program(target, sdk, "server")
    if mode == "stdio":
        return f"command = {json.dumps(command[0])}\nargs = {json.dumps([*command[1:], mode])}\n"
    port = free_port()
    words = [str(port), mode] if sdk.startswith("rmcp") else [mode, str(port)]
    nowhere = subprocess.DEVNULL
    processes.append(subprocess.Popen([*command, *words], stdout=nowhere, stderr=nowhere))
    until("the server listens", lambda: socket.create_connection(("127.0.0.1", port)).close() is None)
    if mode == "http":
        return f'url = "http://127.0.0.1:{port}/mcp"\n'
    return f'url = "http://127.0.0.1:{port}/sse"\ntransport = "sse"\n'


def run(target, client, server):
    """What was said if something failed."""
    processes = []
    with tempfile.TemporaryDirectory() as directory:
        config, log = pathlib.Path(directory) / "config.toml", pathlib.Path(directory) / "log"
        try:
            behind = start_server(target, server, processes)
            config.write_text(
                '[gateway]\nlisten = "127.0.0.1:0"\ndata_dir = "data"\nfirst_list_wait = "30s"\n'
                f'[servers.peer]\n{behind}tools = {{ prefix = "" }}\n'
            )
            gateway = [str(target / "debug" / "mcpvisor"), "--config", str(config)]
            with open(log, "w") as stderr:
                processes.append(subprocess.Popen(gateway, stderr=stderr))
            address = config.with_name("data") / "run.json"
            listen = until("the gateway serves", lambda: json.loads(address.read_text())["listen"])
            ready = f"http://{listen}/readyz"
            until("its server is there", lambda: urllib.request.urlopen(ready, timeout=PATIENCE).status == 200)
            command = [*program(target, client[0], "client"), f"http://{listen}", client[1]]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 2)
            return "" if done.returncode == 0 else done.stderr + log.read_text()
        except (OSError, subprocess.SubprocessError) as error:
            return f"{error!r}\n{log.read_text() if log.exists() else ''}"
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(PATIENCE)


def main():
    target, words = pathlib.Path(sys.argv[1]).absolute(), sys.argv[2]
    ran = failed = 0
    for client, server in itertools.product(CLIENTS, SERVERS):
        name = f"{client[0]} ({client[1]}) to {server[0]} ({server[1]})"
        if words not in name:
            continue
        ran += 1
        begun = time.monotonic()
        told = run(target, client, server)
        failed += bool(told)
        print("failed" if told else "passed", name, f"in {time.monotonic() - begun:.1f} s", told, flush=True)
    print(f"{ran - failed} of {ran} pairs passed")
    if ran == 0:
        sys.exit(f"no pair is called {words}")
    sys.exit(1 if failed else 0)


main()
