"""An MCP server over stdio for tests: asks its client, hangs, dies, and answers what is odd.

The environment says how it behaves: IT_SERVER is its name; with IT_NEEDS it ends at once unless
that file exists; with IT_SILENT it answers nothing at all. It adds a line to the file IT_STARTS,
ends as soon as it is sent the method IT_FATAL, with the text of the file IT_LAST_WORDS on stderr, and ignores the method IT_MUTE. With IT_SIGN_IN, a
URL, it asks for a sign-in and answers nothing until the file IT_SIGNED_IN exists. To clients that
declare sampling it lists the tool IT_FOR_SAMPLING, too. IT_SKILLS are the folders of its skills, one on
each page; it has one more that it does not list, `unlisted`. IT_FOR_APPS is a tool for user interfaces only.
"""
import hashlib, json, os, subprocess, sys, time

NAME = os.environ.get("IT_SERVER", "?")
needs = os.environ.get("IT_NEEDS")
if needs and not os.path.exists(needs):
    print("it is not there:", needs, file=sys.stderr)
    sys.exit(3)

if "IT_STARTS" in os.environ:
    with open(os.environ["IT_STARTS"], "a") as starts:
        starts.write("start\n")
if "IT_SIGN_IN" in os.environ:
    print("Please authorize this client by visiting:", file=sys.stderr)
    print(os.environ["IT_SIGN_IN"], file=sys.stderr, flush=True)
    while not os.path.exists(os.environ["IT_SIGNED_IN"]):
        time.sleep(0.05)

waiting = {}
heard = []
asked = 0
client = {}


def tool(name):
    return {"name": name, "inputSchema": {"type": "object"}}


NAMES = ["echo", "pid", "declared", "sample", "roots", "ping", "hang", "spawn", "link", "long",
         "odd", "list", "burst"]
tools = [tool(name) for name in NAMES]
GROUPS = {"io.modelcontextprotocol/groups": ["time", NAME]}
if "IT_FOR_APPS" in os.environ:
    meta = {"ui": {"resourceUri": "ui://clock", "visibility": ["app"]}}
    tools.append({**tool(os.environ["IT_FOR_APPS"]), "_meta": {**meta, **GROUPS}})


def send(message):
    message["jsonrpc"] = "2.0"
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


SKILLS = os.environ.get("IT_SKILLS", "").split()
FILES = ["SKILL.md", "forms/a.md"]


def content_of(uri):
    return NAME + " reads " + uri


def skill(folder):
    def file(name):
        uri = "skill://" + folder + "/" + name
        content = content_of(uri).encode()
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        return {"uri": uri, "digest": digest, "size": len(content)}
    matter = {"name": folder.split("/")[-1], "description": "Of " + NAME, "license": "MIT"}
    return {"uri": "skill://" + folder + "/SKILL.md", "frontmatter": matter,
            "resources": [file(name) for name in FILES]}


def answer_of_skills(call, method, params):
    uri = params.get("uri", "")
    folder, _, rest = uri.removeprefix("skill://").removesuffix("/SKILL.md").partition("/forms")
    if method == "skills/list":
        page = int(params.get("cursor", 0))
        result = {"skills": [skill(SKILLS[page])], "ttlMs": 300000, "cacheScope": "public"}
        if page + 1 < len(SKILLS):
            result["nextCursor"] = str(page + 1)
    elif folder not in SKILLS + ["unlisted"] or rest:
        return send({"id": call, "error": {"code": -32602, "message": "no " + uri}})
    elif method == "skills/get":
        result = {"skill": skill(folder), "ttlMs": 300000, "cacheScope": "public"}
    elif uri.endswith("/forms"):
        result = {"resources": [{"uri": uri + "/a.md", "name": "a.md"}]}
    else:
        result = {"resources": [{"uri": uri + "/SKILL.md", "name": "SKILL.md"}, {
            "uri": uri + "/forms", "name": "forms", "mimeType": "inode/directory"}]}
    send({"id": call, "result": result})


def text(call, value):
    send({"id": call, "result": {"content": [{"type": "text", "text": value}]}})


def ask(call, method, params):
    global asked
    asked += 1
    waiting[asked] = call
    send({"id": asked, "method": method, "params": params})


def odd(call):
    """Everything that a server should not say, then the answer, twice."""
    ask(call, "no/such/method", {})
    del waiting[asked]
    send({"id": 987654321, "result": {}})
    send({"id": "never asked", "result": {}})
    send({"id": None, "error": {"code": -32700, "message": "what?"}})
    send({"method": "notifications/progress", "params": {"progressToken": "no", "progress": 1}})
    send({"method": "notifications/cancelled", "params": {"requestId": 5}})
    send({"method": "notifications/no/such", "params": {}})
    send({"method": "notifications/message", "params": {"level": "loud", "data": 1}})
    send({"id": call, "method": "ping"})
    print("[]", flush=True)
    print("{\"jsonrpc\": \"2.0\"", flush=True)
    text(call, "odd")
    text(call, "odd again")


def call_tool(call, params):
    name, arguments = params["name"], params.get("arguments", {})
    if name == "echo":
        text(call, NAME + " " + json.dumps(arguments))
    elif name == "heard":
        text(call, json.dumps(heard))
    elif name == "pid":
        text(call, str(os.getpid()))
    elif name == "declared":
        text(call, json.dumps(client.get("capabilities")))
    elif name == "sample":
        content = {"role": "user", "content": {"type": "text", "text": arguments.get("text", "")}}
        ask(call, "sampling/createMessage", {"messages": [content], "maxTokens": 5})
    elif name == "roots":
        ask(call, "roots/list", {})
    elif name == "ping":
        ask(call, "ping", {})
    elif name == "hang":
        pass
    elif name == "spawn":
        child = subprocess.Popen(["sleep", "600"])
        text(call, str(child.pid))
    elif name == "link":
        link = {"type": "resource_link", "uri": "it://shared", "name": "shared"}
        whole = {"type": "resource", "resource": {"uri": "it://shared", "text": NAME}}
        send({"id": call, "result": {"content": [link, whole]}})
    elif name == "odd":
        odd(call)
    elif name == "list":
        tools[:] = arguments["tools"]
        send({"method": "notifications/tools/list_changed"})
        text(call, "listed")
    elif name == "burst":
        token = params.get("_meta", {}).get("progressToken")
        for step in range(arguments["steps"]):
            progress = {"progressToken": token, "progress": step + 1}
            send({"method": "notifications/progress", "params": progress})
        text(call, "burst")
    elif name == "long":
        text(call, "x" * arguments["bytes"])
    elif name == os.environ.get("IT_FOR_SAMPLING"):
        text(call, name)
    elif name == os.environ.get("IT_FOR_APPS"):
        content = [{"type": "text", "text": name}]
        send({"id": call, "result": {"content": content, "_meta": GROUPS}})


def answer(message):
    call, method, params = message["id"], message["method"], message.get("params", {})
    if method == "initialize":
        client.update(params)
        more = os.environ.get("IT_FOR_SAMPLING")
        if more and "sampling" in params["capabilities"]:
            tools.append(tool(more))
        capabilities = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}}
        if SKILLS:
            capabilities["extensions"] = {"io.modelcontextprotocol/skills": {"directoryRead": True}}
        send({"id": call, "result": {
            "protocolVersion": os.environ.get("IT_REVISION", params["protocolVersion"]),
            "capabilities": capabilities, "serverInfo": {"name": NAME, "version": "1"},
            "instructions": "This is " + NAME + "."}})
    elif method == "ping":
        send({"id": call, "result": {}})
    elif method == "tools/list":
        send({"id": call, "result": {"tools": tools}})
    elif method == "tools/call":
        call_tool(call, params)
    elif method == "prompts/list":
        send({"id": call, "result": {"prompts": [{"name": "say"}]}})
    elif method == "prompts/get" and "text" in params.get("arguments", {}):
        said = params["arguments"]["text"]
        print(said, file=sys.stderr, flush=True)
        send({"method": "notifications/message", "params": {"level": "error", "data": said}})
        send({"id": call, "error": {"code": -32000, "message": said}})
    elif method == "prompts/get":
        content = {"type": "resource_link", "uri": "it://shared", "name": "shared"}
        send({"id": call, "result": {"messages": [{"role": "user", "content": content}]}})
    elif method == "resources/list":
        own = {"uri": "it://" + NAME, "name": "own"}
        send({"id": call, "result": {"resources": [{"uri": "it://shared", "name": "shared"}, own]}})
    elif method == "resources/templates/list":
        template = {"uriTemplate": "it://shared/{part}", "name": "part"}
        send({"id": call, "result": {"resourceTemplates": [template]}})
    elif method == "resources/read":
        content = {"uri": params["uri"], "text": content_of(params["uri"])}
        send({"id": call, "result": {"contents": [content]}})
    elif method == "resources/subscribe":
        send({"id": call, "result": {}})
        send({"method": "notifications/resources/updated", "params": {"uri": params["uri"]}})
    elif method == "resources/unsubscribe":
        send({"id": call, "result": {}})
    elif SKILLS and method in ["skills/list", "skills/get", "resources/directory/read"]:
        answer_of_skills(call, method, params)
    else:
        send({"id": call, "error": {"code": -32601, "message": "no " + method}})


for line in sys.stdin:
    message = json.loads(line)
    if os.environ.get("IT_SILENT"):
        continue
    if message.get("method") == os.environ.get("IT_FATAL", ""):
        if "IT_LAST_WORDS" in os.environ:
            with open(os.environ["IT_LAST_WORDS"]) as words:
                print(words.read(), file=sys.stderr)
        sys.exit(4)
    if message.get("method") == os.environ.get("IT_MUTE", ""):
        continue
    if "method" in message and "id" in message:
        answer(message)
    elif "method" in message:
        heard.append(message["method"])
    elif message.get("id") in waiting:
        result = message.get("result", {"error": message.get("error")})
        text(waiting.pop(message["id"]), json.dumps(result))
