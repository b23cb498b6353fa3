"""A server that lists what the JSON file of its argument says, read again at each start."""
import json, sys

with open(sys.argv[1]) as file:
    says = json.load(file)
CAPABILITY = {"prompts": "prompts", "resourceTemplates": "resources", "resources": "resources", "tools": "tools"}
METHODS = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources",
           "resources/templates/list": "resourceTemplates"}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "says", "version": "1"},
                  "capabilities": {name: {} for name in CAPABILITY.values()}}
        if "instructions" in says:
            result["instructions"] = says["instructions"]
        result["_meta"] = {"com.example/built": "today"}
    elif method in METHODS:
        result = {METHODS[method]: says.get(METHODS[method], [])}
    elif method == "prompts/get":
        result = {"messages": [{"role": "user", "content": {"type": "text", "text": "got"}}]}
    elif method == "resources/read":
        result = {"contents": [{"uri": params["uri"], "text": "read"}]}
    else:
        result = {"content": [{"type": "text", "text": "called"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
