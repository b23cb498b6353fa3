"""An MCP server that is told to misbehave by signals, over either transport.

    peer.py NAME DIRECTORY         over stdio
    peer.py NAME DIRECTORY PORT    over Streamable HTTP

SIGUSR1 floods stdout, SIGUSR2 writes garbage there; over HTTP the next answers are like that. While
DIRECTORY/NAME.exits exists it ends at once. DIRECTORY/NAME.ran gets a line for each call that runs.
A call of `slow` takes half a second, and tells its progress before over stdio; one of `asks` asks its
client first over stdio, if that may be asked; one of `echo` takes no time. While DIRECTORY/NAME.busy
exists, a server over HTTP refuses all but two calls of a second with 429. All answer with their
arguments and the server's name, `asks` also with what the client answered.
"""
import json, os, resource, signal, sys, threading, time

NAME, DIRECTORY = sys.argv[1:3]
if os.path.exists(os.path.join(DIRECTORY, NAME + ".exits")):
    sys.exit(7)

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
SESSION = NAME + "-" + str(os.getpid())
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "slow", "asks")]
RAN = os.open(os.path.join(DIRECTORY, NAME + ".ran"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


# Whether the client may be asked, and its answers by the id of the question.
declared = {}
answers = {}


def result(message, asked=None, begun=None):
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        declared.update(params["capabilities"])
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": NAME, "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        arguments = params["arguments"]
        os.write(RAN, (arguments["call"] + "\n").encode())
        if begun:
            begun()
        if params["name"] == "slow":
            time.sleep(0.5)
        text = {"server": NAME, "call": arguments["call"]}
        if asked is not None:
            text["answer"] = asked
        text = json.dumps(text)
        return {"content": [{"type": "text", "text": text}]}
    return {}


def answer(message, asked=None, begun=None):
    told = {"jsonrpc": "2.0", "id": message["id"], "result": result(message, asked, begun)}
    return json.dumps(told).encode()


def is_call(message, tool):
    return message["method"] == "tools/call" and message["params"]["name"] == tool


def progress(message):
    token = message["params"].get("_meta", {}).get("progressToken")
    if token is None:
        return b""
    params = {"progressToken": token, "progress": 1}
    told = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    return json.dumps(told).encode() + b"\n"


def slow(message):
    write(answer(message, begun=lambda: write(progress(message))) + b"\n")


def asks(message):
    """Asks for the name of the call; says what came, or `nothing`."""
    call = message["params"]["arguments"]["call"]
    came = threading.Event()
    answers[call] = came
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    params = {"message": call, "requestedSchema": schema}
    write(json.dumps({"jsonrpc": "2.0", "id": call, "method": "elicitation/create",
                      "params": params}).encode() + b"\n")
    came.wait(2)
    said = answers.pop(call)
    said = {} if said is came else said.get("result", {})
    write(answer(message, said.get("content", {}).get("name", "nothing")) + b"\n")


lock = threading.Lock()


def write(data):
    with lock:
        while data:
            data = data[os.write(1, data):]


def flood():
    line = b"this is no message " * 50 + b"\n"
    write(line * 20000 + b"x" * (3 << 20) + b"\n")


def garbage():
    write(b"\xff\xfe\x00{\n[]\n{}\n\n\"text\"\n{\"jsonrpc\":\"2.0\"\n"
          b"{\"jsonrpc\":\"2.0\",\"id\":\"nobody\",\"result\":{}}\n"
          b"{\"jsonrpc\":\"2.0\",\"id\":99999999999,\"result\":{}}\n"
          b"{\"jsonrpc\":\"2.0\",\"id\":-1,\"error\":7}\n"
          b"{\"jsonrpc\":\"2.0\",\"method\":\"no/such\"}\n"
          b"{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"no/such\"}\n" + os.urandom(999) + b"\n")


def in_thread(work):
    return lambda *_: threading.Thread(target=work, daemon=True).start()


def stdio():
    signal.signal(signal.SIGUSR1, in_thread(flood))
    signal.signal(signal.SIGUSR2, in_thread(garbage))
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "method" not in message and message.get("id") in answers:
            came = answers[message["id"]]
            answers[message["id"]] = message
            came.set()
        if "method" not in message or "id" not in message:
            continue
        if is_call(message, "slow"):
            in_thread(lambda message=message: slow(message))()
        elif is_call(message, "asks") and "elicitation" in declared:
            in_thread(lambda message=message: asks(message))()
        else:
            write(answer(message) + b"\n")


def http(port):
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, status, body=b""):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Mcp-Session-Id", SESSION)
            if status == 429:
                self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.reply(405)

        def do_DELETE(self):
            self.reply(200)

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            message = json.loads(body)
            known = self.headers.get("Mcp-Session-Id") == SESSION
            if not known and message.get("method") != "initialize":
                self.reply(404)
            elif "id" not in message:
                self.reply(202)
            elif message["method"] == "tools/call" and is_busy():
                self.reply(429)
            else:
                self.reply(200, odd.pop() if odd else answer(message))

        # One segment for each answer, without waiting for more.
        wbufsize = -1
        disable_nagle_algorithm = True

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

        def handle_error(self, *_):
            """The gateway was killed."""

    taken = {}

    def is_busy():
        if not os.path.exists(os.path.join(DIRECTORY, NAME + ".busy")):
            return False
        second = int(time.monotonic())
        taken[second] = taken.get(second, 0) + 1
        return taken[second] > 2

    odd = []
    signal.signal(signal.SIGUSR1, lambda *_: odd.extend([b"x" * (3 << 20)] * 3))
    signal.signal(signal.SIGUSR2, lambda *_: odd.extend([b"{\"jsonrpc\":", b"\xff\n"] * 3))
    Server(("127.0.0.1", port), Handler).serve_forever()


if len(sys.argv) > 3:
    http(int(sys.argv[3]))
else:
    stdio()
