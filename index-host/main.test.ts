import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import readline from 'node:readline';
import { test } from 'node:test';
import { loadConfig } from '#infra/config.ts';
import { ROOT } from '#infra/install.ts';
import { randomFrom, randomVector } from '#test/harness/random.ts';
import { graphFile } from './engine/graph.ts';
import { SAVED_LEAST, SIZES } from './engine/sizes.ts';
import { IndexClient } from './protocol/client.ts';
import { IndexError } from './protocol/types.ts';
import { temporaryFolder } from './testing/folder.ts';

const OPTIONS = { signal: new AbortController().signal, deadlineMs: 60_000 };
const DIMENSIONS = 16;
const BATCH = 16;
const KILLS = process.env.PIE_TEST_ALL ? 40 : 4;

async function start(home: string): Promise<ChildProcess> {
  const child = spawn(process.execPath, ['index-host/main.ts'], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, PIE_HOME: home },
  });
  for await (const line of readline.createInterface({ input: child.stdout! })) {
    if (line.startsWith('{"ready":true')) return child;
  }
  throw new Error('the index host ended before it was ready');
}

test('kill -9 amid upserts loses no acknowledged entry, and stores each upsert as a whole or not at all', async () => {
  using folder = temporaryFolder();
  const { index } = loadConfig({ ...process.env, PIE_HOME: folder.path });
  mkdirSync(path.dirname(index.socket), { recursive: true });
  const random = randomFrom(3);
  const acknowledged = new Map<string, Float32Array>();
  let host = await start(folder.path);
  const client = new IndexClient(index.socket, 'one');
  try {
    await client.create({ name: 'notes', dimensions: DIMENSIONS, metric: 'cosine' }, OPTIONS);
    for (let kill = 0; kill < KILLS; kill++) {
      const callsBeforeKill = 8 + Math.floor(random() * 60);
      let unacknowledged: string[] = [];
      for (let call = 0; ; call++) {
        // The ids `old-…` are the same in every call: these entries replace those of earlier calls.
        const ids = Array.from({ length: BATCH }, (_, i) => (i % 2 ? `old-${i}` : `${kill}-${call}-${i}`));
        const vectors = ids.map(() => randomVector(DIMENSIONS, random));
        const entries = ids.map((id) => ({ id, text: `text of ${id}`, metadata: [['kill', kill]] as const }));
        const flat = Float32Array.from(vectors.flatMap((vector) => [...vector]));
        const upsert = client.upsert('notes', entries, flat, OPTIONS);
        // The signal arrives before, amid or after the commit.
        if (call === callsBeforeKill) setTimeout(() => host.kill('SIGKILL'), random() * 6);
        try {
          await upsert;
          for (const [i, id] of ids.entries()) acknowledged.set(id, vectors[i]!);
        } catch (error) {
          assert.ok(error instanceof IndexError && error.code === 'unavailable', String(error));
          unacknowledged = ids;
          break;
        }
      }
      if (host.exitCode === null && host.signalCode === null) await once(host, 'exit');
      host = await start(folder.path);
      const { entries } = await client.stats('notes', OPTIONS);
      const newIdCount = unacknowledged.filter((id) => !acknowledged.has(id)).length;
      // The index has all entries of the call without an answer, or none of them.
      assert.ok(
        [acknowledged.size, acknowledged.size + newIdCount].includes(entries),
        `${entries} of ${acknowledged.size}`,
      );
      for (const [id, vector] of [...acknowledged].filter(([id]) => !unacknowledged.includes(id)).slice(-200)) {
        const query = { vector, text: null, filter: [], limit: 1 } as const;
        const [best] = await client.query('notes', query, OPTIONS);
        assert.equal(best?.id, id);
        assert.ok(best.score > 0.9999, `${id}: ${best.score}`);
      }
      // Delete the entries that the call without an answer may have written, so that all entries are acknowledged at the start of the next round.
      await client.delete('notes', unacknowledged, OPTIONS);
      for (const id of unacknowledged) acknowledged.delete(id);
    }
  } finally {
    client.close();
    host.kill('SIGKILL');
  }
});

test('the process saves its indexes at SIGTERM, and a new process serves them', async () => {
  using folder = temporaryFolder();
  const { index } = loadConfig({ ...process.env, PIE_HOME: folder.path });
  mkdirSync(path.dirname(index.socket), { recursive: true });
  const random = randomFrom(5);
  // A running index host saves a graph only when it has more than `SAVED_LEAST` new vectors, so it saves none before the stop.
  const vectors = Array.from({ length: SAVED_LEAST }, () => randomVector(DIMENSIONS, random));
  let host = await start(folder.path);
  let client = new IndexClient(index.socket, 'one');
  try {
    await client.create({ name: 'notes', dimensions: DIMENSIONS, metric: 'cosine' }, OPTIONS);
    for (let at = 0; at < vectors.length; at += 250) {
      const batch = vectors.slice(at, at + 250);
      const entries = batch.map((_, i) => ({ id: `${at + i}`, text: null, metadata: [] }));
      await client.upsert('notes', entries, Float32Array.from(batch.flatMap((vector) => [...vector])), OPTIONS);
    }
    client.close();
    host.kill('SIGTERM');
    await once(host, 'exit');
    const [graph, ...others] = globSync('*/notes/graph-*', { cwd: index.directory });
    assert.deepEqual([path.basename(graph ?? ''), others], [graphFile(vectors.length - SIZES.tail), []]);
    host = await start(folder.path);
    client = new IndexClient(index.socket, 'one');
    // The saved graph has the vectors 0 to 743, and the tail has the newest `SIZES.tail` (256), those from 744 to 999.
    for (const i of [0, 400, 743, 744, 999]) {
      const query = { vector: vectors[i]!, text: null, filter: [], limit: 1 } as const;
      const [best] = await client.query('notes', query, OPTIONS);
      assert.equal(best?.id, `${i}`);
    }
  } finally {
    client.close();
    host.kill('SIGKILL');
  }
});
