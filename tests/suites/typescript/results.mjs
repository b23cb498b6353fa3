// A reporter of vitest: writes how each test ended whose client was wired through the gateway, a
// line of JSON each, as `results.py` does.

import { appendFileSync, existsSync, readFileSync } from 'node:fs';

const { SUITE_RESULTS, SUITE_WIRED } = process.env;

export default class Results {
    onTestCaseResult(test) {
        const { state, errors = [] } = test.result();
        const wired = existsSync(SUITE_WIRED) ? readFileSync(SUITE_WIRED, 'utf8') : '';
        if (state === 'skipped' || !wired.includes(`${JSON.stringify(test.fullName)}\n`)) return;
        const said = errors.map(error => `E ${error.message}`).join('\n');
        const result = { test: test.fullName, outcome: state, when: 'call', said };
        appendFileSync(SUITE_RESULTS, `${JSON.stringify(result)}\n`);
    }
}
