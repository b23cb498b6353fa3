"""Twenty clients in front of five stdio servers: how many processes they take."""

from support import Failed, Gateway, LineClient, Table, children

CLIENTS = 10
SERVERS = 5
# For the clients that can be asked and for those that cannot.
PROCESSES_MAX = 2 * SERVERS

def test(place):
    table = Table(["count"], {}, {})
    table.run("crowd", "count", lambda: count(place))
    return table


def count(place):
    program, *arguments = place.npm("mcp-server-memory")
    servers = "".join(
        f'[servers.memory-{number}]\ncommand = "{program}"\nargs = {arguments}\n'
        for number in range(SERVERS)
    )
    gateway = Gateway(place, servers)
    clients = []
    try:
        names = [f"memory-{number}" for number in range(SERVERS)]
        gateway.all_up(names)
        for capabilities in ["all", "none"]:
            variables = {"CAPABILITIES": capabilities}
            for _ in range(CLIENTS):
                clients.append(LineClient([*place.script("ts1.mjs"), gateway.url], variables))
        for client in clients:
            for name in names:
                reply = client.ask("call", f"{name}__read_graph")
                if reply["isError"]:
                    raise Failed(reply["text"])
        processes = len(children(gateway.process.pid, arguments[0]))
        if processes > PROCESSES_MAX:
            raise Failed(f"{processes} processes, expected at most {PROCESSES_MAX}")
    finally:
        for client in clients:
            client.close()
        gateway.close()
