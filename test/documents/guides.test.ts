import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GUIDE_IMAGE, GUIDE_NAME } from '#gateway/app/docs/pages.ts';
import { GuideFiles } from '#gateway/node/http/guides.ts';

/** The limit is small, because the repository, the npm package and the container images contain all images of the guides. */
const MAX_GUIDE_IMAGE_BYTES = 150_000;

const guides = new GuideFiles();

test('the index links to each guide, and each guide links only to headings, pages and images that the gateway has', async () => {
  const names = [...(await guides.index()).matchAll(/href="\/docs\/guides\/([\w-]+)"/g)].map(([, name = '']) => name);
  assert.deepEqual(names, [
    'benchmarks',
    'clients',
    'configure',
    'containers',
    'inferlets',
    'kubernetes',
    'operate',
    'platforms',
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
    assert.match(name, GUIDE_NAME);
    const html = (await guides.page(name)) ?? '';
    assert.match(html, /<h1 id="/);
    const [, main = ''] = html.split('<main>');
    for (const [, src = '', alt = ''] of main.matchAll(/<img src="([^"]*)" alt="([^"]*)"/g)) {
      images++;
      const image = src.replace('/docs/images/', '');
      assert.match(image, GUIDE_IMAGE);
      const bytes = await guides.image(image);
      assert.ok(bytes !== null && bytes.length < MAX_GUIDE_IMAGE_BYTES, `${name}: ${src}, ${bytes?.length} bytes`);
      assert.ok(alt.length > 20, `${name}: ${src} has words`);
    }
    for (const [, href = ''] of main.matchAll(/href="([^"]+)"/g)) {
      if (href.startsWith('https://')) continue;
      links++;
      const [, guide = '', anchor] = /^\/docs\/guides\/([\w-]+)(?:#(.+))?$/.exec(href) ?? [];
      const target = (await guides.page(guide)) ?? '';
      assert.ok(target.includes(anchor === undefined ? '<h1 ' : `<h2 id="${anchor}">`), `${name}: ${href}`);
    }
  }
  assert.ok(images > 5 && links > 5, `${images} images, ${links} links`);
  const threats = await guides.page('threat-model');
  assert.ok(threats?.includes('<a href="/docs/guides/threat-model#known-gaps">Known gaps</a>'));
});
