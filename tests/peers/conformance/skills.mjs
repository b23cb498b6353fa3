// A server of 2026-07-28 with skills: `node skills.mjs NUMBER`.

import { createHash } from "node:crypto";
import { Refusal, serve } from "./raw.mjs";

const number = process.argv[2] ?? "0";
const FRESH = { ttlMs: 60_000, cacheScope: "public" };
/** Pages are short, so that lists have several. */
const PAGE = 2;

const names = ["convert", "extract", "merge"].map((name) => `${name}-${number}`);
const root = (name) => `skill://pdf-${number}/${name}`;

/** The files of all skills, by URI. */
const files = new Map();
for (const name of names) {
  const description = `Teaches to ${name} documents`;
  const text = `---\nname: ${name}\ndescription: ${description}\n---\n\n# ${name}\n`;
  files.set(`${root(name)}/SKILL.md`, { name, description, mimeType: "text/markdown", text });
  files.set(`${root(name)}/scripts/run.py`, { name: "run.py", mimeType: "text/x-python", text: "print()\n" });
}

const skills = names.map((name) => {
  const own = [...files].filter(([uri]) => uri.startsWith(`${root(name)}/`));
  return {
    uri: `${root(name)}/SKILL.md`,
    frontmatter: { name, description: `Teaches to ${name} documents` },
    resources: own.map(([uri, { text }]) => ({
      uri,
      digest: `sha256:${createHash("sha256").update(text).digest("hex")}`,
      size: Buffer.byteLength(text),
    })),
  };
});

function page(name, items, { cursor = "0" } = {}) {
  const end = Number(cursor) + PAGE;
  const more = end < items.length ? { nextCursor: String(end) } : {};
  return { [name]: items.slice(Number(cursor), end), ...more, ...FRESH };
}

/** The direct children of a folder. */
function children(folder) {
  const found = new Map();
  for (const [uri, { text: _, ...file }] of files) {
    if (!uri.startsWith(`${folder}/`)) continue;
    const [name, ...below] = uri.slice(folder.length + 1).split("/");
    const child = `${folder}/${name}`;
    found.set(child, below.length ? { uri: child, name, mimeType: "inode/directory" } : { uri, ...file });
  }
  if (found.size === 0) throw new Refusal(-32602, `no folder: ${folder}`);
  return [...found.values()];
}

serve({
  "server/discover": () => ({
    supportedVersions: ["2026-07-28"],
    capabilities: {
      resources: {},
      tools: {},
      extensions: { "io.modelcontextprotocol/skills": { directoryRead: true } },
    },
    ...FRESH,
  }),
  "tools/list": () => ({ tools: [], ...FRESH }),
  "resources/list": (params) =>
    page("resources", [...files].map(([uri, { text: _, ...file }]) => ({ uri, ...file })), params),
  "resources/templates/list": () => ({ resourceTemplates: [], ...FRESH }),
  "resources/read": ({ uri }) => {
    const file = files.get(uri);
    if (!file) throw new Refusal(-32602, `no file: ${uri}`);
    return { contents: [{ uri, mimeType: file.mimeType, text: file.text }], ...FRESH };
  },
  "resources/directory/read": ({ uri, ...params }) => page("resources", children(uri), params),
  "skills/list": (params) => page("skills", skills, params),
  "skills/get": ({ uri }) => {
    const skill = skills.find((it) => it.uri === uri);
    if (!skill) throw new Refusal(-32602, `no skill: ${uri}`);
    return { skill, ...FRESH };
  },
});
