import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Browser } from '../../../testing/browser.ts';
import { startWorker } from '../../../testing/miniflare.ts';
import { GatewayPlatform } from '../../../testing/platform.ts';
import { escapeHtml } from '../../docs/pages.ts';

const HOSTILE = `</textarea><script>alert(1)</script>"'&`;
const SCHEMA = {
  type: 'object',
  properties: {
    prompt: { type: 'string' },
    count: { type: 'integer', minimum: 1 },
    list: { type: 'array' },
    share: { type: 'number', minimum: 0.05, maximum: 1024 },
  },
  required: ['prompt'],
  additionalProperties: false,
};

describeForms('forms of the dashboard on Node', async (platform) => ({
  url: platform.url,
  stop: async () => undefined,
}));
describeForms('forms of the dashboard in workerd, on a Node origin', (platform) => startWorker(platform.url));

function describeForms(name: string, open: (p: GatewayPlatform) => Promise<{ url: string; stop(): Promise<void> }>) {
  describe(name, () => {
    let platform: GatewayPlatform;
    let gateway: { url: string; stop(): Promise<void> };
    const signedIn = async (key = platform.apiKey) => new Browser(gateway.url).signIn(key);
    const run = async (browser: Browser, fields: Record<string, string>, query = 'function=story') =>
      browser.post(`/dashboard/playground?${query}`, { token: await browser.token(), ...fields });

    before(async () => {
      platform = await GatewayPlatform.start();
      await platform.register({ name: 'story', input: SCHEMA, description: HOSTILE });
      gateway = await open(platform);
    });
    after(async () => {
      await gateway?.stop();
      await platform?.stop();
    });

    it('the playground runs a function with the input of its form and shows the run', async () => {
      const browser = await signedIn();
      const shown = await browser.page('/dashboard/playground?function=story');
      for (const field of ['prompt', 'count', 'list']) assert.match(shown, new RegExp(`name="field\\.${field}"`));
      assert.equal(shown.includes('<script>alert'), false);
      assert.match(shown, /0\.05 to 1,024/, 'bounds with all digits');
      const answer = await run(browser, {
        mode: 'form',
        'field.prompt': HOSTILE,
        'field.count': '2',
        'field.list': '["a"]',
      });
      assert.equal(answer.status, 303, await answer.text());
      const address = answer.headers.get('location') ?? '';
      const id = /invocation=([\w-]+)/.exec(address)?.[1] ?? '';
      const client = platform.client();
      assert.deepEqual(await client.input(id), { prompt: HOSTILE, count: 2, list: ['a'] });
      const attempt = await platform.attempt(id);
      await attempt.start();
      await attempt.say('It said this.');
      await attempt.succeed(null, { inputTokens: 7, outputTokens: 31, gpuMs: 4 });
      const page = await browser.page(address.replace('#run', ''));
      for (const text of ['It said this.', '31', '4 ms', 'succeeded']) assert.ok(page.includes(text), text);
      assert.match(page, /name="field\.count"[^>]*value="2"/, 'the form keeps its input');
      assert.equal(page.includes('<script>alert'), false);
      const frames = browser.follow(`${address.replace('#run', '')}&after=0`);
      for await (const frame of frames) if (frame.event === 'end') break;
    });

    it('the playground keeps the input of the run that it shows, also as JSON', async () => {
      const browser = await signedIn();
      const { id: earlier } = await platform.client().submit('story', { prompt: 'Old' });
      await (await platform.attempt(earlier)).succeed(null);
      const again = `function=story&from=${earlier}`;
      assert.match(await browser.page(`/dashboard/playground?${again}`), />\nOld<\/textarea>/);
      const answer = await run(browser, { mode: 'form', 'field.prompt': 'New' }, again);
      const address = answer.headers.get('location')?.replace('#run', '') ?? '';
      await (await platform.attempt(/invocation=([\w-]+)/.exec(address)?.[1] ?? '')).succeed(null);
      const page = await browser.page(address);
      assert.match(page, />\nNew<\/textarea>/);
      const [, asJson = ''] = /href="([^"]*)">As JSON</.exec(page) ?? [];
      const json = await browser.page(asJson.replaceAll('&amp;', '&'));
      assert.match(json, /&quot;prompt&quot;: &quot;New&quot;/);
      assert.doesNotMatch(json, /id="run"/);
    });

    it('the playground does not round large integers, in JSON, in fields and when a run is repeated', async () => {
      const browser = await signedIn();
      const large = '9007199254740993';
      const idOf = (answer: Response) => /invocation=([\w-]+)/.exec(answer.headers.get('location') ?? '')?.[1] ?? '';
      const inputOf = async (id: string) => (await platform.scheduler.invocations.input(id)) ?? '';
      const json = await run(browser, { mode: 'json', json: `{"prompt": "x", "count": ${large}}` });
      assert.equal(await inputOf(idOf(json)), `{"prompt":"x","count":${large}}`);
      const again = await browser.page(`/dashboard/playground?function=story&from=${idOf(json)}`);
      assert.ok(again.includes(`&quot;count&quot;: ${large}`));
      const list = await run(browser, { mode: 'form', 'field.prompt': 'x', 'field.list': `[${large}]` });
      assert.equal(await inputOf(idOf(list)), `{"prompt":"x","list":[${large}]}`);
      const count = await run(browser, { mode: 'form', 'field.prompt': 'x', 'field.count': large });
      assert.equal(count.status, 422);
      assert.match(await count.text(), /more digits than this field keeps/);
      for (const id of [idOf(json), idOf(list)]) await platform.client().cancel(id);
      const question = await asking({ type: 'array' });
      assert.equal((await question.answer(browser, { mode: 'json', json: `[${large}]` })).status, 303);
      assert.equal((await question.given()).answer.val, `[${large}]`);
    });

    it('the playground runs a function with a long text, and bounds its form', async () => {
      const browser = await signedIn();
      const prompt = 'ж"\n'.repeat(5000);
      const answer = await run(browser, { mode: 'form', 'field.prompt': prompt });
      assert.equal(answer.status, 303, await answer.text());
      const id = /invocation=([\w-]+)/.exec(answer.headers.get('location') ?? '')?.[1] ?? '';
      assert.deepEqual(await platform.client().input(id), { prompt });
      await (await platform.attempt(id)).succeed(null);
      assert.equal((await run(browser, { mode: 'form', 'field.prompt': 'x'.repeat(1 << 20) })).status, 413);
    });

    it('the playground reports a failure to tell the inferlet that no messages follow', async (t) => {
      const browser = await signedIn();
      const fields = { mode: 'form', 'field.prompt': 'x' };
      const addressOf = async () => (await run(browser, fields)).headers.get('location')?.replace('#run', '') ?? '';
      const toldAddress = await addressOf();
      assert.doesNotMatch(toldAddress, /messages=/);
      assert.doesNotMatch(await browser.page(toldAddress), /could not be told/);
      const broken = t.mock.method(platform.scheduler.inbox, 'close', () => Promise.reject(new Error('broken')));
      const untoldAddress = await addressOf();
      broken.mock.restore();
      assert.match(await browser.page(untoldAddress), /could not be told that no messages follow/);
      const id = /invocation=([\w-]+)/.exec(untoldAddress)?.[1] ?? '';
      await (await platform.attempt(id)).succeed(null);
      assert.doesNotMatch(await browser.page(untoldAddress), /could not be told/);
    });

    it('the playground shows a fault beside its field, and keeps all entered texts', async () => {
      const browser = await signedIn();
      // Each form, and the id of its fault. The fault of a list that is nested too deeply belongs to no field.
      const faults = [
        [{ mode: 'form', 'field.prompt': HOSTILE, 'field.count': 'two' }, 'field.count-fault'],
        [{ mode: 'form', 'field.prompt': HOSTILE, 'field.count': '0' }, 'field.count-fault'],
        [{ mode: 'form', 'field.prompt': HOSTILE, 'field.list': '[' }, 'field.list-fault'],
        [{ mode: 'form', 'field.prompt': HOSTILE, 'field.list': '['.repeat(4000) }, undefined],
        [{ mode: 'json', json: `{"prompt": ${JSON.stringify(HOSTILE)}` }, 'json-fault'],
        [{ mode: 'json', json: JSON.stringify({ prompt: HOSTILE, other: 1 }) }, 'json-fault'],
      ] as const;
      for (const [{ mode, ...fields }, id] of faults) {
        const answer = await run(browser, { mode, ...fields });
        const page = await answer.text();
        assert.equal(answer.status, 422, page);
        const shown = [...page.matchAll(/(?:id="([^"]*)" class="fault"|class="notice bad" role="alert")>[^<]/g)];
        assert.deepEqual(
          shown.map(([, fault]) => fault),
          [id],
          page,
        );
        assert.equal(page.includes('<script>alert'), false);
        for (const text of Object.values<string>(fields).map(escapeHtml))
          assert.ok(page.includes(`>\n${text}</textarea>`) || page.includes(` value="${text}">`), `${text}: ${page}`);
      }
      assert.equal((await run(browser, { mode: 'form' }, 'function=nothing')).status, 404);
      assert.equal((await browser.post('/dashboard/playground?function=story', { token: 'x' })).status, 403);
      const reader = await signedIn(await platform.key(['deploy']));
      assert.equal((await run(reader, { mode: 'form', 'field.prompt': 'x' })).status, 403);
      assert.equal((await browser.get('/dashboard/playground?function=story&invocation=nothing')).status, 404);
      assert.equal((await browser.get('/dashboard/playground?function=story&version=%2F')).status, 422);
    });

    /** Submits an invocation, in which the inferlet then asks a person a question. The question has the number 2. */
    const asking = async (schema: Readonly<Record<string, unknown>>) => {
      const { id } = await platform.client().submit('story', { prompt: 'x' });
      const attempt = await platform.attempt(id);
      await attempt.start();
      const question = { text: `Publish?\n${HOSTILE}`, schema, timeoutMs: 60_000, state: '' };
      const outcome = await platform.scheduler.questions.ask(
        { id, tenant: 'default' },
        attempt.epoch,
        2,
        question,
        null,
      );
      assert.equal(outcome, 'waiting');
      const page = `/dashboard/invocations/${id}`;
      const answer = async (browser: Browser, fields: Record<string, string>) =>
        browser.post(page, { token: await browser.token(), question: '2', mode: 'form', ...fields });
      const { redis, keys } = platform.scheduler.store;
      const given = async () => JSON.parse((await redis.hget(`${keys.jobs}:${id}`, 'resumption')) ?? 'null');
      return { id, page, answer, given };
    };

    it('the page of an invocation shows its question with an answer form, and lists mark the invocation', async () => {
      const browser = await signedIn();
      const { id, page, answer, given } = await asking({
        type: 'object',
        required: ['decision'],
        additionalProperties: false,
        properties: { decision: { enum: ['approve', 'reject'] }, text: { type: 'string', maxLength: 20 } },
      });
      const shown = await browser.page(page);
      assert.match(shown, /data-key="question-2"/);
      assert.match(
        shown,
        /<select id="field.decision"[^>]* required><option value="" selected>Choose…/,
        'no choice is made ahead',
      );
      assert.equal(shown.includes('<script>alert'), false);
      for (const path of ['', '/invocations', '/invocations?status=waiting']) {
        const list = await browser.page(`/dashboard${path}`);
        assert.ok(list.includes(id) && list.includes(path === '' ? 'Publish?' : 'asks a person'), path);
      }
      const refused = await answer(browser, { 'field.decision': '"approve"', 'field.text': HOSTILE });
      const again = await refused.text();
      assert.equal(refused.status, 422, again);
      for (const text of ['id="field.text-fault"', 'selected>approve', '&lt;/textarea&gt;&lt;script&gt;', 'data-live'])
        assert.ok(again.includes(text), `${text}: ${again}`);
      assert.equal(await given(), null);
      const done = await answer(browser, { 'field.decision': '"approve"', 'field.text': '\r\nMine.' });
      assert.equal(done.headers.get('location'), `${page}?done=answered`, await done.text());
      assert.deepEqual(await given(), {
        state: '',
        answer: { tag: 'answered', val: JSON.stringify({ decision: 'approve', text: '\nMine.' }) },
      });
      const after = await browser.page(`${page}?done=answered`);
      assert.ok(after.includes('The answer was taken.') && !after.includes('data-key'));
      const lateAnswer = await answer(browser, { 'field.decision': '"reject"', 'field.text': HOSTILE });
      const refusalPage = await lateAnswer.text();
      assert.equal(lateAnswer.status, 409, refusalPage);
      assert.ok(
        /Question 2 is over/.test(refusalPage) &&
          refusalPage.includes(
            `<h3>text</h3><pre class="console fitted" tabindex="0" role="region" aria-label="text">${escapeHtml(HOSTILE)}<`,
          ) &&
          !refusalPage.includes('<script>alert'),
      );
    });

    it('an answer may be any JSON that the schema of its question accepts, of 64 KiB at most', async () => {
      const browser = await signedIn();
      const text = await asking({ type: 'string' });
      // Each é takes two bytes, and the JSON text has two quotation marks: 32,767 é make exactly 64 KiB. 100,000 é exceed even the bound on forms.
      assert.match(await browser.page(text.page), /<textarea id="field.answer"/);
      const long = await text.answer(browser, { 'field.answer': 'é'.repeat(32_768) });
      assert.equal(long.status, 413);
      assert.ok(/id="field.answer-fault".*64 KiB/.test(await long.text()));
      assert.equal((await text.answer(browser, { 'field.answer': 'é'.repeat(100_000) })).status, 413);
      assert.equal((await text.answer(browser, { 'field.answer': 'é'.repeat(32_767) })).status, 303);
      assert.equal((await text.given()).answer.val.length, 32_769);

      const flag = await asking({ type: 'boolean' });
      const empty = await flag.answer(browser, { 'field.answer': '' });
      assert.equal(empty.status, 422);
      assert.match(await empty.text(), /id="field.answer-fault" class="fault">must not be empty</);
      assert.equal((await flag.answer(browser, { 'field.answer': 'false' })).status, 303);
      assert.equal((await flag.given()).answer.val, 'false');

      const list = await asking({ type: 'array', items: { type: 'integer' } });
      assert.match(await browser.page(list.page), /Schema of the answer/);
      for (const json of ['[1', '["a"]', '['.repeat(5000)]) {
        const refused = await list.answer(browser, { mode: 'json', json });
        const page = await refused.text();
        assert.equal(refused.status, 422, page);
        assert.ok(page.includes('id="json-fault"') && page.includes(json.replaceAll('"', '&quot;')));
      }
      assert.equal((await list.answer(browser, { mode: 'json', json: '[1, 2]' })).status, 303);
      assert.deepEqual(JSON.parse((await list.given()).answer.val), [1, 2]);
    });

    it('an answer needs a form of the session, a key with the scope, and an invocation of the tenant', async () => {
      const { page, answer, given } = await asking({ type: 'boolean' });
      const browser = await signedIn();
      const fields = { 'field.answer': 'true' };
      assert.equal((await answer(browser, { ...fields, token: 'x' })).status, 403);
      assert.equal((await answer(browser, { ...fields, question: 'x' })).status, 422);
      assert.equal((await answer(browser, { ...fields, question: '1' })).status, 409);
      const reader = await signedIn(await platform.key(['deploy']));
      assert.doesNotMatch(await reader.page(page), /field\.answer/);
      assert.equal((await answer(reader, fields)).status, 403);
      const stranger = await signedIn(await platform.key(['invoke'], 'acme'));
      assert.equal((await answer(stranger, fields)).status, 404);
      assert.equal(await given(), null);
      assert.equal((await answer(browser, fields)).status, 303);
    });

    it('a followed page shows the open question, and removes it once it is answered', async () => {
      const browser = await signedIn();
      const { id, page, answer } = await asking({ type: 'boolean' });
      const seen: boolean[] = [];
      for await (const { event, data } of browser.follow(page)) {
        const { id: part, html } = JSON.parse(data);
        if (event !== 'fragment' || part !== 'question') continue;
        seen.push(html.includes('data-key="question-2"'));
        if (seen.length === 2) break;
        assert.equal((await answer(browser, { 'field.answer': 'true' })).status, 303);
      }
      assert.deepEqual(seen, [true, false]);
      await platform.client().cancel(id);
    });

    it('the page of a function shows its schedules', async () => {
      const browser = await signedIn();
      assert.equal((await browser.page('/dashboard/functions/story')).includes('Schedules of the function'), false);
      const schedule = {
        function: 'story@live',
        input: { prompt: HOSTILE },
        cron: '0 3 * * *',
        timezone: 'Europe/Berlin',
      };
      await platform.client().schedules.put('nightly', schedule);
      const page = await browser.page('/dashboard/functions/story');
      for (const text of ['nightly', 'story@live', '0 3 * * *', 'Europe/Berlin']) assert.ok(page.includes(text), text);
    });

    it('an admin creates a key, which is shown once and works', async () => {
      const browser = await signedIn(await platform.key(['admin', 'invoke'], 'acme'));
      const token = await browser.token();
      const fields: string[][] = [
        ['token', token],
        ['name', 'ci'],
        ['scope', 'invoke'],
        ['lasts', '30d'],
      ];
      const answer = await browser.post('/dashboard/administration/keys', fields);
      assert.equal(answer.status, 303, await answer.text());
      const address = answer.headers.get('location') ?? '';
      assert.equal(address, '/dashboard/administration?done=key');
      const [carried = ''] = (answer.headers.get('set-cookie') ?? '').split(';', 1);
      assert.doesNotMatch(carried, /pie_[A-Za-z0-9]{20}/, 'the cookie hides the key');
      const shown = await browser.get(address, { cookie: `${browser.cookie}; ${carried}` });
      const page = await shown.text();
      assert.equal(shown.headers.get('cache-control'), 'no-store');
      assert.match(
        shown.headers.get('set-cookie') ?? '',
        /^pie_new_key=;.*Max-Age=0;.*Path=\/dashboard\/administration/,
      );
      const reloaded = await browser.page(address);
      assert.ok(reloaded.includes('is not shown again') && !reloaded.includes('The new key'));
      const key = /pie_[A-Za-z0-9_-]+/.exec(page)?.[0] ?? '';
      const self = await platform.client(key).self();
      assert.deepEqual([self.tenant, self.scopes], ['acme', ['invoke']]);
      const created = (await platform.client().tenants.keys('acme')).find(({ id }) => id === self.keyId);
      const lifetimeMs = Date.parse(created?.expiresAt ?? '') - Date.parse(created?.createdAt ?? '');
      assert.equal(Math.round(lifetimeMs / 86_400_000), 30);
      const again = await browser.page('/dashboard/administration');
      assert.ok(!again.includes(key) && again.includes(self.keyId) && again.includes('>ci<'));
      assert.equal(again.includes('Change a limit'), false, 'only operators change limits');
      const operatorKey: string[][] = [
        ['token', token],
        ['name', 'x'],
        ['scope', 'operator'],
        ['lasts', ''],
      ];
      assert.equal((await browser.post('/dashboard/administration/keys', operatorKey)).status, 403);
      for (const invalid of [{ name: '' }, { scope: 'root' }, { lasts: 'ever' }]) {
        const form = { token, name: 'x', scope: 'invoke', lasts: '', ...invalid };
        assert.equal((await browser.post('/dashboard/administration/keys', form)).status, 422);
      }
      const limit = { token, quota: 'kv-pages', limit: '1', function: '', lasts: '', reason: '' };
      assert.equal((await browser.post('/dashboard/administration/limits', limit)).status, 403);
      const other = await signedIn(await platform.key(['invoke'], 'acme'));
      assert.equal((await other.get('/dashboard/administration')).status, 403);
    });

    it('an operator changes a limit with an end and a reason, and takes it back', async () => {
      const browser = await signedIn();
      const token = await browser.token();
      const changeLimit = (more: Record<string, string>) =>
        browser.post('/dashboard/administration/limits?tenant=acme', {
          token,
          quota: 'requests-per-minute',
          limit: '60',
          function: '',
          lasts: '1d',
          reason: 'launch',
          ...more,
        });
      const done = await changeLimit({});
      assert.equal(done.headers.get('location'), '/dashboard/administration?tenant=acme&done=limit', await done.text());
      const page = await browser.page('/dashboard/administration?tenant=acme&done=limit');
      for (const text of ['The limit has changed.', '0 of 60', 'launch', 'Tenant acme'])
        assert.ok(page.includes(text), text);
      const status = () => platform.scheduler.quotas.status('acme');
      const found = (await status()).find(({ quota }) => quota === 'requests-per-minute');
      assert.deepEqual([found?.limit, found?.source, found?.override?.reason], [60, 'override', 'launch']);
      assert.equal((await changeLimit({ limit: '', lasts: '' })).status, 303);
      assert.equal(
        (await status()).some(({ quota }) => quota === 'requests-per-minute'),
        false,
      );
      assert.equal((await changeLimit({ function: 'story' })).status, 404, 'the tenant has no such function');
      const invalidFields: Record<string, string>[] = [
        { quota: 'x' },
        { limit: '-1' },
        { limit: '1.5' },
        { lasts: 'ever' },
        { function: 'No name' },
        { reason: 'a\u0007b' },
        { reason: 'a\u2028b' },
      ];
      for (const invalid of invalidFields) {
        const refused = await changeLimit(invalid);
        assert.equal(refused.status, 422, JSON.stringify(invalid));
        assert.match(await refused.text(), /href="\/dashboard\/administration\?tenant=acme">Back</);
      }
    });
  });
}
