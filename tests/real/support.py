"""Shared by the tests: the gateway, clients that are driven line by line, and waiting."""

import json
import os
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).parent.absolute()
# Where `.ci/run` installs Node.
TARGET = str(HERE.parent.parent / "target")
# Longest wait for one thing, in seconds.
PATIENCE = 60.0


class Failed(Exception):
    """A step went wrong; says how."""


def until(what, condition, patience=PATIENCE):
    """Waits until `condition` gives something, and gives it back."""
    deadline = time.monotonic() + patience
    last = None
    while time.monotonic() < deadline:
        try:
            if found := condition():
                return found
        except (OSError, ValueError, KeyError, Failed) as error:
            last = error
        time.sleep(0.05)
    raise Failed(f"waited {patience:.0f} s without result until {what}" + (f": {last}" if last else ""))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def children(parent, words=""):
    """Ids of the processes that `parent` started and whose command line has the words."""
    found = []
    for directory in pathlib.Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            after_name = (directory / "stat").read_text().rpartition(")")[2].split()
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        state, ppid = after_name[0], int(after_name[1])
        if ppid == parent and state not in "ZX" and words in command:
            found.append(int(directory.name))
    return found


class Place:
    """Where everything is installed."""

    def __init__(self, target):
        self.root = pathlib.Path(target).absolute() / "real"
        self.mcpvisor = str(self.root.parent / "debug" / "mcpvisor")
        self.node = str(self.root / "node" / "node_modules" / "node" / "bin" / "node")

    def npm(self, program):
        """The command that runs a program of an npm package."""
        path = self.root / "npm" / "node_modules" / ".bin" / program
        return [self.node, str(path.resolve())]

    def binary(self, package):
        """The program of an npm package that holds nothing else, for this kind of machine."""
        return [str(self.root / "npm" / "node_modules" / package / "bin" / package)]

    def script(self, name):
        """The command of a client in JavaScript; it stands beside the packages that it needs."""
        return [self.node, str(self.root / "npm" / "clients" / name)]

    def python(self, environment, *arguments):
        return [str(self.root / environment / "bin" / "python"), *arguments]

    def installed(self, environment, program):
        """The command of a program that a Python package brought."""
        return [str(self.root / environment / "bin" / program)]


class Gateway:
    """A gateway on a port of its own, which can be killed and started again."""

    def __init__(self, place, servers, home=None, head="", level="standard"):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="mcpvisor-real-"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.config = self.directory / "config.toml"
        self.config.write_text(
            f'[gateway]\nlisten = "127.0.0.1:{self.port}"\ndata_dir = "data"\n{head}\n'
            # Packages and Node are usually not below `/tmp`, of which each server has its own.
            f"[sandbox]\nlevel = {json.dumps(level)}\nread = {json.dumps([str(place.root), TARGET])}\n{servers}"
        )
        self.program = [place.mcpvisor, "--config", str(self.config)]
        # Unless it is told otherwise, its servers find nothing of the person who runs this.
        self.home = home or str(self.directory)
        self.log = self.directory / "log"
        self.start()

    def start(self):
        environment = {**os.environ, "HOME": self.home}
        with open(self.log, "a") as stderr:
            self.process = subprocess.Popen(
                self.program, stdout=subprocess.DEVNULL, stderr=stderr, env=environment
            )
        health = f"http://127.0.0.1:{self.port}/health"
        until("the gateway serves", lambda: urllib.request.urlopen(health, timeout=5).status == 200)

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def status(self):
        told = subprocess.run(
            [*self.program, "status", "--json"], capture_output=True, text=True, timeout=PATIENCE
        )
        if told.returncode != 0:
            raise Failed(told.stderr.strip())
        return json.loads(told.stdout)

    def server(self, name):
        return next(server for server in self.status()["servers"] if server["name"] == name)

    def states(self):
        return {server["name"]: server["state"] for server in self.status()["servers"]}

    def all_up(self, names, patience=120.0):
        """Waits until these servers are up."""

        def away():
            states = self.states()
            return [f"{name} is {states[name]}" for name in names if states[name] != "up"]

        try:
            until("all servers are up", lambda: not away(), patience)
        except Failed:
            raise Failed(f"after {patience:.0f} s: {', '.join(away())}") from None

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class LineClient:
    """A client that stays connected and takes one line for each action."""

    def __init__(self, command, environment=None):
        self.stderr = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, action, name=None, arguments=None, patience=PATIENCE):
        command = {"action": action, "name": name, "arguments": arguments or {}}
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=patience)
        except (BrokenPipeError, queue.Empty) as error:
            raise Failed(f"the client did not answer: {type(error).__name__}{self._told()}") from None
        if line is None:
            raise Failed(f"the client ended{self._told()}")
        reply = json.loads(line)
        if "error" in reply:
            raise Failed(reply["error"])
        return reply

    def _told(self):
        self.stderr.seek(0)
        told = self.stderr.read().strip().splitlines()
        return f"; it said: {told[-1]}" if told else ""

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(PATIENCE)


class Table:
    """The outcome of each step; `known` are failures that are expected, with the reason.

    A step that works although it is known to fail fails the run, but for those of `racy` reasons:
    they depend on what comes first.
    """

    def __init__(self, steps, known, left_out, racy=()):
        self.steps, self.known, self.left_out, self.racy = steps, known, left_out, racy
        self.rows = {}

    def run(self, row, step, action):
        cells = self.rows.setdefault(row, {})
        if reason := self.left_out.get((row, step)) or self.left_out.get(("*", step)):
            cells[step] = ("none", reason)
            return
        begun = time.monotonic()
        try:
            action()
            failure = None
        except Failed as error:
            failure = str(error)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        known = self.known.get((row, step)) or self.known.get(("*", step))
        if failure and known:
            cells[step] = ("known", f"{known} ({failure})")
        elif failure:
            cells[step] = ("FAILED", failure)
        elif known and known not in self.racy:
            cells[step] = ("FAILED", f"it works, but is listed as known to fail: {known}")
        else:
            cells[step] = ("ok", "")
        took = time.monotonic() - begun
        print(f"{row}, {step}: {cells[step][0]} in {took:.1f} s {cells[step][1]}", flush=True)

    def show(self, title):
        width = max(len(row) for row in self.rows)
        print(f"\n{title:<{width}}  " + "  ".join(f"{step:<8}" for step in self.steps))
        for row, cells in self.rows.items():
            words = [cells.get(step, ("none", ""))[0] for step in self.steps]
            shown = "  ".join(f"{'–' if word == 'none' else word:<8}" for word in words)
            print(f"{row:<{width}}  {shown}")
        self.show_reasons("known", "known to fail")
        self.show_reasons("none", "not tried")

    def show_failures(self):
        self.show_reasons("FAILED", "failed")

    def show_reasons(self, kind, words):
        for row, cells in self.rows.items():
            reasons = {}
            for step, (outcome, reason) in cells.items():
                if outcome == kind:
                    reasons.setdefault(reason, []).append(step)
            for reason, steps in reasons.items():
                print(f"  {words}: {row}: {', '.join(steps)}: {reason}")

    def count(self, kind):
        cells = [cell for row in self.rows.values() for cell in row.values()]
        return sum(outcome == kind for outcome, _ in cells)
