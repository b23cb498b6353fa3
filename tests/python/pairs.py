"""Every pair of a Python client and a Python server, with a gateway between them."""

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

# The version of the SDK in front, how it connects, the version behind, and its transport.
PAIRS = [
    (client, mode, server, transport)
    for client, mode in [("1.30.0", "legacy"), ("1.30.0", "sse"), ("2.3.0", "legacy")]
    for server, transport in [
        ("1.30.0", "stdio"),
        ("1.30.0", "http"),
        ("1.30.0", "sse"),
        ("2.3.0", "stdio"),
        ("2.3.0", "http"),
    ]
]


def python(target, version):
    return str(target / "python" / f"mcp-{version}" / "bin" / "python")


def until(what, condition):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if found := condition():
                return found
        except (OSError, ValueError):
            pass
        time.sleep(0.02)
    raise TimeoutError(f"waited in vain until {what}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def script(kind, version):
    return str(HERE / f"{kind}_v{version[0]}.py")


def start_server(target, version, transport, processes):
    """What the configuration says of the server."""
    command = [python(target, version), script("server", version), transport]
    if transport == "stdio":
        return f"command = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n"
    port = free_port()
    log = subprocess.DEVNULL
    processes.append(subprocess.Popen([*command, str(port)], stdout=log, stderr=log))
    until("the server listens", lambda: socket.create_connection(("127.0.0.1", port)).close() is None)
    if transport == "sse":
        return f'url = "http://127.0.0.1:{port}/sse"\ntransport = "sse"\n'
    return f'url = "http://127.0.0.1:{port}/mcp"\n'


def run(target, pair):
    client, mode, server, transport = pair
    processes = []
    with tempfile.TemporaryDirectory() as directory:
        config = pathlib.Path(directory) / "config.toml"
        try:
            behind = start_server(target, server, transport, processes)
            config.write_text(
                '[gateway]\nlisten = "127.0.0.1:0"\ndata_dir = "data"\nfirst_list_wait = "30s"\n'
                f'[servers.python]\n{behind}tools = {{ prefix = "" }}\n'
            )
            gateway = [str(target / "debug" / "mcpvisor"), "--config", str(config)]
            with open(config.with_name("log"), "w") as log:
                processes.append(subprocess.Popen(gateway, stderr=log))
            address = config.with_name("data") / "run.json"
            listen = until("the gateway serves", lambda: json.loads(address.read_text())["listen"])
            ready = f"http://{listen}/readyz"
            until("its server is there", lambda: urllib.request.urlopen(ready, timeout=PATIENCE).status == 200)
            command = [python(target, client), script("client", client), f"http://{listen}", mode]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 2)
            told = done.stderr + config.with_name("log").read_text()
            return "" if done.returncode == 0 else told
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(PATIENCE)


def main():
    target, words = pathlib.Path(sys.argv[1]).absolute(), sys.argv[2]
    failed = 0
    for pair in PAIRS:
        client, mode, server, transport = pair
        name = f"mcp {client} ({mode}) to mcp {server} over {transport}"
        if words in name:
            told = run(target, pair)
            failed += bool(told)
            print("failed" if told else "passed", name, told, flush=True)
    sys.exit(1 if failed else 0)


main()
