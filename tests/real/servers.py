"""Public servers behind one gateway, and one client in front of all of them."""

import functools
import http.server
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading

from support import Failed, Gateway, HERE, LineClient, Table, children, free_port, until

STEPS = ["start", "list", "call", "progress", "cancel", "question", "kill", "restart"]

SIMPLE = {"progress": "it reports none", "cancel": "it has no slow tool", "question": "it asks nothing"}


class Server:
    """A server, and what is expected of it."""

    def __init__(self, name, call, progress=None, question=None, command=None, start=None, path="/mcp", write=()):
        self.name, self.path = name, path
        # What the sandbox lets it write besides its own places.
        self.write = list(write)
        # Each is a tool, its arguments, and a text of its answer.
        self.call, self.progress, self.question = call, progress, question
        # Behind stdio: the command. Otherwise: gives the command for a port.
        self.command, self.start_command = command, start
        self.process = None

    def start(self):
        if self.start_command is None:
            return
        self.port = getattr(self, "port", None) or free_port()
        command, variables = self.start_command(self.port)
        silent = subprocess.DEVNULL
        self.process = subprocess.Popen(
            command, stdout=silent, stderr=silent, env={**os.environ, **variables}
        )
        listening = lambda: socket.create_connection(("127.0.0.1", self.port)).close() is None
        until(f"{self.name} listens", listening)

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def config(self):
        if self.command:
            program, *arguments = self.command
            sandbox = f"sandbox = {{ write = {json.dumps(self.write)} }}\n" if self.write else ""
            return (
                f"[servers.{self.name}]\ncommand = {json.dumps(program)}\nargs = {json.dumps(arguments)}\n{sandbox}"
            )
        return f'[servers.{self.name}]\nurl = "http://127.0.0.1:{self.port}{self.path}"\n'


def everything(name, **where):
    return Server(
        name,
        ("echo", {"message": "hi"}, "Echo: hi"),
        progress=lambda seconds: (
            "trigger-long-running-operation",
            {"duration": seconds, "steps": 10 * seconds},
            "completed",
        ),
        question=("trigger-elicitation-request", {}, "eva"),
        **where,
    )


def fastmcp(name, **where):
    return Server(
        name,
        ("add", {"a": 2, "b": 40}, "42"),
        progress=lambda seconds: ("count", {"steps": 10 * seconds, "seconds": seconds}, f"counted to {10 * seconds}"),
        question=("ask", {}, "the answer is eva"),
        **where,
    )


def servers(place, directory, page):
    """The servers, with files of their own in the directory."""
    files, repository = directory / "files", directory / "repository"
    files.mkdir()
    (files / "hello.txt").write_text("hello")
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    everything_js = place.npm("mcp-server-everything")
    tiny = str(HERE / "fastmcp_server.py")
    return [
        Server(
            "filesystem",
            ("read_text_file", {"path": str(files / "hello.txt")}, "hello"),
            command=[*place.npm("mcp-server-filesystem"), str(files)],
        ),
        Server("memory", ("read_graph", {}, "entities"), command=place.npm("mcp-server-memory")),
        Server(
            "sequential-thinking",
            (
                "sequentialthinking",
                {"thought": "why", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
                "thoughtNumber",
            ),
            command=place.npm("mcp-server-sequential-thinking"),
        ),
        everything("every-stdio", command=everything_js),
        everything(
            "every-http",
            start=lambda port: ([*everything_js, "streamableHttp"], {"PORT": str(port)}),
        ),
        everything(
            "every-sse",
            start=lambda port: ([*everything_js, "sse"], {"PORT": str(port)}),
            path="/sse",
        ),
        Server(
            "git",
            ("git_status", {"repo_path": str(repository)}, "No commits yet"),
            # A server sees of `/tmp` what its arguments name.
            command=[*place.installed("servers", "mcp-server-git"), "--repository", str(repository)],
        ),
        Server(
            "time",
            ("get_current_time", {"timezone": "UTC"}, "UTC"),
            command=place.installed("servers", "mcp-server-time"),
        ),
        Server(
            "sqlite",
            ("list_tables", {}, "[]"),
            # It was written for version 1 of the SDK, and does not run on version 2.
            command=[*place.installed("sdk-1", "mcp-server-sqlite"), "--db-path", str(directory / "db")],
        ),
        Server(
            "fetch",
            ("fetch", {"url": page}, "a page"),
            command=[*place.installed("servers", "mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips"],
            # Where there is a Node, it installs a package of npm among its own files at its first call.
            write=[str(place.root / "servers")],
        ),
        fastmcp("fastmcp-2-stdio", command=place.python("sdk-1", tiny, "stdio")),
        fastmcp("fastmcp-2-http", start=lambda port: (place.python("sdk-1", tiny, "http", str(port)), {})),
        fastmcp("fastmcp-4-stdio", command=place.python("sdk-2", tiny, "stdio")),
        fastmcp("fastmcp-4-http", start=lambda port: (place.python("sdk-2", tiny, "http", str(port)), {})),
        Server("playwright", None, command=[*place.npm("playwright-mcp"), "--headless"]),
        Server("kubernetes", None, command=place.binary("kubernetes-mcp-server-linux-amd64")),
    ]


def left_out():
    """Steps that a server has no use for, with the reason."""
    simple = ["filesystem", "memory", "sequential-thinking", "git", "time", "sqlite", "fetch", "playwright"]
    reasons = {(name, step): reason for name in simple for step, reason in SIMPLE.items()}
    for step in ["call", "kill", "restart"]:
        reasons["playwright", step] = "its tools need a browser"
    for step in STEPS[1:]:  # All but `start`.
        reasons["kubernetes", step] = "it does not start without a cluster"
    return reasons


def expect(reply, text):
    if reply["isError"] or text not in reply["text"]:
        raise Failed(f"answered {reply['text'][:300]!r}, expected {text!r}")
    return reply


def call(client, server, which):
    tool, arguments, text = which
    return expect(client.ask("call", f"{server.name}__{tool}", arguments), text)


def lists(gateway, client, server):
    names = client.ask("list")["tools"]
    wanted = server.call[0] if server.call else "browser_navigate"
    if f"{server.name}__{wanted}" not in names:
        raise Failed(f"no {wanted} among {len(names)} tools; it is {gateway.server(server.name)['state']}")


def fails_to_start(gateway, server):
    """It is shown with its own reason."""

    def told():
        shown = gateway.server(server.name)["connection"]["shared"]["last_exit"]
        if "kubeconfig" not in shown:
            raise Failed(shown)
        return True

    until("the status tells why it does not start", told, 10)


def progress(client, server):
    tool, arguments, text = server.progress(1)
    reply = expect(client.ask("progress", f"{server.name}__{tool}", arguments), text)
    if reply["reports"] == 0:
        raise Failed("no report of progress came")


def cancel(gateway, client, name, tool, arguments):
    reply = client.ask("cancel", f"{name}__{tool}", arguments)
    if not reply["cancelled"]:
        raise Failed("it ended before it was cancelled")
    idle = lambda: gateway.server(name)["connection"]["in_flight"] == 0
    until("the cancelled call is gone from the gateway", idle, 10)


def question(client, server):
    """Tools that ask are listed only for clients that can be asked, and not at once."""

    def answered():
        return call(client, server, server.question)

    until("the question is answered", answered, 10)


def kill(gateway, client, server):
    """Processes of the server die; the session goes on with new ones."""
    if server.command:
        dead = children(gateway.process.pid, " ".join(server.command))
        if not dead:
            raise Failed("it has no process")
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
    else:
        server.stop()
        server.start()
    until("it is called again", lambda: call(client, server, server.call))


def test(place, directory):
    """Runs all steps with all servers; the table of outcomes."""
    table = Table(STEPS, {}, left_out())
    with page_server(directory) as page:
        behind = servers(place, directory, page)
        gateway = client = None
        try:
            for server in behind:
                server.start()
            gateway = Gateway(place, "".join(server.config() for server in behind))
            for server in behind:
                if server.name == "kubernetes":
                    table.run(server.name, "start", lambda: fails_to_start(gateway, server))
                else:
                    table.run(server.name, "start", lambda: gateway.all_up([server.name]))
            client = LineClient([*place.script("ts1.mjs"), gateway.url])
            steps(table, gateway, client, behind)
        finally:
            end(behind, client, gateway)
    return table


def end(behind, *started):
    """Closes the clients and the gateway, as far as they were started, and stops the servers."""
    for one in started:
        if one:
            one.close()
    for server in behind:
        server.stop()


def steps(table, gateway, client, behind):
    for server in behind:
        run = functools.partial(table.run, server.name)
        run("list", lambda: lists(gateway, client, server))
        run("call", lambda: call(client, server, server.call))
        run("progress", lambda: progress(client, server))
        run("cancel", lambda: cancel(gateway, client, server.name, *server.progress(60)[:2]))
        run("question", lambda: question(client, server))
        run("kill", lambda: kill(gateway, client, server))
    gateway.kill()
    gateway.start()
    for server in behind:
        again = lambda: until("it is called again", lambda: call(client, server, server.call))
        table.run(server.name, "restart", again)


class page_server:
    """One page over HTTP, to fetch."""

    def __init__(self, directory):
        root = pathlib.Path(directory) / "pages"
        root.mkdir()
        (root / "page.html").write_text("<html><body><p>a page</p></body></html>")
        handler = functools.partial(Quiet, directory=str(root))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}/page.html"

    def __exit__(self, *_):
        self.server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
