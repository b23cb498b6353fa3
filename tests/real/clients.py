"""Public clients, each in front of a gateway of its own with server-everything behind it."""

import json
import os
import pathlib
import signal
import subprocess

from servers import cancel, everything, expect
from support import Failed, Gateway, HERE, LineClient, PATIENCE, Table, children, until

STEPS = ["list", "audience", "call", "progress", "cancel", "question", "kill", "restart"]

# Failures that are expected until the gateway is better.
NOT_ITS_OWN = "a question that the server asks outside of calls ends the call of a client that cannot answer"
KNOWN = {
    ("python-2", "progress"): NOT_ITS_OWN,
    ("fastmcp-4", "progress"): NOT_ITS_OWN,
}

ONE_SHOT = {
    "audience": "it declares no elicitation",
    "progress": "it shows none",
    "cancel": "it has no way to cancel",
    "question": "it has nobody to ask",
}
LEFT_OUT = {(name, step): reason for name in ["inspector", "mcporter"] for step, reason in ONE_SHOT.items()}

LEFT_OUT["python-1", "cancel"] = "it tells nobody that a call was given up"


class Inspector:
    """The Inspector's command line: a process for each action."""

    def __init__(self, place, gateway):
        self.program = [*place.npm("mcp-inspector"), "--cli", gateway.url, "--transport", "http"]
        self.home = str(gateway.directory)

    def ask(self, action, name=None, arguments=None):
        if action == "list":
            told = run_json([*self.program, "--method", "tools/list"], self.home)
            return {"tools": [tool["name"] for tool in told["tools"]]}
        pairs = [f"{key}={value}" for key, value in arguments.items()]
        given = ["--tool-arg", *pairs] if pairs else []
        call = ["--method", "tools/call", "--tool-name", name, *given]
        return result(run_json([*self.program, *call], self.home))

    def close(self):
        pass


class Mcporter:
    """mcporter's command line: a process for each action."""

    def __init__(self, place, gateway):
        self.program = place.npm("mcporter")
        self.home = str(gateway.directory)
        config = pathlib.Path(self.home) / "config" / "mcporter.json"
        config.parent.mkdir()
        config.write_text(json.dumps({"mcpServers": {"gateway": {"url": gateway.url}}}))

    def ask(self, action, name=None, arguments=None):
        if action == "list":
            told = run_json([*self.program, "list", "gateway", "--schema", "--json"], self.home)
            return {"tools": [tool["name"] for tool in told["tools"]]}
        call = ["call", f"gateway.{name}", "--args", json.dumps(arguments), "--output", "raw"]
        told = run(self.program + call, self.home)
        return {"text": told, "isError": False}

    def close(self):
        pass


def run(command, home):
    environment = {**os.environ, "HOME": home}
    done = subprocess.run(
        command, cwd=home, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    if done.returncode != 0:
        raise Failed(f"exit {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def run_json(command, home):
    told = run(command, home)
    try:
        return json.loads(told)
    except ValueError:
        raise Failed(f"no JSON: {told[:300]!r}") from None


def result(told):
    text = "\n".join(part.get("text", "") for part in told["content"])
    return {"text": text, "isError": bool(told.get("isError"))}


def clients(place):
    """Names, and how each is started in front of a gateway."""

    def python(environment, name):
        command = place.python(environment, str(HERE / "clients" / name))
        return lambda gateway: LineClient([*command, gateway.url])

    def script(name):
        return lambda gateway: LineClient([*place.script(name), gateway.url])

    def through_mcp_remote(gateway):
        remote = [*place.npm("mcp-remote"), gateway.url]
        home = {"HOME": str(gateway.directory)}
        return LineClient([*place.script("ts1.mjs"), "--", *remote], home)

    return {
        "typescript-1": script("ts1.mjs"),
        "typescript-2": script("ts2.mjs"),
        "python-1": python("sdk-1", "python1.py"),
        "python-2": python("sdk-2", "python2.py"),
        "fastmcp-4": python("sdk-2", "fastmcp_client.py"),
        "langchain": python("sdk-1", "langchain_client.py"),
        "mcp-remote": through_mcp_remote,
        "inspector": lambda gateway: Inspector(place, gateway),
        "mcporter": lambda gateway: Mcporter(place, gateway),
    }


def test(place):
    """Runs all steps with all clients; the table of outcomes."""
    table = Table(STEPS, KNOWN, LEFT_OUT, racy=[NOT_ITS_OWN])
    for name, start in clients(place).items():
        server = everything("everything", command=place.npm("mcp-server-everything"))
        gateway = Gateway(place, server.config())
        client = None
        try:
            gateway.all_up(["everything"])
            client = start(gateway)
            steps(table, name, gateway, client, server)
        except Failed as error:
            table.run(name, "list", lambda: fail(error))
        finally:
            if client:
                client.close()
            gateway.close()
    return table


def fail(error):
    raise error


def steps(table, name, gateway, client, server):
    echo, arguments, text = server.call
    operation = "everything__trigger-long-running-operation"

    def called():
        return expect(client.ask("call", f"everything__{echo}", arguments), text)

    def listed(tool):
        names = client.ask("list")["tools"]
        if f"everything__{tool}" not in names:
            raise Failed(f"no {tool} among {len(names)} tools")

    def progress():
        reply = client.ask("progress", operation, {"duration": 1, "steps": 5})
        if expect(reply, "completed")["reports"] == 0:
            raise Failed("no report of progress came")

    def question():
        asking = lambda: client.ask("call", "everything__trigger-elicitation-request")
        until("the question is answered", lambda: expect(asking(), "eva"), 10)

    def kill():
        dead = children(gateway.process.pid, " ".join(server.command))
        if not dead:
            raise Failed("the server has no process")
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
        until("it is called again", called)

    def restart():
        gateway.kill()
        gateway.start()
        until("it is called again", called)

    table.run(name, "list", lambda: listed(echo))
    table.run(name, "audience", lambda: listed("trigger-elicitation-request"))
    table.run(name, "call", called)
    table.run(name, "progress", progress)
    long = {"duration": 60, "steps": 600}
    slow = "trigger-long-running-operation"
    table.run(name, "cancel", lambda: cancel(gateway, client, "everything", slow, long))
    table.run(name, "question", question)
    table.run(name, "kill", kill)
    table.run(name, "restart", restart)
