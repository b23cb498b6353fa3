"""An MCP server that attacks its host: the tool `attack` tries one attack, and says whether it worked.

The places are arguments of the calls, because a path in the configuration would be allowed.
"""
import fcntl, json, os, socket, sys


def read(path):
    with open(path, "rb") as file:
        return len(file.read()) > 0


def append(path):
    with open(path, "a") as file:
        file.write("# hostile\n")
    return True


def connect(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(path)
    return True


def tcp(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return True


def udp(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"secret", (address, port))
    return True


def signal(pid):
    os.kill(pid, 0)
    return True


def linger(lock):
    """Leaves a process without tag, session, group and descriptors of ours, which holds a lock."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            script = ("import fcntl,os,time\nf=open(%r,'w')\nfcntl.flock(f,fcntl.LOCK_EX)\n"
                      "f.write(str(os.getpid()));f.flush()\n"
                      "os.write(%d,b'x');os.closerange(0,3);os.close(%d)\ntime.sleep(600)")
            os.set_inheritable(writer, True)
            script = script % (lock, writer, writer)
            os.execve(sys.executable, [sys.executable, "-c", script], {})
        os._exit(0)
    os.close(writer)
    return os.read(reader, 1) == b"x"


KINDS = {"read": read, "append": append, "connect": connect, "tcp": tcp, "udp": udp,
         "signal": signal, "linger": linger,
         "abstract": lambda name: connect("\0" + name)}


def attack(kind, values):
    try:
        return {"open": KINDS[kind](*values), "why": ""}
    except Exception as error:
        return {"open": False, "why": repr(error)}


def result(message):
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "hostile", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": "attack", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        arguments = params["arguments"]
        found = attack(arguments["kind"], arguments["values"])
        return {"content": [{"type": "text", "text": json.dumps(found)}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result(message)}
        print(json.dumps(answer), flush=True)
