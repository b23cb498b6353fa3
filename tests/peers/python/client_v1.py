"""Version 1 of the SDK in front: `client_v1.py URL legacy | sse`, over Streamable HTTP or HTTP+SSE."""

import asyncio
import sys
import time

from mcp import ClientSession, types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamablehttp_client


async def elicit(_context, params):
    return types.ElicitResult(action="accept", content={"answer": f"re: {params.message}"})


async def sample(_context, params):
    content = types.TextContent(type="text", text=f"thought: {params.messages[0].content.text}")
    return types.CreateMessageResult(role="assistant", model="a model", content=content)


def text(result):
    return result.content[0].text


async def scenarios(session, logs):
    names = {tool.name for tool in (await session.list_tools()).tools}
    assert {"add", "count", "ask", "think", "fail"} <= names, names
    assert (await session.call_tool("add", {"a": 2, "b": 40})).structuredContent == {"sum": 42}
    assert (await session.call_tool("fail", {})).isError

    reports = []

    async def on_progress(done, total, _message):
        reports.append((done, total))

    result = await session.call_tool("count", {"to": 3}, progress_callback=on_progress)
    assert text(result) == "counted to 3"
    assert reports == [(1, 3), (2, 3), (3, 3)], reports
    # Over stdio nothing says whose log line it is: it comes on a stream of its own.
    deadline = time.monotonic() + 10
    while "counted" not in logs:
        assert time.monotonic() < deadline, logs
        await asyncio.sleep(0.02)

    assert text(await session.call_tool("ask", {"question": "who?"})) == "re: who?"
    assert text(await session.call_tool("think", {"about": "why"})) == "thought: why"

    assert (await session.read_resource("python://greeting")).contents[0].text == "hello"
    assert (await session.read_resource("python://greeting/anna")).contents[0].text == "hello anna"
    prompt = await session.get_prompt("poem", {"topic": "rain"})
    assert prompt.messages[0].content.text == "Write a poem about rain."
    reference = types.PromptReference(type="ref/prompt", name="poem")
    completed = await session.complete(reference, {"name": "topic", "value": "seas"})
    assert completed.completion.values == ["season"], completed


async def main(url, mode):
    logs = []

    async def log(params):
        logs.append(params.data)

    connected = sse_client(f"{url}/sse") if mode == "sse" else streamablehttp_client(f"{url}/mcp")
    async with connected as (read, write, *_):
        async with ClientSession(
            read, write, elicitation_callback=elicit, sampling_callback=sample, logging_callback=log
        ) as session:
            await session.initialize()
            await session.set_logging_level("info")
            await scenarios(session, logs)


asyncio.run(main(*sys.argv[1:]))
