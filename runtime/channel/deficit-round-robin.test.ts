import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { DeficitRoundRobin, type Member, QUANTUM_MS } from './deficit-round-robin.ts';

interface Worker extends Member {
  /** Cost of the next piece of work; undefined when there is none. */
  readonly next: () => number | undefined;
  served: number;
  servedMs: number;
}

const SEED = 19;
const MAX_PIECE_MS = 5;
const pieces = fc.array(fc.double({ min: 0.001, max: MAX_PIECE_MS, noNaN: true }), { maxLength: 60, size: 'max' });

const workerOf = (next: Worker['next']): Worker => ({ owedMs: 0, next, served: 0, servedMs: 0 });
const workerFor = (work: readonly number[]): Worker => {
  const left = [...work];
  return workerOf(() => left.shift());
};

/** Works until told to stop, as a channel does, and then waits with the remaining work. */
function work(turns: DeficitRoundRobin<Worker>, worker: Worker): void {
  if (turns.waits(worker)) return;
  while (turns.mayGoOn(worker)) {
    const ms = worker.next();
    if (ms === undefined) return;
    worker.served++;
    worker.servedMs += ms;
    turns.spend(worker, ms);
  }
  turns.wait(worker);
}

describe('turns of the workers on a thread', () => {
  it('complete all work, and run at most a quantum and one piece of each worker between two turns', () => {
    fc.assert(
      // Each worker has pieces of work, and a turn from 0 to 20 in which it begins.
      fc.property(fc.array(fc.tuple(pieces, fc.nat(20)), { minLength: 1, maxLength: 8 }), (plan) => {
        const turns = new DeficitRoundRobin<Worker>();
        const workers = plan.map(([own]) => workerFor(own));
        const total = plan.flatMap(([own]) => own).reduce((sum, ms) => sum + ms, 0);
        // Workers begin in the first 21 turns. Each later turn pays a quantum of a debt, or gives a worker the thread.
        const maxTurns =
          21 + (plan.length + 1) * (Math.ceil(total / QUANTUM_MS) + plan.flatMap(([own]) => own).length + 1);
        let turn = 0;
        do {
          const before = workers.map(({ servedMs }) => servedMs);
          const next = turns.pass();
          if (next) work(turns, next);
          workers.forEach((worker, i) => {
            if (plan[i]![1] === turn) work(turns, worker);
            assert.ok(worker.servedMs - before[i]! <= QUANTUM_MS + MAX_PIECE_MS);
          });
          assert.ok(++turn <= maxTurns, 'the work never ends');
        } while (turn <= 20 || !turns.idle);
        assert.deepEqual(
          workers.map(({ served }) => served),
          plan.map(([own]) => own.length),
        );
      }),
      { seed: SEED },
    );
  });

  it('share the thread equally among workers that always have work', () => {
    const costs = fc.array(fc.double({ min: 0.1, max: MAX_PIECE_MS, noNaN: true }), { minLength: 2, maxLength: 6 });
    fc.assert(
      fc.property(costs, (each) => {
        const turns = new DeficitRoundRobin<Worker>();
        const workers = each.map((ms) => workerOf(() => ms));
        for (const worker of workers) work(turns, worker);
        for (let turn = 0; turn < 500; turn++) {
          const next = turns.pass();
          if (next) work(turns, next);
        }
        const served = workers.map(({ servedMs }) => servedMs);
        assert.ok(Math.max(...served) - Math.min(...served) <= 2 * (QUANTUM_MS + MAX_PIECE_MS), `${served}`);
      }),
      { seed: SEED },
    );
  });

  it('let a worker with little debt continue at once although others wait', () => {
    const turns = new DeficitRoundRobin<Worker>();
    const [greedy, modest] = [workerOf(() => MAX_PIECE_MS), workerFor([0.5])];
    work(turns, greedy);
    assert.ok(turns.waits(greedy));
    work(turns, modest);
    assert.deepEqual([modest.servedMs, greedy.servedMs, turns.waits(modest)], [0.5, MAX_PIECE_MS, false]);
  });

  it('forget a worker that leaves', () => {
    const turns = new DeficitRoundRobin<Worker>();
    const worker = workerFor([2, 2]);
    work(turns, worker);
    turns.leave(worker);
    assert.deepEqual([turns.idle, turns.pass()], [true, undefined]);
  });
});
