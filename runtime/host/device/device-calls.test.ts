import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type {
  AdapterInfo,
  Distribution,
  ExportInfo,
  FileInfo,
  Imported,
  StepResult,
} from '#gpu-host/protocol/calls.ts';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { Residency } from '#wit/generated/host.ts';
import { TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet, type TestInferletOptions } from '../../testing/inferlet.ts';
import { failureOf, value } from '../../testing/outcome.ts';
import type { KvFile } from '../memory/kv-files.ts';

const PAGE_SIZE = 16;
const TOP_K = 8;
/** Largest accepted difference between a log-probability computed from rotated keys and one computed without rotation. */
const ROTATION_ERROR = 1e-4;
const u32 = (...values: number[]) => Uint32Array.from(values);
const testTokens = (length: number, seed = 1) => Uint32Array.from({ length }, (_, i) => (i * 37 + seed * 11 + 3) % 90);
const range = (length: number, first = 0) => Uint32Array.from({ length }, (_, i) => first + i);

/** A step's request for the distributions of its last `rows` tokens. */
const requestOf = (tokens: Uint32Array, first: number, inPages: Uint32Array, outPages: Uint32Array, rows: number) => ({
  tokens,
  positions: range(tokens.length, first),
  inPages,
  outPages,
  mask: undefined,
  rows,
  output: { tag: 'distributions', val: TOP_K },
});

const failure = async (outcome: Promise<Outcome<unknown>> | Outcome<unknown>) => failureOf(await outcome);

function assertClose(left: ArrayLike<number>, right: ArrayLike<number>, within = ROTATION_ERROR): void {
  assert.equal(left.length, right.length);
  for (let i = 0; i < left.length; i++) {
    const [a, b] = [left[i] ?? Number.NaN, right[i] ?? Number.NaN];
    assert.ok(Math.abs(a - b) <= within, `${a} and ${b} at ${i}`);
  }
}

describe('calls from an inferlet to a GPU host', () => {
  let host: TestGpuHost;
  let connection: GpuHostConnection;
  const opened: TestInferlet[] = [];

  before(async () => {
    host = await TestGpuHost.start({ adapter: 'other' });
    connection = await GpuHostConnection.connect(host.address);
  });
  after(async () => {
    await Promise.all(opened.map((inferlet) => inferlet.end()));
    const { pages } = (await connection.stats()).models[0] ?? {};
    // Exports outlive their inferlets, so `owned` need not be 0 here.
    assert.ok(pages && pages.free + pages.cached + pages.owned === pages.total);
    connection.close();
    await host.stop();
  });

  const inferlet = (options: TestInferletOptions = {}) => {
    const made = new TestInferlet(connection, { id: `inferlet-${opened.length}`, ...options });
    opened.push(made);
    return made;
  };
  const call = <T>(guest: TestInferlet, interfaceName: string, name: string, ...args: unknown[]) =>
    guest.call<Promise<Outcome<T>>>(interfaceName, name, guest.queue, ...args);
  const pages = (guest: TestInferlet, number: number) =>
    value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', guest.queue, number));
  const step = async (
    guest: TestInferlet,
    tokens: Uint32Array,
    first: number,
    inPages: Uint32Array,
    outPages: Uint32Array,
  ) =>
    value(await call<StepResult>(guest, 'fused', 'step', requestOf(tokens, first, inPages, outPages, tokens.length)))
      .distributions;
  /** The distribution after each token of `tokens`, computed by a new inferlet in one step. */
  const expected = (tokens: Uint32Array) => {
    const guest = inferlet();
    return step(guest, tokens, 0, u32(), pages(guest, Math.ceil(tokens.length / PAGE_SIZE)));
  };
  /** The log-probabilities after the last of `length` test tokens. */
  const expectedAfter = async (length: number) => (await expected(testTokens(length))).at(-1)?.logProbabilities ?? [];

  describe('without room in a quota', () => {
    const LENGTH = 5 * PAGE_SIZE;

    /**
     * Computes test tokens in steps of 7 whose calls are all made at once, each with one more page of context as it fills. Each list is overwritten
     * after its call, as a guest may do with its memory.
     */
    const computeAll = async (guest: TestInferlet) => {
      const own = pages(guest, LENGTH / PAGE_SIZE);
      const steps: Promise<Outcome<StepResult>>[] = [];
      for (let first = 0; first < LENGTH; first += 7) {
        const tokens = testTokens(LENGTH).subarray(first, first + 7);
        const context = own.slice(0, Math.ceil(first / PAGE_SIZE));
        const written = own.slice(Math.floor(first / PAGE_SIZE));
        const request = requestOf(tokens.slice(), first, context, written, tokens.length);
        steps.push(call<StepResult>(guest, 'fused', 'step', request));
        for (const list of [request.tokens, request.positions, context, written]) list.fill(0);
      }
      const rows = (await Promise.all(steps)).flatMap((outcome) => value(outcome).distributions);
      return { own, last: rows.at(-1)?.logProbabilities ?? [] };
    };

    it('wait for it in their order, and then give what they would have given', async () => {
      const [free, held] = [inferlet({ tenant: 'waits' }), inferlet({ tenant: 'waits' })];
      const { tokens } = held.inferlet;
      // Room for the first three steps.
      tokens.grant(2 * 21);
      const waiting = computeAll(held);
      assert.ok(tokens.isHeld);
      const { own: freePages, last: expectedLast } = await computeAll(free);
      assert.equal(tokens.ask().need, 2 * LENGTH);
      assert.equal(held.inferlet.inputTokens, 21, 'calls that wait are not used');
      tokens.grant(2 * LENGTH);
      const { own, last } = await waiting;
      assertClose(last, expectedLast);
      assert.deepEqual([held.inferlet.inputTokens, held.inferlet.outputTokens], [LENGTH, LENGTH]);
      // Both sides know the same context: the next call sends only its difference.
      tokens.grant(null);
      const next = (guest: TestInferlet, context: Uint32Array) => step(guest, u32(7), LENGTH, context, pages(guest, 1));
      const [[after], [expectedAfter]] = [await next(held, own), await next(free, freePages)];
      assertClose(after?.logProbabilities ?? [], expectedAfter?.logProbabilities ?? []);
    });

    it('fail when the quota is refused, without effect on the device', async () => {
      const guest = inferlet();
      const { tokens } = guest.inferlet;
      const own = pages(guest, 1);
      const embeds = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-embeds', guest.queue, 3));
      tokens.grant(2);
      guest.call('input-text', 'embed-text', guest.queue, u32(1, 2, 3), u32(0, 1, 2), embeds);
      const stepped = call(guest, 'fused', 'step', requestOf(u32(1), 0, u32(), own, 1));
      tokens.refuseQuota({ tag: 'limit-exceeded', val: 'the quota is used up' });
      assert.equal(await failure(stepped), 'limit-exceeded');
      assert.equal(await failure(call(guest, 'queue', '[method]queue.synchronize')), 'limit-exceeded');
      value(await call(guest, 'queue', '[method]queue.synchronize'));
      assert.equal(await failure(call(guest, 'fused', 'step', requestOf(u32(1), 0, u32(), own, 1))), 'limit-exceeded');
      assert.deepEqual([tokens.charged, guest.inferlet.inputTokens], [0, 0]);
    });
  });

  describe('allocate', () => {
    it('exports pages by name within a tenant, and other inferlets of the tenant import them', async () => {
      const maker = inferlet();
      const exportedPages = pages(maker, 2);
      await step(maker, testTokens(20), 0, u32(), exportedPages);
      const exportPages = (name: string) =>
        call<undefined>(maker, 'allocate', 'export-pages', exportedPages, name, false);
      value(await exportPages('a/b'));
      assert.equal(await failure(exportPages('a/b')), 'invalid-argument');
      assert.equal(await failure(exportPages('a b')), 'invalid-argument');
      await maker.end();
      const importer = inferlet();
      const importPages = (guest: TestInferlet, name: string) =>
        call<Imported>(guest, 'allocate', 'import-pages', name);
      const imported = value(await importPages(importer, 'a/b'));
      assert.deepEqual([imported.pages.length, imported.tokens, imported.nextPosition], [2, 20, 20]);
      assert.equal(importer.inferlet.pagesPeak.get('tiny'), 2);
      const [row] = await step(importer, testTokens(21).slice(20), 20, imported.pages, u32());
      assertClose(row?.logProbabilities ?? [], await expectedAfter(21));
      assert.equal(await failure(importPages(importer, 'a/c')), 'not-found');
      assert.equal(await failure(importPages(inferlet({ tenant: 'other' }), 'a/b')), 'not-found');
      const list = () => call<readonly ExportInfo[]>(importer, 'allocate', 'list-exports');
      assert.deepEqual(value(await list()), [
        { name: 'a/b', pages: 2, tokens: 20, nextPosition: 20, persistent: false },
      ]);
      const unexport = () => call<undefined>(importer, 'allocate', 'unexport', 'a/b');
      value(await unexport());
      assert.equal(await failure(unexport()), 'not-found');
      assert.deepEqual(value(await list()), []);
    });

    it('reports and changes where an export is', async ({ mock }) => {
      const maker = inferlet();
      const exportedPages = pages(maker, 2);
      await step(maker, testTokens(20), 0, u32(), exportedPages);
      value(await call<undefined>(maker, 'allocate', 'export-pages', exportedPages, 'p', false));
      const { mock: sent } = mock.method(maker.queue.device!, 'ask');
      const ask = (name: string, ...args: unknown[]) => call<Residency>(maker, 'allocate', name, 'p', ...args);
      const { bytes, ...residency } = value(await ask('export-residency'));
      assert.deepEqual(residency, { tier: 'device', devicePages: 2, memoryPages: 0, diskPages: 0, leaseMs: 0 });
      assert.equal(typeof bytes, 'bigint');
      assert.ok(value(await ask('pin-export', 60_000)).leaseMs > 0);
      assert.equal(value(await ask('unpin-export')).leaseMs, 0);
      assert.equal(value(await ask('retain-export', 100)).tier, 'device');
      assert.equal(value(await ask('prefetch-export')).devicePages, 2);
      assert.equal(await failure(ask('demote-export', 'disk')), 'unsupported');
      value(await call<undefined>(maker, 'allocate', 'unexport', 'p'));
      assert.equal(await failure(ask('demote-export', 'memory')), 'not-found');
      // This host has one tier, so most answers show no change. Check the calls that the host received.
      const asked = sent.calls.map(({ arguments: [, operation] }) => Object.values(operation).join(' ')).join(', ');
      assert.match(asked, / pin-export p 60000, unpin-export p, retain-export p 100, prefetch-export p, .* p memory$/);
    });

    it('copies single tokens, and slots with shifted positions', async () => {
      const guest = inferlet();
      const [source, target, shifted] = [pages(guest, 2), pages(guest, 2), pages(guest, 2)];
      await step(guest, testTokens(20), 0, u32(), source);
      guest.call('allocate', 'copy-tokens', guest.queue, source, range(20), target, range(20, 100));
      for (const page of [0, 1]) {
        const slots = page === 0 ? PAGE_SIZE : 20 - PAGE_SIZE;
        guest.call('allocate', 'copy-slots', guest.queue, target[page], 0, shifted[page], 0, slots, -100);
      }
      const next = testTokens(21).slice(20);
      const [whole, moved, back] = await Promise.all([
        step(guest, next, 20, source, u32()),
        step(guest, next, 120, target, u32()),
        step(guest, next, 20, shifted, u32()),
      ]);
      // Keys carry their positions, but attention depends only on the distances between positions.
      assertClose(moved[0]?.logProbabilities ?? [], whole[0]?.logProbabilities ?? []);
      assertClose(back[0]?.logProbabilities ?? [], whole[0]?.logProbabilities ?? []);
    });
  });

  describe('output-text and introspect', () => {
    it('compute scores, distributions, log-probabilities, entropy and embeds of a state', async () => {
      const guest = inferlet();
      const embeds = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-embeds', guest.queue, 6));
      const [inputs, states] = [embeds.slice(0, 5), embeds.slice(5)];
      guest.call('input-text', 'embed-text', guest.queue, testTokens(5), range(5), inputs);
      const lists = [u32(), inputs, pages(guest, 1), states, undefined];
      const scores = value(await call<Float32Array>(guest, 'introspect', 'forward-scores', ...lists));
      assert.equal(scores.length, 5);
      // Each of the five inputs spreads an attention of 1 over the slots.
      assertClose([scores.reduce((sum, score) => sum + score, 0)], [5]);
      const state = states[0] ?? 0;
      const ask = <T>(name: string, ...args: unknown[]) =>
        call<T>(guest, 'output-text', name, state, ...args).then(value);
      const { vocabularySize } = guest.queue.model?.summary ?? { vocabularySize: 0 };
      const logProbabilities = await ask<Float32Array>('log-probabilities', range(vocabularySize));
      assertClose([logProbabilities.reduce((sum, logarithm) => sum + Math.exp(logarithm), 0)], [1]);
      assertClose(
        [await ask<number>('entropy')],
        [logProbabilities.reduce((sum, p) => sum - p * Math.exp(p), 0)],
        1e-3,
      );
      const best = await ask<{ tokens: Uint32Array; logProbabilities: Float32Array }>('next-distribution', 3);
      assertClose(await ask<Float32Array>('log-probabilities', best.tokens), best.logProbabilities);
      const embed = await ask<Float32Array>('read-embed');
      assert.ok(embed.length > 0 && embed.every(Number.isFinite));
    });

    it('are refused when the model does not offer them, and so are files and grammars', async () => {
      const { summary } = inferlet().queue.model ?? {};
      assert.ok(summary);
      const guest = inferlet({ model: { summary: { ...summary, traits: ['allocate', 'forward'] } } });
      const outcome = call(guest, 'introspect', 'forward-scores', u32(), u32(), u32(), u32(), undefined);
      assert.equal(await failure(outcome), 'unsupported');
      const file = guest.call<KvFile>('kv-files', '[constructor]file', guest.queue, undefined, 'read');
      assert.equal(await failure(file.ready()), 'unsupported');
      assert.equal(await failure(file.pred(testTokens(1), range(1), 1)), 'unsupported');
      assert.equal(await failure(file.fork().ready()), 'unsupported');
      const grammar = guest.call<{ ready(): Promise<Outcome<undefined>> }>(
        'grammar',
        '[constructor]compiled',
        ...['tiny', { tag: 'json' }],
      );
      assert.equal(await failure(grammar.ready()), 'unsupported');
    });
  });

  describe('adapter', () => {
    const adapted = (guest: TestInferlet, name = 'other') => {
      const request = requestOf(testTokens(20), 0, u32(), pages(guest, 2), 1);
      return call<StepResult>(guest, 'adapter', 'step', name, request);
    };

    it('is listed and loaded, and changes the results of step and forward', async () => {
      const guest = inferlet();
      const list = () => call<readonly AdapterInfo[]>(guest, 'adapter', 'list-adapters');
      const load = (name: string) => call<undefined>(guest, 'adapter', 'load-adapter', name);
      assert.deepEqual(value(await list()), [{ name: 'other', rank: 2, loaded: false }]);
      assert.equal(await failure(load('nobody')), 'not-found');
      value(await load('other'));
      assert.equal(value(await list())[0]?.loaded, true);
      const adaptedLogProbabilities = value(await adapted(guest)).distributions[0]?.logProbabilities ?? [];
      const embeds = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-embeds', guest.queue, 21));
      const [inputs, states] = [embeds.slice(0, 20), embeds.slice(20)];
      guest.call('input-text', 'embed-text', guest.queue, testTokens(20), range(20), inputs);
      const lists = [u32(), inputs, u32(), states, undefined];
      guest.call('adapter', 'forward-with-adapter', guest.queue, 'other', ...lists);
      const state = states[0] ?? 0;
      const next = call<Distribution>(guest, 'output-text', 'next-distribution', state, TOP_K);
      assertClose(value(await next).logProbabilities, adaptedLogProbabilities);
      const plain = await expectedAfter(20);
      assert.throws(() => assertClose(adaptedLogProbabilities, plain));
      assert.equal(await failure(adapted(guest, 'nobody')), 'not-found');
    });

    it('is charged like other steps, including cached tokens', async () => {
      const [first, second] = [inferlet({ tenant: 'counted' }), inferlet({ tenant: 'counted' })];
      await adapted(first);
      await adapted(second);
      const counts = [first, second].map(({ inferlet: { inputTokens, cachedTokens } }) => [inputTokens, cachedTokens]);
      assert.deepEqual(counts.flat(), [20, 0, 20, 19]);
      const third = inferlet({ tenant: 'counted' });
      third.inferlet.tokens.grant(21);
      value(await adapted(third));
      assert.equal(third.inferlet.tokens.charged, 2, 'one input and one output are charged');
    });

    it('is refused where the model does not offer adapters', async () => {
      const { summary } = inferlet().queue.model ?? {};
      assert.ok(summary);
      const guest = inferlet({ model: { summary: { ...summary, traits: ['allocate', 'forward', 'fused'] } } });
      assert.equal(await failure(adapted(guest)), 'unsupported');
      for (const [name, ...args] of [['list-adapters'], ['load-adapter', 'other']] as const) {
        const outcome = call(guest, 'adapter', name, ...args);
        assert.equal(await failure(outcome), 'unsupported');
      }
    });
  });

  describe('kv-files', () => {
    const open = (guest: TestInferlet, name: string | undefined, access = 'read') =>
      guest.call<KvFile>('kv-files', '[constructor]file', guest.queue, name, access);
    /** Opens a new file and fills it with `tokens` test tokens. */
    const openFilled = async (guest: TestInferlet, tokens: number) => {
      const file = open(guest, undefined);
      value(await file.pred(testTokens(tokens), range(tokens), 1));
      return file;
    };
    const list = async (guest: TestInferlet, prefix = '') =>
      value(await call<readonly FileInfo[]>(guest, 'kv-files', 'files', prefix));

    it('append the tokens of concurrent `pred` calls in the order of the calls', async () => {
      const guest = inferlet();
      const file = open(guest, undefined);
      const tokens = testTokens(40);
      const parts = [0, 7, 16, 33, 40];
      const rows = await Promise.all(
        parts.slice(1).map((end, i) => {
          const start = parts[i] ?? 0;
          return file.pred(tokens.slice(start, end), range(end - start, start), TOP_K);
        }),
      );
      const distributions = rows.flatMap((outcome) => [...value(outcome)]);
      const want = await expected(tokens);
      assert.equal(distributions.length, want.length);
      distributions.forEach((row, i) => {
        assertClose(row.logProbabilities, want[i]?.logProbabilities ?? []);
      });
      assert.deepEqual([file.tokens, file.nextPosition, file.pages.length], [40, 40, 3]);
      assert.equal(await failure(file.pred(u32(1, 2), u32(40), 1)), 'invalid-argument');
      assert.equal(await failure(file.pred(u32(100_000_000), u32(40), 1)), 'invalid-argument');
      assert.deepEqual([file.tokens, file.nextPosition], [40, 40]);
    });

    it('continue after tokens that a `step` wrote into the reserved pages of the file', async () => {
      const guest = inferlet();
      const file = await openFilled(guest, 10);
      const reservedPages = value(file.reserve(10));
      assert.equal(reservedPages.length, 2);
      assert.equal(await failure(file.pred(u32(100_000_000), u32(10), 1)), 'invalid-argument');
      assert.equal(await failure(call(guest, 'queue', '[method]queue.synchronize')), 'invalid-argument');
      await step(guest, testTokens(20).slice(10), 10, file.pages.slice(0, 1), reservedPages);
      file.filled(10, 20);
      file.filled(0, 3);
      assert.deepEqual([file.tokens, file.nextPosition], [20, 20]);
      const [row] = value(await file.pred(testTokens(21).slice(20), u32(20), TOP_K));
      assertClose(row?.logProbabilities ?? [], await expectedAfter(21));
      assert.equal(await failure(file.reserve(1_000_000)), 'limit-exceeded');
    });

    it('can be forked, extracted and merged, with their positions', async () => {
      const guest = inferlet();
      const file = await openFilled(guest, 30);
      const fork = file.fork();
      const head = file.extract(range(11), undefined);
      const tail = file.extract(range(19, 11), 0);
      value(await tail.ready());
      assert.deepEqual([head.tokens, tail.tokens, tail.nextPosition], [11, 19, 19]);
      // The forked file continues separately.
      value(await file.pred(testTokens(1, 9), u32(30), 1));
      const headFork = head.fork();
      value(await head.merge(tail, false));
      // `head` kept the position bound of the whole text, so merged tokens begin behind that bound.
      assert.deepEqual([head.tokens, head.nextPosition], [30, 49]);
      const renumbered = headFork.extract(range(11), 0);
      value(await renumbered.merge(tail, false));
      assert.deepEqual([renumbered.tokens, renumbered.nextPosition], [30, 30]);
      const [kept, rest] = [fork.extract(range(11), undefined), fork.extract(range(19, 11), undefined)];
      value(await kept.merge(rest, true));
      assert.deepEqual([kept.tokens, kept.nextPosition], [30, 30]);
      const next = testTokens(31).slice(30);
      const whole = value(await fork.pred(next, u32(30), TOP_K))[0]?.logProbabilities ?? [];
      for (const merged of [renumbered, kept])
        assertClose(value(await merged.pred(next, u32(30), TOP_K))[0]?.logProbabilities ?? [], whole);
      assert.equal(await failure(file.extract(u32(31), 0).ready()), 'invalid-argument');
      const backwards = fork.extract(range(30).reverse(), undefined);
      value(await backwards.ready());
      const [row] = value(await backwards.pred(next, u32(30), TOP_K));
      // Keys carry their positions, so the order in the cache does not matter.
      assertClose(row?.logProbabilities ?? [], whole);
    });

    it('are saved, listed, locked and removed', async () => {
      const maker = inferlet({ functionName: 'maker' });
      const file = await openFilled(maker, 20);
      value(await file.save('notes/1', true, 'writable'));
      value(await file.save('notes/2', false, 'private'));
      const saved = { tokens: 20, nextPosition: 20, owner: 'maker', locked: false };
      assert.deepEqual(await list(maker, 'notes/'), [
        { ...saved, name: 'notes/1', persistent: true, rights: 'writable' },
        { ...saved, name: 'notes/2', persistent: false, rights: 'private' },
      ]);
      assert.deepEqual(await list(maker, 'other/'), []);
      const writer = inferlet({ functionName: 'writer' });
      assert.equal(await failure(open(writer, 'notes/3').ready()), 'not-found');
      assert.equal(await failure(open(writer, 'notes/2').ready()), 'unsupported');
      const lockedFile = open(writer, 'notes/1', 'write');
      value(await lockedFile.ready());
      assert.equal(await failure(open(maker, 'notes/1', 'write').ready()), 'unavailable');
      const reader = open(maker, 'notes/1');
      value(await lockedFile.pred(testTokens(21).slice(20), u32(20), 1));
      value(await lockedFile.save('notes/1', true, 'writable'));
      value(await reader.ready());
      assert.equal(reader.tokens, 20);
      const later = open(maker, 'notes/1');
      value(await later.ready());
      assert.equal(later.tokens, 21);
      // Dropping a file and ending its inferlet both release the lock.
      lockedFile.drop();
      const second = open(maker, 'notes/1', 'write');
      value(await second.ready());
      await maker.end();
      const third = open(writer, 'notes/1', 'write');
      value(await third.ready());
      third.unlock();
      for (const name of ['notes/1', 'notes/2']) {
        const owner = inferlet({ functionName: 'maker' });
        value(await call<undefined>(owner, 'kv-files', 'remove', name));
      }
      assert.deepEqual(await list(writer), []);
    });

    it('let calls wait until the file is open', async () => {
      const guest = inferlet();
      const file = await openFilled(guest, 20);
      value(await file.save('later', false, 'private'));
      const again = open(guest, 'later');
      const fork = again.fork();
      const row = fork.pred(testTokens(21).slice(20), u32(20), TOP_K);
      const joined = again.merge(fork, false);
      again.unlock();
      assertClose(value(await row)[0]?.logProbabilities ?? [], await expectedAfter(21));
      value(await joined);
      const dropped = open(guest, 'later', 'write');
      dropped.drop();
      const unlocked = open(guest, 'later', 'write');
      unlocked.unlock();
      value(await unlocked.ready());
      value(await call(guest, 'queue', '[method]queue.synchronize'));
      const locked = open(inferlet(), 'later', 'write');
      value(await locked.ready());
    });

    it('report a refusal of the device, which the next `synchronize` reports once more', async () => {
      const guest = inferlet();
      const file = await openFilled(guest, 20);
      const other = file.fork();
      // Frees the pages without the file's knowledge.
      guest.call('allocate', 'free-pages', guest.queue, other.pages);
      assert.equal(await failure(file.merge(other, false)), 'not-owned');
      assert.equal(file.tokens, 20);
      const synchronize = () => call<undefined>(guest, 'queue', '[method]queue.synchronize');
      assert.equal(await failure(synchronize()), 'not-owned');
      assert.equal(await failure(synchronize()), 'ok');
    });

    it('are bounded in number and release their pages', async () => {
      const guest = inferlet();
      const files = Array.from({ length: 1024 }, () => open(guest, undefined));
      const tooMany = open(guest, undefined);
      assert.equal(await failure(tooMany.ready()), 'limit-exceeded');
      tooMany.drop();
      const [first] = files;
      assert.ok(first);
      value(await first.pred(testTokens(20), range(20), 1));
      assert.equal(guest.queue.device?.heldPages, 2);
      first.drop();
      first.drop();
      assert.equal(guest.queue.device?.heldPages, 0);
      value(await open(guest, undefined).ready());
      assert.equal(await failure(open(guest, undefined).ready()), 'limit-exceeded');
    });

    it('outlive the handle of their queue', async () => {
      const guest = inferlet();
      const file = open(guest, undefined);
      guest.call('queue', '[resource-drop]queue', guest.queue);
      value(await file.pred(testTokens(20), range(20), 1));
      file.drop();
      assert.equal(await failure(guest.queue.settle()), 'not-found');
    });
  });
});
