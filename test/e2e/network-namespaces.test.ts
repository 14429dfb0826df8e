import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Redis } from 'ioredis';
import { deployWith } from '#test/harness/deploy.ts';
import { hold, invoke, json, readEvents, type StreamEvent, text } from '#test/harness/events.ts';
import { Network } from '#test/harness/network.ts';
import { newHome, Platform, ROOT, runProgram, until } from '#test/harness/platform.ts';

/** In their order: a runtime serves once it reaches a GPU host. */
const ROLES = { 'gpu-1': 'gpu-host', 'run-1': 'runtime', 'run-2': 'runtime' } as const;
type Joined = keyof typeof ROLES;

const STORY = { prompt: 'Once upon a time', maxTokens: 24, temperature: 0 };
const HELD = { mark: 'held', tokens: 4, listenAt: 2 };
const REDIS_PORT = 6379;
/** Invocations of which one must succeed after a machine has lost its way to another. */
const TRIES = 8;

const ends = (events: readonly StreamEvent[]) =>
  events.filter(({ event }) => event === 'result' || event === 'error').map(({ event, data }) => data.code ?? event);

/** Each machine has a network of its own, joined by a switch, and a home of its own. */
describe('machines on a network', { skip: Network.missing() }, () => {
  const password = randomBytes(16).toString('hex');
  const machines = new Map<string, Platform>();
  let network: Network;
  let directory: string | undefined;
  let redis: ChildProcess | undefined;
  let admin: Redis;
  let front: Platform;
  before(async () => {
    network = new Network(['front', ...Object.keys(ROLES)]);
    directory = await mkdtemp(path.join(os.tmpdir(), 'pie-n-'));
    const at = network.address('front');
    const [command = '', ...words] = network.on('front');
    const server = ['redis-server', '--port', String(REDIS_PORT), '--bind', at, '--requirepass', password];
    redis = spawn(command, [...words, ...server, '--dir', directory, '--save', ''], { stdio: 'ignore' });
    admin = new Redis({ host: at, port: REDIS_PORT, password });
    admin.on('error', () => undefined);
    await admin.ping();
    front = await Platform.start({
      functions: ['text-completion'],
      on: network.on('front'),
      env: {
        REDIS_URL: `redis://default:${password}@${at}:${REDIS_PORT}`,
        ...{ PIE_MACHINE: 'front', PIE_ROLES: 'gateway', PIE_ADDRESS: at, PIE_HOST: at },
      },
    });
  });
  after(async () => {
    await Promise.all([...machines.values()].map((machine) => machine[Symbol.asyncDispose]()));
    await front?.[Symbol.asyncDispose]();
    admin?.disconnect();
    redis?.kill('SIGKILL');
    network?.[Symbol.dispose]();
    if (directory !== undefined) await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  });

  async function join(name: Joined): Promise<void> {
    const home = await newHome();
    const role = ROLES[name];
    const made = await front.pie(['machines', 'token', '--role', role, '--json']);
    const { token } = JSON.parse(made.stdout) as { token: string };
    const [command = '', ...words] = network.on(name);
    const flags = ['--token', token, '--name', name, '--role', role, '--no-start'];
    const bin = path.join(ROOT, 'gateway/cli/bin.js');
    const { code, stderr } = await runProgram(command, [...words, process.execPath, bin, 'join', front.url, ...flags], {
      env: { PATH: process.env.PATH, HOME: process.env.HOME, PIE_HOME: home },
      cwd: ROOT,
    });
    assert.equal(code, 0, stderr);
    const settings = readFileSync(path.join(home, 'pie.toml'), 'utf8');
    assert.ok(settings.includes(network.address(name)), 'the machine finds its own address');
    machines.set(name, await Platform.start({ home, functions: false, on: network.on(name) }));
  }

  const load = async () => json(await front.fetch('/v1/load'));
  const isThere = async (machine: string) =>
    (await load()).runtimes.some((each: { machine: string; alive: boolean }) => each.machine === machine && each.alive);
  const runnerOf = async (id: string): Promise<string> => {
    const runtimes = await admin.hgetall('pie:runtimes');
    const record = await admin.hgetall(`pie:invocation:${id}`);
    const { machine } = JSON.parse(runtimes[record.runtimeId ?? ''] ?? '{}') as { machine?: string };
    return machine ?? assert.fail(JSON.stringify(record));
  };
  const succeeds = async () => {
    for (let i = 0; i < TRIES; i++) {
      const events = await invoke(front, 'text-completion', STORY);
      assert.equal(ends(events).length, 1, JSON.stringify(ends(events)));
      if (ends(events)[0] === 'result') return text(events);
    }
    return assert.fail(`none of ${TRIES} invocations succeeded`);
  };

  test('join with a token alone, and an inferlet streams a story across', async () => {
    for (const name of Object.keys(ROLES) as Joined[]) await join(name);
    await deployWith(front, 'counted', {});
    await until('the story can be invoked', async () => (await front.fetch('/v1/functions/text-completion')).ok);
    assert.ok((await succeeds()).length > 40);
  });

  test('let an outsider on the network use no port', async () => {
    for (const [name, port] of [
      ['gpu-1', 7400],
      ['run-1', 7500],
      ['run-2', 7500],
    ] as const) {
      const socket = connect(port, network.address(name)).on('error', () => undefined);
      let got = '';
      socket.on('data', (chunk: Buffer) => {
        got += chunk.toString('latin1');
      });
      socket.write('GET / HTTP/1.1\r\n\r\n');
      await once(socket, 'close');
      assert.equal(got, '', name);
    }
  });

  test('a runtime that hears nothing of its GPU host any more ends its invocation, and the other runtime goes on', async () => {
    const held = await hold(front, 'counted', HELD);
    const runner = await runnerOf(held.id);
    network.mute('gpu-1', runner);
    try {
      assert.deepEqual(ends(await held.ended), ['device-lost']);
      await succeeds();
    } finally {
      network.unmute('gpu-1', runner);
    }
  });

  const CUTS = [
    {
      title: 'a machine whose cable is pulled',
      cut: (machine: string) => network.cut(machine),
      heal: (machine: string) => network.heal(machine),
    },
    {
      title: 'a machine whose messages to the gateway and Redis are lost',
      cut: (machine: string) => network.mute(machine, 'front'),
      heal: (machine: string) => network.unmute(machine, 'front'),
    },
  ];
  for (const { title, cut, heal } of CUTS)
    test(`${title} loses its invocation once; the next one works, and the machine comes back`, async () => {
      const held = await hold(front, 'counted', HELD);
      const lost = await runnerOf(held.id);
      cut(lost);
      try {
        assert.deepEqual(ends(await held.ended), ['runtime-lost']);
        await succeeds();
        assert.equal(await isThere(lost), false);
      } finally {
        heal(lost);
      }
      await until('the machine is back', () => isThere(lost));
      await succeeds();
      const log = await front.fetch(`/v1/invocations/${held.id}/events`);
      assert.deepEqual(ends(await readEvents(log)), ['runtime-lost'], 'what came back has written nothing');
    });
});
