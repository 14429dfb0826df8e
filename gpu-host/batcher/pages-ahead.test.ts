import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Random } from '#test/harness/random.ts';
import type { SimCall } from './testing/sim-call.ts';
import { Trace } from './testing/trace.ts';

const PAGE = 16;
/** Maximum inputs of a short call. Short calls never wait for pages. */
const MAX_SHORT_TOKENS = 16;

/** Pushes a forward over whole pages with these keys and one more input. */
function prefill(trace: Trace, name: string, keys: readonly number[], scope = 't'): SimCall {
  const call = trace.push(name, { kind: 'forward', tokens: keys.length * PAGE + 1 }, name);
  call.pagesToCome = { scope, pageTokens: PAGE, keys, takes: keys.length, begun: false };
  return call;
}

test('a call waits while one ahead of it computes its pages, and then computes the rest', () => {
  const trace = new Trace({ maxTokens: 512, maxCalls: 8 });
  prefill(trace, 'first', [1, 2, 3]);
  const second = prefill(trace, 'second', [1, 2, 3]);
  prefill(trace, 'other', [9, 2, 3]);
  assert.deepEqual(trace.step(), ['first:49', 'other:49']);
  second.left = 1;
  second.pagesToCome = undefined;
  assert.deepEqual(trace.step(), ['second']);
});

test('a batch names the calls that wait for each of its calls', () => {
  const trace = new Trace({ maxTokens: 512, maxCalls: 8 });
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((name) => prefill(trace, name, name < 'd' ? [1, 2, 3] : [7, 8, 9]));
  const { batch, names } = trace.start();
  assert.deepEqual(names, ['a:49', 'd:49']);
  assert.deepEqual([batch.awaitedBy.get(a!), batch.awaitedBy.get(d!)], [[b, c], undefined]);
});

test('tenants do not wait for each other', () => {
  const trace = new Trace({ maxTokens: 512, maxCalls: 8 });
  prefill(trace, 'a', [1, 2, 3], 'one');
  prefill(trace, 'b', [1, 2, 3], 'two');
  assert.deepEqual(trace.step(), ['a:49', 'b:49']);
});

test('a call waits only when other calls compute at least half of its inputs', () => {
  const trace = new Trace({ maxTokens: 512, maxCalls: 8 });
  prefill(trace, 'a', [1, 2, 3]);
  prefill(trace, 'b', [1, 4, 5]);
  prefill(trace, 'c', [1, 2, 5]);
  assert.deepEqual(trace.step(), ['a:49', 'b:49']);
  assert.deepEqual(trace.step(), ['c:49']);
  const half = new Trace({ maxTokens: 512, maxCalls: 8 });
  prefill(half, 'a', [1, 2, 3]);
  prefill(half, 'b', [1, 4, 5]).left = 2 * PAGE;
  assert.deepEqual(half.step(), ['a:49'], 'exactly half of the work is worth a wait');
});

test('a long text, which has keys for its first pages only, also waits when the batch has room for all of it', () => {
  const trace = new Trace({ maxTokens: 4096, maxCalls: 8 });
  for (const name of ['first', 'second']) {
    const call = prefill(
      trace,
      name,
      Array.from({ length: 64 }, (_, at) => at),
    );
    call.left = 200 * PAGE;
  }
  assert.deepEqual(trace.step(), ['first:3200']);
});

test('a call that was cut goes in the place of a more urgent one that waits for it', () => {
  const trace = new Trace({ maxTokens: 48, maxCalls: 8 });
  const owner = prefill(trace, 'owner', [1, 2, 3, 4]);
  assert.deepEqual(trace.step(), ['owner:48']);
  owner.pagesToCome = { scope: 't', pageTokens: PAGE, keys: [4], takes: 0, begun: true };
  owner.left = 17;
  trace.batcher.setPriority(trace.queue('urgent'), 9);
  const urgent = prefill(trace, 'urgent', [4]);
  // More urgent than the owner: only the urgent call brings the owner to the front.
  trace.batcher.setPriority(trace.queue('lower'), 5);
  const lower = prefill(trace, 'lower', [7, 8]);
  assert.ok(lower.tokens < 48, 'the batch has room beside `lower`');
  assert.ok(urgent.tokens > MAX_SHORT_TOKENS, '`urgent` is long, so it may wait');
  assert.deepEqual(trace.step(), ['owner:17', 'lower:31']);
});

test('when a call ends before it has computed its pages, the most urgent call that waited computes them', () => {
  const trace = new Trace({ maxTokens: 512, maxCalls: 8 });
  prefill(trace, 'closed', [1, 2, 3]);
  for (const name of ['a', 'b', 'c']) prefill(trace, name, [1, 2, 3]);
  trace.batcher.closeQueue(trace.queue('closed'));
  assert.deepEqual(trace.step(), ['a:49']);
  assert.deepEqual(trace.step(), ['b:49'], 'no pages of `a` exist');
});

/** Inferlets of two tenants that prefill texts with common beginnings, over pages that come and go. */
class Pages {
  readonly dice: Random;
  readonly trace: Trace;
  readonly maxTokens: number;
  /** Pages that exist, as `scope/key`. */
  readonly existing = new Set<string>();
  readonly calls = new Set<SimCall>();
  readonly texts: readonly (readonly number[])[];
  waits = 0;
  readonly #textOf = new Map<SimCall, readonly number[]>();
  #names = 0;

  constructor(seed: number) {
    this.dice = new Random(seed);
    this.maxTokens = 32 + this.dice.below(200);
    this.trace = new Trace({ maxTokens: this.maxTokens, maxCalls: 2 + this.dice.below(6), agingMs: 4 });
    // The key of a page stands for the text up to it, so two texts have different keys after they diverge.
    this.texts = Array.from({ length: 4 }, (_, text) => {
      const common = this.dice.below(8);
      return Array.from({ length: 1 + this.dice.below(12) }, (_, at) => (at < common ? at : 100 * (text + 1) + at));
    });
  }

  push(): void {
    const name = `i${this.#names++}`;
    if (this.dice.below(4) === 0) this.trace.batcher.setPriority(this.trace.queue(name), this.dice.below(21) - 10);
    const keys = this.texts[this.dice.below(this.texts.length)]!;
    const call = prefill(this.trace, name, keys, `tenant-${this.dice.below(2)}`);
    this.calls.add(call);
    this.#textOf.set(call, keys);
  }

  /** Runs one batch. With `mayFail`, calls may end before they are done, and pages may be lost. */
  step(mayFail: boolean): void {
    for (const call of this.calls) this.#updatePagesToCome(call);
    const { batch } = this.trace.start();
    const going = new Map(batch.forwards.map(({ call, tokens }) => [call as SimCall, tokens]));
    for (const call of this.calls) if (!going.has(call)) this.#checkPostponed(call, going);
    for (const [call, tokens] of going) {
      const { scope, keys } = call.pagesToCome!;
      call.left -= tokens;
      const computedPages = Math.max(0, keys.length - Math.floor(call.left / PAGE));
      for (const key of keys.slice(0, computedPages)) this.existing.add(`${scope}/${key}`);
      if (call.left > 0 && mayFail && this.dice.below(6) === 0) this.#drop(call);
      else if (call.left > 0) {
        call.pagesToCome = { ...call.pagesToCome!, keys: keys.slice(computedPages), takes: 0, begun: true };
        this.trace.batcher.resume(call, this.trace.nowMs);
      } else {
        this.calls.delete(call);
        this.trace.batcher.finish(call, this.trace.nowMs);
      }
    }
    this.trace.nowMs++;
    this.trace.batcher.ended(this.trace.nowMs);
    if (mayFail && this.dice.below(5) === 0)
      for (const page of [...this.existing]) if (this.dice.below(3) === 0) this.existing.delete(page);
    if (mayFail && this.dice.below(8) === 0 && this.calls.size > 0) this.#drop([...this.calls][0]!);
  }

  /** Updates the pages that a call which has not begun still has to compute. */
  #updatePagesToCome(call: SimCall): void {
    const ahead = call.pagesToCome!;
    if (ahead.begun) return;
    const whole = this.#textOf.get(call)!;
    let found = 0;
    while (found < whole.length && this.existing.has(`${ahead.scope}/${whole[found]}`)) found++;
    call.left = (whole.length - found) * PAGE + 1;
    call.pagesToCome = { ...ahead, keys: whole.slice(found), takes: whole.length - found };
  }

  /** Checks a call that is not in the batch: if the batch had room for the call, another call of the batch must compute the call's next page. */
  #checkPostponed(call: SimCall, going: ReadonlyMap<SimCall, number>): void {
    const tokens = [...going.values()].reduce((sum, each) => sum + each, 0);
    const isFull = going.size >= this.trace.batcher.limits.maxCalls || tokens >= this.maxTokens;
    if (isFull || call.left <= MAX_SHORT_TOKENS) return;
    this.waits++;
    const { scope, keys } = call.pagesToCome!;
    const owner = [...going.keys()].find(
      (other) => other.pagesToCome!.scope === scope && other.pagesToCome!.keys.includes(keys[0]!),
    );
    assert.ok(owner, `${call.name} waits, and no call of the batch computes its next page`);
  }

  #drop(call: SimCall): void {
    this.calls.delete(call);
    if (call.state === 'running') this.trace.batcher.finish(call, this.trace.nowMs);
    this.trace.batcher.closeQueue(call.queue);
  }
}

test('in random schedules the batch computes the next page of each call that waits, and every call ends', () => {
  const seeds = 400;
  let waits = 0;
  for (let seed = 0; seed < seeds; seed++) {
    const pages = new Pages(seed);
    const mayFail = seed % 2 === 0;
    let steps = 0;
    for (let turn = 0; turn < 40; turn++) {
      for (let i = pages.dice.below(4); i > 0; i--) pages.push();
      if (pages.calls.size > 0) pages.step(mayFail);
    }
    for (; pages.calls.size > 0; steps++) {
      assert.ok(steps < 10_000, `seed ${seed}: ${pages.calls.size} calls come to no end`);
      pages.step(mayFail);
    }
    waits += pages.waits;
  }
  assert.ok(waits > seeds, `${waits} waits`);
});
