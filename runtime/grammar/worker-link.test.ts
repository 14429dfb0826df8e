import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { handlerError } from '#gpu-host/protocol/errors.ts';
import { vocabularyFrom } from './testing/vocabularies.ts';
import { WorkerLink } from './workers.ts';

const PATIENT_MS = 60_000;
const OPTIONS = { name: 'grammar test', heapMb: 256, startMs: PATIENT_MS, turnMs: PATIENT_MS };
/** A schema whose compilation takes about a second. */
const SLOW = JSON.stringify({
  properties: Object.fromEntries(
    Array.from({ length: 3000 }, (_, index) => [`p${index}`, { type: 'string', maxLength: index % 250 }]),
  ),
});

describe('WorkerLink', () => {
  const vocabulary = vocabularyFrom(
    ['a', 'b'].map((text) => Buffer.from(text)),
    [],
  );
  const compile = (grammar: number, val: string) =>
    ({ kind: 'compile', grammar, vocabulary: vocabulary.id, source: { tag: 'json-schema', val } }) as const;

  it('ends a worker that overruns, and distinguishes the request at fault from requests that only waited', async () => {
    const link = new WorkerLink(OPTIONS);
    assert.equal((await link.learn(vocabulary, PATIENT_MS)).tag, 'ok');
    const replies = await Promise.all([
      link.request(compile(1, '{}'), PATIENT_MS),
      link.request(compile(2, SLOW), 1),
      link.request(compile(3, '{}'), PATIENT_MS),
    ]);
    const val = handlerError('limit-exceeded', 'the grammar took more than 1 ms; use a simpler one');
    assert.deepEqual(replies, [
      { tag: 'ok', val: undefined },
      { tag: 'ended', culprit: true, val },
      { tag: 'ended', culprit: false, val },
    ]);
    assert.ok(link.ended);
    await link.end(val);
    assert.deepEqual(await link.request(compile(4, '{}'), PATIENT_MS), { tag: 'ended', culprit: false, val });
  });

  it('charges the account of each request, and never sends a request that is withdrawn before its turn', async () => {
    const link = new WorkerLink(OPTIONS);
    void link.learn(vocabulary, PATIENT_MS);
    const charged: number[] = [];
    const withdrawn = handlerError('closed', 'not wanted any more');
    let isWanted = true;
    const asker = { refuse: () => (isWanted ? null : withdrawn), charge: (cpuMs: number) => charged.push(cpuMs) };
    const first = link.request(compile(1, '{}'), PATIENT_MS, asker);
    const second = link.request(compile(2, SLOW), PATIENT_MS, asker);
    const third = link.request(compile(3, '{}'), PATIENT_MS);
    isWanted = false;
    assert.deepEqual(await second, { tag: 'ended', culprit: false, val: withdrawn });
    assert.deepEqual(await first, { tag: 'ended', culprit: false, val: withdrawn });
    assert.equal((await third).tag, 'ok');
    assert.deepEqual(charged, []);
    isWanted = true;
    assert.equal((await link.request(compile(4, '{}'), PATIENT_MS, asker)).tag, 'ok');
    assert.equal(charged.length, 1);
    const overrun = link.request(compile(5, SLOW), 1, asker);
    // This thread blocks for 100 ms, so the deadline's timer fires late. The delay must not be charged to the guest.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
    assert.equal((await overrun).tag, 'ended');
    assert.ok((charged[0] ?? 0) > 0, String(charged));
    assert.ok((charged[1] ?? 0) >= 1 && (charged[1] ?? 0) < 100, String(charged));
  });

  it('charges the set-up of a worker to the request that ends the worker', async () => {
    const large = vocabularyFrom(
      Array.from({ length: 100_000 }, (_, index) => Buffer.from(index.toString(36))),
      [],
    );
    const link = new WorkerLink(OPTIONS);
    let setUpMs = 0;
    void link.request({ kind: 'vocabulary', vocabulary: large }, PATIENT_MS, {
      refuse: () => null,
      charge: (cpuMs) => (setUpMs = cpuMs),
    });
    const sameVocabulary = { ...large, id: large.id + 1_000_000 };
    void link.learn(sameVocabulary, PATIENT_MS);
    let charged = 0;
    const asker = { refuse: () => null, charge: (cpuMs: number) => (charged = cpuMs) };
    const overrun = { ...compile(1, SLOW), vocabulary: sameVocabulary.id };
    assert.equal((await link.request(overrun, 1, asker)).tag, 'ended');
    // The deadline is 1 ms. The second reading of the same vocabulary may be faster than the first, but not five times as fast.
    assert.ok(charged > 1 + setUpMs / 5, `${charged} ms, beside ${setUpMs} ms for the same vocabulary`);
  });

  it('charges no request for the `close` requests before it', async () => {
    const link = new WorkerLink(OPTIONS);
    assert.equal((await link.learn(vocabulary, PATIENT_MS)).tag, 'ok');
    const closeMatcher = (matcher: number) => link.request({ kind: 'close', matcher }, PATIENT_MS);
    await Promise.all(Array.from({ length: 20_000 }, (_, matcher) => closeMatcher(matcher)));
    let charged = 0;
    const asker = { refuse: () => null, charge: (cpuMs: number) => (charged += cpuMs) };
    assert.equal((await link.request(compile(1, SLOW), 1, asker)).tag, 'ended');
    assert.ok(charged < 100, `${charged} ms`);
  });

  it('serves follow-up requests before the first requests of other operations', async () => {
    const link = new WorkerLink(OPTIONS);
    void link.learn(vocabulary, PATIENT_MS);
    const order: string[] = [];
    const compileAndOpen = async (id: number) => {
      await link.request(compile(id, '{}'), PATIENT_MS);
      order.push(`compile ${id}`);
      const open = { kind: 'open', matcher: id, grammar: id, tokens: new Uint32Array(0) } as const;
      assert.equal((await link.request(open, PATIENT_MS, undefined, true)).tag, 'ok');
      order.push(`open ${id}`);
    };
    await Promise.all([1, 2, 3, 4].map(compileAndOpen));
    // The worker already has the next compilation when it answers the first, so `open 1` comes after `compile 2`.
    assert.ok(order.indexOf('open 1') < order.indexOf('compile 3'), String(order));
    assert.ok(order.indexOf('open 2') < order.indexOf('compile 4'), String(order));
    await link.end(handlerError('closed', 'over'));
  });

  it('ends a retired worker after its current request, which still gets its answer', async () => {
    const link = new WorkerLink(OPTIONS);
    void link.learn(vocabulary, PATIENT_MS);
    const first = link.request(compile(1, '{}'), PATIENT_MS);
    const second = link.request(compile(2, '{}'), PATIENT_MS);
    // After the first answer, the second request is the current one.
    await first;
    const third = link.request(compile(3, '{}'), PATIENT_MS);
    const reason = handlerError('unavailable', 'room');
    await link.retire(reason);
    assert.deepEqual(await second, { tag: 'ok', val: undefined });
    assert.deepEqual(await third, { tag: 'ended', culprit: false, val: reason });
  });

  it("does not count a request's wait for its turn towards its deadline", async ({ mock }) => {
    mock.timers.enable({ apis: ['setTimeout'] });
    const link = new WorkerLink(OPTIONS);
    void link.learn(vocabulary, PATIENT_MS);
    const first = link.request(compile(1, '{}'), PATIENT_MS);
    const second = link.request({ kind: 'forget', grammar: 7 }, 5000);
    mock.timers.tick(5000);
    assert.deepEqual([(await first).tag, (await second).tag], ['ok', 'ok']);
    await link.end(handlerError('closed', 'over'));
  });
});
