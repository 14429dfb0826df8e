import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { DeficitRoundRobin, type Member, QUANTUM_MS } from './shared-thread.ts';

interface Worker extends Member {
  /** Cost of the next piece of work; undefined when there is none. */
  readonly next: () => number | undefined;
  served: number;
  servedMs: number;
}

const SEED = 19;
const MAX_PIECE_MS = 5;
/** A random worker begins in one of the turns from 0 to this one. */
const LAST_START_TURN = 20;
const pieces = fc.array(fc.double({ min: 0.001, max: MAX_PIECE_MS, noNaN: true }), { maxLength: 60, size: 'max' });

const workerOf = (next: Worker['next']): Worker => ({ owedMs: 0, next, served: 0, servedMs: 0 });
const workerFor = (work: readonly number[]): Worker => {
  const remaining = [...work];
  return workerOf(() => remaining.shift());
};

/** Works until the worker may not go on, as a channel does, and then puts the worker into the queue. Stops early when no work is left. */
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
  it('complete all work, and let each worker run at most a quantum and one piece between two turns', () => {
    fc.assert(
      // Each worker has the costs of its pieces of work, and the turn in which it begins.
      fc.property(fc.array(fc.tuple(pieces, fc.nat(LAST_START_TURN)), { minLength: 1, maxLength: 8 }), (plan) => {
        const turns = new DeficitRoundRobin<Worker>();
        const workers = plan.map(([costs]) => workerFor(costs));
        const allCosts = plan.flatMap(([costs]) => costs);
        const totalMs = allCosts.reduce((sum, ms) => sum + ms, 0);
        // After the last start, each turn pays a quantum of a debt, or gives a worker the thread.
        const maxTurns =
          LAST_START_TURN + 1 + (plan.length + 1) * (Math.ceil(totalMs / QUANTUM_MS) + allCosts.length + 1);
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
        } while (turn <= LAST_START_TURN || !turns.idle);
        assert.deepEqual(
          workers.map(({ served }) => served),
          plan.map(([costs]) => costs.length),
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
