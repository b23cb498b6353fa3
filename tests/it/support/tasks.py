"""A Streamable HTTP server of 2025-11-25 whose tool `build` runs as a task.

    tasks.py DIRECTORY PORT

Every session sees all tasks of the process. A task ends when the file DIRECTORY/done exists, and
`tasks/result` waits for it; DIRECTORY/journal gets a line for every request.
"""
import http.server, json, os, sys, threading, time, uuid

DIRECTORY, PORT = sys.argv[1], int(sys.argv[2])
TASKS, SESSIONS, LOCK = {}, set(), threading.Lock()
CAPABILITIES = {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
TOOL = {"name": "build", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}


def is_done():
    return os.path.exists(os.path.join(DIRECTORY, "done"))


def state(task):
    status = "completed" if is_done() else "working"
    return {"taskId": task, "status": status, "createdAt": "2026-11-20T10:00:00Z",
            "lastUpdatedAt": "2026-11-20T10:00:00Z", "ttl": 3600000, "pollInterval": 100}


def result(message):
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES,
                "serverInfo": {"name": "tasks", "version": "1"}}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        task = "t-%d" % (len(TASKS) + 1)
        TASKS[task] = params["arguments"]
        return {"task": state(task)}
    if method.startswith("tasks/") and params.get("taskId") not in TASKS:
        return None
    if method == "tasks/get":
        return state(params["taskId"])
    if method == "tasks/result":
        return {"content": [{"type": "text", "text": "built " + TASKS[params["taskId"]]["what"]}]}
    return {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        self.reply(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = message.get("method", "answer")
        with LOCK:
            with open(os.path.join(DIRECTORY, "journal"), "a") as file:
                file.write(method + "\n")
            headers = {}
            if method == "initialize":
                session = uuid.uuid4().hex
                SESSIONS.add(session)
                headers["Mcp_Session_Id"] = session
            elif self.headers.get("Mcp-Session-Id") not in SESSIONS:
                return self.reply(404)
            if "id" not in message:
                return self.reply(202)
        while method == "tasks/result" and not is_done():
            time.sleep(0.02)
        with LOCK:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result(message)}
            if answer["result"] is None:
                del answer["result"]
                answer["error"] = {"code": -32602, "message": "no such task"}
        self.reply(200, json.dumps(answer).encode(), Content_Type="application/json", **headers)


http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
