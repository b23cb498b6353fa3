"""Thirty servers that npx has to download first: all are up at their first start."""

import os
import time

from support import Failed, Gateway, Table

SERVERS = 30
# Packages that start without a key or an account; each is asked for several times.
PACKAGES = [
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@playwright/mcp@0.0.83",
]
# Time to download and start all of them, in seconds.
PATIENCE = 300.0


def test(place, directory):
    table = Table(["cold", "warm"], {}, {})
    cache = directory / "npm-cache"
    for step in table.steps:
        begun = time.monotonic()
        table.run("30 npx servers", step, lambda: start_all(place, directory, cache))
        print(f"{step}: {time.monotonic() - begun:.0f} s", flush=True)
    return table


def start_all(place, directory, cache):
    servers = ""
    for number in range(SERVERS):
        package = PACKAGES[number % len(PACKAGES)]
        arguments = ["-y", package]
        if package.startswith("@modelcontextprotocol/server-filesystem"):
            arguments.append(str(directory))
        servers += (
            f'[servers.npx-{number}]\ncommand = "npx"\nargs = {arguments}\n'
            f'env = {{ npm_config_cache = "{cache}" }}\n'
        )
    # The settings of npm for its registry stand in the home directory.
    gateway = Gateway(place, servers, home=os.environ["HOME"])
    try:
        gateway.all_up([f"npx-{number}" for number in range(SERVERS)], PATIENCE)
        again = [
            f"{server['name']} ({server['connection']['shared']['restarts']})"
            for server in gateway.status()["servers"]
            if server["connection"]["shared"]["restarts"] > 0
        ]
        if again:
            raise Failed(f"not up at the first start: {', '.join(again)}")
    finally:
        gateway.close()
