"""A client of MCP over HTTP, whose every request can go to another port."""

import contextlib
import http.client
import itertools
import json
import time

REVISION = "2025-11-25"


class Answer:
    """The answer to one request, with the time that it took."""

    def __init__(self, status, headers, body, seconds):
        self.status, self.headers, self.body, self.seconds = status, headers, body, seconds

    def messages(self):
        """The JSON-RPC messages of a body, which can be an event stream."""
        if not self.body:
            return []
        kind = self.headers.get("content-type", "")
        if "event-stream" not in kind:
            # The balancer answers in HTML.
            return [json.loads(self.body)] if "json" in kind else []
        lines = (line for line in self.body.decode().splitlines() if line.startswith("data: {"))
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    def result(self):
        return next((it["result"] for it in self.messages() if "result" in it), None)

    def code(self):
        """The gateway's code of an error; None if there is none."""
        for message in self.messages():
            error = message.get("error", {}).get("data", {})
            meta = message.get("result", {}).get("_meta", {}).get("io.mcpvisor/error", {})
            if code := error.get("code") or meta.get("code"):
                return code
        return None

    def __repr__(self):
        return f"{self.status} after {self.seconds:.2f} s: {self.body[:300]}"


class Stream:
    """An answer that is read while it arrives."""

    def __init__(self, link, response):
        self.link, self.response = link, response
        self.status = response.status

    def next(self):
        """The next message; None at the end."""
        while line := self.response.readline():
            if line.startswith(b"data: {"):
                return json.loads(line[6:])
        return None

    def next_line(self):
        return self.response.readline()

    def close(self):
        self.link.close()


class Session:
    """A session, opened through one port."""

    def __init__(self, port, capabilities=None):
        self.ids = itertools.count(1)
        self.id = None
        params = {
            "protocolVersion": REVISION,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "cluster-test", "version": "1"},
        }
        self.opened = self.request(port, "initialize", params)
        assert self.opened.status == 200, self.opened
        self.id = self.opened.headers["mcp-session-id"]
        initialized = self.post(port, {"method": "notifications/initialized"})
        assert initialized.status == 202, initialized

    def headers(self):
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        if self.id:
            headers |= {"Mcp-Session-Id": self.id, "MCP-Protocol-Version": REVISION}
        return headers

    def open(self, port, method, body=None, timeout=30):
        """Sends a request; returns the connection and the response, whose body is not read."""
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        text = None if body is None else json.dumps({"jsonrpc": "2.0", **body})
        link.request(method, "/mcp", text, self.headers())
        return link, link.getresponse()

    def send(self, port, method, body=None):
        begun = time.monotonic()
        link, response = self.open(port, method, body)
        with contextlib.closing(link):
            headers = {name.lower(): value for name, value in response.getheaders()}
            read = response.read()
            return Answer(response.status, headers, read, time.monotonic() - begun)

    def post(self, port, body):
        return self.send(port, "POST", body)

    def request(self, port, method, params=None):
        return self.post(port, self.message(method, params))

    def message(self, method, params=None):
        return {"id": next(self.ids), "method": method, "params": params or {}}

    def call(self, port, tool, arguments=None, meta=None):
        return self.request(port, "tools/call", self.tool(tool, arguments, meta))

    @staticmethod
    def tool(tool, arguments=None, meta=None):
        params = {"name": tool, "arguments": arguments or {}}
        return params | ({"_meta": meta} if meta else {})

    def stream(self, port, body=None):
        """Opens a stream: of a request, or the general one."""
        link, response = self.open(port, "POST" if body else "GET", body)
        return Stream(link, response)
