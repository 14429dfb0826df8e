import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { findCredentials } from './credentials.ts';

describe('findCredentials', () => {
  const LOCAL = { url: 'http://127.0.0.1:8787', apiKey: 'pie_local' };
  let home: string;
  before(() => {
    home = mkdtempSync(path.join(os.tmpdir(), 'pie-credentials-'));
    writeFileSync(path.join(home, 'credentials.json'), JSON.stringify(LOCAL));
  });
  after(() => rmSync(home, { recursive: true }));

  const find = (environment: NodeJS.ProcessEnv) => {
    const { url, apiKey } = findCredentials({ PIE_HOME: home, ...environment });
    return { url, apiKey };
  };

  it('takes address and key from the environment, or else from the home', () => {
    const both = { PIE_URL: 'https://pie.example.com/', PIE_API_KEY: 'pie_other' };
    assert.deepEqual(find(both), { url: 'https://pie.example.com', apiKey: 'pie_other' });
    assert.deepEqual(find({}), LOCAL);
    assert.deepEqual(find({ PIE_API_KEY: 'pie_other' }), { ...LOCAL, apiKey: 'pie_other' });
  });

  it('refuses a key that no request can carry, and does not show the key', () => {
    for (const PIE_API_KEY of ['ключ', 'pie_a\nb', 'pie_a b'])
      assert.throws(
        () => find({ PIE_API_KEY }),
        (error: Error) => {
          assert.match(error.message, /^PIE_API_KEY is not an API key/);
          return !JSON.stringify(error).includes(JSON.stringify(PIE_API_KEY).slice(1, -1));
        },
      );
    // `fetch` removes white space around the value of a header.
    assert.equal(find({ PIE_API_KEY: 'pie_other\n' }).apiKey, 'pie_other\n');
  });

  it('uses the key of the home only for the address of the home', () => {
    assert.deepEqual(find({ PIE_URL: 'http://localhost:8787/' }), { ...LOCAL, url: 'http://localhost:8787' });
    for (const PIE_URL of [
      'https://pie.example.com',
      'https://127.0.0.1:8787',
      'http://127.0.0.1:8788',
      'http://localhost.example:8787',
    ])
      assert.throws(() => find({ PIE_URL }), { code: 'no-credentials', message: /PIE_API_KEY is not set/ });
  });
});
