import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { Redis } from 'ioredis';
import { LIFELINE_VARIABLE } from '#infra/lifeline.ts';
import { type MachineCertificate, newCertificate, readCertificate } from '#infra/links/security.ts';
import { encodeFrame } from '#scheduler/live/live.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { hold, invoke, terminal, text } from '#test/harness/events.ts';
import { freePort, newHome, Platform, type ProgramResult, ROOT, runProgram, until } from '#test/harness/platform.ts';

const STORY = { prompt: 'Once upon a time', maxTokens: 24, temperature: 0 };
/** Input of the inferlet `counted`: it counts its runs as `held` in the store, writes 4 tokens, and waits for a message after the second token. */
const HELD = { mark: 'held', tokens: 4, listenAt: 2 };
/** Longest wait for a peer to close a connection. */
const WAIT_MS = 120_000;

// These tests start four machines that share no file; each has a home and a loopback address of its own. One has the gateway, two have
// runtimes, and one has the GPU host. `pie join` alone sets up all machines but the one with the gateway.

const password = randomBytes(16).toString('hex');
const subnet = `127.${randomInt(16, 250)}.${randomInt(256)}`;
const ADDRESSES = {
  front: `${subnet}.1`,
  'run-1': `${subnet}.2`,
  'run-2': `${subnet}.3`,
  'gpu-1': `${subnet}.4`,
} as const;
const GPU_HOST = { host: ADDRESSES['gpu-1'], port: 7400 };
const RUNTIMES = {
  'run-1': { host: ADDRESSES['run-1'], port: 7500 },
  'run-2': { host: ADDRESSES['run-2'], port: 7500 },
};
type Runner = keyof typeof RUNTIMES;

let redisDirectory: string;
let redis: ChildProcess;
let redisPort: number;
let admin: Redis;
let front: Platform;
/** The process of `pie join` for the machine gpu-1, which becomes that machine's supervisor. */
let gpuHost: ChildProcess | undefined;
let gpuHome: string | undefined;
/** The running machines with runtimes, by name. */
const machines = new Map<string, Platform>();
before(async () => {
  redisDirectory = await mkdtemp(path.join(os.tmpdir(), 'pie-r-'));
  redisPort = await freePort();
  redis = spawn(
    'redis-server',
    [
      ...['--port', String(redisPort), '--bind', ADDRESSES.front, '--requirepass', password],
      ...['--dir', redisDirectory, '--save', ''],
    ],
    { stdio: 'ignore' },
  );
  process.once('exit', () => redis.kill('SIGKILL'));
  admin = new Redis({ host: ADDRESSES.front, port: redisPort, password });
  admin.on('error', () => undefined);
  await admin.ping();
  front = await Platform.start({
    functions: ['text-completion'],
    env: {
      REDIS_URL: `redis://default:${password}@${ADDRESSES.front}:${redisPort}`,
      PIE_MACHINE: 'front',
      PIE_ROLES: 'gateway',
      PIE_ADDRESS: ADDRESSES.front,
    },
  });
});
after(async () => {
  await Promise.all([...machines.values()].map((machine) => machine[Symbol.asyncDispose]()));
  if (gpuHost && gpuHost.exitCode === null) {
    const gone = once(gpuHost, 'close');
    gpuHost.kill('SIGTERM');
    await gone;
  }
  await front?.[Symbol.asyncDispose]();
  admin?.disconnect();
  redis?.kill('SIGKILL');
  for (const directory of [redisDirectory, gpuHome])
    if (directory !== undefined) await rm(directory, { recursive: true, force: true, maxRetries: 10 });
});

const newToken = async (): Promise<string> => {
  const { stdout, stderr } = await front.pie(['machines', 'token', '--json']);
  assert.ok(stdout.startsWith('{'), stderr);
  return (JSON.parse(stdout) as { token: string }).token;
};
const environment = (home: string) => ({ PATH: process.env.PATH, HOME: process.env.HOME, PIE_HOME: home });
const join = (home: string, token: string, ...more: string[]): Promise<ProgramResult> =>
  runProgram(process.execPath, [path.join(ROOT, 'gateway/cli/bin.js'), 'join', front.url, '--token', token, ...more], {
    env: environment(home),
    cwd: ROOT,
  });

/** Joins as gpu-1 by the command `pie join`, which goes on as the machine's supervisor. Resolves when the machine serves. */
async function joinGpuHost(home: string): Promise<void> {
  const flags = ['--name', 'gpu-1', '--role', 'gpu-host', '--address', ADDRESSES['gpu-1']];
  const command = [path.join(ROOT, 'gateway/cli/bin.js'), 'join', front.url, '--token', await newToken(), ...flags];
  // The machine ends when its standard input closes, so it also ends when this process is killed.
  const env = { ...environment(home), [LIFELINE_VARIABLE]: 'stdin' };
  gpuHost = spawn(process.execPath, command, { env, cwd: ROOT, stdio: ['pipe', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [gpuHost.stdout, gpuHost.stderr])
    stream?.setEncoding('utf8').on('data', (chunk: string) => {
      output += chunk;
    });
  await until('the machine serves', () => {
    assert.equal(gpuHost?.exitCode, null, output);
    return output.includes('the machine gpu-1 serves as gpu-host');
  });
  assert.equal(existsSync(path.join(home, 'master.key')), false, 'a GPU host opens no secret');
}

/** Joins as a machine with a runtime, by a command that only writes the machine's files, and then starts the machine. */
async function joinRunner(name: Runner): Promise<void> {
  const home = await newHome();
  const flags = ['--name', name, '--role', 'runtime', '--address', ADDRESSES[name], '--no-start'];
  const { code, stdout, stderr } = await join(home, await newToken(), ...flags);
  assert.equal(code, 0, stderr);
  assert.match(stdout, new RegExp(`^Joined as ${name} \\(runtime\\)`));
  for (const file of ['pie.toml', 'machine.pem', 'master.key'])
    assert.equal(statSync(path.join(home, file)).mode & 0o777, 0o600);
  assert.ok(!readFileSync(path.join(home, 'pie.toml'), 'utf8').includes(password));
  machines.set(name, await Platform.start({ home, functions: false }));
}

/**
 * Sends `bytes` and returns all that the peer answers until it closes the connection. If the peer does not close the connection within `WAIT_MS`,
 * the result begins with `open `.
 */
async function answerTo(socket: Socket, bytes: string): Promise<string> {
  let answer = '';
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  socket.on('data', (chunk: Buffer) => {
    answer += chunk.toString('latin1');
  });
  socket.write(bytes);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  await Promise.race([closed, new Promise((resolve) => setTimeout(resolve, WAIT_MS).unref())]);
  const isOpen = !socket.destroyed;
  socket.destroy();
  return isOpen ? `open ${answer}` : answer;
}

/**
 * Asserts that a port closes a connection without an answer. An accepted peer would get an answer to the frame that is sent here: a GPU host answers
 * any first frame, and a runtime answers a gateway that names itself as a submitter of invocations.
 */
async function assertRefused(address: { host: string; port: number }, certificate?: MachineCertificate): Promise<void> {
  const credentials = certificate && { key: certificate.key, cert: certificate.certificate };
  const frame = encodeFrame(['submitter', 'x']).toString();
  assert.equal(await answerTo(connectTls({ ...address, ...credentials, rejectUnauthorized: false }), frame), '');
}

/** The terminal events: the code of each `error`, and `result` for each `result`. */
const endings = (events: Awaited<ReturnType<typeof invoke>>) =>
  events.filter(({ event }) => event === 'result' || event === 'error').map(({ event, data }) => data.code ?? event);

/** True if the kernel's table of sockets has an open connection from any process of this computer to the address. */
function isConnectedTo({ host, port }: { host: string; port: number }): boolean {
  const hex = Buffer.from(host.split('.').map(Number).reverse()).toString('hex').toUpperCase();
  const remote = `${hex}:${port.toString(16).toUpperCase()}`;
  const rows = readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/));
  // State 01 is an established connection.
  return rows.some(([, , to, state]) => to === remote && state === '01');
}

test('machines join with a token each; a wrong token and a taken name leave nothing behind', async () => {
  const token = await newToken();
  const home = path.join(redisDirectory, 'never');
  const flags = ['--name', 'gpu-1', '--role', 'gpu-host', '--no-start'];
  const wrong = await join(home, token.replace(/.{8}$/, 'AAAAAAAA'), ...flags);
  assert.deepEqual([wrong.code, existsSync(home)], [2, false]);
  assert.match(wrong.stderr, /The token is unknown, used or expired/);
  gpuHome = await newHome();
  await joinGpuHost(gpuHome);
  await Promise.all([joinRunner('run-1'), joinRunner('run-2')]);
  const taken = await join(home, await newToken(), ...flags);
  assert.match(taken.stderr, /"gpu-1" is already registered or has already joined/);
  assert.equal(existsSync(home), false);
  const { stdout } = await front.pie(['machines']);
  for (const name of Object.keys(ADDRESSES)) assert.match(stdout, new RegExp(`^${name} +there `, 'm'));
});

test('an inferlet streams a story from another machine, over a connection between them', async () => {
  await deployWith(front, 'counted', {});
  await until('the story can be invoked', async () => (await front.fetch('/v1/functions/text-completion')).ok);
  const events = await invoke(front, 'text-completion', STORY);
  assert.equal(terminal(events)?.event, 'result', JSON.stringify(terminal(events)));
  assert.ok(text(events).length > 40, text(events));
  await until('the gateway follows a runtime', () => Object.values(RUNTIMES).some(isConnectedTo));
});

test('an outsider can use no port', async () => {
  const outsider = await newCertificate('run-1', Date.now());
  for (const where of [GPU_HOST, ...Object.values(RUNTIMES)]) {
    assert.equal(await answerTo(connect(where), 'GET / HTTP/1.1\r\n\r\n'), '', 'plain TCP');
    await assertRefused(where);
    await assertRefused(where, outsider);
  }
  const bare = connect({ host: ADDRESSES.front, port: redisPort });
  assert.match(await answerTo(bare, 'PING\r\nGET {pie}:machines\r\nQUIT\r\n'), /^-NOAUTH .*\r\n-NOAUTH /);
  assert.equal((await fetch(`${front.url}/v1/load`)).status, 401);
});

test('an invocation gets one terminal event after kill -9 of its machine, and the next one runs on the other machine', async () => {
  const held = await hold(front, 'counted', HELD);
  const running = Object.keys(RUNTIMES) as Runner[];
  const runtimes = (await admin.hgetall('pie:runtimes')) ?? {};
  const record = await admin.hgetall(`pie:invocation:${held.id}`);
  const runtime = JSON.parse(runtimes[record.runtimeId ?? ''] ?? '{}') as { machine?: Runner };
  const killed = running.find((name) => name === runtime.machine) ?? assert.fail(JSON.stringify(record));
  const platform = machines.get(killed) ?? assert.fail(killed);
  for (const pid of platform.pids()) process.kill(pid, 'SIGKILL');
  await platform.kill();
  machines.delete(killed);
  await platform[Symbol.asyncDispose]();
  assert.deepEqual(endings(await held.ended), ['runtime-lost']);
  const events = await invoke(front, 'text-completion', STORY);
  assert.deepEqual(endings(events), ['result']);
  assert.ok(text(events).length > 40);
});

test('a removed machine can use no port, and its supervisor stops', async () => {
  const [name] = (Object.keys(RUNTIMES) as Runner[]).filter((each) => machines.has(each));
  const platform = machines.get(name ?? '') ?? assert.fail('no runtime is left');
  const certificate = readCertificate(platform.home) ?? assert.fail('no certificate');
  const { url } =
    /url = "(?<url>[^"]+)"/.exec(readFileSync(path.join(platform.home, 'pie.toml'), 'utf8'))?.groups ?? {};
  const redisOfMachine = new Redis(url ?? '', { maxRetriesPerRequest: 0, retryStrategy: () => null });
  redisOfMachine.on('error', () => undefined);
  assert.equal(await redisOfMachine.ping(), 'PONG');
  const accepted = connectTls({
    ...GPU_HOST,
    key: certificate.key,
    cert: certificate.certificate,
    rejectUnauthorized: false,
  });
  accepted.on('error', () => undefined);
  await once(accepted, 'secureConnect');
  const connectionCut = once(accepted.resume(), 'close');
  const redisClosed = once(redisOfMachine, 'end');
  const stopped = platform.exit();
  assert.equal((await front.pie(['machines', 'remove', name ?? ''])).code, 0);
  await Promise.all([connectionCut, redisClosed]);
  assert.equal(await stopped, 1);
  await assertRefused(GPU_HOST, certificate);
  const users = (await admin.call('ACL', 'USERS')) as string[];
  assert.equal(users.includes(`pie-machine-${name}`), false);
  const again = await runProgram(process.execPath, [path.join(ROOT, 'infra/up.ts'), '--no-functions'], {
    env: environment(platform.home),
    cwd: ROOT,
  });
  assert.equal(again.code, 1);
  assert.match(again.stderr, /cannot be used: .*WRONGPASS/);
});
