import assert from 'node:assert/strict';
import test from 'node:test';
import { OpenAPIHono } from '@hono/zod-openapi';
import { silentLog } from '#scheduler/testing/log.ts';
import { createApp } from '../app.ts';
import type { AppEnv, AppSettings } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { BODY_CODES } from './define.ts';
import { docsRoutes } from './docs.ts';

interface Operation {
  readonly tags: readonly string[];
  readonly requestBody?: { readonly content: Readonly<Record<string, object>> };
  readonly responses: Readonly<Record<string, { readonly description: string }>>;
}

test('`/openapi.json` and `/docs` are made once each, and every answer has the origin of its own request', async (t) => {
  const app = new OpenAPIHono<AppEnv>();
  docsRoutes(app, { version: '1.2.3' } as AppSettings);
  const makeDocument = t.mock.method(app, 'getOpenAPI31Document');
  for (const origin of ['http://one.test', 'https://two.test:8443']) {
    const document = (await (await app.request(`${origin}/openapi.json`)).json()) as Record<string, object>;
    assert.deepEqual(document.servers, [{ url: origin }]);
    const page = await (await app.request(`${origin}/docs`)).text();
    assert.match(page, /1\.2\.3/);
    assert.ok(page.includes(`curl -N ${origin}/v1/functions/`), page);
  }
  assert.equal(makeDocument.mock.callCount(), 2, 'one document for `/openapi.json`, and one for the page');
});

test('every route with a JSON body documents the error codes in `BODY_CODES`', async () => {
  // The OpenAPI document depends on the routes alone, so the control plane may be empty.
  const app = createApp({} as ControlPlane, { log: silentLog });
  const { paths } = (await (await app.request('http://one.test/openapi.json')).json()) as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  };
  const missing: string[] = [];
  let routeCount = 0;
  for (const [path, operations] of Object.entries(paths)) {
    for (const [method, { tags, requestBody, responses }] of Object.entries(operations)) {
      if (requestBody?.content['application/json'] === undefined) continue;
      routeCount += 1;
      // The description of an error response lists its error codes.
      const documentedWords = Object.values(responses).flatMap(
        ({ description }) => description.match(/[a-z-]+/g) ?? [],
      );
      // The routes of OpenAI's and Anthropic's APIs report an invalid input with the code `invalid-parameter`.
      const isOpenAi = tags.some((tag) => tag.endsWith('-compatible'));
      const expectedCodes = BODY_CODES.map((code) =>
        isOpenAi && code === 'invalid-input' ? 'invalid-parameter' : code,
      );
      for (const code of expectedCodes) {
        if (!documentedWords.includes(code)) missing.push(`${method} ${path}: ${code}`);
      }
    }
  }
  // The API has more routes with a body than this. A smaller number means that the loop has overlooked some.
  assert.ok(routeCount > 20, `${routeCount} routes`);
  assert.deepEqual(missing, []);
});
