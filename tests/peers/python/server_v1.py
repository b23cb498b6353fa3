"""A server on version 1 of the SDK: `server_v1.py stdio | http PORT | sse PORT`."""

import sys

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

transport, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
server = FastMCP("python", port=port)


class Answer(BaseModel):
    answer: str


class Sum(BaseModel):
    sum: int


@server.tool()
def add(a: int, b: int) -> Sum:
    return Sum(sum=a + b)


@server.tool()
async def count(to: int, ctx: Context) -> str:
    for step in range(1, to + 1):
        await ctx.report_progress(step, to)
    await ctx.info("counted")
    return f"counted to {to}"


@server.tool()
async def ask(question: str, ctx: Context) -> str:
    result = await ctx.elicit(question, Answer)
    return result.data.answer if result.action == "accept" else result.action


@server.tool()
async def think(about: str, ctx: Context) -> str:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=about))
    # Without the id of the request the SDK asks on its general stream.
    result = await ctx.session.create_message([message], max_tokens=10)
    return result.content.text


@server.tool()
def fail() -> str:
    raise ValueError("on purpose")


@server.resource("python://greeting")
def greeting() -> str:
    return "hello"


@server.resource("python://greeting/{name}")
def personal(name: str) -> str:
    return f"hello {name}"


@server.prompt()
def poem(topic: str) -> str:
    return f"Write a poem about {topic}."


@server.completion()
async def complete(ref, argument, context):
    from mcp.types import Completion

    return Completion(values=[value for value in ["sea", "season"] if value.startswith(argument.value)])


server.run({"stdio": "stdio", "http": "streamable-http", "sse": "sse"}[transport])
