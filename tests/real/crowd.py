"""Clients of five kinds in front of ten public stdio servers: how many processes they take, and how long
their first lists."""

import json
import time

import servers as public
from support import Failed, Gateway, LineClient, Table, children, until

KINDS = {
    "none": {},
    "roots": {"roots": {}},
    "sampling": {"sampling": {}},
    "elicitation": {"elicitation": {"form": {}}},
    "all": {"roots": {}, "sampling": {}, "elicitation": {"form": {}}},
}

# Every client of these shares one process.
ALIKE = ["memory", "sequential-thinking", "git", "time", "sqlite", "fetch", "fastmcp-2-stdio", "fastmcp-4-stdio"]
# The maximum number of processes of others: `filesystem` requests roots, which apply to a process, and
# `every-stdio` also lists other tools for other capabilities.
APART = {"filesystem": 3, "every-stdio": 6}

# In seconds: clients stop waiting after that.
FIRST_LIST_MAX = 10


def test(place, directory):
    table = Table(["alike", "apart", "lists"], {}, {})
    gateway, clients = None, []
    directory.mkdir()
    chosen = [server for server in public.servers(place, directory, "") if server.name in [*ALIKE, *APART]]
    try:
        gateway = Gateway(place, "".join(server.config() for server in chosen))
        gateway.all_up([*ALIKE, *APART])
        until("the lists are compared", lambda: not is_comparing(gateway))
        table.run("crowd", "lists", lambda: first_lists(place, gateway, clients))
        for server in chosen:
            if server.name != "fetch":  # It has no page here.
                for client in clients:
                    public.call(client, server, server.call)
        counts = {server.name: count(gateway, server) for server in chosen}
        print(f"{sum(counts.values())} processes of {len(chosen)} servers: {counts}", flush=True)
        table.run("crowd", "alike", lambda: at_most(counts, {name: 1 for name in ALIKE}))
        table.run("crowd", "apart", lambda: at_most(counts, APART))
    finally:
        public.end(chosen, *clients, gateway)
    return table


def is_comparing(gateway):
    return any(server["connection"].get("is_comparing") for server in gateway.status()["servers"])


def first_lists(place, gateway, clients):
    """Connects a client of each kind, whose first list has to come at once."""
    slow = {}
    for kind, capabilities in KINDS.items():
        client = LineClient([*place.script("ts1.mjs"), gateway.url], {"CAPABILITIES": json.dumps(capabilities)})
        clients.append(client)
        begun = time.monotonic()
        tools = client.ask("list")["tools"]
        took = time.monotonic() - begun
        print(f"{kind}: {len(tools)} tools in {took:.2f} s", flush=True)
        if took > FIRST_LIST_MAX:
            slow[kind] = took
    if slow:
        raise Failed(f"first lists took {slow} s")


def count(gateway, server):
    return len(children(gateway.process.pid, " ".join(server.command)))


def at_most(counts, most):
    above = {name: counts[name] for name, limit in most.items() if counts[name] > limit}
    if above:
        raise Failed(f"too many processes: {above}")
