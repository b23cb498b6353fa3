"""The client of FastMCP: `fastmcp_client.py URL`."""

import asyncio
import sys

from fastmcp import Client
from lines import ANSWER, result, serve, until_first_report


async def elicit(*_):
    return ANSWER


async def main(url):
    async with Client(url, elicitation_handler=elicit) as client:
        await serve(lambda *command: run(client, *command))


async def run(client, action, name, arguments):
    reports = []

    async def on_progress(done, _total, _message):
        reports.append(done)

    def call(report):
        return client.call_tool(name, arguments, progress_handler=report, raise_on_error=False)

    match action:
        case "list":
            return {"tools": [tool.name for tool in await client.list_tools()]}
        case "call" | "progress":
            done = await call(on_progress)
            return {**result(done.content, done.is_error), "reports": len(reports)}
        case "cancel":
            return await until_first_report(call)


asyncio.run(main(sys.argv[1]))
