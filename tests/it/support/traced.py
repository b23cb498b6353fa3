"""An MCP server over stdio that writes the method and the parameters of every message, a JSON line
each, into the file IT_TRACE. It declares all that a server of 2025-11-25 can have, and an extension.
"""
import json, os, sys

TOOLS = [{"name": name, "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}}
         for name in ("good", "danger")]
CAPABILITIES = {"tools": {}, "prompts": {}, "completions": {}, "logging": {},
                "resources": {"subscribe": True}, "experimental": {"acme": {}}}
TEXT = {"type": "text", "text": "done"}


def answer(method, params):
    return {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES,
                       "serverInfo": {"name": "traced", "version": "1"}},
        "tools/list": {"tools": TOOLS},
        "tools/call": {"content": [TEXT]},
        "prompts/list": {"prompts": [{"name": "shown"}, {"name": "hidden"}]},
        "prompts/get": {"messages": [{"role": "user", "content": TEXT}]},
        "resources/list": {"resources": [{"uri": "file:///notes.md", "name": "notes"}]},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "file:///{+path}", "name": "all"}]},
        "resources/read": {"contents": [{"uri": params.get("uri", ""), "text": "read"}]},
        "completion/complete": {"completion": {"values": ["one"]}},
    }.get(method, {})


for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message:
        continue
    with open(os.environ["IT_TRACE"], "a") as trace:
        trace.write(json.dumps([message["method"], message.get("params", {})]) + "\n")
    if "id" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
