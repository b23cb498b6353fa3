"""An MCP server of 2026-07-28 on stdin and stdout that forgets its tasks when its process ends.

    modern.py FILE

Its tool `keep` starts a task, which works until it is cancelled; FILE gets a line for each.
"""

import json
import os
import sys
import uuid

journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
tasks = {}
EXTENSION = "io.modelcontextprotocol/tasks"
FRESH = {"ttlMs": 3_600_000, "cacheScope": "private", "resultType": "complete"}


class Refusal(Exception):
    """The server does not do what a request asks for."""


def state(task):
    times = {"createdAt": "2026-11-20T10:00:00Z", "lastUpdatedAt": "2026-11-20T10:00:00Z"}
    limits = {"ttlMs": 3_600_000, "pollIntervalMs": 100}
    return {"taskId": task, "status": tasks[task], **times, **limits}


def result(method, params):
    if method == "server/discover":
        capabilities = {"tools": {}, "extensions": {EXTENSION: {}}}
        info = {"name": "modern", "version": "1"}
        return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "serverInfo": info, **FRESH}
    if method == "tools/list":
        return {"tools": [{"name": "keep", "inputSchema": {"type": "object"}}], **FRESH}
    if method == "tools/call":
        task = uuid.uuid4().hex
        tasks[task] = "working"
        os.write(journal, f"kept {params['arguments']['token']}\n".encode())
        return {"resultType": "task", **state(task)}
    task = params.get("taskId")
    if method.startswith("tasks/") and task not in tasks:
        raise Refusal(-32602, "no such task")
    if method == "tasks/get":
        return {"resultType": "complete", **state(task)}
    if method == "tasks/cancel":
        tasks[task] = "cancelled"
        return {"resultType": "complete"}
    raise Refusal(-32601, "unknown method")


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    try:
        answer = {"result": result(message["method"], message.get("params", {}))}
    except Refusal as refusal:
        code, why = refusal.args
        answer = {"error": {"code": code, "message": why}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
