import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { guideIndex, guidePage } from '#gateway/app/docs/guide-page.ts';
import { GUIDES_FILE, renderGuides } from '../../docs/generate.ts';

test('the generated guides are those of docs/', async () => {
  assert.equal(await readFile(GUIDES_FILE, 'utf8'), await renderGuides(), 'run `npm run generate`');
});

test('the index links to each guide, and each guide links only to pages that the gateway has', () => {
  const names = [...guideIndex().matchAll(/href="\/docs\/guides\/([\w-]+)"/g)].map(([, name = '']) => name);
  assert.deepEqual(names, [
    'clients',
    'configure',
    'containers',
    'inferlets',
    'kubernetes',
    'operate',
    'scale',
    'systemd',
    'threat-model',
  ]);
  for (const name of names) {
    const html = guidePage(name) ?? '';
    assert.match(html, /<h1>/);
    const [, main = ''] = html.split('<main>');
    for (const [, href = ''] of main.matchAll(/href="([^"]+)"/g)) {
      if (href.startsWith('https://')) continue;
      assert.notEqual(guidePage(/^\/docs\/guides\/([\w-]+)/.exec(href)?.[1] ?? ''), null, `${name}: ${href}`);
    }
  }
});

test('a name that objects inherit is no guide', () => {
  for (const name of ['__proto__', 'constructor', 'toString']) assert.equal(guidePage(name), null);
});
