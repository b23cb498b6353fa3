"""Public servers and clients with the gateway between them: `real.py TARGET [PART]...`, as run.sh names the parts."""

import pathlib
import sys
import tempfile
import time

import clients
import cold
import crowd
import logins
import public
import search
import servers
from support import Place

# Runs when nothing is named; `cold` downloads for minutes.
USUAL = ["servers", "public", "clients", "crowd", "search", "logins"]


def main():
    place, parts = Place(sys.argv[1]), sys.argv[2:] or USUAL
    tables = {}
    with tempfile.TemporaryDirectory(prefix="mcpvisor-real-") as directory:
        directory = pathlib.Path(directory)
        tests = {
            "servers": lambda: servers.test(place, directory),
            "public": lambda: public.test(place, directory),
            "clients": lambda: clients.test(place),
            "crowd": lambda: crowd.test(place, directory / "crowd"),
            "search": lambda: search.test(place, directory),
            "logins": lambda: logins.test(place),
            "cold": lambda: cold.test(place, directory),
        }
        for part in parts:
            begun = time.monotonic()
            tables[part] = tests[part]()
            print(f"{part}: {time.monotonic() - begun:.0f} s", flush=True)
    for part, table in tables.items():
        table.show(part)
    passed, failed, known = (
        sum(table.count(kind) for table in tables.values()) for kind in ["ok", "FAILED", "known"]
    )
    # Once more at the end, which is what a log that was cut still contains.
    for table in tables.values():
        table.show_failures()
    if known:
        print(f"\n{known} steps fail for known reasons")
    print(f"\n{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
