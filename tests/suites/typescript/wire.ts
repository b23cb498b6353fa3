/**
 * Takes the place of `helpers/index.ts` of the suite, which is `helpers/direct.ts` then: `wire`
 * puts the gateway between a client and its server. The other helpers stay as they are.
 */

import { randomUUID } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';

import type { Client } from '@modelcontextprotocol/client';
import { SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { createMcpHandler } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { expect } from 'vitest';

import type { Transport } from '../types';
import {
    hostPerSession,
    hostStateless,
    type EntryServerFactory,
    type RecordedHttpExchange,
    type ServerFactory,
    type Wired,
    type WireOptions
} from './direct';
import { startLegacySseHost } from './sse-host';
import { sniffTransport } from './wire-sniffer';

export * from './direct';

type Setting = 'SUITE_GATEWAY' | 'SUITE_TOKEN' | 'SUITE_RELAY' | 'SUITE_WIRED' | 'MCPVISOR';
const { SUITE_GATEWAY, SUITE_TOKEN, SUITE_RELAY, SUITE_WIRED, MCPVISOR } = process.env as Record<Setting, string>;
const WAIT = 10_000;
// Tests replace the clock and its timers, on which the gateway does not depend.
const { setTimeout: after, Date: Clock } = globalThis;
const pause = (milliseconds: number) => new Promise<void>(resolve => void after(resolve, milliseconds));

type Close = () => Promise<void>;
type Fetch = (url: URL | string, init?: RequestInit) => Promise<Response>;

async function ask(method: string, place: string, body?: unknown): Promise<Response> {
    return fetch(SUITE_GATEWAY + place, {
        method,
        headers: { 'X-Session-Token': SUITE_TOKEN, 'Content-Type': 'application/json' },
        body: body === undefined ? undefined : JSON.stringify(body)
    });
}

/** The gateway serves a server under this name; the client waits until the gateway has its lists. */
async function behind(server: Record<string, unknown>): Promise<string> {
    const name = `s${randomUUID().slice(0, 13)}`;
    const added = await ask('POST', '/config', { name, ...server });
    if (!added.ok) throw new Error(`the gateway refuses the server: ${await added.text()}`);
    for (const end = Clock.now() + WAIT; Clock.now() < end; ) {
        const shown = (await (await ask('GET', `/api/servers/${name}`)).json()) as { state: string };
        if (shown.state === 'up') break;
        await pause(20);
    }
    // A list waits until the server was listed for the first time.
    const meta = {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientInfo': { name: 'suites', version: '1' },
        'io.modelcontextprotocol/clientCapabilities': {}
    };
    await fetch(`${SUITE_GATEWAY}/mcp/server/${name}`, {
        method: 'POST',
        headers: {
            'Content-Type': 'application/json',
            Accept: 'application/json, text/event-stream',
            'MCP-Protocol-Version': '2026-07-28',
            'Mcp-Method': 'tools/list'
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: { _meta: meta } })
    });
    return name;
}

/** Serves a handler of web requests on loopback. */
async function served(handler: (request: Request) => Promise<Response>): Promise<{ url: string; close: Close }> {
    const answer = async (incoming: IncomingMessage, outgoing: ServerResponse) => {
        const gone = new AbortController();
        outgoing.on('close', () => gone.abort());
        const headers = new Headers();
        for (const [name, value] of Object.entries(incoming.headers)) {
            for (const one of [value].flat()) headers.append(name, String(one));
        }
        const hasBody = incoming.method === 'POST';
        const request = new Request(`http://${incoming.headers.host}${incoming.url}`, {
            method: incoming.method,
            headers,
            signal: gone.signal,
            ...(hasBody && { body: Readable.toWeb(incoming) as ReadableStream, duplex: 'half' })
        } as RequestInit);
        const response = await handler(request);
        outgoing.writeHead(response.status, Object.fromEntries(response.headers));
        outgoing.flushHeaders();
        if (response.body === null) return void outgoing.end();
        const reader = response.body.getReader();
        outgoing.on('close', () => void reader.cancel().catch(() => {}));
        for (;;) {
            const { done, value } = await reader.read();
            if (done) break;
            outgoing.write(value);
        }
        outgoing.end();
    };
    const server = createHttpServer((incoming, outgoing) => {
        answer(incoming, outgoing).catch(() => outgoing.destroy());
    });
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    return {
        url: `http://127.0.0.1:${port}/mcp`,
        close: async () => {
            server.closeAllConnections();
            await new Promise<void>(resolve => server.close(() => resolve()));
        }
    };
}

/** A program that the gateway starts; each of its processes is connected to a server of its own. */
async function program(makeServer: ServerFactory): Promise<{ server: Record<string, unknown>; close: Close }> {
    const place = path.join(tmpdir(), `suite-${randomUUID()}`);
    const sockets = new Set<Socket>();
    const listener = createServer(socket => {
        sockets.add(socket);
        socket.on('error', () => {});
        socket.on('close', () => sockets.delete(socket));
        void makeServer().connect(new StdioServerTransport(socket, socket));
    });
    await new Promise<void>(resolve => listener.listen(place, resolve));
    return {
        server: { transport: 'stdio', command: 'python3', args: ['-ISE', SUITE_RELAY, place] },
        close: async () => {
            for (const socket of sockets) socket.destroy();
            await new Promise<void>(resolve => listener.close(() => resolve()));
        }
    };
}

/** The same `fetch`, which keeps what went over it. */
function recorded(httpLog: RecordedHttpExchange[]): Fetch {
    return async (url, init) => {
        const request = new Request(url, init);
        const response = await fetch(url, init);
        httpLog.push({
            method: request.method.toUpperCase(),
            requestHeaders: request.headers,
            ...(typeof init?.body === 'string' && { requestBody: init.body }),
            status: response.status,
            contentType: response.headers.get('content-type') ?? '',
            response: response.clone()
        });
        return response;
    };
}

/** Starts the server of a test; returns how the gateway reaches it. */
async function start(
    transport: Transport,
    makeServer: ServerFactory | EntryServerFactory,
    options: WireOptions
): Promise<{ server: Record<string, unknown>; close: Close }> {
    const http = async (handler: (request: Request) => Promise<Response>, close: Close) => {
        const host = await served(handler);
        const closeAll = async () => {
            await close();
            await host.close();
        };
        return { server: { transport: 'streamableHttp', url: host.url }, close: closeAll };
    };
    switch (transport) {
        case 'inMemory':
        case 'stdio': {
            return program(makeServer);
        }
        case 'streamableHttp':
        case 'streamableHttpStateless': {
            const handle = transport === 'streamableHttp' ? hostPerSession(makeServer) : hostStateless(makeServer);
            return http(handle.handleRequest, handle.close);
        }
        case 'entryStateless':
        case 'entryModern': {
            const legacy = transport === 'entryStateless' ? 'stateless' : 'reject';
            const handler = createMcpHandler(makeServer, { legacy, ...options.entry });
            return http(
                request => handler.fetch(request),
                () => handler.close()
            );
        }
        case 'sse': {
            const host = await startLegacySseHost(makeServer);
            return { server: { transport: 'sse', url: host.url.href }, close: () => host.close() };
        }
    }
}

export async function wire(
    transport: Transport,
    makeServer: ServerFactory | EntryServerFactory,
    client: Client,
    options: WireOptions = {}
): Promise<Wired> {
    const { currentTestName } = expect.getState();
    appendFileSync(SUITE_WIRED, `${JSON.stringify(currentTestName)}\n`);
    const { server, close } = await start(transport, makeServer, options);
    const name = await behind(server);
    const url = new URL(`${SUITE_GATEWAY}/${transport === 'sse' ? 'sse' : 'mcp'}/server/${name}`);
    const end = async () => {
        await client.close();
        await ask('DELETE', `/config/${name}`);
        await close();
    };
    const httpLog: RecordedHttpExchange[] = [];
    const isEntry = transport === 'entryStateless' || transport === 'entryModern';
    const through: Fetch = isEntry ? recorded(httpLog) : (url, init) => fetch(url, init);
    let sniff: WireOptions = options;
    if (transport === 'entryModern') {
        client.setVersionNegotiation({ mode: { pin: '2026-07-28' } });
        sniff = { allowInputRequiredResults: true, ...options };
    }
    const connector =
        transport === 'stdio'
            ? new StdioClientTransport({ command: MCPVISOR, args: ['stdio', '--connect', url.href], stderr: 'ignore' })
            : transport === 'sse'
              ? new SSEClientTransport(url)
              : new StreamableHTTPClientTransport(url, { fetch: through });
    try {
        await client.connect(sniffTransport(connector, 'client', sniff));
    } catch (error) {
        await end();
        throw error;
    }
    const isHttp = transport !== 'stdio' && transport !== 'inMemory' && transport !== 'sse';
    return {
        ...((isHttp || transport === 'sse') && { url }),
        ...(isHttp && { fetch: through }),
        ...(isEntry && { httpLog }),
        [Symbol.asyncDispose]: end
    };
}
