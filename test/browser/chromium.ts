import { accessSync, constants } from 'node:fs';
import path from 'node:path';
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import type { Platform } from '#test/harness/platform.ts';

/** Program names to try for the system's browser; `infra/bootstrap/testing/programs.js` tries the same names. */
const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

/**
 * Features of Chromium to switch off. The first two give each window an address bar whose popups are separate pages, which take as much processor
 * time as the window. Playwright switches off the others with the same argument. Chromium reads only the last such argument, so this list repeats
 * them.
 */
const SWITCHED_OFF = [
  'WebUIOmniboxPopup',
  'WebUIOmniboxAimPopup',
  'AimEnabled',
  'AvoidCorsURLLoaderRestartOnRedirect',
  'AvoidUnnecessaryBeforeUnloadCheckSync',
  'DestroyProfileOnBrowserClose',
  'HttpsFirstBalancedModeAutoEnable',
  'HttpsUpgrades',
  'LensOverlay',
  'MediaRouter',
  'NetworkTimeServiceQuerying',
  'OptimizationHints',
  'PaintHolding',
  'PreconnectToSearch',
  'ThirdPartyStoragePartitioning',
];

/** Starts the system's Chromium in headless mode. */
export function launchChromium(): Promise<Browser> {
  const args = [`--disable-features=${SWITCHED_OFF.join(',')}`];
  // Chromium refuses to run its sandbox as root.
  if (process.getuid?.() === 0) args.push('--no-sandbox');
  return chromium.launch({ executablePath: onPath(NAMES), args });
}

/** Time after which waiting for an element fails: twice Playwright's default, because other tests keep the cores busy. */
const WAIT_MS = 60_000;

/** A browser window's context without the cookies of others. `await using` closes it. */
export async function newContext(browser: Browser, options: BrowserContextOptions): Promise<BrowserContext> {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(WAIT_MS);
  return context;
}

function onPath(names: readonly string[]): string {
  const folders = (process.env.PATH ?? '').split(path.delimiter);
  for (const file of names.flatMap((name) => folders.map((folder) => path.join(folder, name)))) {
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // The program is not in this directory.
    }
  }
  throw new Error('Chromium is missing. `npm test` installs it, or do it by hand.');
}

/** Signs in to the dashboard of a platform with its key. */
export async function signIn(page: Page, platform: Pick<Platform, 'url' | 'apiKey'>): Promise<void> {
  await page.goto(`${platform.url}/dashboard/sign-in`);
  await page.getByLabel('API key').fill(platform.apiKey);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
}

const SCREENSHOTS = process.env.PIE_SCREENSHOTS;

/** Writes a screenshot of the whole page to the folder `PIE_SCREENSHOTS`. Without the variable it does nothing, as screenshots slow the tests. */
export async function shoot(page: Page, name: string): Promise<void> {
  if (SCREENSHOTS) await page.screenshot({ path: path.join(SCREENSHOTS, `${name}.png`), fullPage: true });
}

/** Pixels by which a page is wider than its window. */
export function excessWidth(page: Page): Promise<number> {
  return page.evaluate('document.documentElement.scrollWidth - innerWidth');
}

/** Texts whose contrast with their background is below 4.5:1 (WCAG AA), with the ratio. Assumes backgrounds of one colour. */
export function faintTexts(page: Page): Promise<string[]> {
  return page.evaluate(`(() => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const rgba = (colour) => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      return canvas.getImageData(0, 0, 1, 1).data;
    };
    const luminance = ([r, g, b]) => {
      const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
      return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    };
    const over = ([r, g, b, alpha], below) => [r, g, b].map((c, i) => below[i] + ((c - below[i]) * alpha) / 255);
    const behind = (element) => {
      if (element === null) return [255, 255, 255];
      const colour = rgba(getComputedStyle(element).backgroundColor);
      return colour[3] === 255 ? colour : over(colour, behind(element.parentElement));
    };
    const faint = [];
    for (const element of document.body.querySelectorAll('*')) {
      const isTextNode = (node) => node.nodeType === Node.TEXT_NODE;
      const hasText = [...element.childNodes].some((node) => isTextNode(node) && node.nodeValue.trim() !== '');
      if (!hasText || !element.checkVisibility() || element.closest('svg')) continue;
      const background = behind(element);
      const [a, b] = [over(rgba(getComputedStyle(element).color), background), background].map(luminance);
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (ratio < 4.5) faint.push(element.textContent.slice(0, 40) + ' ' + ratio.toFixed(2));
    }
    return faint;
  })()`);
}

/** Faults of a page that hinder assistive technology, each in a few words. */
export function barriers(page: Page): Promise<string[]> {
  return page.evaluate(`(() => {
    const found = [];
    const count = (selector) => document.querySelectorAll(selector).length;
    if (count('h1') !== 1) found.push(count('h1') + ' h1');
    for (const name of ['main', 'header', 'footer']) if (count(name) !== 1) found.push(count(name) + ' ' + name);
    if (document.documentElement.lang === '') found.push('no language');
    for (const field of document.querySelectorAll('input:not([type=hidden]), select, textarea'))
      if (field.labels.length === 0) found.push('no label for ' + field.name);
    for (const thing of document.querySelectorAll('a, button, summary'))
      if (thing.textContent.trim() === '') found.push('nameless ' + thing.outerHTML);
    for (const image of document.querySelectorAll('svg:not([aria-hidden])'))
      if (image.getAttribute('role') !== 'img' || !image.getAttribute('aria-label')) found.push('image without words');
    const ids = [...document.querySelectorAll('[id]')].map(({ id }) => id);
    if (new Set(ids).size !== ids.length) found.push('an id twice');
    return found;
  })()`);
}
