"""A release of an MCP server over stdio, for tests of rollouts; the argument says what is wrong with it.

`good` and `good-2` are sound, and the second one has one more tool. The tools `time` and `sum` are
read-only; `write` adds its argument to the file IT_WRITES.
"""
import json, os, sys, threading, time

KIND = sys.argv[1]
if KIND == "start":
    sys.exit(3)
if KIND == "variable" and "RELEASE_KEY" not in os.environ:
    print("RELEASE_KEY is not set", file=sys.stderr)
    sys.exit(78)

number = {"type": "number"}
required = ["a", "b", "unit"] if KIND == "schema" else ["a", "b"]
reads = {"readOnlyHint": True}
TOOLS = [
    {"name": "time", "annotations": reads, "inputSchema": {"type": "object"}},
    {"name": "sum", "annotations": reads, "inputSchema": {
        "type": "object", "properties": {"a": number, "b": number}, "required": required}},
    {"name": "write", "inputSchema": {"type": "object", "properties": {"id": number}}},
]
if KIND == "missing":
    del TOOLS[1]
if KIND == "good-2":
    TOOLS.append({"name": "extra", "inputSchema": {"type": "object"}})

lock = threading.Lock()
calls = 0
leaked = []


def send(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def result_of(params):
    arguments = params.get("arguments", {})
    if params["name"] == "time":
        text = json.dumps({"now": time.time(), "pid": os.getpid()})
        return {"content": [{"type": "text", "text": text}]}
    if params["name"] == "write":
        with open(os.environ["IT_WRITES"], "a") as writes:
            writes.write("%d\n" % arguments["id"])
        return {"content": []}
    total = arguments["a"] + arguments["b"]
    structured = {"sum": "about %d" % total if KIND == "wrong" else total}
    return {"content": [], "structuredContent": structured}


def call_tool(call, params):
    global calls
    calls += 1
    if KIND == "crash" and calls % 10 == 0:
        os._exit(9)
    if KIND == "garbage":
        with lock:
            print("%PDF-1.4 not an answer", flush=True)
        return
    if KIND == "leak" and len(leaked) < 8:
        leaked.append(bytearray(b"x") * (40 << 20))
    answer = {"id": call, "result": result_of(params)}
    if KIND == "slow":
        threading.Timer(4, send, [answer]).start()
    else:
        send(answer)


for line in sys.stdin:
    message = json.loads(line)
    call, method = message.get("id"), message.get("method")
    if KIND == "silent" or call is None:
        continue
    if method == "initialize":
        send({"id": call, "result": {
            "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "release", "version": KIND}}})
    elif method == "tools/list":
        send({"id": call, "result": {"tools": TOOLS}})
    elif method == "tools/call":
        call_tool(call, message["params"])
    elif method == "ping":
        send({"id": call, "result": {}})
    else:
        send({"id": call, "error": {"code": -32601, "message": "no such method"}})
