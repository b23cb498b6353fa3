"""An MCP server that kills itself with SIGKILL at a message boundary, over either transport.

    mortal.py DIRECTORY            over stdio
    mortal.py DIRECTORY PORT       over Streamable HTTP

DIRECTORY/die holds where it dies next, as `WHEN METHOD`; the file is removed as it dies, so that it
dies once. WHEN is one of

    unread      the message is there and was not read
    read        it was read, and nothing was done
    progress    a notification of progress was sent (of a call with the argument `progress`)
    half        half of the answer was sent
    answered    the whole answer was sent

DIRECTORY/journal gets a line for every message that was read, before anything is done with it. A
message of a session that an earlier process opened is refused, and gets none.
"""
import json, os, select, signal, socket, sys, threading

DIRECTORY = sys.argv[1]
SESSION = "session-%d" % os.getpid()
STREAM = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
          b"Transfer-Encoding: chunked\r\n\r\n")
TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}},
         {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]


def die(when, method):
    path = os.path.join(DIRECTORY, "die")
    try:
        with open(path) as file:
            wanted = file.read()
    except FileNotFoundError:
        return
    if wanted == when + " " + method:
        os.unlink(path)
        os.kill(os.getpid(), signal.SIGKILL)


def journal(message):
    params = message.get("params", {})
    line = message.get("method", "answer") + " " + json.dumps(params.get("arguments"))
    with open(os.path.join(DIRECTORY, "journal"), "a") as file:
        file.write(line + "\n")


def result(message):
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "mortal", "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}
    return {}


def answer(message):
    return {"jsonrpc": "2.0", "id": message["id"], "result": result(message)}


def progress(message):
    params = message.get("params", {})
    if not params.get("arguments", {}).get("progress"):
        return None
    params = {"progressToken": params["_meta"]["progressToken"], "progress": 1}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def send(write, data, method):
    """Writes an answer, in two parts so that it can end between them."""
    half = len(data) // 2
    write(data[:half])
    die("half", method)
    write(data[half:])
    die("answered", method)


def chunk(text):
    return b"%x\r\n%s\r\n" % (len(text), text.encode())


class Stdio:
    """What comes next is known without reading it, since a pipe cannot be looked into: whoever
    kills at "unread" has no pings sent."""
    NEXT = {None: "initialize", "initialize": "notifications/initialized",
            "notifications/initialized": "tools/list"}

    def run(self):
        last = None
        while True:
            select.select([0], [], [])
            die("unread", self.NEXT.get(last, "tools/call"))
            line = self.line()
            if not line:
                return
            message = json.loads(line)
            journal(message)
            last = message["method"]
            self.react(message, last)

    def line(self):
        """Byte by byte: the next message stays in the pipe."""
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(0, 1)
            if not byte:
                return b""
            line += byte
        return line

    def react(self, message, method):
        die("read", method)
        if "id" not in message:
            return
        told = progress(message)
        if told:
            os.write(1, json.dumps(told).encode() + b"\n")
            die("progress", method)
        send(lambda data: os.write(1, data), json.dumps(answer(message)).encode() + b"\n", method)


class Http:
    """One thread for each connection."""

    def run(self, port):
        listener = socket.create_server(("127.0.0.1", port), backlog=64)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            while True:
                request = self.whole(connection)
                if request is None:
                    return
                self.react(connection, *request)
        except OSError:
            return

    def whole(self, connection):
        """Reads a request after it was looked at: until then it is not read."""
        while True:
            seen = connection.recv(1 << 20, socket.MSG_PEEK)
            if not seen:
                return None
            head, end, body = seen.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:])
            length = int(headers.get("content-length", 0))
            if end and len(body) >= length:
                break
        verb = lines[0].split(" ")[0]
        message = json.loads(body[:length]) if length else {}
        die("unread", message.get("method", verb))
        connection.recv(len(head) + 4 + length, socket.MSG_WAITALL)
        return verb, headers, message

    def react(self, connection, verb, headers, message):
        method = message.get("method", verb)
        known = headers.get("mcp-session-id") == SESSION or method == "initialize"
        if known:
            journal(message if message else {"method": verb})
        die("read", method)
        if not known:
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        elif verb == "GET":
            connection.sendall(STREAM + chunk(": quiet\n\n"))
            threading.Event().wait()
        elif "id" not in message:
            status = b"202 Accepted" if verb == "POST" else b"200 OK"
            connection.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
            die("answered", method)
        else:
            self.answer(connection, message, method)

    def answer(self, connection, message, method):
        body = json.dumps(answer(message))
        told = progress(message)
        if not told:
            head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            head = head % len(body) + "Mcp-Session-Id: " + SESSION + "\r\n\r\n"
            connection.sendall(head.encode())
            return send(connection.sendall, body.encode(), method)
        connection.sendall(STREAM + chunk("data: " + json.dumps(told) + "\n\n"))
        die("progress", method)
        send(connection.sendall, chunk("data: " + body + "\n\n"), method)
        connection.sendall(b"0\r\n\r\n")


if len(sys.argv) > 2:
    Http().run(int(sys.argv[2]))
else:
    Stdio().run()
