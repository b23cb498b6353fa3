"""LangChain's adapters: `langchain_client.py URL`. Each call has a session of its own."""

import asyncio
import sys

from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from lines import ANSWER, serve, until_first_report
from mcp import types


async def elicit(*_):
    return types.ElicitResult(action="accept", content=ANSWER)


def client_of(url, on_progress=None):
    connection = {"transport": "streamable_http", "url": url}
    callbacks = Callbacks(on_elicitation=elicit, on_progress=on_progress)
    return MultiServerMCPClient({"gateway": connection}, callbacks=callbacks)


async def call(url, name, arguments, on_progress=None):
    tools = {tool.name: tool for tool in await client_of(url, on_progress).get_tools()}
    if name not in tools:
        return {"text": f"there is no tool {name}", "isError": True}
    content = await tools[name].ainvoke(arguments)
    parts = content if isinstance(content, list) else [content]
    texts = [part["text"] if isinstance(part, dict) else str(part) for part in parts]
    return {"text": "\n".join(texts), "isError": False}


async def run(url, action, name, arguments):
    reports = []

    async def on_progress(done, *_):
        reports.append(done)

    match action:
        case "list":
            return {"tools": [tool.name for tool in await client_of(url).get_tools()]}
        case "call" | "progress":
            return {**await call(url, name, arguments, on_progress), "reports": len(reports)}
        case "cancel":
            return await until_first_report(lambda report: call(url, name, arguments, report))


asyncio.run(serve(lambda *command: run(sys.argv[1], *command)))
