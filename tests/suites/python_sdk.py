"""The interaction suite of the Python SDK, with the gateway between its clients and its servers.

A plugin of pytest. It replaces what connects a client of the suite to a server: the servers over
HTTP are served on sockets, those in memory are programs behind the gateway.
"""

import contextlib
from functools import partial

import anyio
import gateway
import pytest
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS


def mode_of(spec_version):
    return spec_version if spec_version in MODERN_PROTOCOL_VERSIONS else "legacy"


@contextlib.asynccontextmanager
async def over_http(server, *, stateless_http=False, spec_version=LATEST_HANDSHAKE_VERSION, **options):
    from tests.interaction._connect import NO_DNS_REBINDING_PROTECTION

    app = server.streamable_http_app(stateless_http=stateless_http, transport_security=NO_DNS_REBINDING_PROTECTION)
    async with (
        server.session_manager.run(),
        gateway.served(app) as url,
        gateway.behind({"transport": "streamableHttp", "url": f"{url}/mcp"}) as address,
        Client(streamable_http_client(address), mode=mode_of(spec_version), **options) as client,
    ):
        yield client


@contextlib.asynccontextmanager
async def over_sse(server, *, spec_version=LATEST_HANDSHAKE_VERSION, **options):
    from tests.interaction._connect import build_sse_app

    app, _ = build_sse_app(server)
    async with (
        gateway.served(app) as url,
        gateway.behind({"transport": "sse", "url": f"{url}/sse"}, "sse") as address,
        Client(sse_client(address), mode="legacy", **options) as client,
    ):
        yield client


async def run_over_pipe(server, reader, writer):
    """Runs a server of the SDK over the pipe of a program."""
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def read():
        async with to_server:
            while line := await reader.readline():
                try:
                    message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                except ValueError as error:
                    await to_server.send(error)
                else:
                    await to_server.send(message)

    async def write():
        async with from_server:
            async for message in from_server:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(line.encode() + b"\n")
                await writer.drain()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        await server.run(from_client, to_client, server.create_initialization_options())
        tasks.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def as_program(server, *, spec_version=LATEST_HANDSHAKE_VERSION, **options):
    lowlevel = server._lowlevel_server if isinstance(server, MCPServer) else server
    async with (
        gateway.program(partial(run_over_pipe, lowlevel)) as program,
        gateway.behind(program) as address,
        Client(streamable_http_client(address), mode=mode_of(spec_version), **options) as client,
    ):
        yield client


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    import tests.interaction.conftest as suite

    if not gateway.DIRECT:
        suite._FACTORIES.update(
            {
                "streamable-http": over_http,
                "streamable-http-stateless": partial(over_http, stateless_http=True),
                "sse": over_sse,
            }
        )
    if gateway.PROGRAM:
        suite._FACTORIES["in-memory"] = as_program
    # Tests that connect in another way would run without the gateway.
    through = [item for item in items if "connect" in item.fixturenames]
    config.hook.pytest_deselected(items=[item for item in items if item not in through])
    items[:] = through


def pytest_sessionfinish():
    gateway.stop()
