import assert from 'node:assert/strict';
import { mkdir, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { createKeys, type Keys } from '#scheduler/keys.ts';
import {
  ARCHIVE_VERSION,
  ArchiveFault,
  ArchiveWriter,
  type Frame,
  type Header,
  listBody,
  listOf,
  readArchive,
} from './archive.ts';
import { checkArchive } from './check.ts';
import { isKept, isKeptFile } from './entries.ts';
import { addFile } from './home-files.ts';

const DESCRIPTION: Header = {
  kind: 'backup',
  version: ARCHIVE_VERSION,
  release: '1.0.0',
  createdAt: '2026-11-24T00:00:00.000Z',
  machine: 'east',
};
const EMPTY_HASH = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

const KV_FILE = `kv/gpu-host-1/tiny/${'0a'.repeat(20)}/export-${'1b'.repeat(20)}.kv`;

const frame = (header: Header, ...items: string[]): Frame => ({
  header,
  body: listBody(items.map((item) => Buffer.from(item))),
});
const entry = (type: 'string' | 'hash' | 'zset' | 'stream', ...items: string[]): Frame =>
  frame({ kind: 'entry', type, first: true }, ...items);
const GOOD: readonly Frame[] = [
  entry('hash', 'tenant:acme', 'weight', '20'),
  entry('zset', 'store:acme:names', 'a', '0', 'b', '-inf'),
  entry('stream', 'audit', '1-0', 'act', 'x'),
  entry('hash', 'secrets:acme:values', 'TOKEN@1', '0123abcd.c2VhbGVk'),
  entry('string', `blob:${EMPTY_HASH}`, ''),
  { header: { kind: 'file', path: KV_FILE, bytes: 3 }, body: Buffer.alloc(0) },
  { header: { kind: 'part' }, body: Buffer.from('ab') },
  { header: { kind: 'part' }, body: Buffer.from('c') },
];

describe('the file of a backup', () => {
  let directory: string;
  let file: string;
  before(async () => {
    directory = await mkdtemp(path.join(os.tmpdir(), 'pie-archive-'));
    file = path.join(directory, 'backup');
  });
  after(() => rm(directory, { recursive: true }));

  async function write(frames: readonly Frame[], description: Header = DESCRIPTION): Promise<Buffer> {
    const handle = await open(file, 'w');
    const archive = new ArchiveWriter(handle);
    await archive.add(description);
    for (const { header, body } of frames) await archive.add(header, body);
    await archive.end();
    await handle.close();
    return readFile(file);
  }
  async function check(bytes?: Uint8Array) {
    if (bytes) await writeFile(file, bytes);
    const handle = await open(file, 'r');
    try {
      return await checkArchive(handle, () => undefined);
    } finally {
      await handle.close();
    }
  }
  const assertRefused = async (bytes: Uint8Array | undefined, why: RegExp) =>
    assert.rejects(check(bytes), (error) => error instanceof ArchiveFault && why.test(error.message));

  it('says what it holds, and under which master keys its secrets are sealed', async () => {
    await write(GOOD);
    const { records, files, machine, masterKeys } = await check();
    assert.deepEqual([records, files, machine, [...masterKeys]], [5, 1, 'east', ['0123abcd']]);
  });

  it('is refused when it has counts of invocations, which no backup has', async () => {
    const counts = entry('hash', 'account:acme:redis', 'bytes', '2048');
    await assertRefused(await write([...GOOD, counts]), /a record that no backup has/);
  });

  it('gives frames of any size as they were written, and reading on does not change them', async () => {
    // Some sizes lie around 262,144 bytes, the size of one read.
    const sizes = [0, 1, 100_000, 262_143, 700_000, 3, ...Array.from({ length: 40 }, (_, i) => 331 * i)];
    const frames = sizes.map((size, i): Frame => ({ header: { kind: 'part' }, body: Buffer.alloc(size, i) }));
    await write(frames);
    const handle = await open(file, 'r');
    try {
      const [first, ...more] = await Array.fromAsync(readArchive(handle));
      assert.deepEqual([first?.header, more.pop()?.header.kind], [DESCRIPTION, 'end']);
      assert.deepEqual(more, frames);
    } finally {
      await handle.close();
    }
  });

  it('says under which master keys the environments of its functions are sealed', async () => {
    // The message looks like a sealed value, but a message is never sealed.
    const version = (environment?: object) => JSON.stringify({ version: 'v', message: '00000000.x', environment });
    await write([
      entry('hash', 'function:acme:story', 'version:1', version({ A: '11111111.x', B: '22222222.x' }), 'alias:a', '{}'),
      entry('hash', 'function:acme:plain', 'version:1', version(), 'version:2', '{ not JSON'),
      entry('hash', 'function:acme:story:removed', '12', version({ A: '33333333.x' })),
    ]);
    assert.deepEqual([...(await check()).masterKeys], ['11111111', '22222222', '33333333']);
  });

  it('is refused when it was cut anywhere, one of its bytes was changed, or more bytes follow', async () => {
    const bytes = await write(GOOD);
    await fc.assert(
      fc.asyncProperty(fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 }), async (at, change) => {
        await assert.rejects(check(bytes.subarray(0, at)), ArchiveFault);
        const changed = Buffer.from(bytes);
        changed[at] = (changed[at] as number) ^ change;
        await assert.rejects(check(changed), ArchiveFault);
      }),
      { seed: 19, numRuns: 150 },
    );
    await assertRefused(bytes.subarray(0, -1), /ends too early/);
    await assertRefused(Buffer.concat([bytes, Buffer.from('x')]), /1 bytes behind its end/);
    await assertRefused(Buffer.from('GET / HTTP/1.1\r\nhost: somewhere\r\n\r\n'), /not a backup of Pie/);
  });

  it('is refused, with the number of its format, when the format is a later one', async () => {
    await write([], { ...DESCRIPTION, version: ARCHIVE_VERSION + 1 } as Header);
    await assertRefused(undefined, /has format 2; this release of Pie reads format 1/);
  });

  it('is refused when it contains something that no backup has, even with a correct checksum', async () => {
    const fileAt = (at: string): Frame => ({ header: { kind: 'file', path: at, bytes: 0 }, body: Buffer.alloc(0) });
    const wrong: [Frame[], RegExp][] = [
      [[entry('hash', 'invocation:1', 'a', 'b')], /record that no backup has/],
      [[entry('string', 'machine:east:lease', 'x')], /record that no backup has/],
      [[entry('hash', 'tenant:acme', 'weight')], /tenant:acme of the file is malformed/],
      [[entry('zset', 'store:acme:names', 'a', 'many')], /malformed/],
      [[entry('stream', 'audit', 'now', 'act', 'x')], /malformed/],
      [
        [frame({ kind: 'entry', type: 'hash', first: false }, 'tenant:acme', 'a', 'b')],
        /A part of tenant:acme is missing/,
      ],
      [
        [...GOOD.slice(4), frame({ kind: 'entry', type: 'string', first: false }, `blob:${EMPTY_HASH}`, 'more')],
        /A part of blob:.* is missing/,
      ],
      [[entry('string', `blob:${EMPTY_HASH}`, 'other')], /other bytes than its name/],
      [[entry('string', `blob:${EMPTY_HASH}`, 'other'), ...GOOD.slice(5)], /other bytes than its name/],
      [[fileAt(KV_FILE.replace('tiny', '..'))], /path that no backup has/],
      [[fileAt('/etc/passwd')], /path that no backup has/],
      [[fileAt('master.key')], /path that no backup has/],
      [[...GOOD.slice(5), ...GOOD.slice(5)], /twice/],
      [GOOD.slice(5, 7), /shorter than it says/],
      [[...GOOD.slice(5), { header: { kind: 'part' }, body: Buffer.from('d') }], /longer than it says/],
      [[{ header: DESCRIPTION, body: Buffer.alloc(0) }], /Frame 2 of the file cannot be read/],
    ];
    for (const [frames, why] of wrong) {
      await write(frames);
      await assertRefused(undefined, why);
    }
  });

  it('fails when the disk is full, even if the index that it copies was deleted meanwhile', async () => {
    const relativePath = `indexes/${'0a'.repeat(16)}/notes/records.db`;
    const index = path.join(directory, relativePath);
    await mkdir(path.dirname(index), { recursive: true });
    new DatabaseSync(index).close();
    const full = Object.assign(new Error('The disk is full.'), { code: 'ENOSPC' });
    const handle = await open(file, 'w');
    const archive = new ArchiveWriter(handle);
    archive.add = async () => {
      await rm(index, { force: true });
      throw full;
    };
    try {
      await assert.rejects(addFile(archive, directory, relativePath, directory), full);
      // The index is deleted now, so nothing is written.
      assert.equal(await addFile(archive, directory, relativePath, directory), false);
    } finally {
      await handle.close();
    }
  });

  it('encodes and decodes lists of any bytes', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array()), fc.nat(), (items, cut) => {
        const body = listBody(items);
        assert.deepEqual(
          listOf(body).map((item) => new Uint8Array(item)),
          items,
        );
        const at = cut % Math.max(1, body.length);
        try {
          assert.ok(listOf(body.subarray(0, at)).length <= items.length);
        } catch (error) {
          assert.ok(error instanceof ArchiveFault);
        }
      }),
      { seed: 20 },
    );
  });
});

/** For every kind of key: true if a backup contains its records. A new kind of key needs an entry here. */
const KINDS: { readonly [Kind in keyof Keys]: boolean } = {
  nameOwners: true,
  durableNames: true,
  sharedFolder: true,
  prefix: false,
  bull: false,
  jobs: false,
  admission: false,
  admissionCapacity: false,
  admissionState: false,
  admitted: false,
  unbegun: false,
  unbegunReserveUsers: false,
  memoryClaims: false,
  admissionTenant: false,
  admissionTenants: false,
  sharers: false,
  startableTenants: false,
  reserveUsers: false,
  roomKeptTenants: false,
  runtimeOffers: false,
  runtimeKinds: false,
  pagePools: false,
  pagePlaces: false,
  modelHosts: false,
  memoryReporters: false,
  learnedPages: false,
  invocation: false,
  events: false,
  live: false,
  submitter: false,
  inbox: false,
  inboxChannel: false,
  files: false,
  fileContents: false,
  fileUsage: false,
  fileExpiries: false,
  children: false,
  arrivals: false,
  waiting: false,
  debounced: false,
  debounces: false,
  questions: false,
  tenantQuestions: false,
  deadlines: false,
  idempotency: false,
  listing: false,
  openList: false,
  endedList: false,
  openListOfFunction: false,
  endedListOfFunction: false,
  outcome: false,
  input: false,
  webhooks: false,
  webhooksChannel: false,
  webhookSecret: true,
  logs: false,
  logsChannel: false,
  drained: true,
  drainedChannel: false,
  machines: false,
  machine: false,
  machineLease: false,
  machineLooks: false,
  removedMachines: true,
  machineCertificate: false,
  joinedMachines: true,
  joinToken: false,
  restoreMark: false,
  restoreLease: false,
  machinesChannel: false,
  masterKey: true,
  runtimes: false,
  alive: false,
  fetch: false,
  cancels: false,
  held: false,
  looks: false,
  leaseChecks: false,
  memoryReadings: false,
  cancelChannel: false,
  functions: true,
  function: true,
  aliasHistory: true,
  removedVersions: true,
  unfinished: false,
  conduct: true,
  removals: true,
  removalRound: false,
  deployed: true,
  releaseChannel: false,
  blob: true,
  blobUsers: true,
  engines: true,
  build: false,
  blobUploads: false,
  buildChannel: false,
  buildTurns: false,
  reply: false,
  tenants: true,
  tenant: true,
  apiKey: true,
  apiKeys: true,
  audit: true,
  guardedAudit: true,
  secrets: true,
  secretValues: true,
  secretPins: false,
  account: true,
  quotaLimits: true,
  quotaNotes: true,
  openCounts: false,
  tokenGrants: false,
  latencyGrants: false,
  versionBytes: true,
  versionRecordBytes: true,
  versionDiskBytes: true,
  redisBytes: false,
  redisBytesEnds: false,
  latestUsage: true,
  usage: true,
  accountRepairs: false,
  indexSum: true,
  indexOwner: false,
  storedValues: true,
  storedNames: true,
  storedExpiries: true,
  storedUsage: true,
  storedSweeps: true,
  topic: false,
  broadcastChannel: false,
  messageQueue: true,
  messageQueueState: true,
  messageQueuesUsage: true,
  messageQueuesExpiries: true,
  concurrency: false,
  schedules: true,
  scheduledTenants: true,
  unendedRuns: false,
  metrics: false,
  metricsExpiries: false,
  messageQueueChannel: false,
};

describe('what a backup has', () => {
  it('is decided for every kind of key', () => {
    const keys = createKeys('p');
    const hash = 'a'.repeat(64);
    for (const [kind, isWanted] of Object.entries(KINDS)) {
      const keyOrFunction = keys[kind as keyof Keys];
      const ofHash = ['blob', 'blobUsers', 'blobUploads', 'apiKey'].includes(kind);
      const arguments_ = ofHash ? [hash] : ['acme', 'name', 'third'];
      const key =
        typeof keyOrFunction === 'string'
          ? keyOrFunction
          : (keyOrFunction as (...names: string[]) => string)(...arguments_);
      // `account` is only the beginning of its records' keys.
      const name = key.slice('p:'.length) + (kind === 'account' ? ':usage:day:20000' : '');
      assert.equal(isKept(name), isWanted, `${kind}: ${name}`);
    }
    assert.equal(isKept('audit'), true);
    assert.equal(isKept('account:*:quotas'), true);
    assert.equal(isKept('line:acme:a queue: with\nany name:messages'), true);
  });

  it('is decided for the files of a home', () => {
    for (const kept of [KV_FILE, `indexes/${'0a'.repeat(16)}/notes/records.db`])
      assert.equal(isKeptFile(kept), true, kept);
    for (const excluded of [
      'kv/gpu-host-1/tiny/swap-1',
      KV_FILE.replace('gpu-host-1', '..'),
      KV_FILE.replace(/export-.*/, 'tmp-1-2'),
      `indexes/${'0a'.repeat(16)}/notes/records.db-wal`,
      `indexes/${'0a'.repeat(16)}/../records.db`,
      'master.key',
      'credentials.json',
      'pie.toml',
      'machine.pem',
      'redis/appendonly.aof',
    ])
      assert.equal(isKeptFile(excluded), false, excluded);
  });
});
