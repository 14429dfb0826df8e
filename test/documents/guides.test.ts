import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { guideIndex, guidePage } from '#gateway/app/docs/pages.ts';
import { guideImageOf } from '#gateway/node/http/guide-images.ts';
import { GUIDES_FILE, renderGuides } from '../../docs/generate.ts';

/** The limit is small, because the repository, the npm package and the container images contain all images of the guides. */
const MAX_GUIDE_IMAGE_BYTES = 150_000;

test('the generated guides are up to date with docs/', async () => {
  assert.equal(await readFile(GUIDES_FILE, 'utf8'), await renderGuides(), 'run `npm run generate`');
});

test('the index links to each guide, and each guide links only to headings, pages and images that the gateway has', async () => {
  const names = [...guideIndex().matchAll(/href="\/docs\/guides\/([\w-]+)"/g)].map(([, name = '']) => name);
  assert.deepEqual(names, [
    'benchmarks',
    'clients',
    'configure',
    'containers',
    'inferlets',
    'kubernetes',
    'operate',
    'recipes',
    'rust',
    'scale',
    'sdk-reference',
    'systemd',
    'threat-model',
  ]);
  let images = 0;
  let links = 0;
  for (const name of names) {
    const html = guidePage(name) ?? '';
    assert.match(html, /<h1 id="/);
    const [, main = ''] = html.split('<main>');
    for (const [, src = '', alt = ''] of main.matchAll(/<img src="([^"]*)" alt="([^"]*)"/g)) {
      images++;
      const bytes = await guideImageOf(
        /^\/docs\/images\/((?:benchmarks\/)?[a-z-]+\.(?:png|svg))$/.exec(src)?.[1] ?? '',
      );
      assert.ok(bytes !== null && bytes.length < MAX_GUIDE_IMAGE_BYTES, `${name}: ${src}, ${bytes?.length} bytes`);
      assert.ok(alt.length > 20, `${name}: ${src} has words`);
    }
    for (const [, href = ''] of main.matchAll(/href="([^"]+)"/g)) {
      if (href.startsWith('https://')) continue;
      links++;
      const [, guide = '', anchor] = /^\/docs\/guides\/([\w-]+)(?:#(.+))?$/.exec(href) ?? [];
      const target = guidePage(guide) ?? '';
      assert.ok(target.includes(anchor === undefined ? '<h1 ' : `<h2 id="${anchor}">`), `${name}: ${href}`);
    }
  }
  assert.ok(images > 5 && links > 5, `${images} images, ${links} links`);
  assert.ok(guidePage('threat-model')?.includes('<a href="/docs/guides/threat-model#known-gaps">Known gaps</a>'));
});

test('the name of a member that every object inherits is not a guide', () => {
  for (const name of ['__proto__', 'constructor', 'toString']) assert.equal(guidePage(name), null);
});
