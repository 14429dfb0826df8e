// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { ensureInstalled, runs } from './packages.js';

/** Program names to try for the browser, in this order; `test/browser/chromium.ts` tries the same names. */
const BROWSERS = ['chromium', 'chromium-browser', 'google-chrome'];
const PACKAGES = ['chromium'];

/** @type {import('./packages.js').Wanted} */
export const CHROMIUM = {
  name: 'Chromium',
  reason: 'the tests look at the dashboard in it',
  packages: { 'apt-get': PACKAGES, dnf: PACKAGES, apk: PACKAGES, pacman: PACKAGES, zypper: PACKAGES },
  isThere: () => BROWSERS.some((browser) => runs(browser)),
};

/** Finds the browser for the dashboard's tests or installs it with the system's package manager. The platform itself needs no browser. */
export function ensureChromium() {
  ensureInstalled(CHROMIUM);
}
