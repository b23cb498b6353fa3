"""Version 1 of the Python SDK: `python1.py URL`."""

import asyncio
import sys

from lines import ANSWER, result, serve, until_first_report
from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client


async def elicit(_context, _params):
    return types.ElicitResult(action="accept", content=ANSWER)


async def main(url):
    async with streamablehttp_client(url) as (read, write, *_):
        async with ClientSession(read, write, elicitation_callback=elicit) as session:
            await session.initialize()
            await serve(lambda *command: run(session, *command))


async def run(session, action, name, arguments):
    reports = []

    async def on_progress(done, _total, _message):
        reports.append(done)

    match action:
        case "list":
            tools, cursor = [], None
            while True:
                page = await session.list_tools(cursor)
                tools += [tool.name for tool in page.tools]
                cursor = page.nextCursor
                if cursor is None:
                    return {"tools": tools}
        case "call" | "progress":
            done = await session.call_tool(name, arguments, progress_callback=on_progress)
            return {**result(done.content, done.isError), "reports": len(reports)}
        case "cancel":
            return await until_first_report(
                lambda report: session.call_tool(name, arguments, progress_callback=report)
            )


asyncio.run(main(sys.argv[1]))
