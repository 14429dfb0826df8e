import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { deploy } from '#test/harness/deploy.ts';
import { json } from '#test/harness/events.ts';
import { deployFunction, functionsPlatform } from '#test/harness/functions.ts';
import { type Platform, ROOT, until } from '#test/harness/platform.ts';
import { testAnswers } from './answers.ts';
import { barriers, excessWidth, faintTexts, launchChromium, newContext, shoot, signIn } from './chromium.ts';
import type { OpenWindow } from './window.ts';

const DESKTOP = { width: 1280, height: 800 };
/** The narrowest phone in use. */
const PHONE = { width: 360, height: 740 };

/** Background of a page in dark mode. */
const DARK = 'rgb(20, 19, 17)';

const PAGES = [
  '',
  '/invocations',
  '/functions',
  '/functions/story',
  '/functions/story/rollback',
  '/playground',
  '/playground?function=story',
  '/usage',
  '/administration',
  '/platform',
];

let platform: Platform;
let browser: Browser;
/** Id of an invocation that waits for a person's answer. */
let askingId: string;

describe('the dashboard in a browser', () => {
  before(async () => {
    platform = await functionsPlatform();
    await Promise.all(['text-completion', 'echo-session', 'draft-approval'].map(deployFunction));
    browser = await launchChromium();
    await deployStory(64, 'First try');
    await deployStory(48, 'Somewhat fewer pages');
    await deployStory(32, 'Fewer pages');
    askingId = await start('draft-approval', { prompt: 'Once upon a time', maxTokens: 12 });
  });
  after(async () => {
    await browser?.close();
  });

  /** Deploys the bundled text completion as the function `story`, with a limit of `pages`. */
  async function deployStory(pages: number, message: string): Promise<void> {
    const folder = await mkdtemp(path.join(os.tmpdir(), 'pie-story-'));
    try {
      const source = path.join(ROOT, 'functions/text-completion');
      const manifest = JSON.parse(await readFile(path.join(source, 'pie.json'), 'utf8'));
      await cp(path.join(source, 'index.ts'), path.join(folder, 'index.ts'));
      await writeFile(path.join(folder, 'pie.json'), JSON.stringify({ ...manifest, name: 'story', limits: { pages } }));
      const { code, stderr } = await platform.pie(['deploy', folder, '--message', message]);
      assert.equal(code, 0, stderr);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  /** Starts an invocation without waiting for its end. */
  async function start(name: string, input: unknown): Promise<string> {
    const response = await platform.fetch(`/v1/functions/${name}/invocations`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', prefer: 'respond-async' },
      body: JSON.stringify(input),
    });
    assert.equal(response.status, 202);
    return (await json(response)).id;
  }

  const open: OpenWindow = async ({ mayComplain = false, ...options }, use) => {
    await using context = await newContext(browser, { viewport: DESKTOP, ...options });
    const page = await context.newPage();
    const complaints: string[] = [];
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text());
    });
    page.on('pageerror', (error) => complaints.push(String(error)));
    await signIn(page, platform);
    await use(page);
    if (!mayComplain) assert.deepEqual(complaints, []);
  };

  test('a wrong key is refused on the sign-in page, and the right key opens the requested page', async () => {
    await using context = await newContext(browser, { viewport: DESKTOP });
    const page = await context.newPage();
    await page.goto(`${platform.url}/dashboard/usage?by=hour`);
    await page.getByLabel('API key').fill(`pie_${'x'.repeat(32)}`);
    await page.keyboard.press('Enter');
    await page.getByRole('alert').waitFor();
    assert.equal(await page.getByLabel('API key').inputValue(), '');
    await shoot(page, 'sign-in-refused');
    await page.getByLabel('API key').fill(platform.apiKey);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Usage', level: 1 }).waitFor();
    assert.equal(page.url(), `${platform.url}/dashboard/usage?by=hour`);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await page.goto(`${platform.url}/dashboard`);
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  });

  test('an invocation appears in the list, streams its output and is cancelled', () =>
    open({}, async (page) => {
      await page.getByRole('link', { name: 'Invocations', exact: true }).click();
      await page.getByText('Live', { exact: true }).waitFor();
      const id = await start('echo-session', { greeting: 'Good morning' });
      await page.getByRole('link', { name: id }).click();
      const output = page.locator('#output');
      await output.getByText('Good morning').waitFor();
      await page.locator('.badge', { hasText: 'running' }).waitFor();
      for (const text of [' one', ' two', ' <b>three</b>']) {
        const sent = await platform.fetch(`/v1/invocations/${id}/messages`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ text }),
        });
        assert.equal(sent.status, 202);
      }
      await output.getByText('Good morning one two <b>three</b>').waitFor();
      await shoot(page, 'invocation-running');

      await page.getByText('Cancel…').click();
      await shoot(page, 'invocation-cancel');
      await page.getByRole('button', { name: 'Cancel this invocation' }).click();
      await page.locator('.badge', { hasText: 'cancelled' }).waitFor();
      assert.equal(await page.getByText('Cancel…').count(), 0);
      assert.equal((await json(await platform.fetch(`/v1/invocations/${id}`))).status, 'cancelled');
      await shoot(page, 'invocation-cancelled');
    }));

  test('a SIGKILL of the gateway keeps the session, and the page reconnects by itself', () =>
    open({ mayComplain: true }, async (page) => {
      await page.getByText('Live', { exact: true }).waitFor();
      const restarted = platform.restarted('gateway');
      // Stop the supervisor until the page has reported the loss. The supervisor would otherwise restart the gateway earlier.
      process.kill(platform.supervisorPid, 'SIGSTOP');
      process.kill(platform.pid('gateway'), 'SIGKILL');
      const lossReported = page.getByText('Connecting again').waitFor();
      await lossReported.finally(() => process.kill(platform.supervisorPid, 'SIGCONT'));
      await restarted;
      await page.getByText('Live', { exact: true }).waitFor();
      await page.reload();
      await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
    }));

  test('a page whose connection is refused after a pause says that it is not live', () =>
    open({ mayComplain: true }, async (page) => {
      await page.getByText('Live', { exact: true }).waitFor();
      const setHidden = (hidden: boolean) =>
        page.evaluate(`Object.defineProperty(document, 'hidden', { value: ${hidden}, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));`);
      await setHidden(true);
      await page.getByText('Paused', { exact: true }).waitFor();
      await page.route('**', (route) => route.fulfill({ status: 503 }));
      await setHidden(false);
      await page.getByText('Not live: reload to try again').waitFor();
    }));

  test('the overview updates without a reload', () =>
    open({}, async (page) => {
      await page.getByText('Live', { exact: true }).waitFor();
      const tokens = page.locator('#now .tile', { hasText: 'Output tokens' }).locator('dd');
      const before = await tokens.textContent();
      // A reload would lose this variable.
      await page.evaluate('globalThis.isSameDocument = true');
      const ids = await Promise.all([1, 2, 3].map((seed) => start('story', { prompt: 'Once', maxTokens: 60, seed })));
      await until('more tokens on the overview', async () => (await tokens.textContent()) !== before);
      assert.equal(await page.evaluate('globalThis.isSameDocument'), true, 'the page was not loaded again');
      const status = async (id: string) => (await json(await platform.fetch(`/v1/invocations/${id}`))).status;
      for (const id of ids) await until('the story has succeeded', async () => (await status(id)) === 'succeeded');
      await page.goto(`${platform.url}/dashboard/invocations?function=story&status=succeeded`);
      for (const id of ids) await page.getByRole('link', { name: id }).waitFor();
      await page.getByRole('link', { name: ids[0] }).click();
      await page.getByRole('heading', { name: 'Result' }).waitFor();
      await shoot(page, 'invocation-succeeded');
    }));

  test('a rollback shows its changes beforehand, and a rollback from a stale page is refused with a conflict', () =>
    open({}, async (page) => {
      const [newest, second] = (await json(await platform.fetch('/v1/functions/story/versions'))).versions;
      await page.getByRole('link', { name: 'Functions', exact: true }).click();
      await page.getByRole('link', { name: 'story' }).click();
      await page.getByText('Fewer pages', { exact: true }).first().waitFor();
      await shoot(page, 'function');
      await page.getByRole('link', { name: 'Roll back…' }).click();
      await page.getByRole('heading', { name: 'What changes' }).waitFor();
      await page
        .getByRole('row', { name: /limits\.pages/ })
        .getByText('48')
        .waitFor();
      assert.equal(await liveVersion(), newest.version, 'the preview changes no alias');
      await shoot(page, 'rollback');
      const stalePage = await page.context().newPage();
      await stalePage.goto(page.url());

      await page.getByLabel(/Why/).fill('Too few pages');
      await page.getByRole('button', { name: 'Roll back live' }).click();
      await page.getByText('Rolled back.').waitFor();
      await page.locator('#history').getByText('Too few pages').waitFor();
      assert.equal(await liveVersion(), second.version);
      await shoot(page, 'function-rolled-back');

      await stalePage.getByRole('button', { name: 'Roll back live' }).click();
      await stalePage.getByRole('link', { name: 'conflict' }).waitFor();
      assert.equal(await liveVersion(), second.version);
      await shoot(stalePage, 'conflict');
    }));

  async function liveVersion(): Promise<string> {
    return (await json(await platform.fetch('/v1/functions/story/aliases/live'))).shares[0].version;
  }

  for (const [look, options] of [
    ['desktop', {}],
    ['phone', { viewport: PHONE, isMobile: true, hasTouch: true }],
    ['dark', { colorScheme: 'dark' }],
  ] as const)
    test(`every page fits its window, has readable contrast and no accessibility barrier: ${look}`, () =>
      open(options, async (page) => {
        const invocations = (await json(await platform.fetch('/v1/invocations?limit=1'))).invocations;
        const titles = new Set<string>();
        const pages = [
          ...PAGES.map((route) => [route, route.slice(1).replaceAll(/[/?=]/g, '-') || 'overview']),
          [`/invocations/${askingId}`, 'question'],
          [`/invocations/${invocations[0].id}`, 'invocation'],
        ] as const;
        for (const [route = '', screenshot = ''] of pages) {
          const response = await page.goto(`${platform.url}/dashboard${route}`);
          assert.equal(response?.status(), 200, route);
          titles.add(await page.title());
          const notices = await page.locator('.notice.bad:visible').allInnerTexts();
          assert.deepEqual(notices, [], `${route} shows no error notice`);
          assert.deepEqual(await barriers(page), [], route);
          assert.deepEqual(await faintTexts(page), [], route);
          assert.ok((await excessWidth(page)) <= 0, `${route} scrolls sideways`);
          await shoot(page, `${screenshot}-${look}`);
        }
        assert.equal(titles.size, pages.length, 'every page has its own title');
        const background = await page.evaluate('getComputedStyle(document.body).backgroundColor');
        assert.equal(background === DARK, look === 'dark', String(background));
      }));

  test('the playground runs a function by keyboard alone, streams its text, and shows tokens and device time', () =>
    open({}, async (page) => {
      await page.getByRole('link', { name: 'Playground', exact: true }).press('Enter');
      await page.getByLabel('Function').selectOption('story');
      await page.getByRole('button', { name: 'Choose' }).press('Enter');
      await page.getByRole('heading', { name: 'Input of story' }).waitFor();
      await page.getByLabel('prompt').fill('Once upon a time');
      await page.getByLabel('maxTokens').fill('400');
      await page.getByLabel('temperature').fill('0');
      await page.getByRole('button', { name: 'Run' }).press('Enter');
      const output = page.locator('#output');
      await output.getByText(/there was/).waitFor();
      await page.locator('#run .badge', { hasText: 'succeeded' }).waitFor();
      const tile = (name: string) => page.locator('#run .tile', { hasText: name }).locator('dd').textContent();
      assert.ok(Number(await tile('Output tokens')) > 20, 'tokens');
      assert.match((await tile('Device time')) ?? '', /[1-9].* m?s$/);
      assert.equal(await page.getByLabel('prompt').inputValue(), 'Once upon a time', 'the form keeps its input');
      assert.deepEqual(await barriers(page), []);
      await shoot(page, 'playground-succeeded');

      await page.locator('#run').getByRole('link').press('Enter');
      await page.getByRole('heading', { name: 'Where the time went' }).waitFor();
      const steps = await page.locator('.waterfall strong').allTextContents();
      assert.deepEqual(steps.slice(0, 4), ['Queue', 'Instance', 'Program', 'Device']);
      await shoot(page, 'invocation-waterfall');
      await page.getByRole('link', { name: 'Run again…' }).press('Enter');
      await page.getByRole('heading', { name: 'Input of story' }).waitFor();
      assert.equal(await page.getByLabel('maxTokens').inputValue(), '400');
    }));

  test('the nodes and spans of an invocation fit a phone, and have no accessibility barriers', async () => {
    await deploy(platform, 'nodes');
    const ids = await Promise.all(['workflow', 'spans'].map((what) => start('nodes', { what })));
    // `isMobile` is not set, because a mobile browser would zoom out until a row that is too wide fits.
    await open({ viewport: PHONE }, async (page) => {
      // The page of the spans has 64 spans, two of which failed, and one row for all others.
      for (const [id, rows, failed] of [
        [ids[0], 9, 0],
        [ids[1], 65, 2],
      ] as const) {
        await page.goto(`${platform.url}/dashboard/invocations/${id}`);
        await page.getByRole('heading', { name: 'Where the time went' }).waitFor();
        assert.equal(await page.locator('.waterfall .part').count(), rows);
        assert.equal(await page.getByRole('img', { name: /, failed$/ }).count(), failed);
        assert.deepEqual(await barriers(page), []);
        assert.deepEqual(await faintTexts(page), []);
        assert.ok((await excessWidth(page)) <= 0, 'it scrolls sideways');
        await shoot(page, `invocation-${rows}-parts`);
      }
    });
  });

  test('the playground names the field of a wrong input and keeps what was entered', () =>
    open({ mayComplain: true, viewport: PHONE, isMobile: true, hasTouch: true }, async (page) => {
      await page.goto(`${platform.url}/dashboard/playground?function=story`);
      await page.getByLabel('prompt').fill('Once');
      await page.getByLabel('stop').fill('[');
      await page.getByRole('button', { name: 'Run' }).tap();
      await page.getByText('must be JSON').waitFor();
      assert.equal(await page.getByLabel('stop').getAttribute('aria-invalid'), 'true');
      assert.equal(await page.getByLabel('prompt').inputValue(), 'Once');
      assert.ok((await excessWidth(page)) <= 0, 'the form fits a phone');
      await shoot(page, 'playground-fault-phone');
      await page.getByRole('link', { name: 'As JSON' }).tap();
      const input = page.getByLabel('Input (JSON)');
      await input.fill('{"prompt": "Once", "maxTokens": -1}');
      await page.getByRole('button', { name: 'Run' }).tap();
      await page.locator('.fault', { hasText: /maxTokens|minimum/ }).waitFor();
      await input.fill('{"prompt": "Once", "maxTokens": 4}');
      await page.getByRole('button', { name: 'Run' }).tap();
      await page.locator('#run .badge', { hasText: 'succeeded' }).waitFor();
    }));

  test('an operator creates a key and changes a limit by keyboard', () =>
    open({ viewport: PHONE }, async (page) => {
      await page.getByRole('link', { name: 'Administration', exact: true }).press('Enter');
      const key = page.locator('#new-key');
      await key.getByLabel('Name').fill('from a form');
      await key.getByLabel('Lasts').selectOption('a day');
      await key.getByLabel('deploy').press('Space');
      await key.getByRole('button', { name: 'Create key' }).press('Enter');
      await page.getByRole('heading', { name: 'The new key from a form' }).waitFor();
      assert.match((await page.getByLabel('The new key').textContent()) ?? '', /^pie_/);
      await page.reload();
      await page.getByText('It was shown once, and is not shown again.').waitFor();
      assert.equal(await page.getByRole('row', { name: /from a form/ }).count(), 1, 'a reload creates no other key');
      await page
        .getByRole('row', { name: /from a form/ })
        .getByText('invoke, deploy')
        .waitFor();
      const limit = page.locator('#new-limit');
      await limit.getByLabel('Quota').selectOption('Running at once');
      await limit.getByLabel(/^Limit/).fill('500');
      await limit.getByLabel('Lasts').selectOption('for an hour');
      await limit.getByLabel('Reason').fill('a visit');
      await limit.getByRole('button', { name: 'Change limit' }).press('Enter');
      await page.getByText('The limit has changed.').waitFor();
      await page.locator('#limits').getByText('a visit').waitFor();
      // During an update the page may be wider for a moment.
      await page.waitForFunction('document.documentElement.scrollWidth <= innerWidth');
      await shoot(page, 'administration-phone');
    }));

  test('without JavaScript the pages show their content and their buttons work', () =>
    open({ javaScriptEnabled: false }, async (page) => {
      const id = await start('echo-session', { greeting: 'Hello' });
      await page.goto(`${platform.url}/dashboard/invocations/${id}`);
      // Press keys instead of clicking: on a busy machine, a click may miss an element that still moves.
      await page.getByText('Cancel…').press('Enter');
      await page.getByRole('button', { name: 'Cancel this invocation' }).press('Enter');
      await page.waitForURL(/done=cancelled/);
      // The invocation may already have ended. Until it has, the page tells readers without scripts to reload.
      const notice = page.locator('.notice', { hasText: /It was asked to stop\.|It has ended\./ });
      await notice.waitFor();
      if ((await notice.textContent())?.includes('asked'))
        await page.locator('noscript span', { hasText: 'Reload the page to see what changed.' }).waitFor();
      await page.goto(`${platform.url}/dashboard/invocations`);
      await page.getByRole('link', { name: id }).waitFor();
    }));

  testAnswers({ platform: () => platform, open, start });
});
