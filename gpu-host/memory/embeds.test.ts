import assert from 'node:assert/strict';
import { test } from 'node:test';
import { InferletShare, Shares } from '#scheduler/policies/shares.ts';
import { handlerError } from '../protocol/errors.ts';
import { EmbedSpace } from './embeds.ts';
import { tagOf } from './testing/fault-tag.ts';

const LIMITS = { maxEmbeds: 8, maxStateBytes: 64 };

test('embeds hold tokens or states, and refuse a wrong address with the reason', () => {
  const embeds = new EmbedSpace(LIMITS);
  embeds.allocate(1, 3);
  embeds.setToken(1, 42, 7);
  assert.deepEqual(embeds.get(1), { kind: 'token', token: 42, position: 7 });
  assert.equal(
    tagOf(() => embeds.get(2)),
    'invalid-argument',
    'embed 2 is empty',
  );
  assert.equal(
    tagOf(() => embeds.get(9)),
    'not-owned',
    'embed 9 was never allocated',
  );
  assert.equal(
    tagOf(() => embeds.allocate(3, 1)),
    'invalid-argument',
    'embed 3 is in use',
  );
  assert.equal(
    tagOf(() => embeds.allocate(10, 6)),
    'limit-exceeded',
    'three embeds and six more exceed the limit of eight',
  );
  assert.equal(
    tagOf(() => embeds.allocate(0xffff_ffff, 2)),
    'invalid-argument',
    'an address has 32 bits',
  );
  assert.equal(embeds.count, 3);
  embeds.allocate(0xffff_ffff, 1);
  embeds.free(Uint32Array.of(0xffff_ffff));
});

test('bytes of states are counted through copies, overwrites and frees', () => {
  const embeds = new EmbedSpace(LIMITS);
  embeds.allocate(1, 4);
  embeds.setState(1, new Float32Array(8), 0);
  assert.equal(embeds.stateBytes, 32);
  embeds.copy(Uint32Array.of(1), Uint32Array.of(2));
  assert.equal(embeds.stateBytes, 64);
  assert.equal(
    tagOf(() => embeds.copy(Uint32Array.of(1), Uint32Array.of(3))),
    'limit-exceeded',
  );
  assert.equal(
    tagOf(() => embeds.checkStateRoom(1)),
    'limit-exceeded',
  );
  embeds.setToken(2, 1, 1);
  assert.equal(embeds.stateBytes, 32);
  embeds.free(Uint32Array.of(1));
  assert.equal(embeds.stateBytes, 0);
  assert.equal(
    tagOf(() => embeds.free(Uint32Array.of(2, 2))),
    'invalid-argument',
    'an embed is named twice',
  );
  assert.equal(
    tagOf(() => embeds.copy(Uint32Array.of(2), Uint32Array.of(3, 4))),
    'invalid-argument',
    'one source for two destinations',
  );
  for (const use of [embeds.free, embeds.checkHeld]) {
    assert.equal(
      tagOf(() => use.call(embeds, Uint32Array.of(2, 1))),
      'not-owned',
      'embed 1 was freed',
    );
  }
  assert.equal(embeds.count, 3);
  embeds.setState(3, new Float32Array(8), 0);
  embeds.releaseAll();
  assert.deepEqual([embeds.count, embeds.stateBytes], [0, 0]);
});

test('table entries and values of embeds are counted for the tenant until they are given back', () => {
  const heap = new Shares(10_000);
  const values = new Shares(100);
  const embeds = new EmbedSpace(LIMITS, {
    heap: new InferletShare(heap, 't'),
    values: new InferletShare(values, 't'),
  });
  embeds.allocate(1, 4);
  const bytesPerEmbed = heap.total / 4;
  embeds.free(Uint32Array.of(2, 3));
  assert.equal(heap.total, 2 * bytesPerEmbed);
  embeds.setState(1, new Float32Array(8), 0);
  assert.equal(values.total, 32);
  embeds.releaseAll();
  assert.deepEqual([heap.total, values.total], [0, 0]);
});

test('the last 64 failed allocations are remembered', () => {
  const embeds = new EmbedSpace(LIMITS);
  for (let i = 0; i < 65; i++) embeds.failures.markRange(i, 1, handlerError('limit-exceeded', 'no room'), {});
  assert.equal(
    tagOf(() => embeds.get(0)),
    'not-owned',
  );
  assert.equal(
    tagOf(() => embeds.get(1)),
    'dependency-failed',
  );
});

test('an embed that a failed call should have written fails its readers, until it is written or the failure is reported', () => {
  const embeds = new EmbedSpace(LIMITS);
  const queue = {};
  embeds.allocate(1, 2);
  embeds.fail(Uint32Array.of(1, 2, 77), handlerError('internal', 'gone'), queue);
  assert.equal(
    tagOf(() => embeds.get(1)),
    'dependency-failed',
  );
  embeds.setToken(1, 5, 0);
  assert.equal(
    tagOf(() => embeds.get(1)),
    'none',
  );
  embeds.failures.clear(queue);
  assert.equal(
    tagOf(() => embeds.get(2)),
    'invalid-argument',
  );
});
