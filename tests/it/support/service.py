"""Plays systemd for one service: opens its socket, passes it as file 3, hears its notes.

Arguments: the command line. On stdin it takes `start`, `stop` (with SIGTERM) and `kill`; on
stdout it says the address, each note of the service but those for the watchdog, and `ended CODE`.
`watchdog` answers `alive` after the next one.
"""
import os, select, signal, socket, sys

directory = os.getcwd()
listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
notes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notes.bind(os.path.join(directory, "notify"))
child = 0
reports = 0


def say(text):
    print(text, flush=True)


def start():
    global child
    child = os.fork()
    if child:
        return
    os.dup2(listener.fileno(), 3)
    os.set_inheritable(3, True)
    environment = dict(os.environ, LISTEN_FDS="1", LISTEN_PID=str(os.getpid()),
                       NOTIFY_SOCKET=os.path.join(directory, "notify"), WATCHDOG_USEC="600000")
    os.execve(sys.argv[1], sys.argv[1:], environment)


def stop(which):
    global child
    os.kill(child, which)
    _, status = os.waitpid(child, 0)
    child = 0
    hear()
    say("ended %d" % os.waitstatus_to_exitcode(status))


def hear(wait=0):
    global reports
    while select.select([notes], [], [], wait)[0]:
        wait = 0
        for line in notes.recv(4096).decode().splitlines():
            if line == "WATCHDOG=1":
                reports += 1
            else:
                say(line)


say("%s:%d" % listener.getsockname())
running = True
while running:
    ready = select.select([sys.stdin, notes], [], [])[0]
    hear()
    if sys.stdin in ready:
        order = sys.stdin.readline().strip()
        if order == "start":
            start()
        elif order == "stop":
            stop(signal.SIGTERM)
        elif order == "kill":
            stop(signal.SIGKILL)
        elif order == "watchdog":
            before = reports
            while reports == before:
                hear(wait=None)
            say("alive")
        elif order == "hangup":
            os.kill(child, signal.SIGHUP)
        else:
            running = False
if child:
    stop(signal.SIGKILL)
