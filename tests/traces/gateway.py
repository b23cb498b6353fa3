"""Gateways, and clients of them."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

WAIT_SECONDS = 30


class Gateway:
    """A running gateway with these servers (tables of TOML) and these variables."""

    def __init__(self, program, servers, variables):
        self.folder = tempfile.TemporaryDirectory()
        here = Path(self.folder.name)
        config, self.log = here / "config.toml", here / "log"
        gateway = f'[gateway]\nlisten = "127.0.0.1:0"\ndata_dir = "{here}/data"\n'
        config.write_text(gateway + servers)
        bare = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        command = [program, "serve", "--config", str(config)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env={**bare, **variables}, stderr=log)
        try:
            # Port 0 is any free one; the log says which.
            self.address = self.wait_for_log(r"serves http://(127\.0\.0\.1:\d+)").group(1)
            wait_until("a ready gateway", self.is_ready)
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT_SECONDS)
        said = self.log.read_text()
        self.folder.cleanup()
        assert code == 0 and "panicked" not in said, said

    def is_ready(self):
        try:
            urllib.request.urlopen(f"http://{self.address}/readyz").close()
            return True
        except urllib.error.URLError:
            return False

    def wait_for_record(self, kind, request):
        """The record of this type about a request, where the log is JSON."""
        def find():
            lines = self.log.read_text().splitlines()
            records = [json.loads(line) for line in lines if kind in line]
            found = [it for it in records if it.get("requestId") == f'"{request}"']
            return found[0] if found else None

        return wait_until(f"{kind} of {request}", find)

    def wait_for_log(self, pattern):
        return wait_until(f"{pattern} in the log", lambda: re.search(pattern, self.log.read_text()))


def read(address, accept):
    """The text at an address."""
    request = urllib.request.Request(address, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
        return answer.read().decode()


def wait_until(what, condition):
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"no {what}")


class Client:
    """Without a session of revision 2026-07-28, with one of 2025-11-25."""

    def __init__(self, gateway, sessionless):
        self.url = f"http://{gateway.address}/mcp"
        self.sessionless = sessionless
        self.headers = {"MCP-Protocol-Version": "2026-07-28" if sessionless else "2025-11-25"}
        self.number = 0
        if not sessionless:
            client = {"name": "check", "version": "1"}
            version = self.headers["MCP-Protocol-Version"]
            params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
            with self.post("initialize", params, {}) as answer:
                self.headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
            self.post("notifications/initialized", {}, {}, is_request=False).close()

    def post(self, method, params, headers, is_request=True):
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self.headers,
            **headers,
        }
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if is_request:
            self.number += 1
            message["id"] = f"check-{self.number}"
        body = json.dumps(message).encode()
        request = urllib.request.Request(self.url, body, headers)
        try:
            return urllib.request.urlopen(request, timeout=WAIT_SECONDS)
        except urllib.error.HTTPError as answer:
            # The body says what is wrong.
            return answer

    def call(self, tool, arguments, meta=None, headers=None, on_progress=None):
        """The answer of a tool."""
        params = {"name": tool, "arguments": arguments}
        return self.request("tools/call", params, meta, headers, on_progress)

    def request(self, method, params, meta=None, headers=None, on_progress=None):
        meta, headers = dict(meta or {}), dict(headers or {})
        if on_progress:
            meta["progressToken"] = "p"
        if self.sessionless:
            meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28"
            meta["io.modelcontextprotocol/clientCapabilities"] = {}
            headers |= {"Mcp-Method": method, "Mcp-Name": params.get("name") or params["uri"]}
        with self.post(method, {**params, "_meta": meta}, headers) as answer:
            if "event-stream" not in answer.headers["Content-Type"]:
                return json.loads(answer.read())
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                message = json.loads(line[6:])
                if "id" in message:
                    return message
                if on_progress:
                    on_progress()
        raise AssertionError(f"no answer to {method} {params}")
