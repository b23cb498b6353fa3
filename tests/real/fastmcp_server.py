"""A small server on FastMCP, whichever version runs it: `fastmcp_server.py stdio | http PORT`."""

import asyncio
import sys

from fastmcp import Context, FastMCP

server = FastMCP("tiny")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def count(steps: int, seconds: float, context: Context) -> str:
    for step in range(1, steps + 1):
        await asyncio.sleep(seconds / steps)
        await context.report_progress(step, steps)
    return f"counted to {steps}"


@server.tool
async def ask(context: Context) -> str:
    answer = await context.elicit("who are you?", response_type=str)
    return f"the answer is {getattr(answer, 'data', answer)}"


match sys.argv[1:]:
    case ["stdio"]:
        server.run(show_banner=False)
    case ["http", port]:
        # At `/mcp/`, as many are configured, so that `/mcp` is redirected.
        server.run("http", host="127.0.0.1", port=int(port), path="/mcp/", show_banner=False)
