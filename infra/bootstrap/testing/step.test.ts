import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { runStep } from './step.js';

const directory = mkdtempSync(path.join(os.tmpdir(), 'pie-step-'));
after(() => rmSync(directory, { recursive: true, force: true }));

// With this variable set, Node's runner refuses to start another runner below a test.
delete process.env.NODE_TEST_CONTEXT;

test('a step that hangs is killed at its deadline, and the report names its unfinished files', async () => {
  const server = net.createServer().listen(path.join(directory, 'socket'));
  const connected = once(server, 'connection') as Promise<[net.Socket]>;
  writeFileSync(path.join(directory, 'ends.test.mjs'), `import test from 'node:test'; test('ends', () => undefined);`);
  writeFileSync(
    path.join(directory, 'hangs.test.mjs'),
    `import net from 'node:net'; import test from 'node:test'; test('hangs', () => new Promise(() => net.connect(${JSON.stringify(path.join(directory, 'socket'))})));`,
  );
  const deadline = new AbortController();
  const step = runStep(directory, process.execPath, ['--test', '--test-concurrency=1', '*.test.mjs'], deadline.signal);
  const [socket] = await connected;
  const disconnected = once(socket.on('error', () => undefined).resume(), 'close');
  deadline.abort();
  const { code, unfinished } = await step;
  assert.notEqual(code, 0);
  assert.deepEqual(
    unfinished?.map((file) => path.basename(file)),
    ['hangs.test.mjs'],
  );
  await disconnected;
  server.close();
});

test('a step that ends returns its exit code, no unfinished files, and the processor time of its processes', async () => {
  const compute = 'for (let used; (used = process.cpuUsage()).user + used.system < 300_000; );';
  const program = `require('node:child_process').execFileSync(process.execPath, ['-e', '${compute}']); ${compute} process.exit(3);`;
  const step = runStep(directory, process.execPath, ['-e', program], new AbortController().signal);
  // The program and its child compute for 0.3 s each.
  const { cpuSeconds, ...ending } = await step;
  assert.deepEqual(ending, { code: 3, unfinished: null });
  assert.ok(cpuSeconds >= 0.6, `${cpuSeconds} s`);
});
