"""The processes of a cluster on this machine: an engine, replicas, and nginx in front of them."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

WAIT_SECONDS = 30
SECRET = "a secret of at least thirty-two bytes, for tests"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_until(what, is_so, seconds=WAIT_SECONDS):
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, f"no {what} within {seconds} s"
        time.sleep(0.05)


class Engine:
    """A Redis without persistence."""

    def __init__(self, folder="."):
        self.port, self.folder = free_port(), folder
        self.url = f"redis://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        options += ["--dir", str(self.folder)]
        self.process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        wait_until("engine", self.answers)

    def answers(self):
        try:
            return self.command("PING").startswith(b"+PONG")
        except OSError:
            return False

    def command(self, *words):
        """The first bytes of the answer to a command."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as link:
            parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
            link.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            return link.recv(65536)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Sentinel(Engine):
    """A Sentinel with the two engines that it watches."""

    def __init__(self, here):
        self.first, self.second = Engine(here), Engine(here)
        self.second.command("REPLICAOF", "127.0.0.1", str(self.first.port))
        wait_until("replication", lambda: b"master_link_status:up" in self.second.command("INFO", "replication"))
        self.config = here / "sentinel.conf"
        super().__init__()
        self.url = f"redis+sentinel://127.0.0.1:{self.port}/main"

    def start(self):
        self.config.write_text(
            f"""
port {self.port}
bind 127.0.0.1
sentinel monitor main 127.0.0.1 {self.first.port} 1
sentinel down-after-milliseconds main 2000
"""
        )
        self.process = subprocess.Popen(["redis-server", str(self.config), "--sentinel"], stdout=subprocess.DEVNULL)
        wait_until("Sentinel", self.answers)

    def fail_over(self):
        """Makes the second engine the primary, in order."""
        wait_until("fail-over", lambda: self.command("SENTINEL", "FAILOVER", "main").startswith(b"+OK"))
        wait_until("new primary", lambda: b"role:master" in self.second.command("INFO", "replication"))

    def kill(self):
        for engine in (self.first, self.second):
            engine.kill()
        super().kill()


class Replica:
    """A gateway of the cluster."""

    def __init__(self, program, here, number, engine, settings=""):
        self.program, self.name = program, f"gw-{number}"
        self.port, self.peers = free_port(), free_port()
        self.folder = here / self.name
        self.folder.mkdir()
        self.log, self.config = self.folder / "log", self.folder / "config.toml"
        stub = Path(__file__).with_name("stub.py")
        self.config.write_text(
            f"""
[gateway]
listen = "127.0.0.1:{self.port}"
data_dir = "{self.folder}/data"
workers = 2
shutdown_grace = "10s"

[cluster]
engine = "{engine.url}"
secret = "{SECRET}"
listen = "127.0.0.1:{self.peers}"
name = "{self.name}"
leave_notice = "1s"

[servers.stub]
command = "{sys.executable}"
args = ["{stub}", "{here}/journal"]
sandbox = "off"
results = {{ preview_above = "16KiB" }}
tools.prefix = ""

[servers.modern]
command = "{sys.executable}"
args = ["{stub.with_name("modern.py")}", "{here}/journal"]
sandbox = "off"
tools.prefix = ""
{settings}"""
        )
        self.start()

    def start(self):
        command = [self.program, "serve", "--config", str(self.config)]
        bare = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, env=bare, stderr=log, stdout=log)

    def wait_until_ready(self):
        wait_until(f"ready {self.name}", self.is_ready)

    def is_ready(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2).close()
            return True
        except (urllib.error.URLError, OSError):
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait_for_end(self):
        assert self.process.wait(WAIT_SECONDS) == 0, self.log.read_text()


class Balancer:
    """nginx, which chooses the replicas in turn."""

    def __init__(self, here, replicas):
        self.port = free_port()
        folder = here / "nginx"
        folder.mkdir()
        servers = "\n".join(f"server 127.0.0.1:{it.port} max_fails=0;" for it in replicas)
        paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        temporary = "\n".join(f"{path}_temp_path {folder}/{path};" for path in paths)
        config = folder / "nginx.conf"
        config.write_text(
            f"""
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  {temporary}
  upstream replicas {{ {servers} }}
  server {{
    listen 127.0.0.1:{self.port};
    location / {{
      proxy_pass http://replicas;
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 1h;
      proxy_connect_timeout 2s;
    }}
  }}
}}
"""
        )
        command = ["nginx", "-c", str(config), "-p", str(folder), "-e", f"{folder}/start.log"]
        self.process = subprocess.Popen(command)
        wait_until("balancer", self.accepts)

    def accepts(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def stop(self):
        self.process.kill()
        self.process.wait()


class Machine:
    """An engine, three replicas and a balancer."""

    def __init__(self, program, here, engine):
        self.program, self.here, self.journal = program, here, here / "journal"
        self.journal.touch()
        self.engine = engine
        self.replicas = []
        self.balancer = None
        try:
            for number in (1, 2, 3):
                self.replicas.append(Replica(program, here, number, self.engine))
            for replica in self.replicas:
                replica.wait_until_ready()
            self.balancer = Balancer(here, self.replicas)
        except BaseException:
            self.stop()
            raise

    def stop(self):
        """Ends everything; a replica must not have panicked."""
        if self.balancer:
            self.balancer.stop()
        for replica in self.replicas:
            replica.terminate()
        for replica in self.replicas:
            replica.process.wait(WAIT_SECONDS)
        self.engine.kill()

    def panics(self):
        return [it.name for it in self.replicas if "panicked" in it.log.read_text()]

    def events(self):
        """The journal of the stub: `(event, token)`."""
        return [tuple(line.split()) for line in self.journal.read_text().splitlines()]
