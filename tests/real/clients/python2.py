"""Version 2 of the Python SDK: `python2.py URL`."""

import asyncio
import sys

import mcp_types as types
from lines import ANSWER, result, serve, until_first_report
from mcp import Client


async def elicit(_context, _params):
    return types.ElicitResult(action="accept", content=ANSWER)


async def main(url):
    async with Client(url, elicitation_callback=elicit) as client:
        await serve(lambda *command: run(client, *command))


async def run(client, action, name, arguments):
    reports = []

    async def on_progress(done, _total, _message):
        reports.append(done)

    match action:
        case "list":
            tools, cursor = [], None
            while True:
                page = await client.list_tools(cursor=cursor)
                tools += [tool.name for tool in page.tools]
                cursor = page.next_cursor
                if cursor is None:
                    return {"tools": tools}
        case "call" | "progress":
            done = await client.call_tool(name, arguments, progress_callback=on_progress)
            return {**result(done.content, done.is_error), "reports": len(reports)}
        case "cancel":
            return await until_first_report(
                lambda report: client.call_tool(name, arguments, progress_callback=report)
            )


asyncio.run(main(sys.argv[1]))
