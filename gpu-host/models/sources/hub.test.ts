import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { FileServer, type ServedFile } from '../testing/file-server.ts';
import { fetchFromHub } from './hub.ts';

const SMALL = Buffer.from('{}');
const LARGE = randomBytes(5000);
const COMMIT = { 'x-repo-commit': 'c0ffee' };

describe('fetchFromHub', () => {
  let hub: FileServer;
  let storage: FileServer;
  let directory: string;
  before(async () => {
    [hub, storage] = await Promise.all([FileServer.start(), FileServer.start()]);
    directory = await mkdtemp(join(tmpdir(), 'pie-hub-'));
  });
  after(async () => {
    await Promise.all([hub.close(), storage.close()]);
    await rm(directory, { recursive: true });
  });
  beforeEach(() => {
    for (const { files, requests } of [hub, storage]) {
      files.clear();
      requests.length = 0;
    }
  });

  /**
   * Serves small files with git's hash, and the weights as a redirect to `location`; the redirect has the weights' checksum. The checksums always
   * belong to SMALL and LARGE, even if `sent` has other bytes.
   */
  const serve = (id: string, location: string, sent = { small: SMALL, large: LARGE }) => {
    const blob = createHash('sha1').update(`blob ${SMALL.length}\0`).update(SMALL).digest('hex');
    const sha256 = createHash('sha256').update(LARGE).digest('hex');
    const small = { bytes: sent.small, headers: { ...COMMIT, etag: `"${blob}"` } };
    const linked = { ...COMMIT, 'x-linked-etag': `"${sha256}"`, 'x-linked-size': String(LARGE.length) };
    for (const name of ['config.json', 'tokenizer.json']) put(id, name, small);
    put(id, 'model.safetensors', { bytes: LARGE, headers: linked, location });
    for (const server of [hub, storage]) server.files.set('/stored', { bytes: sent.large });
  };
  const put = (id: string, name: string, file: ServedFile) => {
    for (const revision of ['main', 'c0ffee']) hub.files.set(`/${id}/resolve/${revision}/${name}`, file);
  };
  const redirectRepository = (from: string, locationOf: (path: string) => string) => {
    for (const revision of ['main', 'c0ffee'])
      for (const name of ['config.json', 'tokenizer.json', 'model.safetensors', 'generation_config.json']) {
        const location = locationOf(`resolve/${revision}/${name}`);
        hub.files.set(`/${from}/resolve/${revision}/${name}`, { bytes: SMALL, location });
      }
  };
  const pull = async (id: string) => {
    const into = await mkdtemp(join(directory, 'files-'));
    await mkdir(join(into, 'parts'));
    const env = { HF_ENDPOINT: hub.url, HF_TOKEN: 'secret' };
    const { commit } = await fetchFromHub({
      id,
      revision: 'main',
      partPrefix: join(into, 'parts', 'p-'),
      directory: into,
      env,
    });
    return { commit, weights: await readFile(join(into, 'model.safetensors')) };
  };

  it('fetches a repository under its old names, and checks the files', async () => {
    redirectRepository('older/tiny', (path) => `/old/tiny/${path}`);
    redirectRepository('old/tiny', (path) => `/owner/tiny/${path}`);
    serve('owner/tiny', `${storage.url}/stored`);
    assert.deepEqual(await pull('older/tiny'), { commit: 'c0ffee', weights: LARGE });
    assert.deepEqual(
      storage.requests.map(({ method, authorization }) => [method, authorization]),
      [['GET', undefined]],
    );
    const changed = Buffer.from(LARGE).fill(7, 9, 12);
    for (const sent of [
      { small: Buffer.from('[]'), large: LARGE },
      { small: SMALL, large: changed },
    ]) {
      serve('owner/tiny', `${storage.url}/stored`, sent);
      await assert.rejects(pull('older/tiny'), { code: 'checksum-mismatch' });
    }
  });

  it('checks weights that a mirror stores itself against the checksum of the redirect to them', async () => {
    serve('owner/tiny', '/stored', { small: SMALL, large: Buffer.from(LARGE).fill(7, 9, 12) });
    await assert.rejects(pull('owner/tiny'), { code: 'checksum-mismatch', message: /model\.safetensors/ });
  });

  it('refuses a repository after too many redirects, and never sends the token to another host', async () => {
    redirectRepository('round/tiny', (path) => `/round/tiny/${path}`);
    await assert.rejects(pull('round/tiny'), { code: 'download-failed', message: /round\/tiny more than 5 times/ });
    assert.equal(hub.requests.length, 6, 'the first request and five redirects');
    redirectRepository('away/tiny', (path) => `//${new URL(storage.url).host}/owner/tiny/${path}`);
    await assert.rejects(pull('away/tiny'), { code: 'download-failed', message: /answered 404 for away\/tiny/ });
    assert.deepEqual(
      storage.requests.map(({ method, authorization }) => [method, authorization]),
      [['GET', undefined]],
    );
  });
});
