import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { MachineLease } from '#scheduler/machines/lease.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { Browser } from '../../testing/browser.ts';
import { startWorker } from '../../testing/miniflare.ts';
import { GatewayPlatform } from '../../testing/platform.ts';

/** A hostile text for every place where an untrusted party may choose one. */
const HOSTILE = `</pre><script>alert(1)</script><img src=x onerror=alert(2)>"'&`;

describeDashboard('the dashboard on Node', async (platform) => ({ url: platform.url, stop: async () => undefined }));
describeDashboard('the dashboard in workerd, on a Node origin', (platform) => startWorker(platform.url));

function describeDashboard(
  name: string,
  open: (p: GatewayPlatform) => Promise<{ url: string; stop(): Promise<void> }>,
) {
  describe(name, () => {
    let platform: GatewayPlatform;
    let gateway: { url: string; stop(): Promise<void> };
    const visitor = () => new Browser(gateway.url);
    const signedIn = async (key = platform.apiKey) => visitor().signIn(key);
    const submit = async () => {
      const { id } = await platform.client().submit('story', {});
      return id;
    };

    before(async () => {
      platform = await GatewayPlatform.start();
      await platform.register({ name: 'story', description: HOSTILE });
      gateway = await open(platform);
    });
    after(async () => {
      await gateway?.stop();
      await platform?.stop();
    });

    it('shows no page and takes no action without a session', async () => {
      const stranger = visitor();
      for (const path of [
        '',
        '/invocations',
        '/invocations/x',
        '/functions',
        '/functions/story',
        '/usage',
        '/platform',
      ]) {
        const response = await stranger.get(`/dashboard${path}`);
        assert.equal(response.status, 303, path);
        const next = new URLSearchParams({ next: `/dashboard${path}` });
        assert.equal(response.headers.get('location'), `/dashboard/sign-in?${next}`);
        assert.equal((await stranger.get(`/dashboard${path}`, { accept: 'text/event-stream' })).status, 401);
      }
      assert.equal((await stranger.post('/dashboard/functions/story/rollback', {})).status, 303);
    });

    it('signs in with an API key and sets an HttpOnly cookie for its own site and path', async () => {
      const browser = visitor();
      const wrong = await browser.post('/dashboard/sign-in', { key: HOSTILE });
      assert.equal(wrong.status, 401);
      assert.match(await wrong.text(), /role="alert"/);
      assert.equal(wrong.headers.get('set-cookie'), null);

      const right = await browser.post('/dashboard/sign-in', { key: ` ${platform.apiKey} `, next: '/dashboard/usage' });
      assert.equal(right.headers.get('location'), '/dashboard/usage');
      const cookie = right.headers.get('set-cookie') ?? '';
      for (const part of ['HttpOnly', 'SameSite=Strict', 'Path=/dashboard', 'Max-Age=28800'])
        assert.ok(cookie.includes(part), `${part} in ${cookie}`);
      assert.ok(!cookie.includes('Secure') && !cookie.includes(platform.apiKey));
      const behindTls = await browser.post(
        '/dashboard/sign-in',
        { key: platform.apiKey },
        { 'x-forwarded-proto': 'https' },
      );
      assert.match(behindTls.headers.get('set-cookie') ?? '', /; Secure/);
    });

    it('accepts forms from its own pages only', async () => {
      const browser = await signedIn();
      const token = await browser.token();
      const otherToken = await (await signedIn()).token();
      const path = '/dashboard/sign-out';
      assert.equal((await browser.post(path, {})).status, 403, 'a form without a token');
      assert.equal(
        (await browser.post(path, { token: otherToken })).status,
        403,
        "a form with another session's token",
      );
      assert.equal((await browser.post(path, { token }, { origin: 'https://evil.example' })).status, 403);
      assert.equal((await browser.post(path, { token }, { 'sec-fetch-site': 'cross-site' })).status, 403);
      assert.equal((await browser.post(path, { token }, { 'content-type': 'text/plain' })).status, 415);
      assert.equal((await browser.post(path, { token, x: 'x'.repeat(20_000) })).status, 413);
      const stranger = await visitor().post('/dashboard/sign-in', { key: platform.apiKey }, { origin: 'null' });
      assert.equal(stranger.status, 403, 'a sign-in form from another origin');
      const signedOut = await browser.post(path, { token });
      assert.equal(signedOut.status, 303);
      assert.match(signedOut.headers.get('set-cookie') ?? '', /^pie_session=;.*Max-Age=0/);
      assert.equal((await browser.get('/dashboard')).status, 303, 'the cookie is void after signing out');
    });

    it('signs out a session whose key is removed, also in open pages', async () => {
      const key = await platform.key(['admin']);
      const browser = await signedIn(key);
      const self = await platform.client(key).self();
      let wasSignedOut = false;
      for await (const frame of browser.follow('/dashboard/functions')) {
        if (frame.event === 'fragment')
          assert.equal(await platform.scheduler.apiKeys.remove(self.tenant, self.keyId), 'removed');
        if (frame.event === 'end') wasSignedOut = JSON.parse(frame.data).why === 'signed-out';
      }
      assert.ok(wasSignedOut);
      assert.equal((await browser.get('/dashboard')).status, 303);
    });

    it('lets the user of a suspended tenant sign in with another key', async () => {
      const browser = await signedIn(await platform.key(['admin'], 'suspended'));
      await platform.scheduler.tenants.change('suspended', { suspended: true });
      const isRefused = async () => (await browser.get('/dashboard')).status === 403;
      await eventually(isRefused, 'the gateway notices the suspension');
      assert.match(await (await browser.get('/dashboard')).text(), /href="\/dashboard\/sign-in">Sign in</);
      assert.match(await browser.page('/dashboard/sign-in'), /name="key"/);
      await browser.signIn(platform.apiKey);
      assert.equal((await browser.get('/dashboard')).status, 200);
    });

    it('offers and does only what the scopes of the key cover', async () => {
      const id = await submit();
      const invoker = await signedIn(await platform.key(['invoke']));
      const deployer = await signedIn(await platform.key(['deploy']));
      const rollback = '/dashboard/functions/story/rollback';
      assert.equal((await invoker.get(rollback)).status, 403);
      const rollbackAnswer = await invoker.post(rollback, {
        token: await invoker.token(),
        alias: 'live',
        revision: '1',
      });
      assert.equal(rollbackAnswer.status, 403);
      assert.match(await invoker.page(`/dashboard/invocations/${id}`), /Cancel this invocation/);
      assert.doesNotMatch(await deployer.page(`/dashboard/invocations/${id}`), /Cancel this invocation/);
      const cancel = `/dashboard/invocations/${id}/cancel`;
      assert.equal((await deployer.post(cancel, { token: await deployer.token() })).status, 403);
      assert.equal((await platform.client().invocation(id)).status, 'queued');

      const admin = await signedIn(await platform.key(['admin']));
      assert.doesNotMatch(await admin.page('/dashboard'), /href="\/dashboard\/platform"/);
      for (const path of ['/platform', '?tenant=other', '/usage?tenant=other', '/invocations?tenant=other'])
        assert.equal((await admin.get(`/dashboard${path}`)).status, 403, path);
      assert.match(await (await signedIn()).page('/dashboard/platform'), /<h1>Platform/);
    });

    it('shows no invocation or function of another tenant', async () => {
      const id = await submit();
      const other = await signedIn(await platform.key(['admin'], 'other'));
      assert.equal((await other.get(`/dashboard/invocations/${id}`)).status, 404);
      assert.equal((await other.get('/dashboard/functions/story')).status, 404);
      const token = await other.token();
      assert.equal((await other.post(`/dashboard/invocations/${id}/cancel`, { token })).status, 404);
      assert.doesNotMatch(await other.page('/dashboard/invocations'), new RegExp(id));
    });

    it('shows every tenant to operators', async () => {
      const key = await platform.key(['admin'], 'watched');
      await platform.register({ name: 'theirs' }, 'watched');
      const { id } = await platform.client(key).submit('theirs', {});
      const operator = await signedIn();
      for (const path of ['?tenant=watched', '/invocations?tenant=watched', '/usage?tenant=watched']) {
        const page = await operator.page(`/dashboard${path}`);
        assert.match(page, /Tenant watched/);
        assert.doesNotMatch(page, /cannot be shown/);
      }
      assert.match(await operator.page('/dashboard/invocations?tenant=watched'), new RegExp(id));
      assert.match(await operator.page(`/dashboard/invocations/${id}`), /Cancel this invocation/);
      const device = { name: 'A card', index: 3, memory: { takenBytes: 3 * 2 ** 30, totalBytes: 4 * 2 ** 30 } };
      const hosted = {
        name: 'tiny',
        backend: 'cuda',
        precision: 'bf16',
        kv: 'fp8',
        device,
        pageSize: 16,
        pageCount: 64,
      };
      await platform.lease.describe({
        isolation: { layers: 'process', notice: 'No namespaces <here>.' },
        gpuHosts: [
          { name: 'gpu-host-1', connected: true, hostId: 'a', models: [hosted] },
          { name: 'gpu-host-2', connected: false, hostId: 'b', models: [hosted] },
          { name: 'gpu-host-3', connected: true, hostId: 'c', drain: { since: 1 }, models: [hosted] },
        ],
      });
      const page = await operator.page('/dashboard/platform');
      assert.match(page, /href="\/dashboard\?tenant=watched"/);
      for (const text of [
        'gpu-host-2',
        'away',
        'badge wait">drained',
        'cuda, bf16, KV fp8',
        '3: A card',
        '3 GiB of 4 GiB',
        'badge wait">process</span><small>No namespaces &lt;here&gt;.</small>',
      ])
        assert.ok(page.includes(text), text);
    });

    it('marks an unproven model for operators, with the reason', async () => {
      const load = {
        ...{ model: 'tiny', hostId: 'a', pages: 64, freePages: 64, cachedPages: 0, idlePages: 0, readAt: 0 },
        ...{ batchSize: 0, utilisation: 0, hitRate: 0, tokensPerSecond: 0, waitingCalls: 0, terminations: 0 },
      };
      platform.lease.reportLoad(() => ({ running: 0, models: [load] }));
      // The lease writes its description together with the load.
      await platform.lease.describe({});
      const machine = { name: 'proving', roles: ['gateway'] as const, host: 'h', pid: 1, version: '1', gpuHosts: [] };
      const options = { log: silentLog, onTaken: assert.fail, force: true };
      const claim = await MachineLease.claim(platform.scheduler.store, machine, options);
      const operator = await signedIn();
      const page = () => operator.page('/dashboard/platform');
      assert.match(await page(), /tiny: 0 of 64 KV pages in use/);
      assert.doesNotMatch(await page(), /unproven/);
      await claim.describe({ proofs: { tiny: { at: 1, fault: 'no <answer>' } } });
      assert.match(await page(), /tiny <span class="badge bad">unproven<\/span><small> no &lt;answer&gt;<\/small>/);
      await claim.release();
      platform.lease.reportLoad(() => ({ running: 0 }));
      await platform.lease.describe({});
    });

    it('streams the output of an invocation and cancels it', async () => {
      const id = await submit();
      const attempt = await platform.attempt(id);
      await attempt.start();
      await attempt.say('Once upon ');
      const browser = await signedIn();
      const page = await browser.page(`/dashboard/invocations/${id}`);
      assert.match(page, /Once upon /);
      const live = /data-live="([^"]+)"/.exec(page)?.[1] ?? '';
      assert.equal(live, `/dashboard/invocations/${id}?after=${attempt.epoch}-2`);

      let text = '';
      const states: string[] = [];
      let hasSaidMore = false;
      for await (const frame of browser.follow(live)) {
        const data = JSON.parse(frame.data);
        if (frame.event === 'fragment' && data.id === 'state')
          states.push(/badge \w+">(\w+)/.exec(data.html)?.[1] ?? '');
        if (frame.event === 'events') {
          text += data.text;
          if (data.text !== '' && text === 'a time') {
            const { asked: cancelReached } = await platform.cancelOf(id);
            const answer = await browser.post(`/dashboard/invocations/${id}/cancel`, { token: await browser.token() });
            assert.equal(answer.headers.get('location'), `/dashboard/invocations/${id}?done=cancelled`);
            await cancelReached;
            await attempt.fail('cancelled', 'The client cancelled it.');
          }
        } else if (!hasSaidMore) {
          hasSaidMore = true;
          await attempt.say('a ', 'time');
        }
        if (frame.event === 'end') assert.equal(data.why, 'complete');
      }
      assert.equal(text, 'a time', 'the stream repeats and omits nothing');
      assert.equal(states[0], 'running');
      assert.equal(states.at(-1), 'cancelled');
      assert.doesNotMatch(await browser.page(`/dashboard/invocations/${id}`), /data-live/);
    });

    it('marks a quarantined function and its version', async () => {
      const version = await platform.register({ name: 'broken' });
      const { id } = await platform.client().submit('broken', {});
      // The second loss of a sandbox that held only this version (`true`) quarantines the version.
      for (let i = 0; i < 2; i++) await platform.scheduler.quarantine.noteLoss(id, true);
      const browser = await signedIn();
      for (const page of ['/dashboard/functions', '/dashboard/functions/broken']) {
        assert.match(await browser.page(page), /<span class="badge bad">quarantined<\/span>/, page);
      }
      await platform.scheduler.quarantine.lift([{ tenant: 'default', name: 'broken', version }]);
      assert.doesNotMatch(await browser.page('/dashboard/functions'), /quarantined/);
    });

    it('escapes untrusted text in pages and in streams', async () => {
      const id = await submit();
      const attempt = await platform.attempt(id);
      await attempt.start();
      const browser = await signedIn();
      const seen: string[] = [];
      const following = (async () => {
        for await (const { data } of browser.follow(`/dashboard/invocations/${id}?after=0`)) {
          const { html = '', rows = '' } = JSON.parse(data);
          seen.push(html, rows);
        }
      })();
      await attempt.say(HOSTILE);
      await attempt.append({ event: 'log', data: { level: HOSTILE, message: HOSTILE } });
      await attempt.append({ event: 'message', data: { file: { name: HOSTILE, mediaType: HOSTILE, bytes: 1 } } });
      await attempt.succeed({ text: HOSTILE }, { [HOSTILE]: 1 });
      await following;
      for (const path of ['', '/invocations', `/invocations/${id}`, '/functions', '/functions/story', '/usage'])
        seen.push(await browser.page(`/dashboard${path}`));
      const problem = await browser.get(`/dashboard/functions/${encodeURIComponent(HOSTILE)}`);
      assert.equal(problem.status, 404);
      seen.push(await problem.text());
      assert.ok(seen.some((markup) => markup.includes('&lt;script&gt;alert(1)')));
      for (const markup of seen) assert.doesNotMatch(markup, /<script>|<img|<\/pre><script/);
    });

    it('redirects the bare URL to the overview', async () => {
      const bare = await visitor().get('/');
      assert.deepEqual([bare.status, bare.headers.get('location')], [302, '/dashboard']);
      assert.match(await (await signedIn()).page('/dashboard/'), /<h1>/);
    });

    it('refuses an unknown status, an invalid function name and an invalid cursor in a filter', async () => {
      const browser = await signedIn();
      for (const query of ['status=gone', 'function=A', 'cursor=zzz']) {
        const refused = await browser.get(`/dashboard/invocations?${query}`);
        assert.equal(refused.status, 422, query);
        assert.match(await refused.text(), /not valid/);
      }
    });

    it('forbids inline scripts, inline styles, frames, other sites and caching', async () => {
      const response = await (await signedIn()).get('/dashboard');
      const policy = response.headers.get('content-security-policy') ?? '';
      assert.match(policy, /default-src 'none'; script-src 'self'; style-src 'self'/);
      assert.doesNotMatch(policy, /unsafe/);
      assert.match(policy, /frame-ancestors 'none'; base-uri 'none'/);
      assert.equal(response.headers.get('cache-control'), 'no-store');
      assert.doesNotMatch(
        await response.text(),
        /<style|<script(?! src="\/dashboard\/assets\/live.js" defer>)| on\w+=| style=/,
      );
      for (const [asset, type] of [
        ['style.css', 'text/css'],
        ['live.js', 'text/javascript'],
      ]) {
        const file = await visitor().get(`/dashboard/assets/${asset}`);
        assert.ok(file.headers.get('content-type')?.startsWith(`${type}`));
        const etag = file.headers.get('etag') ?? '';
        assert.equal((await visitor().get(`/dashboard/assets/${asset}`, { 'if-none-match': etag })).status, 304);
      }
    });

    it('refuses unknown pages and bad parameters with an HTML page', async () => {
      const browser = await signedIn();
      for (const [path, status] of [
        ['/nowhere', 404],
        ['?tenant=No_Name', 404],
        ['/invocations?status=strange', 422],
        ['/invocations?function=UPPER', 422],
        ['/usage?by=week', 422],
        ['/functions/story/rollback?alias=no-such-alias', 404],
        ['/functions/none', 404],
      ] as const) {
        const response = await browser.get(`/dashboard${path}`);
        assert.equal(response.status, status, path);
        assert.match(await response.text(), /<h1>/);
      }
      const form = { token: await browser.token(), alias: 'live', revision: 'x' };
      assert.equal((await browser.post('/dashboard/functions/story/rollback', form)).status, 422);
    });

    it('holds no stream open after a HEAD request', async () => {
      const browser = await signedIn(await platform.key(['admin'], 'heads'));
      // More requests than the 24 streams that a key may have open.
      for (let i = 0; i < 30; i += 1) {
        const head = await browser.head('/dashboard', { accept: 'text/event-stream' });
        assert.deepEqual([head.status, head.headers.get('content-type')], [200, 'text/event-stream; charset=utf-8']);
      }
      for await (const { event } of browser.follow('/dashboard')) {
        assert.equal(event, 'fragment');
        break;
      }
    });

    it('shows the end of a long output, and names the omitted part, in pages and streams', async () => {
      const id = await submit();
      const attempt = await platform.attempt(id);
      // A page shows at most 200,000 characters. Two of these events have more, so the page shows only the last one.
      for (const letter of 'abc') await attempt.say(letter.repeat(150_000));
      const browser = await signedIn();
      const page = await browser.page(`/dashboard/invocations/${id}`);
      assert.ok(page.length < 250_000, `${page.length} characters`);
      assert.ok(/begins with event 3: .*pie attach/.test(page));
      assert.ok(page.includes('c'.repeat(150_000)) && !page.includes('bbbb'));
      await attempt.say('d'.repeat(300_000));
      for await (const { event, data } of browser.follow(`/dashboard/invocations/${id}?after=3`)) {
        if (event !== 'events') continue;
        const { text } = JSON.parse(data);
        assert.ok(text.length <= 200_000);
        // The text has 100,000 characters more than fit. The note about them takes the place of 200 more.
        assert.ok(/^\n… 100,200 characters are left out here, .*\nd{1000}/.test(text), text.slice(0, 200));
        break;
      }
      await attempt.succeed(null);
    });

    it('refuses wrong keys from an address after too many attempts, but still accepts the right key', async () => {
      const browser = visitor();
      let last: Response | undefined;
      for (let i = 0; i < 20 && last?.status !== 429; i += 1)
        last = await browser.post('/dashboard/sign-in', { key: 'x' });
      assert.equal(last?.status, 429);
      assert.equal(
        (await browser.post('/dashboard/sign-in', { key: platform.apiKey })).status,
        303,
        'the right key still signs in',
      );
      assert.ok(Number(last?.headers.get('retry-after')) >= 1);
    });
  });
}
