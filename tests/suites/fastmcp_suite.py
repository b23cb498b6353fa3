"""The suite of FastMCP, with the gateway between its clients and its servers.

A plugin of pytest. `Client(server)` connects in memory; here the server is served over Streamable
HTTP instead. A test that makes no such client is left out of the results.
"""

import contextlib

import gateway
import pytest
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.client.transports.memory import FastMCPTransport
from mcp.server.mcpserver import MCPServer

# Tests replace what connects a session.
in_memory = FastMCPTransport.connect_session
streamable = StreamableHttpTransport.connect_session
connected = set()
current = None


@contextlib.asynccontextmanager
async def http_app(server):
    if isinstance(server, MCPServer):
        app = server.streamable_http_app()
        async with server.session_manager.run():
            yield app
        return
    app = server.http_app(path="/mcp", host_origin_protection=False)
    async with app.router.lifespan_context(app):
        yield app


@contextlib.asynccontextmanager
async def over_http(self, *, transport_options=None, **options):
    if gateway.in_server.get() or gateway.DIRECT:
        connected.add(current)
        async with in_memory(self, transport_options=transport_options, **options) as session:
            yield session
        return
    connected.add(current)
    async with (
        http_app(self.server) as app,
        gateway.served(app) as url,
        gateway.behind({"transport": "streamableHttp", "url": f"{url}/mcp"}) as address,
        streamable(StreamableHttpTransport(address), transport_options=transport_options, **options) as session,
    ):
        yield session


FastMCPTransport.connect_session = over_http


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    global current
    current = item.nodeid


def pytest_runtest_logreport(report):
    report.is_of_suite = report.nodeid in connected


def pytest_sessionfinish():
    gateway.stop()
