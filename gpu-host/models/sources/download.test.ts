import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { ModelError } from '../errors.ts';
import { FileServer } from '../testing/file-server.ts';
import { type Checksum, type DownloadOptions, download, HttpStatusError } from './download.ts';

const content = randomBytes(300_000);
const sha256 = (bytes: Uint8Array): Checksum => ({
  algorithm: 'sha256',
  hex: createHash('sha256').update(bytes).digest('hex'),
});

describe('download', () => {
  let server: FileServer;
  let directory: string;
  let options: DownloadOptions;

  const cuts = (...after: number[]) => ({ after, parts: dirname(options.partFile) });

  before(async () => {
    server = await FileServer.start();
  });
  after(() => server.close());
  beforeEach(async (context) => {
    directory = await mkdtemp(join(tmpdir(), 'pie-download-'));
    server.files.clear();
    server.requests.length = 0;
    options = {
      url: `${server.url}/file`,
      destination: join(directory, 'file'),
      partFile: join(directory, 'parts', 'file.part'),
      checksum: sha256(content),
      label: 'file',
      retryDelayMs: 1,
    };
    // TypeScript allows a suite's context here, which has no `after`.
    if ('after' in context) context.after(() => rm(directory, { recursive: true, force: true }));
  });

  it('resumes after broken connections, within one call', async () => {
    server.files.set('/file', { bytes: content, cuts: cuts(100_000, 50_000) });
    const seen: number[] = [];
    await download({ ...options, onProgress: ({ doneBytes }) => seen.push(doneBytes) });
    assert.deepEqual(await readFile(options.destination), content);
    assert.deepEqual(
      server.requests.map(({ range }) => range),
      [undefined, 'bytes=100000-', 'bytes=150000-'],
    );
    assert.deepEqual(
      seen,
      seen.toSorted((a, b) => a - b),
      'progress never goes back',
    );
    assert.equal(seen.at(-1), content.length);
    assert.equal(existsSync(options.partFile), false);
  });

  it('resumes from the part file of an earlier call that failed', async () => {
    server.files.set('/file', { bytes: content, cuts: cuts(123_456) });
    await assert.rejects(download({ ...options, attempts: 1 }), { code: 'download-failed' });
    assert.equal((await stat(options.partFile)).size, 123_456);
    await download(options);
    assert.equal(server.requests.at(-1)?.range, 'bytes=123456-');
    assert.deepEqual(await readFile(options.destination), content);
  });

  it('accepts a part file that is complete already', async () => {
    server.files.set('/file', { bytes: content });
    await writeFile(join(directory, 'whole.part'), content);
    await download({ ...options, partFile: join(directory, 'whole.part') });
    assert.deepEqual(await readFile(options.destination), content);
  });

  it('starts over when the server does not resume', async () => {
    server.files.set('/file', { bytes: content, cuts: cuts(100_000), withoutRanges: true });
    await download(options);
    assert.deepEqual(await readFile(options.destination), content);
  });

  it('starts over once when the part file holds other content', async () => {
    server.files.set('/file', { bytes: content });
    for (const bytes of [70_000, 400_000]) {
      const partFile = join(directory, `${bytes}.part`);
      await writeFile(partFile, randomBytes(bytes));
      await download({ ...options, partFile });
      assert.deepEqual(await readFile(options.destination), content);
    }
  });

  it('refuses a wrong checksum and keeps nothing', async () => {
    server.files.set('/file', { bytes: content });
    const wrong = sha256(Buffer.from('other'));
    await assert.rejects(download({ ...options, checksum: wrong }), (error) => {
      assert.ok(error instanceof ModelError);
      assert.equal(error.code, 'checksum-mismatch');
      assert.match(error.message, new RegExp(wrong.hex));
      assert.match(error.message, new RegExp(sha256(content).hex));
      return true;
    });
    assert.equal(existsSync(options.partFile), false);
    assert.equal(existsSync(options.destination), false);
  });

  it('refuses a file of another length before it receives a byte', async () => {
    server.files.set('/file', { bytes: content });
    await assert.rejects(download({ ...options, expectedBytes: 5 }), { code: 'checksum-mismatch' });
    assert.equal((await stat(options.partFile)).size, 0);
  });

  it('tries again after temporary errors, and not after others', async () => {
    server.files.set('/file', { bytes: content, statuses: [503, 429, 500] });
    await download(options);
    server.files.set('/file', { bytes: content, statuses: [403, 403] });
    const partFile = join(directory, 'parts', 'other.part');
    await assert.rejects(
      download({ ...options, partFile }),
      (error) => error instanceof HttpStatusError && error.status === 403,
    );
    assert.equal(server.requests.length, 5, 'three temporary errors, the file, and one 403');
  });

  it('gives up a connection that stalls, and keeps the received bytes', async () => {
    server.files.set('/file', { bytes: content, stalls: true });
    await assert.rejects(download({ ...options, idleTimeoutMs: 1000, attempts: 1 }), {
      code: 'download-failed',
      message: /nothing arrived for 1 s/,
    });
    assert.equal((await stat(options.partFile)).size, content.length / 2);
  });

  it('stops when cancelled, and keeps the received bytes', async () => {
    server.files.set('/file', { bytes: content, stalls: true });
    const abort = new AbortController();
    const onProgress = ({ doneBytes }: { doneBytes: number }) => doneBytes >= content.length / 2 && abort.abort();
    await assert.rejects(download({ ...options, signal: abort.signal, onProgress: (p) => void onProgress(p) }), {
      code: 'cancelled',
    });
    assert.equal((await stat(options.partFile)).size, content.length / 2);
    server.files.set('/file', { bytes: content });
    await download(options);
    assert.deepEqual(await readFile(options.destination), content);
  });

  it('verifies the hash that git gives a file', async () => {
    server.files.set('/file', { bytes: Buffer.from('hello\n') });
    await download({
      ...options,
      checksum: { algorithm: 'git-blob', hex: 'ce013625030ba8dba906f756967f9e9ca394464a' },
    });
    assert.equal(await readFile(options.destination, 'utf8'), 'hello\n');
  });
});
