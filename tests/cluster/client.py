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


def post(port, path, body, headers, timeout=30):
    """Sends a request; returns the connection and the response, whose body is not read."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    text = None if body is None else json.dumps({"jsonrpc": "2.0", **body})
    link.request("GET" if body is None else "POST", path, text, kinds | headers)
    return link, link.getresponse()


def read(link, response, begun):
    with contextlib.closing(link):
        headers = {name.lower(): value for name, value in response.getheaders()}
        body = response.read()
        return Answer(response.status, headers, body, time.monotonic() - begun)


def retried(send, seconds=10):
    """The answer to a request, which is repeated while the gateway asks for that. Beats and answers of
    the engine are late on a busy machine."""
    until = time.monotonic() + seconds
    while (answer := send()).code() == "replica_unavailable" and time.monotonic() < until:
        time.sleep(0.2)
    return answer


class Sessionless:
    """A client of 2026-07-28, whose requests belong to no session."""

    ids = itertools.count(1)

    def __init__(self, capabilities):
        self.capabilities = capabilities

    def request(self, port, method, params):
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        }
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        if name := params.get("name") or params.get("taskId") or params.get("uri"):
            headers["Mcp-Name"] = name
        body = {"id": next(self.ids), "method": method, "params": params | {"_meta": meta}}
        begun = time.monotonic()
        return read(*post(port, "/mcp", body, headers), begun)

    def call(self, port, tool, arguments, **more):
        return self.request(port, "tools/call", {"name": tool, "arguments": arguments, **more})

    def answered(self, port, tool, arguments, asked, reply):
        """The call again, with this reply to each question of the result that asked for it."""
        replies = {key: reply for key in asked["inputRequests"]}
        state = asked["requestState"]
        return self.call(port, tool, arguments, requestState=state, inputResponses=replies)


class Channel:
    """A client of HTTP+SSE, whose stream was opened through one port."""

    def __init__(self, port, last=None):
        self.ids = itertools.count(1)
        headers = {"Last-Event-ID": last} if last else {}
        self.stream = Stream(*post(port, "/sse", None, headers))
        assert self.stream.status == 200, self.stream.response.read()
        self.last = None
        self.path = self.event()

    def event(self):
        """The data of the next event."""
        while line := self.stream.next_line().decode().strip() or "empty":
            if line.startswith("id: "):
                self.last = line.removeprefix("id: ")
            if line.startswith("data: "):
                return line.removeprefix("data: ")

    def send(self, port, body):
        return read(*post(port, self.path, body, {}), time.monotonic())

    def request(self, port, method, params=None):
        """Sends a request through one port and returns the message that answers it."""
        sent = {"id": next(self.ids), "method": method, "params": params or {}}
        accepted = self.send(port, sent)
        assert accepted.status == 202, accepted
        while (message := json.loads(self.event())).get("id") != sent["id"] or "method" in message:
            pass
        return message

    def initialize(self, port):
        info = {"name": "cluster-test", "version": "1"}
        params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": info}
        assert "result" in self.request(port, "initialize", params)
        initialized = self.send(port, {"method": "notifications/initialized"})
        assert initialized.status == 202, initialized


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
        self.opened = retried(lambda: self.request(port, "initialize", params))
        assert self.opened.status == 200, self.opened
        self.id = self.opened.headers["mcp-session-id"]
        initialized = retried(lambda: self.post(port, {"method": "notifications/initialized"}))
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
        return read(*self.open(port, method, body), begun)

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
