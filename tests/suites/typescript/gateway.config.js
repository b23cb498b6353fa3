import { defineConfig, mergeConfig } from 'vitest/config';

import base from './vitest.config.js';

const { SUITE_HERE } = process.env;

// The gateway tells the tests their address through the environment, which forks inherit.
export default mergeConfig(
    base,
    defineConfig({
        test: {
            pool: 'forks',
            testTimeout: 60_000,
            globalSetup: [`${SUITE_HERE}/setup.mjs`],
            reporters: [`${SUITE_HERE}/results.mjs`]
        }
    })
);
