import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { CollectedLog, failingLog } from '#scheduler/testing/log.ts';
import { PendingFunctions, pendingFunctions } from './pending-functions.ts';

test('a start notes the functions that it has not deployed yet, and each later start replaces the note', async () => {
  const runDirectory = await mkdtemp(path.join(os.tmpdir(), 'pie-pending-'));
  const log = failingLog;
  try {
    assert.deepEqual(pendingFunctions({ runDirectory }), []);
    const pending = new PendingFunctions({ runDirectory }, { awaited: ['story'], later: ['rag', 'rerank'], log });
    const waiting = { isAwaited: false, state: 'waiting', tries: 0 } as const;
    assert.deepEqual(pendingFunctions({ runDirectory }), [
      { ...waiting, name: 'story', isAwaited: true },
      { ...waiting, name: 'rag' },
      { ...waiting, name: 'rerank' },
    ]);
    pending.deployed(['story', 'unknown']);
    const failure = { state: 'failed', tries: 2, why: 'The store is full.', nextTryAt: 5 } as const;
    pending.change(['rerank', 'story'], failure);
    assert.deepEqual(pendingFunctions({ runDirectory }), [
      { ...waiting, name: 'rag' },
      { name: 'rerank', isAwaited: false, ...failure },
    ]);
    new PendingFunctions({ runDirectory }, { awaited: [], later: [], log });
    assert.deepEqual(pendingFunctions({ runDirectory }), [], 'a start without functions removes the note of another');
    pending.deployed(['rag', 'rerank']);
    assert.deepEqual(pendingFunctions({ runDirectory }), []);
  } finally {
    await rm(runDirectory, { recursive: true, force: true });
  }
});

test('a note that cannot be written ends no start', () => {
  const log = new CollectedLog();
  new PendingFunctions({ runDirectory: '/tmp/none/no-such-folder' }, { awaited: ['story'], later: [], log });
  assert.equal(log.errors.length, 1);
});
