// The fixture server: `node fixture.mjs ERA TRANSPORT`. ERA is `dual`, `legacy` or `modern`,
// TRANSPORT is `http`, whose address is the first line of the output, or `stdio`.

import { createServer } from "node:http";
import { json } from "node:stream/consumers";

const [era, transport] = process.argv.slice(2);

const LOCAL = /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/;

const handlers = {
  dual: async () => (await import("./modern.mjs")).dual(),
  modern: async () => (await import("./modern.mjs")).modernOnly(),
  legacy: async () => (await import("./legacy.mjs")).sessions(),
};

async function http() {
  const handle = await handlers[era]();
  const server = createServer(async (request, response) => {
    if (!LOCAL.test(request.headers.host)) {
      response.writeHead(403).end();
      return;
    }
    try {
      const body = request.method === "POST" ? await json(request) : undefined;
      await handle(request, response, body);
    } catch (error) {
      console.error(error);
      if (!response.headersSent) response.writeHead(500);
      response.end();
    }
  });
  server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
}

async function stdio() {
  if (era === "legacy") await (await import("./legacy.mjs")).stdio();
  else (await import("./modern.mjs")).stdio(era === "modern" ? "reject" : "serve");
}

await { http, stdio }[transport]();
