import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import { TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { value } from '../../testing/outcome.ts';
import { DeviceQueue } from '../device/queue.ts';
import { KvFile } from './kv-files.ts';
import { SharedNames } from './shared-names.ts';

const PAGE_SIZE = 16;
const PAGES = 4;
const OTHER_MODEL = 'other-tiny';

async function failure(outcome: Promise<Outcome<unknown>>): Promise<string> {
  const settled = await outcome;
  return settled.tag === 'err' ? settled.val.tag : 'ok';
}

const none = new Uint32Array(0);
const range = (length: number) => Uint32Array.from({ length }, (_, i) => i);

describe('a file', () => {
  let host: TestGpuHost;
  let connection: GpuHostConnection;
  let guest: TestInferlet;

  before(async () => {
    host = await TestGpuHost.start({ otherModel: OTHER_MODEL });
    connection = await GpuHostConnection.connect(host.address);
    guest = new TestInferlet(connection, { pages: PAGES });
  });
  after(async () => {
    await guest.end();
    connection.close();
    await host.stop();
  });

  const heldPages = () => guest.queue.device?.heldPages;
  const openFilled = async () => {
    const file = KvFile.open(guest.inferlet, guest.queue, undefined, false);
    assert.equal(await failure(file.pred(range(20), range(20), 1)), 'ok');
    return file;
  };

  it('refuses a list that is longer than all pages can hold, before it reads the elements', async () => {
    const file = await openFilled();
    const unread = new Proxy(new Uint32Array(0), {
      get: (_, property) => (property === 'length' ? PAGES * PAGE_SIZE + 1 : assert.fail(`read ${String(property)}`)),
    });
    const refused = file.extract(unread, undefined);
    assert.equal(await failure(refused.ready()), 'limit-exceeded');
    assert.equal(await failure(file.pred(unread, unread, 1)), 'limit-exceeded');
    const whole = file.extract(range(20), 0);
    assert.equal(await failure(whole.ready()), 'ok');
    for (const each of [file, refused, whole]) each.drop();
    assert.equal(heldPages(), 0);
  });

  it('counts the calls that wait while it opens, and refuses calls beyond 1,024 or 32 MiB', async () => {
    const { inferlet, queue } = new TestInferlet(connection, { pages: 1_000_000, tokens: 10_000_000 });
    // A list has 4 MiB. Eight calls with a list, or four with two lists, carry 32 MiB.
    const list = new Uint32Array(1 << 20);
    for (const name of ['predictions', 'extracts', 'saves', 'merges']) {
      const file = KvFile.open(inferlet, queue, name, false);
      const call: Record<string, () => Promise<Outcome<unknown>>> = {
        predictions: () => file.pred(list, list, 1),
        extracts: () => file.extract(list, 0).ready(),
        saves: () => file.save('n', false, 'private'),
        merges: () => file.merge(file, false),
      };
      const issueCall = call[name] ?? assert.fail();
      const hasLists = name === 'predictions' || name === 'extracts';
      const waiting = Array.from({ length: hasLists ? 9 : 1025 }, issueCall);
      assert.ok(inferlet.outgoing.bytes <= 32 << 20 && inferlet.outgoing.calls <= 1024, name);
      assert.ok(!hasLists || inferlet.outgoing.bytes >= 24 << 20, name);
      const ends = await Promise.all(waiting.map(failure));
      assert.equal(ends[0], 'not-found');
      // A derived file reports the failure of its origin first.
      assert.equal(ends.at(-1), name === 'extracts' ? 'not-found' : 'limit-exceeded');
      assert.deepEqual([inferlet.outgoing.bytes, inferlet.outgoing.calls], [0, 0], name);
      file.drop();
    }
    await inferlet.release();
  });

  it('counts its pages towards the peak of its own model only', async () => {
    const { inferlet, queue } = new TestInferlet(connection);
    for (const each of [queue, new DeviceQueue(inferlet, OTHER_MODEL)]) {
      const file = KvFile.open(inferlet, each, undefined, false);
      assert.equal(await failure(file.pred(range(20), range(20), 1)), 'ok');
    }
    assert.deepEqual(Object.fromEntries(inferlet.pagesPeak), { tiny: 2, [OTHER_MODEL]: 2 });
    await inferlet.release();
  });

  it('refuses waiting calls when it has opened and the first of them has used up the tokens', async () => {
    const saved = await openFilled();
    assert.equal(await failure(saved.save('waits', false, 'private')), 'ok');
    saved.drop();
    // A call of 4 tokens counts 8: 4 inputs and 4 outputs.
    const { inferlet, queue } = new TestInferlet(connection, { tokens: 7 });
    const file = KvFile.open(inferlet, queue, 'waits', false);
    const calls = [20, 24, 28].map((first) => failure(file.pred(range(4), range(first + 4).subarray(first), 1)));
    assert.deepEqual(await Promise.all(calls), ['ok', 'limit-exceeded', 'limit-exceeded']);
    assert.equal(await failure(guest.call('kv-files', 'remove', guest.queue, 'waits')), 'ok');
    await inferlet.release();
  });

  it('with a malformed name is refused before any host or store is asked, as are exports and adapters', async () => {
    const unasked = () => assert.fail('the store was asked for a malformed name');
    const owners = { of: unasked, list: unasked, claim: unasked, release: unasked };
    const names = new SharedNames(owners, { list: [connection, connection] });
    for (const [guest, name] of [
      [new TestInferlet(connection), 'x'.repeat(1 << 24)],
      [new TestInferlet(connection, { services: { names } }), 'x'.repeat(129)],
    ] as const) {
      const { device } = guest.queue;
      const file = KvFile.open(guest.inferlet, guest.queue, undefined, false);
      const grammar = guest.call<object>('grammar', '[constructor]compiled', 'tiny', { tag: 'json' });
      const matcher = guest.call<object>('grammar', '[constructor]matcher', grammar);
      const request = {
        tokens: range(1),
        positions: range(1),
        inPages: none,
        outPages: none,
        mask: undefined,
        rows: 1,
        output: { tag: 'distributions', val: 1 },
      };
      const issued = device?.issuedCalls;
      const ask = (interfaceName: string, name: string, ...args: unknown[]) =>
        guest.call<Promise<Outcome<unknown>>>(interfaceName, name, guest.queue, ...args);
      const ends = [
        ask('allocate', 'import-pages', name),
        ask('allocate', 'export-pages', none, name, false),
        ask('allocate', 'unexport', name),
        ask('allocate', 'make-durable', name),
        ask('allocate', 'pin-export', name, 1),
        ask('kv-files', 'remove', name),
        ask('kv-files', 'make-durable', name),
        KvFile.open(guest.inferlet, guest.queue, name, true).ready(),
        file.save(name, false, 'private'),
        ask('adapter', 'load-adapter', name),
        ask('adapter', 'step', name, request),
        ask('grammar', 'verify', matcher, name, request),
      ];
      const listed = ask('kv-files', 'files', name);
      assert.deepEqual([device?.issuedCalls, device?.pendingCalls, guest.inferlet.outgoing.calls], [issued, 0, 0]);
      assert.deepEqual(
        await Promise.all(ends.map(failure)),
        ends.map(() => 'invalid-argument'),
      );
      assert.deepEqual(value(await listed), []);
      await guest.end();
    }
  });

  it('releases the pages of an extracted file when its creation failed', async () => {
    const file = await openFilled();
    const freed = file.pages.slice(1);
    // Frees pages without the file's knowledge, so that the device refuses the copy.
    guest.call('allocate', 'free-pages', guest.queue, freed);
    for (let i = 0; i < PAGES; i++) {
      const part = file.extract(Uint32Array.of(0, 17), 0);
      assert.equal(await failure(part.ready()), 'not-owned');
      part.drop();
      assert.equal(heldPages(), 1);
    }
    file.drop();
    assert.equal(heldPages(), 0);
  });

  it('stays usable after calls for which the GPU host had no pages, and gives back every page that it holds', async () => {
    const limited = new TestInferlet(connection, { pages: 9 });
    const { inferlet, queue } = limited;
    const synchronized = () => failure(queue.synchronize());
    const append = (to: KvFile, tokens: number) => failure(to.pred(range(tokens), range(57 + tokens).subarray(57), 1));
    const origin = KvFile.open(inferlet, queue, undefined, false);
    assert.equal(await failure(origin.pred(range(56), range(56), 1)), 'ok');
    const [file, dropped, ...others] = [origin.fork(), origin.fork(), origin.fork(), origin.fork()] as const;
    // Each fork copies the last page. The GPU host counts the four copies and the four shared pages, the runtime only the shared pages.
    for (const fork of [file, dropped, ...others]) assert.equal(await append(fork, 1), 'ok');

    const droppedAppend = append(dropped, 40);
    dropped.drop();
    const appended = [droppedAppend, append(file, 40), append(file, 1)];
    assert.deepEqual(await Promise.all(appended), ['dependency-failed', 'dependency-failed', 'dependency-failed']);
    assert.deepEqual([file.tokens, file.pages.length], [57, 4]);
    assert.deepEqual([await synchronized(), await synchronized()], ['limit-exceeded', 'ok']);
    assert.equal(await failure(file.merge(origin, false)), 'limit-exceeded');
    for (const other of others) other.drop();
    assert.equal(await append(file, 1), 'ok');
    assert.equal(await failure(file.merge(origin, false)), 'ok');
    assert.equal(await failure(file.save('kept', false, 'private')), 'ok');
    assert.deepEqual([file.tokens, file.pages.length], [114, 8]);
    assert.deepEqual([await synchronized(), await synchronized()], ['limit-exceeded', 'ok']);

    for (const each of [file, origin]) each.drop();
    value(limited.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', queue, 9));
    assert.equal(await synchronized(), 'ok');
    await limited.end();
  });

  it('keeps the pages that a later call has filled or the inferlet has reserved when a call fails', async () => {
    const { inferlet, queue } = new TestInferlet(connection);
    const file = KvFile.open(inferlet, queue, undefined, false);
    const append = (tokens: Uint32Array) => failure(file.pred(tokens, range(tokens.length), 1));
    const appendInvalid = () => append(new Uint32Array(PAGE_SIZE).fill(1_000_000));
    assert.equal(await append(range(PAGE_SIZE)), 'ok');
    const calls = [appendInvalid(), failure(queue.synchronize()), append(range(PAGE_SIZE))];
    assert.deepEqual(await Promise.all(calls), ['invalid-argument', 'invalid-argument', 'ok']);
    assert.deepEqual([file.tokens, file.pages.length], [2 * PAGE_SIZE, 3]);
    value(file.reserve(3 * PAGE_SIZE));
    assert.deepEqual([await appendInvalid(), file.pages.length], ['invalid-argument', 5]);
    await inferlet.release();
  });
});
