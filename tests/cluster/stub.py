"""An MCP server on stdin and stdout that writes down what it runs: one line per event in a file.

    stub.py FILE

Its tool `run` takes `token`, `ms` for which it runs, and `size` of its answer; `ask` asks the client's user `questions` times;
`visit` requires that the user opens a page before; `build` runs as a task that ends when it is cancelled.
"""

import itertools
import json
import os
import sys
import threading
import time

journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
writing = threading.Lock()
cancelled = {}
answers = {}
REVISION = "2025-11-25"
TOKEN = {"type": "object", "properties": {"token": {"type": "string"}, "ms": {"type": "integer"}}}
TOOLS = [
    {"name": "run", "description": "Runs.", "inputSchema": TOKEN},
    {"name": "ask", "description": "Asks.", "inputSchema": {"type": "object"}},
    {"name": "visit", "description": "Needs a visit.", "inputSchema": TOKEN},
    {
        "name": "build",
        "description": "Builds.",
        "inputSchema": TOKEN,
        "execution": {"taskSupport": "required"},
    },
]
TASK_CAPABILITIES = {"cancel": {}, "requests": {"tools": {"call": {}}}}
tasks = {}


def note(event, token):
    # One write is atomic, also between processes.
    os.write(journal, f"{event} {token}\n".encode())


def send(message):
    with writing:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(request, result):
    send({"id": request["id"], "result": result})


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def run(request, arguments, meta):
    token, left = arguments.get("token", ""), arguments.get("ms", 0) / 1000
    stop = cancelled.setdefault(request["id"], threading.Event())
    note("ran", token)
    begun = time.monotonic()
    while (rest := left - (time.monotonic() - begun)) > 0:
        if stop.wait(min(rest, 0.2)):
            note("cancelled", token)
            return
        if "progressToken" in meta:
            done = {"progressToken": meta["progressToken"], "progress": time.monotonic() - begun}
            send({"method": "notifications/progress", "params": done})
    answer(request, text(token.ljust(arguments.get("size", 0), ".")))


def ask(request, arguments, number=itertools.count(1)):
    note("ran", arguments.get("token", "ask"))
    for _ in range(arguments.get("questions", 1)):
        own = f"question-{next(number)}"
        answers[own] = threading.Event()
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        params = {"message": "Your name?", "requestedSchema": schema}
        send({"id": own, "method": "elicitation/create", "params": params})
        answers[own].wait(20)
        said = getattr(answers[own], "said", {})
    answer(request, text(json.dumps(said)))


def visit(request, token):
    with open(sys.argv[1]) as lines:
        has_visited = f"visited {token}\n" in lines
    if has_visited:
        note("ran", token)
        return answer(request, text(token))
    note("visited", token)
    page = {"mode": "url", "message": "Open it.", "url": "https://example.com/", "elicitationId": token}
    error = {"code": -32042, "message": "open the page", "data": {"elicitations": [page]}}
    send({"id": request["id"], "error": error})


def state(task):
    times = {"createdAt": "2026-11-20T10:00:00Z", "lastUpdatedAt": "2026-11-20T10:00:00Z"}
    return {"taskId": task, "status": tasks[task], **times, "ttl": 3_600_000, "pollInterval": 100}


def about_task(message):
    task = message["params"]["taskId"]
    if task not in tasks:
        error = {"code": -32602, "message": "no such task"}
        return send({"id": message["id"], "error": error})
    if message["method"] == "tasks/cancel":
        note("cancelled", task)
        tasks[task] = "cancelled"
    answer(message, state(task))


def call(request):
    params = request["params"]
    arguments = params.get("arguments", {})
    match params["name"]:
        case "ask":
            ask(request, arguments)
        case "visit":
            visit(request, arguments["token"])
        case "build":
            task = f"task-of-{arguments['token']}"
            tasks[task] = "working"
            note("ran", arguments["token"])
            answer(request, {"task": state(task)})
        case _:
            run(request, arguments, params.get("_meta", {}))


def handle(message):
    method = message.get("method")
    if method == "initialize":
        info = {"name": "stub", "version": "1"}
        capabilities = {"tools": {}, "tasks": TASK_CAPABILITIES}
        result = {"protocolVersion": REVISION, "capabilities": capabilities, "serverInfo": info}
        answer(message, result)
    elif method == "tools/list":
        answer(message, {"tools": TOOLS})
    elif method == "tools/call":
        threading.Thread(target=call, args=[message], daemon=True).start()
    elif method == "notifications/cancelled":
        stop = cancelled.setdefault(message["params"]["requestId"], threading.Event())
        stop.set()
    elif method in ("tasks/get", "tasks/cancel"):
        about_task(message)
    elif method == "ping":
        answer(message, {})
    elif method is None and message.get("id") in answers:
        waiting = answers[message["id"]]
        waiting.said = message.get("result", {})
        waiting.set()
    elif "id" in message and method:
        error = {"code": -32601, "message": "unknown method"}
        send({"id": message["id"], "error": error})


for line in sys.stdin:
    handle(json.loads(line))
