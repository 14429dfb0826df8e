/** Writes the screenshots of the dashboard for the README and the guides into `docs/`. Run `npm run screenshot` after a change of a page. */
import { statSync } from 'node:fs';
import path from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { runInPast } from '#gateway/testing/past-runs.ts';
import { GatewayPlatform } from '#gateway/testing/platform.ts';
import { Platform, ROOT } from '#test/harness/platform.ts';
import { createTenant, submit } from '#test/harness/tenants.ts';
import { launchChromium, signIn } from './chromium.ts';
import { usageRuns } from './usage-runs.ts';

const STORIES = 12;
/** Greetings of conversations that wait for their client: the screenshot of the overview shows them as running invocations. */
const GREETINGS = ['Good morning', 'Hello', 'How are you?'];
const WIDTH = 1120;
const VIEW = { viewport: { width: WIDTH, height: 700 } };

const browser = await launchChromium();
try {
  await photographPlatform(browser);
  await photographUsage(browser);
} finally {
  await browser.close();
}

async function photographPlatform(browser: Browser): Promise<void> {
  await using platform = await Platform.start({ functions: ['text-completion', 'echo-session', 'draft-approval'] });
  const page = await browser.newPage(VIEW);
  await signIn(page, platform);
  for (const greeting of GREETINGS) await submit(platform, 'echo-session', { greeting });
  const prompts = Array.from({ length: STORIES }, (_, seed) => ({ prompt: 'Once', maxTokens: 20 + 10 * seed, seed }));
  for (const prompt of prompts) await submit(platform, 'text-completion', prompt);
  const runningCount = page.locator('#now .tile', { hasText: 'Running' }).locator('dd');
  // The stories have ended, and the conversations still run.
  await runningCount.filter({ hasText: new RegExp(`^${GREETINGS.length}$`) }).waitFor();
  await page.reload();
  await page.getByText('Live', { exact: true }).waitFor();
  await photograph(page, 'dashboard', 700);

  await page.goto(`${platform.url}/dashboard/playground?function=text-completion`);
  await page.getByLabel('temperature').fill('0');
  await page.getByLabel('maxTokens').fill('40');
  await page.getByRole('button', { name: 'Run' }).click();
  await page.locator('#run .badge', { hasText: 'succeeded' }).waitFor();
  await photograph(page, 'playground', 1080);

  await page.locator('#run').getByRole('link').click();
  await page.getByRole('heading', { name: 'Where the time went' }).waitFor();
  await photograph(page, 'waterfall', await bottomOf(page, '#usage'));

  const prompt = 'Once upon a time, there was a little girl named Lily.';
  const waitingId = await submit(platform, 'draft-approval', { prompt, maxTokens: 48 });
  await page.goto(`${platform.url}/dashboard/invocations/${waitingId}`);
  await page.getByLabel('decision').selectOption('approve');
  await page.getByLabel('text').fill('She had a gray cat named Mittens.');
  await photograph(page, 'answer', await bottomOf(page, '#facts'));

  const acme = await createTenant(platform, 'acme');
  const quota = { method: 'PUT', headers: { 'content-type': 'application/json' } };
  const limits = [
    { quota: 'tokens-per-day', limit: 5_000_000 },
    { quota: 'requests-per-minute', limit: 600, reason: 'launch', expiresAt: new Date(Date.now() + 7_200_000) },
  ];
  for (const limit of limits)
    await platform.fetch('/v1/quotas', { ...quota, body: JSON.stringify({ tenant: acme.name, ...limit }) });
  await page.goto(`${platform.url}/dashboard/administration?tenant=${acme.name}`);
  await page.getByText('launch').waitFor();
  await photograph(page, 'administration', await bottomOf(page, '#new-limit'));
  await page.close();
}

/** Takes the screenshot of the usage page on a test gateway, which can date example runs back over the last month. */
async function photographUsage(browser: Browser): Promise<void> {
  const platform = await GatewayPlatform.start();
  try {
    await runInPast(platform, usageRuns(Date.now()));
    const page = await browser.newPage(VIEW);
    await signIn(page, platform);
    await page.goto(`${platform.url}/dashboard/usage?by=day`);
    await page.locator('.charts').waitFor();
    await photograph(page, 'usage', (await bottomOf(page, '.charts')) + 160);
  } finally {
    await platform.stop();
  }
}

/** Writes the upper part of a page, without scrollbars. */
async function photograph(page: Page, name: string, height: number): Promise<void> {
  await page.setViewportSize({ width: WIDTH, height: Math.ceil(height) });
  await page.evaluate('document.activeElement.blur(); scrollTo(0, 0)');
  const file = path.join(ROOT, 'docs', `${name}.png`);
  await page.screenshot({ path: file });
  console.log(`${file}  ${Math.ceil(statSync(file).size / 1000)} kB`);
}

/** Pixels from the top of a page to a margin below the element that a selector finds. */
async function bottomOf(page: Page, selector: string): Promise<number> {
  return Number(
    await page.evaluate(`document.querySelector('${selector}').getBoundingClientRect().bottom + scrollY + 24`),
  );
}
