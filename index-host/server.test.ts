import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { test } from 'node:test';
import { CollectedLog } from '#scheduler/testing/log.ts';
import { randomFrom, randomVector } from '#test/harness/random.ts';
import { IndexClient } from './protocol/client.ts';
import { encodeFrame, FRAME, MAX_VALUE } from './protocol/messages.ts';
import { IndexError, type IndexErrorCode } from './protocol/types.ts';
import { IndexHost } from './server.ts';
import type { Limits } from './service/catalog.ts';
import { temporaryFolder } from './testing/folder.ts';

const OPTIONS = { signal: new AbortController().signal, deadlineMs: 60_000 };
const DIMENSIONS = 8;
const shape = (name: string) => ({ name, dimensions: DIMENSIONS, metric: 'cosine' }) as const;

async function startHost(folder: string, limits: Partial<Limits> = {}) {
  const log = new CollectedLog();
  const host = new IndexHost({
    directory: path.join(folder, 'indexes'),
    limits,
    log,
  });
  const socket = path.join(folder, 'index.sock');
  await host.listen(socket);
  const clients: IndexClient[] = [];
  return {
    log,
    socket,
    client(tenant: string): IndexClient {
      const client = new IndexClient(socket, tenant);
      clients.push(client);
      return client;
    },
    async [Symbol.asyncDispose]() {
      for (const client of clients) client.close();
      await host.close();
    },
  };
}

const refused = (code: IndexErrorCode) => (error: unknown) => error instanceof IndexError && error.code === code;

const random = randomFrom(1);
const randomEntries = (prefix: string, count: number) => ({
  entries: Array.from({ length: count }, (_, i) => ({
    id: `${prefix}${i}`,
    text: `text of ${prefix}${i}`,
    metadata: [],
  })),
  vectors: Float32Array.from(Array.from({ length: count }, () => [...randomVector(DIMENSIONS, random)]).flat()),
});

const anyQuery = { vector: Float32Array.of(1, 0, 0, 0, 0, 0, 0, 0), text: null, filter: [], limit: 100 } as const;
/** A filter that every entry passes. */
const PASSES_ALL = [{ field: 'none', comparison: 'not-equal', values: [1] }] as const;

test('tenants see nothing of each other, even when their indexes have the same name', async () => {
  using folder = temporaryFolder();
  await using host = await startHost(folder.path);
  const [one, other] = [host.client('one'), host.client('other')];
  const { entries, vectors } = randomEntries('secret-', 20);
  await one.create(shape('notes'), OPTIONS);
  await one.upsert('notes', entries, vectors, OPTIONS);
  await assert.rejects(other.query('notes', anyQuery, OPTIONS), refused('not-found'));
  await assert.rejects(other.stats('notes', OPTIONS), refused('not-found'));
  assert.deepEqual(await other.list(OPTIONS), []);
  assert.equal((await other.drop('notes', OPTIONS)).count, 0);
  await other.create(shape('notes'), OPTIONS);
  assert.deepEqual(await other.query('notes', anyQuery, OPTIONS), []);
  assert.deepEqual(await other.query('notes', { ...anyQuery, vector: null, text: 'text secret' }, OPTIONS), []);
  assert.equal((await other.delete('notes', ['secret-1'], OPTIONS)).count, 0);
  assert.equal((await other.drop('notes', OPTIONS)).count, 1);
  assert.equal((await one.query('notes', anyQuery, OPTIONS)).length, 20);
  assert.deepEqual(host.log.errors, []);
});

test('names that lead out of the folder, wrong vectors and wrong shapes are refused', async () => {
  using folder = temporaryFolder();
  await using host = await startHost(folder.path);
  const client = host.client('one');
  for (const name of ['../x', '..', '.', 'a/b', '', 'a'.repeat(129), 'a\0']) {
    await assert.rejects(client.create(shape(name), OPTIONS), refused('invalid-argument'), name);
  }
  await client.create(shape('notes'), OPTIONS);
  await client.create(shape('notes'), OPTIONS);
  await assert.rejects(client.create({ ...shape('notes'), dimensions: 9 }, OPTIONS), refused('invalid-argument'));
  const { entries } = randomEntries('a', 1);
  // One value too few, a vector without a direction, and values that are no numbers.
  const wrong = [
    new Float32Array(DIMENSIONS - 1).fill(1),
    new Float32Array(DIMENSIONS),
    new Float32Array(DIMENSIONS).fill(Number.NaN),
  ];
  for (const vectors of wrong) {
    await assert.rejects(client.upsert('notes', entries, vectors, OPTIONS), refused('invalid-argument'));
  }
  const twice = [...entries, ...entries];
  await assert.rejects(
    client.upsert('notes', twice, new Float32Array(2 * DIMENSIONS).fill(1), OPTIONS),
    refused('invalid-argument'),
  );
  await assert.rejects(client.query('notes', { ...anyQuery, vector: null }, OPTIONS), refused('invalid-argument'));
  await assert.rejects(client.query('none', anyQuery, OPTIONS), refused('not-found'));
  assert.equal((await client.stats('notes', OPTIONS)).entries, 0);
});

test('values that 16 bits cannot hold are refused, except for cosine', async () => {
  using folder = temporaryFolder();
  await using host = await startHost(folder.path);
  const client = host.client('one');
  const { entries } = randomEntries('a', 1);
  for (const metric of ['dot-product', 'euclidean', 'cosine'] as const) {
    await client.create({ ...shape(metric), metric }, OPTIONS);
    await client.upsert(metric, entries, new Float32Array(DIMENSIONS).fill(-MAX_VALUE), OPTIONS);
    const vector = new Float32Array(DIMENSIONS).fill(-MAX_VALUE - 1);
    const calls = [
      client.upsert(metric, entries, vector, OPTIONS),
      client.query(metric, { ...anyQuery, vector }, OPTIONS),
    ];
    for (const call of calls) {
      if (metric === 'cosine') await call;
      else await assert.rejects(call, refused('invalid-argument'), metric);
    }
  }
});

test('the limits hold for all indexes of a tenant together, and a refused write leaves nothing', async () => {
  using folder = temporaryFolder();
  await using host = await startHost(folder.path, { indexes: 2, room: { entries: 30, bytes: 1e9 } });
  const client = host.client('one');
  await client.create(shape('a'), OPTIONS);
  await client.create(shape('b'), OPTIONS);
  await assert.rejects(client.create(shape('c'), OPTIONS), refused('limit-exceeded'));
  const twenty = randomEntries('x', 20);
  await client.upsert('a', twenty.entries, twenty.vectors, OPTIONS);
  const before = await client.list(OPTIONS);
  await assert.rejects(client.upsert('b', twenty.entries, twenty.vectors, OPTIONS), refused('limit-exceeded'));
  const aboveTenantLimit = client.upsert('a', randomEntries('y', 1).entries, randomEntries('y', 1).vectors, {
    ...OPTIONS,
    maxBytes: 1000,
  });
  await assert.rejects(aboveTenantLimit, refused('limit-exceeded'));
  assert.deepEqual(await client.list(OPTIONS), before);
  assert.deepEqual(await client.query('b', anyQuery, OPTIONS), []);
  // Entries that replace others of the same size need no room.
  await client.upsert('a', twenty.entries, twenty.vectors, OPTIONS);
  await host.client('other').create(shape('a'), OPTIONS);
  await host.client('other').upsert('a', twenty.entries, twenty.vectors, OPTIONS);
});

test('a tenant with more indexes than may be open at once can use all of them', async () => {
  using folder = temporaryFolder();
  await using host = await startHost(folder.path, { open: 3 });
  const client = host.client('one');
  const names = Array.from({ length: 10 }, (_, i) => `index-${i}`);
  await Promise.all(names.map((name) => client.create(shape(name), OPTIONS)));
  for (let round = 0; round < 3; round++) {
    const { entries, vectors } = randomEntries(`r${round}-`, 4);
    for (const name of names) await client.upsert(name, entries, vectors, OPTIONS);
    for (const name of names) assert.equal((await client.query(name, anyQuery, OPTIONS)).length, 4 * (round + 1));
  }
  assert.deepEqual(host.log.errors, []);
});

test('a withdrawn call, a late call and a call to a dropped index each end with an error of their own', async () => {
  using folder = temporaryFolder();
  await using host = await startHost(folder.path);
  const client = host.client('one');
  await client.create(shape('notes'), OPTIONS);
  const { entries, vectors } = randomEntries('a', 200);
  for (let i = 0; i < 20; i++) {
    const batch = entries.map((entry) => ({ ...entry, id: `${i}-${entry.id}` }));
    await client.upsert('notes', batch, vectors, OPTIONS);
  }
  const withdrawn = new AbortController();
  const query = client.query('notes', anyQuery, { ...OPTIONS, signal: withdrawn.signal });
  withdrawn.abort(new IndexError('cancelled', 'no longer needed'));
  await assert.rejects(query, refused('cancelled'));
  await assert.rejects(client.query('notes', anyQuery, { ...OPTIONS, deadlineMs: 0 }), refused('deadline-exceeded'));
  const queries = Array.from({ length: 30 }, (_, i) =>
    client
      .query('notes', i % 2 ? anyQuery : { ...anyQuery, text: 'text', filter: PASSES_ALL }, OPTIONS)
      .catch((error: unknown) => (error as IndexError).code),
  );
  const dropped = client.drop('notes', OPTIONS);
  for (const answer of await Promise.all(queries))
    assert.ok(Array.isArray(answer) || answer === 'not-found', String(answer));
  assert.equal((await dropped).count, 1);
  await client.create(shape('notes'), OPTIONS);
  assert.deepEqual(await client.query('notes', anyQuery, OPTIONS), []);
  const [tenant] = readdirSync(path.join(folder.path, 'indexes'));
  assert.deepEqual(readdirSync(path.join(folder.path, 'indexes', tenant!)), ['notes']);
  assert.deepEqual(host.log.errors, []);
});

test('a call that its caller aborts fails with `deadline-exceeded` after a timeout, else with `cancelled`', {
  timeout: 240_000,
}, async (t) => {
  const folder = temporaryFolder();
  const socket = path.join(folder.path, 'silent.sock');
  const server = net.createServer((connection) => connection.resume());
  await once(server.listen(socket), 'listening');
  const clients: IndexClient[] = [];
  t.after(() => {
    for (const client of clients) client.close();
    server.close();
    folder[Symbol.dispose]();
  });
  const reasons = [
    [new DOMException('late', 'TimeoutError'), 'deadline-exceeded'],
    [undefined, 'cancelled'],
  ] as const;
  for (const [reason, code] of reasons) {
    const client = new IndexClient(socket, 'one');
    clients.push(client);
    await assert.rejects(client.list({ ...OPTIONS, signal: AbortSignal.abort(reason) }), refused(code));
    const withdrawn = new AbortController();
    const connected = once(server, 'connection') as Promise<[net.Socket]>;
    const refusal = assert.rejects(client.list({ ...OPTIONS, signal: withdrawn.signal }), refused(code));
    // The client writes the request right after the hello, so data means that the call is under way.
    const [connection] = await connected;
    await once(connection, 'data');
    withdrawn.abort(reason);
    await refusal;
  }
});

test('a call to an index host that does not answer ends after its deadline', { timeout: 240_000 }, async (t) => {
  using folder = temporaryFolder();
  const socket = path.join(folder.path, 'silent.sock');
  const server = net.createServer((connection) => connection.resume());
  await once(server.listen(socket), 'listening');
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const client = new IndexClient(socket, 'one');
  let code: string | undefined;
  void client.list(OPTIONS).catch((error: IndexError) => {
    code = error.code;
  });
  while (code === undefined) {
    t.mock.timers.tick(OPTIONS.deadlineMs);
    await new Promise(setImmediate);
  }
  assert.equal(code, 'deadline-exceeded');
  client.close();
  server.close();
});

test('a connection that breaks the protocol is closed, and the others go on', async () => {
  using folder = temporaryFolder();
  await using host = await startHost(folder.path);
  const hello = encodeFrame(FRAME.hello, 0, { tenant: 'one' });
  /** The header of a frame that is far too long. */
  const hugeHeader = Buffer.alloc(13, 0xff);
  const attacks = [
    encodeFrame(FRAME.request, 1, { deadlineMs: 1, request: { op: 'list' } }),
    Buffer.concat([hello, hello]),
    Buffer.concat([hello, encodeFrame(77, 1, null)]),
    hugeHeader,
  ];
  for (const bytes of attacks) {
    const socket = net.connect(host.socket);
    socket.write(bytes);
    await new Promise((resolve) =>
      socket
        .on('close', resolve)
        .on('error', () => undefined)
        .resume(),
    );
  }
  assert.equal(host.log.errors.length, attacks.length);
  assert.deepEqual(await host.client('one').list(OPTIONS), []);
});

test('calls whose answer, request or index name is too long fail alone, and the other calls of the tenant go on', async () => {
  using folder = temporaryFolder();
  await using host = await startHost(folder.path);
  const client = host.client('one');
  await client.create(shape('notes'), OPTIONS);
  const { entries, vectors } = randomEntries('a', 60);
  for (let i = 0; i < 5; i++) {
    const long = entries.map(({ id }) => ({ id: `${i}-${id}`, text: 'x'.repeat(60_000), metadata: [] }));
    await client.upsert('notes', long, vectors, OPTIONS);
  }
  // JSON writes each of these characters as six bytes, so the request is longer than a frame.
  const escaped = entries.map((entry) => ({ ...entry, text: '\u0001'.repeat(60_000) }));
  // 256 matches of 60,000 bytes are longer than an answer may be; 50 are not.
  const calls = [
    client.query('notes', { ...anyQuery, limit: 256 }, OPTIONS),
    client.upsert('notes', escaped, vectors, OPTIONS),
    client.stats('n'.repeat(10_000), OPTIONS),
    client.query('notes', { ...anyQuery, limit: 50 }, OPTIONS),
  ] as const;
  const [longAnswer, longRequest, longName, ordinary] = await Promise.allSettled(calls);
  const codeOf = (result: PromiseSettledResult<unknown>) => result.status === 'rejected' && result.reason.code;
  assert.deepEqual([longAnswer, longRequest, longName].map(codeOf), [
    'limit-exceeded',
    'invalid-argument',
    'invalid-argument',
  ]);
  assert.equal(ordinary.status === 'fulfilled' && ordinary.value.length, 50);
  assert.deepEqual(host.log.errors, []);
});

test('the character U+0000 is refused in ids, texts, names and values of fields, and filters', async () => {
  using folder = temporaryFolder();
  await using host = await startHost(folder.path);
  const client = host.client('one');
  await client.create(shape('notes'), OPTIONS);
  const { entries, vectors } = randomEntries('a', 1);
  const wrong = [
    { id: 'a\0' },
    { text: 'a\0b' },
    { metadata: [['a\0', 1]] as const },
    { metadata: [['a', '\0']] as const },
  ];
  for (const part of wrong) {
    const upsert = client.upsert('notes', [{ ...entries[0]!, ...part }], vectors, OPTIONS);
    await assert.rejects(upsert, refused('invalid-argument'), JSON.stringify(part));
  }
  await assert.rejects(client.delete('notes', ['a\0'], OPTIONS), refused('invalid-argument'));
  await assert.rejects(client.query('notes', { ...anyQuery, text: 'a\0' }, OPTIONS), refused('invalid-argument'));
  const filter = [{ field: 'a', comparison: 'equal', values: ['\0'] }] as const;
  await assert.rejects(client.query('notes', { ...anyQuery, filter }, OPTIONS), refused('invalid-argument'));
  await assert.rejects(client.stats('notes\0', OPTIONS), refused('invalid-argument'));
});
