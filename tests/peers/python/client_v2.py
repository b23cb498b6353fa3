"""Version 2 of the SDK in front: `client_v2.py URL MODE`, MODE as the SDK names it."""

import sys
import time
import warnings

import anyio
import mcp_types as types
from mcp import Client


async def elicit(_context, params):
    return types.ElicitResult(action="accept", content={"answer": f"re: {params.message}"})


async def sample(_context, params):
    content = types.TextContent(type="text", text=f"thought: {params.messages[0].content.text}")
    return types.CreateMessageResult(role="assistant", model="a model", content=content)


def text(result):
    return result.content[0].text


async def scenarios(client, logs):
    names = {tool.name for tool in (await client.list_tools()).tools}
    assert {"add", "count", "ask", "think", "fail"} <= names, names
    assert (await client.call_tool("add", {"a": 2, "b": 40})).structured_content == {"sum": 42}
    assert (await client.call_tool("fail", {})).is_error

    reports = []

    async def on_progress(done, total, _message):
        reports.append((done, total))

    result = await client.call_tool("count", {"to": 3}, progress_callback=on_progress)
    assert text(result) == "counted to 3"
    assert reports == [(1, 3), (2, 3), (3, 3)], reports
    # Over stdio nothing says whose log line it is: it comes on a stream of its own.
    deadline = time.monotonic() + 10
    while "counted" not in logs:
        assert time.monotonic() < deadline, logs
        await anyio.sleep(0.02)

    assert text(await client.call_tool("ask", {"question": "who?"})) == "re: who?"
    assert text(await client.call_tool("think", {"about": "why"})) == "thought: why"

    assert (await client.read_resource("python://greeting")).contents[0].text == "hello"
    assert (await client.read_resource("python://greeting/anna")).contents[0].text == "hello anna"
    prompt = await client.get_prompt("poem", {"topic": "rain"})
    assert prompt.messages[0].content.text == "Write a poem about rain."
    reference = types.PromptReference(type="ref/prompt", name="poem")
    completed = await client.complete(reference, {"name": "topic", "value": "seas"})
    assert completed.completion.values == ["season"], completed


async def main(url, mode):
    logs = []

    async def log(params):
        logs.append(params.data)

    # What the newest revision deprecates is what this is about.
    warnings.simplefilter("ignore")
    async with Client(
        f"{url}/mcp",
        mode=mode,
        elicitation_callback=elicit,
        sampling_callback=sample,
        logging_callback=log,
        log_level="info",
    ) as client:
        if mode == "legacy":
            await client.set_logging_level("info")
        await scenarios(client, logs)


anyio.run(main, *sys.argv[1:])
