import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { awaitedFunctions, noteAwaited } from './awaited-functions.ts';

test('a start notes the functions that it deploys, and each later start replaces the note', async () => {
  const runDirectory = await mkdtemp(path.join(os.tmpdir(), 'pie-awaited-'));
  try {
    assert.deepEqual(awaitedFunctions({ runDirectory }), []);
    const removeNote = noteAwaited({ runDirectory }, ['story', 'chat']);
    assert.deepEqual(awaitedFunctions({ runDirectory }), ['story', 'chat']);
    removeNote();
    removeNote();
    assert.deepEqual(awaitedFunctions({ runDirectory }), []);
    noteAwaited({ runDirectory }, ['story']);
    noteAwaited({ runDirectory }, []);
    assert.deepEqual(
      awaitedFunctions({ runDirectory }),
      [],
      'a start without functions removes the note of a start that was killed',
    );
  } finally {
    await rm(runDirectory, { recursive: true, force: true });
  }
});
