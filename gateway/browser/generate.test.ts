import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { BROWSER_FILE, renderBrowserFile } from './generate.ts';

test('the committed module has the scripts and style sheets of this folder', async () => {
  assert.equal(await readFile(BROWSER_FILE, 'utf8'), await renderBrowserFile(), 'run `npm run generate`');
});
