import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { hostBytes } from '../../memory/host-bytes.ts';
import { NO_EXTENT, withPage } from '../../memory/page-records.ts';
import { Copies } from '../../memory/transfers.ts';
import type { PagesMaker, SentPages } from '../../protocol/calls.ts';
import type { DeviceClient, Imported, Outcome } from '../../protocol/client.ts';
import { PIECE_BYTES } from '../../protocol/wire.ts';
import { must, Oracle, startTestHost, type TestHost, tagOf, until } from '../../testing/host.ts';
import { PROMPT, same, Workbench } from '../../testing/workbench.ts';

interface Side {
  readonly inferlet: DeviceClient;
  readonly queue: number;
}

/** The pages of one copy, as the hosts exchange them. */
interface Carried extends PagesMaker {
  readonly pages: number;
  readonly pieces: readonly Uint8Array[];
  readonly checksum: string;
}

async function readTransfer(side: Side, pages: Uint32Array): Promise<Carried> {
  return readBegunTransfer(side, must(await side.inferlet.ask(side.queue, { op: 'send-begin', pages })));
}

async function readBegunTransfer({ inferlet, queue }: Side, { sending, bytes, ...made }: SentPages): Promise<Carried> {
  const pieces: Uint8Array[] = [];
  for (;;) {
    const piece = must(await inferlet.ask(queue, { op: 'send-piece', sending }));
    if (piece.length === 0) break;
    pieces.push(piece);
  }
  assert.equal(
    pieces.reduce((sum, { length }) => sum + length, 0),
    bytes,
  );
  const checksum = must(await inferlet.ask(queue, { op: 'send-end', sending }));
  assert.equal(checksum, createHash('sha256').update(Buffer.concat(pieces)).digest('hex'));
  return { ...made, pieces, checksum };
}

async function begin({ inferlet, queue }: Side, carried: Carried, version: string): Promise<Outcome<number>> {
  const { pages, fingerprint, pageSize, pageBytes } = carried;
  return inferlet.ask(queue, { op: 'copy-begin', version, pages, fingerprint, pageSize, pageBytes });
}

async function writeTransfer(side: Side, carried: Carried, version: string): Promise<Outcome<Imported>> {
  const { inferlet, queue } = side;
  const copy = must(await begin(side, carried, version));
  for (const bytes of carried.pieces) must(await inferlet.ask(queue, { op: 'copy-piece', copy, bytes }));
  must(await inferlet.ask(queue, { op: 'copy-end', copy, checksum: carried.checksum }));
  return inferlet.mapCopy(queue, version);
}

describe('transfers of pages between hosts', () => {
  let hosts: readonly [TestHost, TestHost];
  let stranger: TestHost;
  const sides: Workbench[] = [];
  before(async () => {
    hosts = [await startTestHost({ kv: true }), await startTestHost({ kv: true })];
    stranger = await startTestHost({ kv: true, seed: 2 });
  });
  after(async () => {
    await Promise.all(sides.map(({ inferlet }) => inferlet.close()));
    for (const { host } of hosts) {
      assert.equal(host.stats().models[0]!.pages.owned, 0);
      assert.deepEqual(host.stats().tenants, []);
      host.engines[0]?.memory.audit();
    }
    for (const host of [...hosts, stranger]) await host[Symbol.asyncDispose]();
  });
  const bench = async (host: TestHost, name: string, tenant?: string) => {
    const made = new Workbench(host, await Oracle.of(host.model), await host.connect(), name, tenant);
    sides.push(made);
    return made;
  };

  test('pages have the same content and masks on the other host', async () => {
    const [a, b] = [await bench(hosts[0], 'a'), await bench(hosts[1], 'b')];
    const own = a.pages(3);
    must(await a.fill(own.subarray(0, 2), PROMPT));
    a.send({ op: 'mask-page', page: own[0]!, slots: 0b100 });
    const carried = await readTransfer(a, own);
    assert.equal(carried.pages, 3);
    const mapped = must(await writeTransfer(b, carried, 'v1'));
    assert.deepEqual([mapped.pages.length, mapped.tokens, mapped.nextPosition], [3, PROMPT.length, PROMPT.length]);
    same(await b.probe(mapped.pages, 7, PROMPT.length), await a.probe(own, 7, PROMPT.length));
    // A later import of the same version needs no transfer, and a write to one import changes no other.
    must(await b.fill(mapped.pages, [33], PROMPT.length));
    const again = must(await b.inferlet.mapCopy(b.queue, 'v1'));
    assert.equal(again.tokens, PROMPT.length);
    assert.equal(tagOf(await b.inferlet.mapCopy(b.queue, 'v2')), 'not-found');
    const other = await bench(hosts[1], 'other', 'another tenant');
    assert.equal(tagOf(await other.inferlet.mapCopy(other.queue, 'v1')), 'not-found');
  });

  test('a transfer has the content at the moment of `send-begin`, also when it has more than one piece', async () => {
    await using wide = await startTestHost({
      kv: true,
      shape: { layers: 4, headDim: 256, heads: 4, kvHeads: 4 },
      pageSize: 32,
    });
    const a = await bench(wide, 'wide');
    const own = a.pages(2);
    must(await a.fill(own, PROMPT));
    const before = await a.probe(own, 7, PROMPT.length);
    const sent = a.inferlet.ask(a.queue, { op: 'send-begin', pages: own });
    must(await a.fill(own, [90], PROMPT.length));
    const begun = must(await sent);
    assert.ok(begun.bytes > PIECE_BYTES, `${begun.bytes} bytes`);
    const carried = await readBegunTransfer(a, begun);
    assert.ok(carried.pieces.length > 1);
    const mapped = must(await writeTransfer(a, carried, 'wide'));
    assert.deepEqual([mapped.tokens, mapped.nextPosition], [PROMPT.length, PROMPT.length], 'without the later write');
    same(await a.probe(mapped.pages, 7, PROMPT.length), before);
    const later = must(await writeTransfer(a, await readTransfer(a, own), 'later'));
    assert.equal(later.tokens, PROMPT.length + 1, 'a transfer that begins after the write has it');
    same(await a.probe(later.pages, 7, PROMPT.length + 1), await a.probe(own, 7, PROMPT.length + 1));
    await a.inferlet.close();
  });

  test('pages of another model or of another layout are refused', async () => {
    const [a, c] = [await bench(hosts[0], 'made'), await bench(stranger, 'stranger')];
    const carried = await readTransfer(a, a.pages(1));
    const refused = await begin(c, carried, 'v');
    assert.equal(tagOf(refused), 'invalid-argument');
    if (refused.tag === 'err') assert.match(refused.val.val, /another model made these pages/);
    assert.equal(tagOf(await begin(a, { ...carried, pageBytes: carried.pageBytes * 2 }, 'v')), 'invalid-argument');
    assert.equal(tagOf(await begin(a, { ...carried, pageSize: 4 }, 'v')), 'invalid-argument');
    for (const version of ['', 'v'.repeat(65)])
      assert.equal(tagOf(await begin(a, carried, version)), 'invalid-argument', `a version of ${version.length}`);
  });

  test('a copy whose bytes changed on the way is not kept', async () => {
    const [a, b] = [await bench(hosts[0], 'sends'), await bench(hosts[1], 'takes')];
    const own = a.pages(2);
    must(await a.fill(own, PROMPT));
    const carried = await readTransfer(a, own);
    const [piece] = carried.pieces;
    assert.ok(piece);
    const ask = b.inferlet.ask.bind(b.inferlet, b.queue) as Workbench['ask'];
    const wrong = piece.slice();
    wrong[wrong.length - 1]! ^= 1;
    const ends: [Uint8Array[], string, string][] = [
      [[wrong], carried.checksum, 'invalid-argument'],
      [[piece], 'no checksum', 'invalid-argument'],
      [[], carried.checksum, 'invalid-argument'],
    ];
    for (const [pieces, checksum, tag] of ends) {
      const copy = must(await begin(b, carried, 'changed'));
      for (const bytes of pieces) must(await ask({ op: 'copy-piece', copy, bytes }));
      assert.equal(tagOf(await ask({ op: 'copy-end', copy, checksum })), tag);
      assert.equal(tagOf(await b.inferlet.mapCopy(b.queue, 'changed')), 'not-found');
      assert.equal(tagOf(await ask({ op: 'copy-piece', copy, bytes: piece })), 'not-found', 'the copy has ended');
    }
    // The record names slots that its page does not have.
    const absurd = piece.slice();
    new DataView(absurd.buffer).setUint32(0, 0xffff_ffff, true);
    const copy = must(await begin(b, carried, 'absurd'));
    must(await ask({ op: 'copy-piece', copy, bytes: absurd }));
    const checksum = createHash('sha256').update(absurd).digest('hex');
    must(await ask({ op: 'copy-end', copy, checksum }));
    assert.equal(tagOf(await b.inferlet.mapCopy(b.queue, 'absurd')), 'invalid-argument');
    assert.equal(tagOf(await b.inferlet.mapCopy(b.queue, 'absurd')), 'not-found', 'it is not kept');
    for (const bytes of [piece.subarray(1), Buffer.concat([piece, Buffer.alloc(4)])]) {
      const copy = must(await begin(b, carried, 'length'));
      assert.equal(tagOf(await ask({ op: 'copy-piece', copy, bytes })), 'invalid-argument');
      b.send({ op: 'copy-drop', copy });
    }
  });

  test('an inferlet has at most four transfers at once, and leaves none behind when it ends', async () => {
    const [a, b] = [await bench(hosts[0], 'many'), await bench(hosts[1], 'ends')];
    const own = a.pages(2);
    must(await a.fill(own, PROMPT));
    const carried = await readTransfer(a, own);
    const before = hosts[1].host.stats();
    for (let i = 0; i < 4; i++) must(await begin(b, carried, 'unfinished'));
    assert.equal(tagOf(await begin(b, carried, 'unfinished')), 'limit-exceeded');
    const huge = { ...carried, pages: 0xffff_ffff };
    assert.equal(tagOf(await begin(a, huge, 'huge')), 'limit-exceeded');
    for (let i = 0; i < 4; i++) must(await a.inferlet.ask(a.queue, { op: 'send-begin', pages: own }));
    assert.equal(tagOf(await a.inferlet.ask(a.queue, { op: 'send-begin', pages: own })), 'limit-exceeded');
    await b.inferlet.close();
    assert.deepEqual(hosts[1].host.stats().models[0]?.pages, before.models[0]?.pages);
    const next = await bench(hosts[1], 'next');
    must(await begin(next, carried, 'room again'));
  });

  test('a transfer ends when no call for it comes for some time, even if the inferlet goes on', async () => {
    // A transfer ends after 1 ms without a call.
    const copies = new Copies(2 ** 20, 1);
    await using host = await startTestHost({ kv: true, host: { bytes: { ...hostBytes(), copies } } });
    const a = await bench(host, 'stands still');
    const own = a.pages(1);
    const { sending, bytes, ...made } = must(await a.ask({ op: 'send-begin', pages: own }));
    const copy = must(await begin(a, { ...made, pieces: [], checksum: '' }, 'v'));
    await until(() => copies.arriving === 0);
    const piece = new Uint8Array(bytes);
    assert.equal(tagOf(await a.ask({ op: 'copy-piece', copy, bytes: piece })), 'not-found');
    a.inferlet.freePages(a.queue, own);
    await until(() => host.host.stats().models[0]!.pages.owned === 0);
    assert.equal(tagOf(await a.ask({ op: 'send-piece', sending })), 'not-found');
    await a.inferlet.close();
  });

  test('a name gets a new version with each save', async () => {
    const a = await bench(hosts[0], 'versions');
    const own = a.pages(1);
    must(await a.fill(own, [1, 2]));
    const version = async (name: string, file = false, functionName = 'maker') => {
      const outcome = await a.ask({ op: 'name-version', file, name, functionName });
      return outcome.tag === 'ok' ? outcome.val.version : outcome.val.tag;
    };
    const save = () => a.ask({ op: 'export-pages', pages: own, name: 'n', persistent: true });
    assert.equal(await version('n'), 'not-found');
    must(await save());
    const first = await version('n');
    assert.equal(await version('n'), first);
    assert.equal(await version('n', true), 'not-found', 'files have names of their own');
    must(await a.ask({ op: 'unexport', name: 'n' }));
    must(await save());
    assert.notEqual(await version('n'), first);
    must(await a.ask({ op: 'unexport', name: 'n' }));
    const file = { op: 'file-save', name: 'f', pages: own, persistent: false } as const;
    must(await a.ask({ ...file, rights: 'private', functionName: 'maker' }));
    assert.equal(await version('f', true, 'reader'), 'unsupported', 'a private file is not for other functions');
    assert.match(await version('f', true), /^[0-9a-f-]{36}$/);
    must(await a.ask({ op: 'file-remove', name: 'f', functionName: 'maker' }));
  });
});

test('stored copies make room for arriving ones, and the copies of one tenant take at most half of the room', () => {
  const copies = new Copies(1000);
  const copy = (bytes: number) => ({ bytes, records: undefined as never });
  const keep = (tenant: string, version: string, bytes: number) => {
    copies.enter(tenant, bytes);
    copies.keep(tenant, version, copy(bytes));
  };
  keep('a', '1', 200);
  keep('a', '2', 200);
  assert.ok(copies.find('a', '1'), 'this use makes copy 1 newer than copy 2');
  keep('a', '3', 200);
  assert.deepEqual(
    ['1', '2', '3'].map((version) => copies.find('a', version) !== undefined),
    [true, false, true],
  );
  assert.equal(copies.bytes, 400);
  keep('b', '1', 200);
  assert.equal(copies.find('b', '3'), undefined, 'the copy belongs to another tenant');
  assert.throws(() => copies.enter('a', 501), /at most 500/);
  copies.enter('c', 250);
  copies.enter('b', 250);
  assert.equal(copies.find('b', '1'), undefined, 'the stored copy of tenant b gives way first');
  assert.ok(copies.find('a', '3'), 'copies of other tenants give way only when that is not enough');
  copies.enter('a', 250);
  copies.enter('d', 250);
  assert.equal(copies.bytes, 1000);
  assert.throws(() => copies.enter('e', 1), /being fetched/);
  for (const tenant of ['a', 'b', 'c', 'd']) copies.leave(tenant, 250);
  assert.equal(copies.bytes, 0);
});

test('a page of another host is checked before it is mapped', () => {
  const layout = { pageSize: 4, pageBytes: 8 };
  const page = (filled: number, position: number) =>
    withPage(NO_EXTENT, { filled, masked: 0, positions: Uint32Array.of(position, 0, 0, 0) }, layout);
  assert.deepEqual(page(1, 0x7fff_ffff), { tokens: 1, nextPosition: 0x8000_0000 });
  assert.equal(page(1, 0x8000_0000), 'one has the position 2147483648');
  assert.deepEqual(page(2, 0x8000_0000), { tokens: 1, nextPosition: 1 }, 'an empty slot has no position');
  assert.equal(page(16, 0), 'one names slots past its 4');
});
