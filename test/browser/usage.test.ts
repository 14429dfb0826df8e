import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type { Browser, Page } from 'playwright-core';
import { runInPast } from '#gateway/testing/past-runs.ts';
import { GatewayPlatform } from '#gateway/testing/platform.ts';
import { until } from '#test/harness/platform.ts';
import { barriers, excessWidth, faintTexts, launchChromium, newContext, shoot, signIn } from './chromium.ts';
import { usageRuns } from './usage-runs.ts';

const HOUR_MS = 3_600_000;
/** Heading of each chart, and the member of the API's rows that the chart shows. */
const CHARTS = [
  ['Invocations', 'invocations'],
  ['Failed', 'failed'],
  ['Output tokens', 'outputTokens'],
] as const;
const CHOICES = [
  {
    over: 'a day',
    by: 'hour',
    choice: 'The last 24 hours',
    backMs: 23 * HOUR_MS,
    named: (at: string) => at.slice(0, 16).replace('T', ' '),
  },
  {
    over: 'a month',
    by: 'day',
    choice: 'The last 31 days',
    backMs: 30 * 24 * HOUR_MS,
    named: (at: string) => at.slice(0, 10),
  },
] as const;
const LOOKS = [
  ['desktop', { viewport: { width: 1280, height: 800 } }],
  ['dark-phone', { viewport: { width: 360, height: 740 }, colorScheme: 'dark' }],
] as const;

let platform: GatewayPlatform;
let browser: Browser;

before(async () => {
  platform = await GatewayPlatform.start();
  await runInPast(platform, usageRuns(Date.now()));
  browser = await launchChromium();
});
after(async () => {
  await browser?.close();
  await platform?.stop();
});

for (const { over, by, choice, backMs, named } of CHOICES)
  for (const [look, options] of LOOKS)
    test(`usage charts over ${over} show the numbers of the API to pointer and keyboard: ${look}`, async () => {
      await using context = await newContext(browser, options);
      const page = await context.newPage();
      await signIn(page, platform);
      await page.getByRole('link', { name: 'Usage', exact: true }).press('Enter');
      await page.getByLabel('Time', { exact: true }).selectOption(choice);
      await page.getByRole('button', { name: 'Show' }).press('Enter');
      await page.getByRole('heading', { name: choice }).waitFor();

      const ask = () => platform.client().quotas.usage({ by, from: new Date(Date.now() - backMs).toISOString() });
      const rows = await ask();
      // There are 24 hours or 31 days. One of them has no runs, and another may not belong to the period that the test asks for.
      assert.ok(rows.length >= 22 && rows.some(({ failed }) => failed > 0), `${rows.length} rows`);
      for (const [heading, member] of CHARTS) {
        // Repeated until the chart and the answer belong to the same hour.
        await until(`the chart "${heading}" shows what the API tells`, async () => {
          const expected = (await ask()).filter((row) => row[member] > 0).map((row) => [named(row.at), row[member]]);
          return isDeepStrictEqual(
            (await chartOf(page, heading).locator('title').allTextContents()).map(entryOf),
            expected,
          );
        });
        assert.deepEqual(
          await underPointer(page, heading),
          await chartOf(page, heading).locator('title').first().textContent(),
        );
      }
      const columns = () => chartOf(page, 'GPU time').locator('title').count();
      await until('each row has a column of GPU time', async () => (await columns()) === (await ask()).length);

      await page.getByRole('button', { name: 'Show' }).focus();
      await page.keyboard.press('Tab');
      assert.equal(await page.evaluate('document.activeElement.getAttribute("aria-label")'), `Usage by ${by}`);
      const cells = page
        .getByRole('region', { name: `Usage by ${by}` })
        .getByRole('row')
        .nth(1)
        .getByRole('cell');
      const [at, ...numbers] = (await cells.allTextContents()).slice(0, 6).map((text) => text.trim());
      const newest = rows.find((row) => named(row.at) === at) ?? assert.fail(`${at}`);
      const { invocations, failed, inputTokens, outputTokens, cachedTokens } = newest;
      assert.deepEqual(numbers.map(numberOf), [invocations, failed, inputTokens, outputTokens, cachedTokens]);
      assert.deepEqual([await barriers(page), await faintTexts(page)], [[], []]);
      assert.ok((await excessWidth(page)) <= 0, 'the page fits its window');
      await shoot(page, `usage-${by}-${look}`);
    });

const chartOf = (page: Page, heading: string) =>
  page.locator('.charts > div', { has: page.getByRole('heading', { name: heading, exact: true }) });

/** The name and the number that a pointer at the upper end of the chart's first column finds. */
async function underPointer(page: Page, heading: string): Promise<unknown> {
  const column = chartOf(page, heading).locator('.hover-area').first();
  await column.scrollIntoViewIfNeeded();
  const { x, y, width } = (await column.boundingBox()) ?? assert.fail('the chart has no column');
  return page.evaluate(
    `document.elementFromPoint(${x + width / 2}, ${y + 2}).closest('g').querySelector('title').textContent`,
  );
}

const numberOf = (text: string): number => Number(text.replaceAll(',', ''));

/** Splits the title of a column, such as `2026-11-25: 1,234`, into a name and a number. */
function entryOf(title: string): readonly [string, number] {
  const at = title.lastIndexOf(': ');
  return [title.slice(0, at), numberOf(title.slice(at + 2))];
}
