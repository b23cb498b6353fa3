// A real authorization server and a server of the official SDK that takes its tokens, each of which
// can be made to fail, and a person who signs in.

import { createHash, randomBytes, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import {
  EmbeddedJWK,
  calculateJwkThumbprint,
  createLocalJWKSet,
  exportJWK,
  generateKeyPair,
  jwtVerify,
} from "jose";
import Provider, { errors } from "oidc-provider";
import { z } from "zod";

const SCOPE = "tools";

/** Tokens are bound to a key, and proofs need a nonce (RFC 9449). */
const DPOP = process.env.DPOP === "1";

const listen = (server, port) =>
  new Promise((started) => server.listen(port, "127.0.0.1", started));

/** Gives out tokens for `resource`. Everybody who opens its page is `ada`, and agrees. */
export class Authority {
  /** Seconds that a token holds. */
  lifetime = 3600;
  /** How the token endpoint fails: not at all, with a status, or by hanging up ("reset"). */
  outage = null;
  /** Requests that failed so. */
  failed = 0;
  registered = 0;
  refreshed = 0;
  /** Sign-ins that ended because a refresh token came twice, or was taken back. */
  ended = 0;
  /** The last sign-in. */
  #grant;

  static async start(issuer, resource) {
    const authority = new Authority();
    const { privateKey, publicKey } = await generateKeyPair("ES256", { extractable: true });
    const named = async (key) => ({ ...(await exportJWK(key)), alg: "ES256", use: "sig", kid: "k" });
    authority.keys = { keys: [await named(publicKey)] };
    authority.issuer = issuer;
    authority.resource = resource;
    authority.provider = authority.#provider(await named(privateKey));
    authority.#count();
    authority.server = createServer((request, response) => authority.#serve(request, response));
    await listen(authority.server, new URL(issuer).port);
    return authority;
  }

  #provider(key) {
    return new Provider(this.issuer, {
      jwks: { keys: [key] },
      cookies: { keys: [randomUUID()] },
      scopes: [SCOPE],
      // It has no other key.
      clientDefaults: { id_token_signed_response_alg: "ES256" },
      issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
      rotateRefreshToken: true,
      interactions: { url: (_, interaction) => `/sign-in/${interaction.uid}` },
      features: {
        devInteractions: { enabled: false },
        registration: { enabled: true },
        revocation: { enabled: true },
        ...(DPOP && { dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => true } }),
        resourceIndicators: {
          enabled: true,
          useGrantedResource: () => true,
          getResourceServerInfo: (_, audience) => this.#token(audience),
        },
      },
    });
  }

  /** How a token for this resource is made. */
  #token(audience) {
    if (audience !== this.resource) throw new errors.InvalidTarget();
    return {
      audience,
      scope: SCOPE,
      accessTokenTTL: this.lifetime,
      accessTokenFormat: "jwt",
      jwt: { sign: { alg: "ES256" } },
    };
  }

  #count() {
    this.provider.on("registration_create.success", () => (this.registered += 1));
    this.provider.on("grant.revoked", () => (this.ended += 1));
    this.provider.on("grant.success", ({ oidc }) => {
      this.refreshed += Number(oidc.params.grant_type === "refresh_token");
    });
    this.provider.on("server_error", (_, error) => console.error(error));
  }

  async #serve(request, response) {
    if (request.url.startsWith("/sign-in/")) return this.#agree(request, response);
    if (this.outage && request.url === "/token") {
      this.failed += 1;
      if (this.outage === "reset") return request.socket.destroy();
      return response.writeHead(this.outage).end();
    }
    return this.provider.callback()(request, response);
  }

  /** The page on which somebody signs in, and lets the client call the server. */
  async #agree(request, response) {
    const details = await this.provider.interactionDetails(request, response);
    const { prompt, params, session } = details;
    if (prompt.name === "login") {
      const result = { login: { accountId: "ada" } };
      return this.provider.interactionFinished(request, response, result);
    }
    const grant = new this.provider.Grant({
      accountId: session.accountId,
      clientId: params.client_id,
    });
    const { missingOIDCScope = [], missingResourceScopes = {} } = prompt.details;
    grant.addOIDCScope(missingOIDCScope.join(" "));
    for (const [resource, scopes] of Object.entries(missingResourceScopes)) {
      grant.addResourceScope(resource, scopes.join(" "));
    }
    this.#grant = await grant.save();
    const result = { ...details.lastSubmission, consent: { grantId: this.#grant } };
    return this.provider.interactionFinished(request, response, result);
  }

  /** From now on it renews no token of the last sign-in. */
  async endSignIn() {
    const grant = await this.provider.Grant.find(this.#grant);
    await grant.destroy();
  }

  /** Fails in this way for as long as `until` takes. */
  async away(outage, until) {
    this.failed = 0;
    this.outage = outage;
    await until();
    this.outage = null;
  }
}

/** A server of the official SDK that nobody calls without a token of the authority for it. */
export class Resource {
  /** Numbers that `count` was called with. */
  counted = [];
  /** Tokens that it has seen; those before `refused` are not taken any more. */
  tokens = [];
  refused = 0;
  #sessions = new Map();
  #nonce = randomUUID();
  /** Ids of proofs: each is good for one request. */
  #proofs = new Set();

  static async start(url, authority) {
    const resource = new Resource();
    resource.url = url;
    resource.authority = authority;
    resource.keys = createLocalJWKSet(authority.keys);
    resource.server = createServer((request, response) => resource.#serve(request, response));
    await listen(resource.server, new URL(url).port);
    return resource;
  }

  /** From now on it refuses every token that it has seen, whatever the token says of its end. */
  refuseTokens() {
    this.#nonce = randomUUID();
    this.refused = this.tokens.length;
  }

  /** Checks that a request proves its token's key, for this request alone; an error if not. */
  async #proven({ headers, method }, token, { jkt }) {
    const { payload, protectedHeader } = await jwtVerify(headers.dpop, EmbeddedJWK, { typ: "dpop+jwt" });
    const { jti, htm, htu, ath, nonce } = payload;
    const hash = createHash("sha256").update(token).digest("base64url");
    if (this.#proofs.has(jti) || htm !== method || htu !== this.url || ath !== hash) return "invalid_dpop_proof";
    if ((await calculateJwkThumbprint(protectedHeader.jwk)) !== jkt) return "invalid_dpop_proof";
    this.#proofs.add(jti);
    return nonce === this.#nonce ? undefined : "use_dpop_nonce";
  }

  async #isGood(request, response) {
    const token = request.headers.authorization?.replace(DPOP ? /^DPoP / : /^Bearer /, "");
    const { issuer } = this.authority;
    try {
      const { payload } = await jwtVerify(token, this.keys, { issuer, audience: this.url });
      const error = DPOP && (await this.#proven(request, token, payload.cnf));
      if (error) {
        response.setHeader("dpop-nonce", this.#nonce).setHeader("www-authenticate", `DPoP error="${error}"`);
        return false;
      }
      if (!this.tokens.includes(token)) this.tokens.push(token);
      return payload.sub === "ada" && this.tokens.indexOf(token) >= this.refused;
    } catch {
      return false;
    }
  }

  async #serve(request, response) {
    const { origin } = new URL(this.url);
    if (request.url.startsWith("/.well-known/oauth-protected-resource")) {
      response.writeHead(200, { "content-type": "application/json" });
      const { issuer } = this.authority;
      const metadata = {
        resource: this.url,
        authorization_servers: [issuer],
        scopes_supported: [SCOPE],
      };
      return response.end(JSON.stringify(metadata));
    }
    if (!(await this.#isGood(request, response))) {
      if (response.hasHeader("dpop-nonce")) return response.writeHead(401).end();
      const metadata = `${origin}/.well-known/oauth-protected-resource/mcp`;
      const challenge = `${DPOP ? "DPoP" : "Bearer"} resource_metadata="${metadata}", scope="${SCOPE}"`;
      return response.writeHead(401, { "www-authenticate": challenge }).end();
    }
    const known = this.#sessions.get(request.headers["mcp-session-id"]);
    return (known ?? (await this.#session())).handleRequest(request, response);
  }

  async #session() {
    const server = new McpServer({ name: "guarded", version: "1.0.0" });
    server.registerTool("count", { inputSchema: { n: z.number() } }, ({ n }) => {
      this.counted.push(n);
      return { content: [{ type: "text", text: `counted ${n}` }] };
    });
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void this.#sessions.set(id, transport),
    });
    await server.connect(transport);
    return transport;
  }
}

/** Opens a page as a browser does, with its cookies, and follows it to the end. */
export async function browse(url) {
  const jar = new Map();
  for (let steps = 0; steps < 10; steps += 1) {
    const { host } = new URL(url);
    const cookies = [...(jar.get(host) ?? [])].map(([name, value]) => `${name}=${value}`);
    const headers = { cookie: cookies.join("; ") };
    const page = await fetch(url, { redirect: "manual", headers });
    const own = jar.get(host) ?? new Map();
    for (const cookie of page.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
      if (value) own.set(name, value);
      else own.delete(name);
    }
    jar.set(host, own);
    if (page.status < 300 || page.status > 399) return page;
    await page.text();
    url = new URL(page.headers.get("location"), url);
  }
  throw new Error(`${url} leads nowhere`);
}
