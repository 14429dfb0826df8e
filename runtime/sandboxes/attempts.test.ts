import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { confinedCommand } from './command.ts';
import type { Outcomes, Target } from './fixtures/attacker.ts';
import { type Layers, layersFor, probeMachine, runConfined, startConfinedThread } from './index.ts';

const ATTACKER = new URL('fixtures/attacker.ts', import.meta.url);
const MAIN = fileURLToPath(ATTACKER);
const STARTS_THREAD = fileURLToPath(new URL('fixtures/thread.ts', import.meta.url));
const LIMITS = { timeoutMs: 240_000, memoryMb: 512 };
/**
 * Leaves room for three threads' V8 code ranges (512 MiB each, which RLIMIT_DATA counts): the program's main thread, the thread that it starts,
 * and the thread that the attacker starts. Without this room, the third thread ends the process as soon as it runs.
 */
const THREE_THREADS = { ...LIMITS, memoryMb: 1024 };
const probe = await probeMachine();
const hasNamespaces = 'command' in probe.bubblewrap;

/** Attempts that fail even without any layer: their targets do not exist, or they need flags. */
const FAIL_ANYWAY = new Set([
  'use an inherited socket or file',
  'look up a name',
  'replace its own program (process.execve)',
  'load a native addon',
  'call a native library (node:ffi)',
]);

/** Attempts that succeed in a confined thread: the thread shares the descriptors and V8 flags of its process. */
const IN_A_THREAD = ['use an inherited socket or file', 'make code of a string (new Function)'];

describe('code that has taken over a confined process', () => {
  let target: Target;
  let filesBefore: readonly string[];
  let connections = 0;
  const servers: net.Server[] = [];
  let victim: ChildProcess;

  before(async () => {
    const folder = await mkdtemp(join(tmpdir(), 'pie-target-'));
    await writeFile(join(folder, 'secret.txt'), 'secret');
    await writeFile(join(folder, 'secret.mjs'), 'export default 1;');
    const listen = async (where: string | number): Promise<net.Server> => {
      const server = net.createServer((socket) => {
        connections++;
        // The attacker closes the connection without reading.
        socket.on('error', () => undefined);
        socket.end('HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n');
      });
      await new Promise<void>((resolve) =>
        typeof where === 'string' ? server.listen(where, resolve) : server.listen(where, '127.0.0.1', resolve),
      );
      servers.push(server);
      return server;
    };
    const socket = join(folder, 'redis.sock');
    await listen(socket);
    const { port } = (await listen(0)).address() as net.AddressInfo;
    // Stands in for the runtime, because a signal from the attacker must not end this test.
    victim = spawn(
      process.execPath,
      ['-e', `process.on('SIGUSR1', () => {}); process.stdin.resume(); console.log('up');`],
      {
        // The process leads its own group.
        detached: true,
        stdio: ['pipe', 'pipe', 'inherit'],
        env: { PIE_MASTER_KEY: 'the master key' },
      },
    );
    await once(victim.stdout as NonNullable<typeof victim.stdout>, 'data');
    target = { pid: victim.pid ?? -1, folder, socket, port };
    filesBefore = await readdir(folder);
    process.env.PIE_MASTER_KEY = 'the master key';
  });
  after(async () => {
    delete process.env.PIE_MASTER_KEY;
    victim.kill();
    for (const server of servers) server.close();
    await rm(target.folder, { recursive: true });
  });

  const attack = async (layers: Layers): Promise<Outcomes> => {
    const program = { main: MAIN, args: [JSON.stringify(target)], read: [] };
    const { output, errors } = await runConfined(layers, program, LIMITS);
    assert.ok(output.startsWith('{'), errors);
    return JSON.parse(output) as Outcomes;
  };
  const successes = (outcomes: Outcomes): string[] =>
    Object.entries(outcomes).flatMap(([name, { refused, detail }]) => (refused ? [] : [`${name}: ${detail}`]));
  const assertNothingHappened = async (): Promise<void> => {
    assert.equal(connections, 0);
    assert.deepEqual(await readdir(target.folder), filesBefore);
  };

  it('is refused every attempt in namespaces', { skip: !hasNamespaces && 'no namespaces here' }, async () => {
    assert.deepEqual(successes(await attack(layersFor('namespaces', probe))), []);
    await assertNothingHappened();
  });

  it("is refused every attempt by the namespaces alone, without Node's permissions", {
    skip: !hasNamespaces && 'no namespaces here',
  }, async () => {
    const program = { main: MAIN, args: [JSON.stringify(target)], read: [] };
    const command = confinedCommand(layersFor('namespaces', probe), program, { cpuSeconds: 60, memoryMb: 512 });
    const args = command.args.filter((arg) => !/^--(permission|allow-|import|disallow-|no-experimental)/.test(arg));
    const { stdout } = await promisify(execFile)(command.program, args, { env: command.env, cwd: '/' });
    const outcomes = JSON.parse(stdout) as Outcomes;
    const outside = Object.fromEntries(Object.entries(outcomes).filter(([, { kind }]) => kind === 'outside'));
    assert.deepEqual(successes(outside), []);
    assert.ok(successes(outcomes).length > 0, "without Node's permissions, it may act freely within the namespaces");
    await assertNothingHappened();
  });

  it('is refused every attempt without namespaces', async () => {
    assert.deepEqual(successes(await attack(layersFor('process', probe))), []);
    await assertNothingHappened();
  });

  /** Names the attempts that succeed in a thread of this process while the target folder is its working folder. */
  const successesInThread = async (read: readonly string[]): Promise<string[]> => {
    const previousFolder = process.cwd();
    process.chdir(target.folder);
    const thread = startConfinedThread({
      program: ATTACKER,
      name: 'attacker',
      read: [MAIN, ...read],
      args: [JSON.stringify(target)],
      resourceLimits: { maxOldGenerationSizeMb: 64 },
    });
    try {
      const [outcomes] = (await once(thread, 'message')) as [Outcomes];
      return Object.keys(outcomes).filter((name) => !outcomes[name]?.refused);
    } finally {
      process.chdir(previousFolder);
      await thread.terminate();
    }
  };

  it("is refused, in a thread, every attempt to reach beyond the process's memory and descriptors", async () => {
    assert.deepEqual(await successesInThread([]), IN_A_THREAD);
    await assertNothingHappened();
  });

  it('reads the working folder in a thread that has this right', async () => {
    assert.ok((await successesInThread([target.folder])).includes('read a file of the home'));
  });

  for (const isolation of ['namespaces', 'process'] as const) {
    const skip = isolation === 'namespaces' && !hasNamespaces && 'no namespaces here';
    it(`is refused every attempt in a thread of a confined process, except to start a thread (${isolation})`, {
      skip,
    }, async () => {
      const program = { main: STARTS_THREAD, args: [JSON.stringify(target)], read: [MAIN], workers: true };
      const { output, errors } = await runConfined(layersFor(isolation, probe), program, THREE_THREADS);
      assert.ok(output.startsWith('{'), errors);
      const succeeded = successes(JSON.parse(output) as Outcomes).map((line) => line.split(':')[0]);
      assert.deepEqual(succeeded, ['start a worker thread']);
      await assertNothingHappened();
    });
  }

  it('succeeds with all of these attempts without any layer', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'pie-attacker-'));
    try {
      const main = join(folder, 'attacker.ts');
      await copyFile(MAIN, main);
      const { stdout } = await promisify(execFile)(process.execPath, [main, JSON.stringify(target)], {
        env: { PIE_MASTER_KEY: 'the master key' },
      });
      const outcomes = Object.entries(JSON.parse(stdout) as Outcomes);
      const failed = outcomes.flatMap(([name, { refused }]) => (refused ? [name] : []));
      assert.deepEqual(
        failed.filter((name) => !FAIL_ANYWAY.has(name)),
        [],
      );
      assert.ok(connections >= 3, 'its connections are counted');
    } finally {
      await Promise.all(['/tmp', '/dev/shm'].map((place) => rm(join(place, 'pie-attacker.txt'), { force: true })));
      await rm(folder, { recursive: true });
    }
  });

  it('is described attempt by attempt in REFUSALS.md', async () => {
    const page = await readFile(new URL('REFUSALS.md', import.meta.url), 'utf8');
    // The first two matches are the table's head and the line below.
    const listed = [...page.matchAll(/^\| (.+?) \|/gm)].map(([, name]) => name).slice(2);
    assert.deepEqual(listed.sort(), Object.keys(await attack(layersFor('process', probe))).sort());
  });
});
