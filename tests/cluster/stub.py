"""An MCP server on stdin and stdout that writes down what it runs: one line per event in a file.

    stub.py FILE

Its tool `run` takes `token`, and `ms` for which it runs; `ask` asks the client's user a question.
"""

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
]


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
    answer(request, text(token))


def ask(request, number=[0]):
    number[0] += 1
    own = f"question-{number[0]}"
    answers[own] = threading.Event()
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    params = {"message": "Your name?", "requestedSchema": schema}
    send({"id": own, "method": "elicitation/create", "params": params})
    answers[own].wait(20)
    said = getattr(answers[own], "said", {})
    answer(request, text(json.dumps(said)))


def call(request):
    params = request["params"]
    if params["name"] == "ask":
        ask(request)
    else:
        run(request, params.get("arguments", {}), params.get("_meta", {}))


def handle(message):
    method = message.get("method")
    if method == "initialize":
        info = {"name": "stub", "version": "1"}
        capabilities = {"tools": {}}
        result = {"protocolVersion": REVISION, "capabilities": capabilities, "serverInfo": info}
        answer(message, result)
    elif method == "tools/list":
        answer(message, {"tools": TOOLS})
    elif method == "tools/call":
        threading.Thread(target=call, args=[message], daemon=True).start()
    elif method == "notifications/cancelled":
        stop = cancelled.setdefault(message["params"]["requestId"], threading.Event())
        stop.set()
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
