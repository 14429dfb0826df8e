import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pieces } from '../engine/sizes.ts';
import { IndexError } from '../protocol/types.ts';
import { Turns } from './turns.ts';

/** A clock that moves only while a piece of a job runs, and jobs whose pieces take a given time each. */
function arena() {
  let now = 0;
  const ran: string[] = [];
  const turns = new Turns(() => now);
  function* job(name: string, pieces: number, pieceMs: number): Pieces<string> {
    for (let i = 0; i < pieces; i++) {
      now += pieceMs;
      ran.push(name);
      yield;
    }
    return name;
  }
  return { turns, ran, job };
}

test("a tenant's query waits for at most a few turns of another tenant, even if that tenant has many jobs", async () => {
  const { turns, ran, job } = arena();
  const flood = Array.from({ length: 8 }, (_, i) => turns.run('flood', job(`flood ${i}`, 50, 3)));
  const query = turns.run('small', job('query', 4, 1));
  assert.equal(await query, 'query');
  const floodPieces = ran.filter((name) => name !== 'query').length;
  // A turn ends after 4 ms, so the flood has two pieces of 3 ms in each of its turns: 6 pieces are three turns.
  assert.ok(floodPieces <= 6, `${floodPieces} pieces of the flood went first`);
  assert.deepEqual(
    await Promise.all(flood),
    Array.from({ length: 8 }, (_, i) => `flood ${i}`),
  );
});

test('two busy tenants get equal time, even if their pieces differ in length', async () => {
  const { turns, ran, job } = arena();
  // The turns of `a` take 4 ms, and those of `b` 5 ms. Fair queueing lets the tenants' times differ by at most a turn
  // of each, 9 ms. The bound of 15 ms leaves room for one more turn.
  const works = [turns.run('a', job('a', 100, 1)), turns.run('b', job('b', 100, 5))];
  await works[0];
  const time = { a: ran.filter((name) => name === 'a').length, b: 5 * ran.filter((name) => name === 'b').length };
  assert.ok(Math.abs(time.a - time.b) <= 15, JSON.stringify(time));
  await works[1];
});

test('a tenant whose jobs come one after another gets no more time than one with a long job', async () => {
  const { turns, ran, job } = arena();
  // The turns of `a` take 3 ms, and those of `b` 4 ms, so fair queueing allows a difference of 7 ms. The bound is about
  // twice that.
  const long = turns.run('b', job('b', 400, 1));
  for (let i = 0; i < 40; i++) await turns.run('a', job('a', 1, 3));
  const time = { a: 40 * 3, b: ran.filter((name) => name === 'b').length };
  assert.ok(Math.abs(time.a - time.b) <= 15, JSON.stringify(time));
  await long;
});

test('an aborted job ends between two pieces, and a job that throws ends without effect on later jobs', async () => {
  const { turns, ran, job } = arena();
  const stopping = new AbortController();
  const long = turns.run('a', job('long', 1000, 5), stopping.signal);
  const other = turns.run('a', job('other', 3, 5));
  await other;
  stopping.abort(new IndexError('cancelled', 'enough'));
  await assert.rejects(long, { code: 'cancelled' });
  // The two jobs take turns, so that `long` has had about as many pieces as the 3 of `other`.
  assert.ok(ran.filter((name) => name === 'long').length < 20);
  const broken = turns.run(
    'a',
    (function* (): Pieces<never> {
      yield;
      throw new Error('broken');
    })(),
  );
  await assert.rejects(broken, /broken/);
  assert.equal(await turns.run('a', job('last', 1, 1)), 'last');
});
