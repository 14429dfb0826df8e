import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import { TransferTurns } from './shared-names.ts';

const DONE: Outcome<undefined> = { tag: 'ok', val: undefined };
const NEVER = new AbortController().signal;

/** Transfers that the test starts and ends by name. The first word of a name is the tenant. */
class Transfers {
  readonly turns: TransferTurns;
  readonly begun: string[] = [];
  readonly #ends = new Map<string, () => void>();

  constructor(waitMs?: number) {
    this.turns = new TransferTurns(waitMs);
  }

  start(name: string, signal = NEVER): Promise<Outcome<undefined>> {
    const [tenant = ''] = name.split(' ');
    return this.turns.during(tenant, signal, () => {
      this.begun.push(name);
      return new Promise((resolve) => this.#ends.set(name, () => resolve(DONE)));
    });
  }

  async end(name: string): Promise<void> {
    this.#ends.get(name)?.();
    await nextTurn();
  }
}

test('at most two transfers of a tenant and eight in all run at once, and waiting tenants take turns', async () => {
  const transfers = new Transfers();
  const outcomes = [];
  for (const tenant of ['a', 'b', 'c', 'd'])
    for (const n of [1, 2, 3]) outcomes.push(transfers.start(`${tenant} ${n}`));
  outcomes.push(transfers.start('e 1'));
  await nextTurn();
  assert.deepEqual(transfers.begun, ['a 1', 'a 2', 'b 1', 'b 2', 'c 1', 'c 2', 'd 1', 'd 2']);
  await transfers.end('d 1');
  assert.equal(transfers.begun.at(-1), 'd 3', 'a, b and c have two transfers each already, and d waits longer than e');
  await transfers.end('d 2');
  assert.equal(transfers.begun.at(-1), 'e 1');
  // When the first loop ends a transfer, a waiting one begins. The second loop ends those.
  for (const name of [...transfers.begun]) await transfers.end(name);
  for (const name of [...transfers.begun]) await transfers.end(name);
  assert.deepEqual(
    await Promise.all(outcomes),
    outcomes.map(() => DONE),
  );
  assert.equal(transfers.begun.length, 13);
  assert.equal(transfers.turns.size, 0);
});

test('a waiting transfer fails when its inferlet stops, or when its turn does not come in time', async () => {
  const transfers = new Transfers(1);
  const running = [transfers.start('a 1'), transfers.start('a 2')];
  const stopping = new AbortController();
  const [stopped, timedOut] = [transfers.start('a 3', stopping.signal), transfers.start('a 4')];
  stopping.abort();
  const ends = [await stopped, await timedOut].map((end) => end.tag === 'err' && end.val.tag);
  assert.deepEqual(ends, ['cancelled', 'unavailable']);
  const aborted = await transfers.start('a 5', AbortSignal.abort());
  assert.equal(aborted.tag === 'err' && aborted.val.tag, 'cancelled');
  assert.equal(transfers.turns.size, 2);
  for (const name of ['a 1', 'a 2']) await transfers.end(name);
  await Promise.all(running);
  assert.equal(transfers.turns.size, 0);
  assert.deepEqual(transfers.begun, ['a 1', 'a 2']);
});

test('a transfer that leaves the queue takes no turn from those behind it or from later ones', async () => {
  const transfers = new Transfers();
  const stopping = new AbortController();
  const running = [transfers.start('a 1'), transfers.start('a 2')];
  const cancelled = transfers.start('a 3', stopping.signal);
  const behind = transfers.start('a 4');
  stopping.abort();
  assert.equal((await cancelled).tag, 'err');
  await transfers.end('a 1');
  assert.equal(transfers.begun.at(-1), 'a 4');
  const stopped = new AbortController();
  const last = transfers.start('a 5', stopped.signal);
  stopped.abort();
  assert.equal((await last).tag, 'err');
  for (const name of ['a 2', 'a 4']) await transfers.end(name);
  await Promise.all([...running, behind]);
  const next = transfers.start('a 6');
  await nextTurn();
  assert.equal(transfers.begun.at(-1), 'a 6');
  await transfers.end('a 6');
  assert.deepEqual(await next, DONE);
});
