import assert from 'node:assert/strict';
import test from 'node:test';
import { OpenAPIHono } from '@hono/zod-openapi';
import type { AppEnv, AppSettings } from '../context.ts';
import { docsRoutes } from './docs.ts';

test('the API is described once for all requests, and each answer names the origin of its request', async (t) => {
  const app = new OpenAPIHono<AppEnv>();
  docsRoutes(app, { version: '1.2.3' } as AppSettings);
  const described = t.mock.method(app, 'getOpenAPI31Document');
  for (const origin of ['http://one.test', 'https://two.test:8443']) {
    const document = (await (await app.request(`${origin}/openapi.json`)).json()) as Record<string, object>;
    assert.deepEqual(document.servers, [{ url: origin }]);
    const page = await (await app.request(`${origin}/docs`)).text();
    assert.match(page, /1\.2\.3/);
    assert.ok(page.includes(`curl -N ${origin}/v1/functions/`), page);
  }
  assert.equal(described.mock.callCount(), 2, 'once for the document, once for the page');
});
