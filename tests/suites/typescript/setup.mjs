// Starts one gateway for all tests of a run.

import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync, openSync, copyFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const CONFIGURATION = `
[gateway]
listen = "127.0.0.1:0"
data_dir = "data"
`;
const WAIT = 10_000;

export default async function setup() {
    const here = mkdtempSync(path.join(tmpdir(), 'suite-'));
    writeFileSync(path.join(here, 'config.toml'), CONFIGURATION);
    const place = path.join(here, 'log');
    const log = openSync(place, 'w');
    const gateway = spawn(process.env.MCPVISOR, ['serve', '--config', 'config.toml'], { cwd: here, stdio: ['ignore', log, log] });
    const url = await address(place);
    process.env.SUITE_GATEWAY = url;
    process.env.SUITE_TOKEN = readFileSync(path.join(here, 'data', 'api-token'), 'utf8').trim();
    return async () => {
        const ended = new Promise(resolve => gateway.once('exit', resolve));
        gateway.kill();
        await ended;
        if (process.env.SUITE_LOG) copyFileSync(place, process.env.SUITE_LOG);
        rmSync(here, { recursive: true, force: true });
    };
}

async function address(log) {
    for (const end = Date.now() + WAIT; Date.now() < end; ) {
        const served = /serves (http:\/\/[^/\s"]+)/.exec(readFileSync(log, 'utf8'));
        if (served) return served[1];
        await new Promise(resolve => setTimeout(resolve, 20));
    }
    throw new Error(`the gateway does not serve: ${readFileSync(log, 'utf8')}`);
}
