import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { CODES } from '../../app/errors/codes.ts';
import { type Harness, JSON_TYPE, json } from './harness.ts';

/** Tests of keys, headers, problems, documentation and health. */
export function describeAccess(get: () => Harness): void {
  describe('authentication', () => {
    it('refuses a missing, malformed or unknown key', async () => {
      const h = get();
      for (const authorization of [
        '',
        'Basic abc',
        'Bearer',
        'Bearer pie_wrong',
        `Bearer pie_${'a'.repeat(32)}`,
        `Bearer ${'x'.repeat(3000)}`,
      ]) {
        const answer = await h.ask('/v1/functions', { headers: { authorization } });
        h.refused(answer, 'unauthorized');
        assert.match(answer.headers.get('www-authenticate') ?? '', /^Bearer/);
      }
    });

    it('refuses actions outside the scopes of a key', async () => {
      const h = get();
      const invoker = { authorization: `Bearer ${await h.platform.key(['invoke'])}` };
      const deployer = { authorization: `Bearer ${await h.platform.key(['deploy'])}` };
      h.refused(await h.ask('/v1/functions/echo', { method: 'DELETE', headers: invoker }), 'forbidden');
      h.refused(await h.ask('/v1/functions/x', { method: 'PUT', headers: invoker, body: 'x' }), 'forbidden');
      h.refused(
        await h.ask('/v1/functions/echo/invocations', {
          method: 'POST',
          headers: { ...deployer, ...JSON_TYPE },
          body: '{}',
        }),
        'forbidden',
      );
      assert.equal((await h.ask('/v1/functions', { headers: invoker })).status, 200);
      assert.deepEqual((await h.ask('/v1/keys/self', { headers: deployer })).body.scopes, ['deploy']);
    });

    it('shows nothing of another tenant', async () => {
      const h = get();
      const other = { authorization: `Bearer ${await h.platform.key(['admin'], 'other')}` };
      const id = await h.submit();
      assert.deepEqual((await h.ask('/v1/functions', { headers: other })).body, { functions: [] });
      h.refused(await h.ask('/v1/functions/echo', { headers: other }), 'unknown-function');
      h.refused(await h.ask('/v1/functions/echo/logs', { headers: other }), 'unknown-function');
      h.refused(await h.ask('/v1/functions/echo', { headers: other, method: 'DELETE' }), 'unknown-function');
      h.refused(await h.ask(`/v1/invocations/${id}`, { headers: other }), 'unknown-invocation');
      h.refused(await h.ask(`/v1/invocations/${id}/events`, { headers: other }), 'unknown-invocation');
      h.refused(await h.ask(`/v1/invocations/${id}`, { headers: other, method: 'DELETE' }), 'unknown-invocation');
      const message = { method: 'POST', body: '{"text":"x"}', headers: { ...other, ...JSON_TYPE } };
      h.refused(await h.ask(`/v1/invocations/${id}/messages`, message), 'unknown-invocation');
    });
  });

  describe('every response', () => {
    it('names the request and continues its trace', async () => {
      const h = get();
      const trace = '0af7651916cd43dd8448eb211c80319c';
      const headers = { 'x-request-id': 'my-request.1', traceparent: `00-${trace}-b7ad6b7169203331-01` };
      const { headers: answered } = await h.ask('/v1/functions', { headers });
      assert.equal(answered.get('x-request-id'), 'my-request.1');
      assert.match(answered.get('traceparent') ?? '', new RegExp(`^00-${trace}-[0-9a-f]{16}-01$`));
      assert.equal(answered.get('x-content-type-options'), 'nosniff');
      assert.match((await h.ask('/nowhere')).headers.get('x-request-id') ?? '', /^req_/);
    });

    it('is the same with a slash at the end of the address', async () => {
      const h = get();
      for (const path of ['/healthz', '/v1/functions', '/v1/functions/echo', '/v1/models', '/openapi.json', '/docs'])
        assert.equal((await h.send(`${path}/`)).status, 200, path);
      const body = '{"prompt":"a"}';
      const headers = { ...JSON_TYPE, prefer: 'respond-async' };
      const invoked = await h.ask('/v1/functions/echo/invocations/', { method: 'POST', body, headers });
      assert.equal(invoked.status, 202);
      h.refused(
        await h.ask('/v1/chat/completions/', { method: 'POST', body: '{}', headers: JSON_TYPE }),
        'invalid-parameter',
        'model',
      );
      h.refused(await h.ask('/v1/functions/echo/', { method: 'PATCH' }), 'method-not-allowed');
      h.refused(await h.ask('/v1/functions/', { headers: { authorization: '' } }), 'unauthorized');
      h.refused(await h.ask('/v1/nowhere/'), 'not-found');
    });

    it('is a problem for an unknown address or method', async () => {
      const h = get();
      h.refused(await h.ask('/nowhere'), 'not-found');
      h.refused(await h.ask('/v1/nowhere'), 'not-found');
      const answer = await h.ask('/v1/functions/echo', { method: 'PATCH' });
      h.refused(answer, 'method-not-allowed');
      assert.deepEqual(new Set(answer.headers.get('allow')?.split(', ')), new Set(['PUT', 'GET', 'HEAD', 'DELETE']));
    });

    it('lets pages of the configured origin call it from a browser, streams and refusals included', async () => {
      const h = get();
      const asked = {
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization,content-type,x-stainless-lang',
      };
      const preflight = async (path: string, headers: Record<string, string>) =>
        fetch(`${h.target.url}${path}`, { method: 'OPTIONS', headers });
      const origin = 'https://app.example.com';
      for (const path of ['/v1/chat/completions', '/v1/functions/echo/invocations', '/v1/nowhere']) {
        const { status, headers } = await preflight(path, { ...asked, origin });
        assert.equal(status, 204);
        assert.equal(headers.get('access-control-allow-origin'), origin);
        assert.match(headers.get('access-control-allow-methods') ?? '', /POST.*DELETE/);
        assert.equal(headers.get('access-control-allow-headers'), asked['access-control-request-headers']);
        assert.match(headers.get('vary') ?? '', /\bOrigin\b/);
        assert.equal(headers.get('access-control-allow-credentials'), null, 'a page sends its key, and no cookies');
      }
      const { response, attempt } = await h.stream({ origin });
      await attempt.succeed(1);
      await response.text();
      for (const { status, headers } of [
        await h.ask('/v1/functions', { headers: { origin } }),
        await h.ask('/v1/functions', { headers: { origin, authorization: '' } }),
        await h.ask('/v1/nowhere', { headers: { origin } }),
        await h.ask('/v1/functions/echo', { method: 'PATCH', headers: { origin } }),
        response,
      ]) {
        assert.equal(headers.get('access-control-allow-origin'), origin, String(status));
        assert.match(headers.get('access-control-expose-headers') ?? '', /ratelimit,.*retry-after,.*x-request-id/);
        assert.match(headers.get('vary') ?? '', /\bOrigin\b/);
        assert.equal(headers.get('content-type') === null, false, 'its own headers stay');
      }
      const foreign = { ...asked, origin: 'https://other.example.com' };
      assert.equal((await preflight('/v1/functions', foreign)).headers.get('access-control-allow-origin'), null);
      const { headers } = await h.ask('/v1/functions', { headers: { origin: foreign.origin } });
      assert.equal(headers.get('access-control-allow-origin'), null);
      assert.match(
        headers.get('vary') ?? '',
        /\bOrigin\b/,
        'a cache must not give this answer to the configured origin',
      );
      const dashboard = await preflight('/dashboard', { ...asked, origin });
      assert.equal(dashboard.headers.get('access-control-allow-origin'), null);
      h.refused(await h.ask('/v1/functions', { method: 'OPTIONS' }), 'method-not-allowed');
    });

    it('is documented: pages describe every route, every code and the contract, and guides show their images', async () => {
      const h = get();
      const body = await json(await h.send('/openapi.json'));
      assert.equal(body.openapi, '3.1.0');
      assert.ok(body.paths['/v1/functions/{reference}/invocations'].post.responses['422']);
      const { responses } = body.paths['/v1/functions/{reference}/invocations'].post;
      assert.ok(responses[200].headers['Idempotency-Replayed'] && responses[202].headers.Location && responses[431]);
      assert.ok(responses[429].headers['Retry-After'] && responses[429].headers['RateLimit-Policy']);
      for (const [path, operations] of Object.entries<Record<string, { parameters?: { name: string }[] }>>(body.paths))
        for (const { parameters = [] } of Object.values(operations))
          for (const parameter of parameters) assert.ok('description' in parameter, `${path}: ${parameter.name}`);
      const page = await h.ask('/docs');
      assert.match(page.headers.get('content-type') ?? '', /^text\/html/);
      for (const path of Object.keys(body.paths)) assert.ok(page.body.includes(path), path);
      assert.equal(
        /<script|https?:\/\/(?!127\.0\.0\.1|localhost)/.test(page.body),
        false,
        'the page loads no other resource',
      );
      for (const code of Object.keys(CODES)) assert.match((await h.ask(`/docs/errors/${code}`)).body, new RegExp(code));
      h.refused(await h.ask('/docs/errors/nonsense'), 'not-found');
      assert.match((await h.ask('/docs/guides')).body, /<a href="\/docs\/guides\/operate">[A-Z]/);
      for (const name of ['none', 'constructor', 'README', '..%2Fdocs%2Foperate', 'operate.md'])
        h.refused(await h.ask(`/docs/guides/${name}`), 'not-found');
      const guide = await h.ask('/docs/guides/operate');
      assert.match(guide.headers.get('content-security-policy') ?? '', /^default-src 'none';.* img-src 'self'$/);
      const [, src = ''] = /<img src="([^"]+)"/.exec(guide.body) ?? [];
      const image = await fetch(`${h.target.url}${src}`);
      const bytes = Buffer.from(await image.arrayBuffer());
      assert.deepEqual([image.status, image.headers.get('content-type')], [200, 'image/png'], src);
      assert.deepEqual(bytes, await readFile(new URL(`../../../docs/${src.split('/').at(-1)}`, import.meta.url)));
      const chart = await fetch(`${h.target.url}/docs/images/benchmarks/agents.svg`);
      assert.deepEqual([chart.status, chart.headers.get('content-type')], [200, 'image/svg+xml']);
      assert.match(await chart.text(), /^<svg/);
      for (const name of [
        'none.png',
        'operate.md',
        '..%2Fdocs%2Fplayground.png',
        'benchmarks/none.svg',
        'benchmarks/results.json',
      ])
        h.refused(await h.ask(`/docs/images/${name}`), 'not-found');
      const contract = await h.ask('/docs/inferlet');
      for (const call of ['forward-with-adapter', 'exchange.read', 'compare-and-set', 'queue.synchronize'])
        assert.ok(contract.body.includes(`<span class="path">${call}</span>`), call);
    });
  });

  describe('the platform', () => {
    it('lists its models in the format of OpenAI', async () => {
      const h = get();
      const { body } = await h.ask('/v1/models');
      assert.equal(body.object, 'list');
      assert.deepEqual([body.data[0].id, body.data[0].object, body.data[0].contextLength], ['tiny', 'model', 256]);
    });

    it('reports its health without a key', async () => {
      const h = get();
      const fetchWithoutKey = async (path: string) => fetch(`${h.target.url}${path}`);
      assert.equal((await json(await fetchWithoutKey('/healthz'))).status, 'ok');
      const ready = await fetchWithoutKey('/readyz');
      assert.deepEqual([ready.status, (await json(ready)).ready], [200, true]);
      assert.equal((await fetchWithoutKey('/openapi.json')).status, 200);
      assert.equal((await fetchWithoutKey('/docs')).status, 200);
    });
  });
}
