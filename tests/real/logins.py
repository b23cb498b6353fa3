"""Servers of FastMCP with their own authorization server: the gateway registers, signs in, renews and signs out."""

import functools
import http.cookiejar
import json
import re
import subprocess
import urllib.request

from servers import Server, call, end
from support import HERE, PATIENCE, Failed, Gateway, LineClient, Table, until

STEPS = ["needs login", "sign in", "call", "renew", "sign out"]

ADD = ("add", {"a": 2, "b": 40}, "42")


def servers(place):
    tiny = str(HERE / "fastmcp_server.py")
    command = lambda environment: lambda port: (place.python(environment, tiny, "oauth", str(port)), {})
    return [
        Server("fastmcp-2", ADD, start=command("sdk-1")),
        Server("fastmcp-4", ADD, start=command("sdk-2")),
    ]


def waits_for_login(gateway, server):
    def waits():
        state = gateway.server(server.name)
        if not state["connection"]["needs_login"]:
            raise Failed(f"it is {state['state']}: {state.get('reason')}")
        return True

    until("the status says that it needs a login", waits)


def auth(gateway, *arguments):
    command = [*gateway.program, "auth", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if ran.returncode != 0:
        raise Failed(ran.stderr.strip() or ran.stdout.strip())
    return ran.stdout


def sign_in(gateway, server):
    """Opens the printed page as a browser does. This authorization server agrees at once."""
    page = re.search(r"https?://\S+", auth(gateway, "login", server.name, "--no-wait"))
    if not page:
        raise Failed("no page was printed")
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    with urllib.request.build_opener(cookies).open(page[0], timeout=PATIENCE) as final:
        text = final.read().decode()
    if not json.loads(text).get("success"):
        raise Failed(f"the last page says: {text[:300]}")
    gateway.all_up([server.name])


def renew(gateway, client, server):
    auth(gateway, "refresh", server.name)
    call(client, server, server.call)


def sign_out(gateway, server):
    auth(gateway, "logout", server.name)
    waits_for_login(gateway, server)
    logins = json.loads(auth(gateway, "status", "--json"))
    if "access" in json.dumps(logins).lower().replace("access_token_expires", ""):
        raise Failed("the status of logins shows more than when a token expires")


def test(place):
    table = Table(STEPS, {}, {})
    behind = servers(place)
    gateway = client = None
    try:
        for server in behind:
            server.start()
        gateway = Gateway(place, "".join(server.config() for server in behind))
        client = LineClient([*place.script("ts1.mjs"), gateway.url])
        for server in behind:
            run = functools.partial(table.run, server.name)
            run("needs login", lambda: waits_for_login(gateway, server))
            run("sign in", lambda: sign_in(gateway, server))
            run("call", lambda: until("its tool is called", lambda: call(client, server, server.call)))
            run("renew", lambda: renew(gateway, client, server))
            run("sign out", lambda: sign_out(gateway, server))
    finally:
        end(behind, client, gateway)
    return table
