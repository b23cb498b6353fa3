"""A small server on FastMCP, whichever version runs it: `fastmcp_server.py stdio | http PORT | oauth PORT`."""

import asyncio
import sys

from fastmcp import Context, FastMCP



def authorization(port):
    """Its own authorization server, which agrees without asking a person."""
    from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
    from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions

    return InMemoryOAuthProvider(
        base_url=f"http://127.0.0.1:{port}",
        client_registration_options=ClientRegistrationOptions(enabled=True),
        revocation_options=RevocationOptions(enabled=True),
    )


auth = authorization(sys.argv[2]) if sys.argv[1] == "oauth" else None
server = FastMCP("tiny", auth=auth)


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
    case ["oauth", port]:
        server.run("http", host="127.0.0.1", port=int(port), show_banner=False)
    case ["http", port]:
        # At `/mcp/`, as many are configured, so that `/mcp` is redirected.
        server.run("http", host="127.0.0.1", port=int(port), path="/mcp/", show_banner=False)
