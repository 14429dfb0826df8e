import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { PendingFunction } from '#infra/pending-functions.ts';
import { machineEntry } from '#scheduler/gpu-hosts/drains.ts';
import { MachineLease } from '#scheduler/machines/lease.ts';
import { affinityKey } from '#scheduler/policies/placement.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { runPie } from '../testing/pie.ts';
import { GatewayPlatform } from '../testing/platform.ts';
import { EXIT } from './failure.ts';

const BIN = fileURLToPath(new URL('bin.js', import.meta.url));

interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

describe('operator commands:', () => {
  let platform: GatewayPlatform;
  let pending: readonly PendingFunction[] = [];
  before(async () => {
    platform = await GatewayPlatform.start({ control: { pendingFunctions: () => pending } });
    for (const name of ['echo', 'other']) await platform.register({ name });
  });
  after(() => platform.stop());

  const pie = (args: readonly string[]) => runPie(platform, args);

  /** Runs a command in a process of its own: for commands that get a signal, ask for confirmation or read the environment. */
  function spawnPie(
    args: readonly string[],
    watch?: (child: ChildProcess, stdout: string) => void,
    url = platform.url,
  ): Promise<Result> {
    const env = { ...process.env, PIE_URL: url, PIE_API_KEY: platform.apiKey };
    const child = spawn(process.execPath, [BIN, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'], timeout: 240_000 });
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
      watch?.(child, stdout);
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    return new Promise((resolve) => child.once('close', (code) => resolve({ code, stdout, stderr })));
  }

  async function ok(args: readonly string[]): Promise<string> {
    const { code, stdout, stderr } = await pie(args);
    assert.equal(code, EXIT.ok, stderr);
    return stdout;
  }

  it('ps lists queued and running invocations, with --all also ended ones, as a table or as lines of JSON', async () => {
    const client = platform.client();
    const { id: done } = await client.submit('echo', {});
    await (await platform.attempt(done)).succeed(1, { inputTokens: 1200, outputTokens: 34, cpuMs: 5, gpuMs: 0.4 });
    const { id: running } = await client.submit('echo', {});
    await (await platform.attempt(running)).start();
    const { id: waiting } = await client.submit('other', {});
    const [table, listed, succeeded, none, wrong] = await Promise.all([
      ok(['ps']),
      ok(['ps', '--all', '--json']),
      ok(['ps', '--status', 'succeeded']),
      pie(['ps', '--function', 'nothing']),
      pie(['ps', '--status', 'gone']),
    ]);
    assert.match(table, /^ID +FUNCTION +STATUS +AGE +WAITED +TOKENS +GPU +CPU\n/);
    assert.match(table, new RegExp(`${waiting} +other@[0-9a-f]+ +queued`));
    assert.match(table, new RegExp(`${running} +echo@[0-9a-f]+ +running`));
    assert.doesNotMatch(table, new RegExp(done));
    const all = listed
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { id: string });
    assert.deepEqual(all.map(({ id }) => id).toSorted(), [done, running, waiting].toSorted());
    assert.match(succeeded, new RegExp(`${done} .* succeeded .* 1,234 +0 ms +5 ms`));
    assert.match(none.stderr, /There are none/);
    assert.equal(wrong.code, EXIT.usage);
    let watched = false;
    const { code, stdout } = await spawnPie(['ps', '--watch', '--all'], (child, text) => {
      if (!watched && text.includes(done)) watched = child.kill('SIGINT');
    });
    assert.equal(code, EXIT.ok);
    assert.equal(stdout.includes('\x1b'), false, 'no escape codes in a pipe');
  });

  it('attach and status show a second attempt and the usage of all attempts', async () => {
    await platform.register({ name: 'again', restartable: true });
    const client = platform.client();
    const { id } = await client.submit('again', {});
    const first = await platform.attempt(id);
    await first.start();
    await first.say('one ', 'two');
    await first.giveUp('The runtime was lost.', { outputTokens: 2 });
    const second = await platform.attempt(id);
    await second.start(2);
    await second.say('one ', 'two ', 'three');
    await second.succeed(3, { outputTokens: 3 });
    const [text, json, all, state] = await Promise.all([
      pie(['attach', id]),
      ok(['attach', id, '--json']),
      ok(['ps', '--all', '--function', 'again']),
      ok(['status', id]),
    ]);
    assert.equal(text.stdout, 'one two\none two three\n');
    assert.match(text.stderr, /starts again \(attempt 2\): .*The runtime was lost/);
    // `start` and two messages, the warning about the lost runtime, `start` and three messages, the result.
    assert.equal(json.trim().split('\n').length, 9);
    assert.match(all, /succeeded, attempt 2 /);
    assert.match(state, /^ID +FUNCTION[\s\S]*2 attempts: [\s\S]*outputTokens 5/);
  });

  it('tenants set and tenants list show weight and latency targets', async () => {
    assert.match(await ok(['tenants', 'create', 'acme', '--latency', '300,40']), /Created acme/);
    const changed = await pie(['tenants', 'set', 'acme', '--latency', '1500,40', '--weight', '7']);
    assert.match(changed.stdout, /weight 7 and the latency targets 1\.5 s, then 40 ms a token/);
    assert.match(changed.stderr, /pie quota set latency-invocations 16 --tenant acme/);
    assert.match(await ok(['tenants', 'list']), /^acme +7 +1\.5 s, then 40 ms a token +active/m);
    const without = JSON.parse(await ok(['tenants', 'set', 'acme', '--latency', 'none', '--json']));
    assert.deepEqual([without.weight, without.latency], [7, null]);
    const [nothing, wrong] = await Promise.all([
      pie(['tenants', 'set', 'acme']),
      pie(['tenants', 'set', 'acme', '--latency', 'fast']),
    ]);
    assert.match(nothing.stderr, /--weight or --latency/);
    assert.deepEqual([nothing.code, wrong.code], [EXIT.usage, EXIT.usage]);
  });

  it('cancel takes ids, a function or all, and asks before it cancels several', async () => {
    const client = platform.client();
    const ids: string[] = [];
    for (const name of ['echo', 'echo', 'other']) ids.push((await client.submit(name, {})).id);
    const stateOf = async (id = '') => (await client.invocation(id)).status;
    const asked = await spawnPie(['cancel', '--function', 'echo']);
    assert.equal(asked.code, EXIT.usage);
    assert.match(asked.stderr, /Cancel \d+ invocations of echo\?[\s\S]*--yes/);
    assert.equal(await stateOf(ids[0]), 'queued');
    await ok(['cancel', '--function', 'echo', '--yes']);
    assert.deepEqual(await Promise.all(ids.map(stateOf)), ['cancelled', 'cancelled', 'queued']);
    const { code, stdout, stderr } = await pie(['cancel', ids[2] ?? '', 'inv_nothing']);
    assert.equal(code, EXIT.refused, stderr);
    assert.match(stdout, new RegExp(`^${ids[2]} +cancelled\n$`));
    assert.match(stderr, /inv_nothing/);
    const wrong = await Promise.all([pie(['cancel']), pie(['cancel', 'x', '--all'])]);
    for (const each of wrong) assert.equal(each.code, EXIT.usage);
  });

  it('cancel --all means every open invocation, however many there are', async () => {
    // A stub of a gateway with 51 pages of 200 open invocations each: to create 10,200 real ones would take long.
    const gateway = createServer((request, response) => {
      const from = Number(new URL(request.url ?? '', 'http://gateway').searchParams.get('cursor') ?? 0);
      const invocations = Array.from({ length: 200 }, (_, i) => ({ id: `inv_${from + i}` }));
      response.end(JSON.stringify({ invocations, cursor: from < 10_000 ? from + 200 : null }));
    }).listen(0, '127.0.0.1');
    await once(gateway, 'listening');
    try {
      const { port } = gateway.address() as AddressInfo;
      const { stderr } = await spawnPie(['cancel', '--all'], undefined, `http://127.0.0.1:${port}`);
      assert.match(stderr, /Cancel 10200 invocations\?/);
    } finally {
      gateway.closeAllConnections();
      gateway.close();
    }
  });

  it('invoke passes on deadline, webhook, affinity and key, and status shows them', async () => {
    const invokeArgs = ['invoke', 'echo', '--async', '--cancel-after', '5m', '--webhook', 'https://example.com/x'];
    invokeArgs.push('--session-affinity', 'user:4711');
    const id = (await ok([...invokeArgs, '--idempotency-key', 'once'])).trim();
    assert.equal((await platform.scheduler.invocations.get(id))?.deadlineMs, 300_000);
    const { redis, keys } = platform.scheduler.store;
    assert.equal(await redis.hget(keys.invocation(id), 'affinity'), affinityKey('default', 'user:4711'));
    assert.match(await ok(['status', id]), /webhook https:\/\/example\.com\/x: waiting, 0 attempts/);
    const again = await pie([...invokeArgs, '--idempotency-key', 'once', '--json']);
    assert.equal(again.code, EXIT.refused);
    const { code, invocation } = JSON.parse(again.stderr).error;
    assert.deepEqual([code, invocation], ['idempotency-in-flight', id]);
    const [wrongDuration, privateAddress, wrongAffinity] = await Promise.all([
      pie(['invoke', 'echo', '--cancel-after', 'soon']),
      pie(['invoke', 'echo', '--webhook', 'https://10.0.0.1/']),
      pie(['invoke', 'echo', '--session-affinity', 'a b']),
    ]);
    const codes = [wrongDuration.code, privateAddress.code, wrongAffinity.code];
    assert.deepEqual(codes, [EXIT.usage, EXIT.refused, EXIT.usage]);
  });

  it('invoke --async prints the id even when the invocation refuses a message', async () => {
    const { id } = await platform.client().submit('echo', {}, { idempotencyKey: 'ended' });
    await (await platform.attempt(id)).succeed(1);
    const again = ['invoke', 'echo', '--async', '--idempotency-key', 'ended'];
    const { code, stdout, stderr } = await pie([...again, '--message', 'late']);
    assert.deepEqual([code, stdout], [EXIT.refused, `${id}\n`]);
    assert.match(stderr, /has ended/);
  });

  it('logs filters lines, and shows those of all functions when it gets no name', async () => {
    const client = platform.client();
    for (const [name, message] of [
      ['echo', 'from echo'],
      ['other', 'from other'],
    ] as const) {
      const attempt = await platform.attempt((await client.submit(name, {})).id);
      await attempt.append({ event: 'log', data: { level: 'info', message } });
    }
    const [all, one, none, ...wrong] = await Promise.all([
      ok(['logs', '--search', 'FROM']),
      ok(['logs', 'echo', '--since', '1h', '--status', 'running']),
      ok(['logs', 'echo', '--status', 'failed']),
      pie(['logs', 'echo', '--since', 'yesterday']),
      pie(['logs', 'echo', '--follow', '--until', '1h']),
    ]);
    assert.match(all, / echo .*from echo\n.* other .*from other\n$/);
    assert.match(one, /from echo\n$/);
    assert.equal(none, '');
    for (const each of wrong) assert.equal(each.code, EXIT.usage);
  });

  it('webhooks secret shows the secret and rotates it', async () => {
    const first = await ok(['webhooks', 'secret']);
    assert.match(first, /^whsec_/);
    const { secret } = JSON.parse(await ok(['webhooks', 'secret', '--rotate', '--json']));
    assert.notEqual(`${secret}\n`, first);
    assert.equal(await ok(['webhooks', 'secret']), `${secret}\n`);
  });

  it('machines lists machines with state and roles, drains and removes them', async () => {
    const { store } = platform.scheduler;
    assert.match((await pie(['machines'])).stderr, /No machine is registered/);
    const machine = { name: 'east', roles: ['gateway'], host: 'h', pid: 1, version: '1.2.3', gpuHosts: [] } as const;
    const lease = await MachineLease.claim(store, machine, {
      log: silentLog,
      onTaken: () => assert.fail('no other supervisor'),
    });
    assert.match(
      await ok(['machines']),
      /^MACHINE +STATE +ROLES +RUNNING +HOST +VERSION +STARTED\neast +there +gateway +0 +h +1\.2\.3 /,
    );
    assert.equal(await ok(['machines', 'drain', 'east']), 'Drained east. Nothing runs there.\n');
    assert.match(await ok(['machines']), /\neast +drained /);
    assert.equal(await ok(['machines', 'undrain', 'east']), 'east takes new invocations.\n');

    // Another operator undrains the machine during the second poll, and its last invocation ends before the third poll. In the second round,
    // the machine also dies during the second poll.
    const { drains, runtimes } = platform.scheduler;
    const list = runtimes.list.bind(runtimes);
    const die = async () => {
      lease.abandon();
      await store.redis.del(store.keys.machineLease('east'));
    };
    for (const meanwhile of [async () => undefined, die]) {
      let polls = 0;
      runtimes.list = async () => {
        const poll = ++polls;
        const runtimesNow = await list();
        if (poll === 2) {
          await drains.undrainMachine(machine);
          await meanwhile();
        }
        const load = { running: poll < 3 ? 1 : 0 };
        return runtimesNow.map((runtime) => ({ ...runtime, machine: 'east', accepting: false, load }));
      };
      const waiting = await pie(['machines', 'drain', 'east', '--wait']);
      runtimes.list = list;
      assert.equal(waiting.code, EXIT.refused, waiting.stdout);
      assert.match(waiting.stderr, /east is no longer drained/);
      assert.equal(polls, 3);
    }
    assert.match((await pie(['machines', 'token'])).stderr, /Redis of this platform is private to its machine/);

    await ok(['machines', 'drain', 'east']);
    assert.match(await ok(['machines']), /\neast +drained, gone /);
    await ok(['machines', 'remove', 'east']);
    await store.redis.hset(store.keys.joinedMachines, 'west', JSON.stringify({ roles: ['runtime'], joinedAt: 1 }));
    assert.match(await ok(['machines']), /\nwest +stopped /);
    await drains.drainMachine({ name: 'west', gpuHosts: [] }, { by: 'key', force: true });
    assert.match(await ok(['machines']), /\nwest +drained, stopped /);
    assert.match((await pie(['machines', 'undrain', 'west'])).stderr, /west is stopped.*\n.*what to do: Start it/);
    await drains.undrain(machineEntry('west'));
    await store.redis.hdel(store.keys.joinedMachines, 'west');
  });

  it('ps --hosts shows models, load and connection of each GPU host', async () => {
    const hosted = { name: 'tiny', backend: 'cuda', precision: 'bf16', pageSize: 16, pageCount: 64 };
    const memory = { takenBytes: 3 * 2 ** 30, totalBytes: 4 * 2 ** 30 };
    platform.lease.reportLoad(() => ({
      running: 2,
      gpuHosts: { 'gpu-host-3': 2 },
      models: [
        {
          model: 'tiny',
          hostId: 'a',
          pages: 64,
          freePages: 50,
          cachedPages: 4,
          idlePages: 0,
          readAt: Date.now(),
          batchSize: 2.5,
          utilisation: 0.42,
          hitRate: 0,
          tokensPerSecond: 1,
          waitingCalls: 0,
          terminations: 0,
        },
      ],
      encoders: [
        {
          encoder: 'minilm',
          kind: 'embedding',
          hostId: 'a',
          device: { name: 'CPU' },
          batchSize: 8,
          utilisation: 0.3,
          textsPerSecond: 90,
          tokensPerSecond: 900,
          waitingCalls: 1,
          maxBatchTokens: 250,
          latency: [{ tokens: 128, msPerToken: 0.1 }],
        },
        {
          encoder: 'reranker',
          kind: 'reranker',
          hostId: 'b',
          device: { name: 'CPU' },
          batchSize: 0,
          utilisation: 0,
          textsPerSecond: 0,
          tokensPerSecond: 0,
          waitingCalls: 0,
          maxBatchTokens: 250,
          latency: [],
        },
      ],
    }));
    // The lease writes this description together with the load.
    await platform.lease.describe({
      isolation: { layers: 'process', notice: 'Namespaces do not work here.' },
      limits: { memory: 'rlimit', demotion: 'autogroup', notice: 'No cgroups.' },
      gpuHosts: [
        {
          name: 'gpu-host-1',
          connected: true,
          hostId: 'a',
          models: [{ ...hosted, device: { name: 'A card', index: 0, memory } }],
        },
        { name: 'gpu-host-2', connected: false, models: [] },
        { name: 'gpu-host-3', connected: true, hostId: 'b', drain: { since: 1 }, models: [] },
        { name: 'gpu-host-4', connected: true, drain: { since: 1 }, models: [] },
      ],
    });
    const { id } = await platform.client().submit('echo', {});
    const attempt = await platform.attempt(id);
    await attempt.start();
    assert.match(await ok(['ps']), new RegExp(`GPU HOST\\n[^]*${id} .* gpu-host-1\\n`));
    await attempt.succeed(1);
    const [table, lines, wrong, unknown] = await Promise.all([
      ok(['gpu-hosts']),
      ok(['ps', '--hosts', '--json']),
      pie(['ps', '--hosts', '--watch']),
      pie(['gpu-hosts', 'drain', 'gpu-host-9']),
    ]);
    assert.match(table, /^GPU HOST +STATE +RUNNING +MODEL +BACKEND +DEVICE +MEMORY +PAGES +BUSY +BATCH\n/);
    assert.match(
      table,
      /gpu-host-1 +there +0 +tiny +cuda, bf16 +0: A card +3\.0 GiB of 4\.0 GiB +10 of 64 +42% +2\.5\ngpu-host-1 +there +0 +minilm +embedding +CPU +- +- +30% +8\ngpu-host-2 +away +0 +-/,
    );
    assert.equal(unknown.code, EXIT.refused);
    assert.match(unknown.stderr, /no GPU host "gpu-host-9"/);
    assert.match(table, /gpu-host-3 +draining +2 +reranker +reranker +CPU +- +- +0% +-\ngpu-host-4 +drained +0 /);
    const [first, second] = lines
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.deepEqual([first.name, first.load[0].gpuHost, second.connected], ['gpu-host-1', 'gpu-host-1', false]);
    assert.deepEqual([first.encoders[0].encoder, first.encoders[0].textsPerSecond], ['minilm', 90]);
    assert.deepEqual(first.encoders[0].latency, [{ tokens: 128, msPerToken: 0.1 }]);
    pending = [
      { name: 'story', isAwaited: true, state: 'building', tries: 0 },
      { name: 'rerank', isAwaited: false, state: 'failed', tries: 2, why: 'The store is full.', nextTryAt: 0 },
    ];
    const { stdout } = await spawnPie(['doctor']);
    const listed = await pie(['list']);
    pending = [];
    assert.match(
      stdout,
      /warn {2}functions: rerank failed 2 times \(The store is full\.\), .*; story is being built\n +what to do: .* still deploying them, /,
    );
    assert.match(listed.stdout, /^echo /m);
    assert.match(
      listed.stderr,
      /^story came with Pie, and is being built\.\nrerank came with Pie, and could not be deployed \(2 failed attempts: The store is full\.\)\. The next try comes at 1970-/m,
    );
    assert.match(stdout, /ok {4}gpu-host-1: tiny by cuda, bf16 on 0: A card\nFAIL {2}gpu-host-2: not connected yet\n/);
    assert.match(stdout, /warn {2}isolation of test-runtime: process\n +what to do: Namespaces do not work here\.\n/);
    assert.match(
      stdout,
      /warn {2}limits of test-runtime: memory by rlimit, demotion by autogroup\n +what to do: No cgroups\.\n/,
    );
    assert.equal(wrong.code, EXIT.usage);
    assert.match(wrong.stderr, /what to do: Use `watch pie ps --hosts`/);

    // `drain --wait` goes on waiting while the runtime restarts: the three lists have a runtime with invocations on the host, then no runtime,
    // then a runtime without invocations.
    const { runtimes } = platform.scheduler;
    const list = runtimes.list.bind(runtimes);
    const idle = async () => (await list()).map((runtime) => ({ ...runtime, load: { running: 0 } }));
    const answers = [list, async () => [], idle];
    runtimes.list = () => (answers.shift() ?? idle)();
    assert.equal(await ok(['gpu-hosts', 'drain', 'gpu-host-3', '--wait']), 'Drained gpu-host-3. Nothing runs there.\n');
    assert.equal(answers.length, 0);
    runtimes.list = list;
    // Another operator undrains the host: the runtime reports no drain in the second list.
    const undrained = async () =>
      (await list()).map(({ gpuHosts = [], ...runtime }) => ({
        ...runtime,
        gpuHosts: gpuHosts.map(({ drain: _, ...host }) => host),
      }));
    answers.push(list, undrained);
    runtimes.list = () => (answers.shift() ?? idle)();
    const interrupted = await pie(['gpu-hosts', 'drain', 'gpu-host-3', '--wait']);
    runtimes.list = list;
    assert.equal(interrupted.code, EXIT.refused, interrupted.stdout);
    assert.match(interrupted.stderr, /gpu-host-3 is no longer drained/);
  });

  it('pass on no escape sequence that a function or a caller wrote, also into a pipe', async () => {
    const hostile = 'a\x1b[2Jb\x9bc';
    const { id } = await platform.client().submit('echo', {});
    const attempt = await platform.attempt(id);
    await attempt.start();
    await attempt.append({ event: 'log', data: { level: 'warn', message: hostile } });
    await attempt.say(hostile);
    await attempt.fail('inferlet-error', hostile);
    const { id: second } = await platform.client().submit('echo', {});
    await (await platform.attempt(second)).succeed({ text: hostile });
    const commands = [
      ['attach', id],
      ['attach', second],
      ['status', id],
      ['logs', 'echo'],
      ['ps', '--all'],
      ['invoke', hostile],
    ];
    for (const args of commands) {
      for (const format of [[], ['--json']]) {
        const { stdout, stderr } = await pie([...args, ...format]);
        for (const control of ['\x1b', '\x9b'])
          assert.ok(!`${stdout}${stderr}`.includes(control), JSON.stringify([args, stdout, stderr]));
      }
    }
    assert.match((await pie(['attach', id])).stdout, /a\ufffd\[2Jb/);
  });
});
