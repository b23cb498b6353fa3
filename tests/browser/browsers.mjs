import { chromium, firefox } from "playwright-core";

const CHROMIUM_ARGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/**
 * The programs of the system: Chromium over its own protocol, Firefox over WebDriver BiDi. Playwright 1.65
 * sends Firefox `emulation.setMediaFeaturesOverride`, which 153 ESR does not know; hence 1.64.
 */
export const BROWSERS = {
  chromium: () => chromium.launch({ executablePath: process.env.CHROMIUM, args: CHROMIUM_ARGS }),
  // A page of Firefox cannot be given a theme, only all of them.
  firefox: (colorScheme) =>
    firefox.launch({
      channel: "moz-firefox",
      executablePath: process.env.FIREFOX,
      firefoxUserPrefs: { "layout.css.prefers-color-scheme.content-override": colorScheme === "dark" ? 0 : 1 },
    }),
};
