import assert from 'node:assert/strict';
import { test } from 'node:test';
import { json } from '#test/harness/events.ts';
import { type Platform, until } from '#test/harness/platform.ts';
import { barriers, excessWidth, faintTexts, shoot } from './chromium.ts';
import type { OpenWindow } from './window.ts';

export interface AnswerTests {
  readonly platform: () => Platform;
  readonly open: OpenWindow;
  readonly start: (name: string, input: unknown) => Promise<string>;
}

const INPUT = { prompt: 'Once upon a time', maxTokens: 12 };
const PHONE = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };

/** Tests of the form with which a person answers the question of an invocation. They need the function `draft-approval`. */
export function testAnswers({ platform, open, start }: AnswerTests): void {
  const address = (id: string) => `${platform().url}/dashboard/invocations/${id}`;

  test('a question appears on an open page and can be answered by keyboard; updates of the page keep the typed text', () =>
    open({ mayComplain: true }, async (page) => {
      await page.getByText('Live', { exact: true }).waitFor();
      const id = await start('draft-approval', INPUT);
      await page.locator('#questions').getByRole('link', { name: id }).press('Enter');
      await page.locator('.fitted', { hasText: 'Draft 1' }).waitFor();
      await page.getByLabel('decision').selectOption('again');
      await page.getByRole('button', { name: 'Answer' }).press('Enter');
      await page.getByText('The answer was taken.').waitFor();
      await page.locator('.fitted', { hasText: 'Draft 2' }).waitFor();

      const typed = 'Once upon a time, there was a dog.';
      await page.getByLabel('decision').selectOption('approve');
      await page.getByLabel('text').fill(typed);
      await page.getByLabel('text').press('End');
      // These events make the page reconnect: the gateway sends all parts anew, and the heading regains its text.
      await page.evaluate(`document.querySelector('#facts h2').textContent = 'Old';
        for (const name of ['pagehide', 'pageshow']) dispatchEvent(new Event(name));`);
      await page.locator('#facts h2', { hasText: 'State' }).waitFor({ state: 'attached' });
      assert.equal(await page.getByLabel('text').inputValue(), typed);
      assert.equal(await page.evaluate('document.activeElement.name'), 'field.text', 'the focus stays');
      await shoot(page, 'answer');

      const latePage = await page.context().newPage();
      await latePage.goto(address(id));
      await latePage.getByLabel('decision').selectOption('reject');
      await latePage.getByLabel('text').fill('Too late');
      await page.getByRole('button', { name: 'Answer' }).press('Enter');
      await page.locator('#result', { hasText: typed }).waitFor();
      assert.equal(await page.locator('#question form').count(), 0, 'the form is gone');
      await page.getByText('Earlier attempts').waitFor();
      await shoot(page, 'answered');

      await latePage.bringToFront();
      await latePage.getByText('This question is over').waitFor();
      assert.equal(await latePage.getByLabel('text').inputValue(), 'Too late');
      await latePage.getByRole('button', { name: 'Answer' }).press('Enter');
      await latePage.getByText(/^Question \d+ is over: .* Your answer was not stored\.$/).waitFor();
      await latePage.getByText('Too late').waitFor();
      await shoot(latePage, 'answer-late');
    }));

  test('on a phone, the error of a refused answer is shown beside its field, and the form keeps all input', () =>
    open({ mayComplain: true, ...PHONE }, async (page) => {
      const id = await start('draft-approval', INPUT);
      const state = async () => json(await platform().fetch(`/v1/invocations/${id}`));
      await until('it asks', async () => (await state()).status === 'waiting');
      await page.goto(`${platform().url}/dashboard/invocations?status=waiting`);
      await page.getByRole('row', { name: id }).getByText('asks a person').waitFor();
      await page.getByRole('link', { name: id }).tap();
      const text = 'x'.repeat(5000);
      await page.getByRole('button', { name: 'Answer' }).tap();
      assert.equal((await state()).status, 'waiting', 'no choice is made for the person');
      await page.getByLabel('decision').selectOption('approve');
      await page.getByLabel('text').fill(text);
      await page.getByRole('button', { name: 'Answer' }).tap();
      await page.locator('.fault', { hasText: '/text' }).waitFor();
      assert.equal(await page.getByLabel('text').getAttribute('aria-invalid'), 'true');
      assert.equal(await page.getByLabel('text').inputValue(), text);
      assert.equal(await page.getByLabel('decision').inputValue(), '"approve"');
      await page.getByText('Live', { exact: true }).waitFor();
      assert.deepEqual(await barriers(page), []);
      assert.deepEqual(await faintTexts(page), []);
      assert.ok((await excessWidth(page)) <= 0, 'the form fits a phone');
      await shoot(page, 'answer-fault-phone');
      await page.getByRole('link', { name: 'As JSON' }).tap();
      await page.getByLabel('Answer (JSON)').fill('{"decision": "approve", "text": "Mine."}');
      await page.getByRole('button', { name: 'Answer' }).tap();
      await until('it has ended', async () => (await state()).output?.text === 'Mine.');
      // Chromium may never close a window that is on the way to another page.
      await page.getByText('The answer was taken.').waitFor();
    }));
}
