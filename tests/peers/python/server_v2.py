"""A server on version 2 of the SDK, which speaks both eras: `server_v2.py stdio | http PORT`."""

import sys
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from mcp_types import Completion, CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("python")


class Answer(BaseModel):
    answer: str


class Sum(BaseModel):
    sum: int


def asked(question: str) -> Elicit[Answer]:
    return Elicit(question, Answer)


def thought(about: str) -> Sample:
    return Sample([SamplingMessage(role="user", content=TextContent(type="text", text=about))], max_tokens=10)


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
async def ask(question: str, answer: Annotated[Answer, Resolve(asked)]) -> str:
    return answer.answer


@server.tool()
async def think(about: str, result: Annotated[CreateMessageResult, Resolve(thought)]) -> str:
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
    return Completion(values=[value for value in ["sea", "season"] if value.startswith(argument.value)])


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", port=int(sys.argv[2]))
