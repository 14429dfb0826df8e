import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { ensureCertificate, PeerList } from '#infra/links/security.ts';
import { type LinkSecurity, toMachine } from '#scheduler/links/security.ts';
import { TestMachine } from '#scheduler/links/testing/machine.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { GpuHost } from '../server/gpu-host.ts';
import { generate, startTestHost, type TestHost } from '../testing/host.ts';
import { GpuHostConnection } from './client.ts';
import { TenantLinks } from './link.ts';
import { HELLO_VERSION, LONGEST_OPENING_MS } from './wire.ts';

const DAY_MS = 86_400_000;
/** Deadline of connections that must be refused: each of them is retried until its deadline. */
const REFUSED_MS = 300;

let directory: string;
let machines: TestMachine[];
let model: TestHost;
let tcp: GpuHost;
let address: string;
before(async () => {
  directory = mkdtempSync(path.join(tmpdir(), 'pie-l-'));
  machines = [];
  for (const name of ['host', 'runtime', 'stranger']) {
    mkdirSync(path.join(directory, name));
    machines.push(new TestMachine(name, await ensureCertificate(path.join(directory, name), name, Date.now())));
  }
  model = await startTestHost();
  const [host] = machines as [TestMachine];
  tcp = new GpuHost([model.host.engines[0]!.model], { log: silentLog, security: host });
  address = await tcp.listen('127.0.0.1:0');
});
after(async () => {
  for (const connection of connections) connection.close();
  await tcp.close();
  await model[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true });
});

/** Makes every machine accept the host and the runtime, but not the stranger. Clears the refusals that the machines have recorded. */
function joinMachines(): [TestMachine, TestMachine, TestMachine] {
  const [host, runtime, stranger] = machines as [TestMachine, TestMachine, TestMachine];
  host.accept(host, runtime);
  for (const each of [runtime, stranger]) each.accept(host, runtime);
  for (const each of machines) each.refusalReasons.length = 0;
  return [host, runtime, stranger];
}
const connections: GpuHostConnection[] = [];
const openConnection = async (security?: LinkSecurity, deadlineMs = 20_000): Promise<GpuHostConnection> => {
  const connection = await GpuHostConnection.connect(address, { security, deadlineMs });
  connections.push(connection);
  return connection;
};
/** Tries to connect until `by` has recorded a refusal that matches `why`. On a busy machine a try may reach its deadline before the handshake. */
const assertRefused = async (by: TestMachine, why: RegExp, security?: LinkSecurity): Promise<void> => {
  let tries = 0;
  do {
    assert.ok(tries++ < 20, by.refusalReasons.join('\n'));
    await assert.rejects(openConnection(security, REFUSED_MS), /no GPU host answered/);
  } while (!why.test(by.refusalReasons.join('\n')));
};

test('registered machines exchange frames under load; the end of a registration ends the connection', async () => {
  const [host, runtime] = joinMachines();
  const connection = await openConnection(runtime);
  const generateOnce = async (i: number) => {
    const inferlet = connection.openInferlet({ id: `i${i}`, maxPages: 8, arrival: i });
    const tokens = await generate(inferlet, inferlet.createQueue('tiny'), [1, 5], 20);
    await inferlet.close();
    return tokens;
  };
  const plain = await model.connect();
  const inferlet = plain.openInferlet({ id: 'plain', maxPages: 8, arrival: 1 });
  const expected = await generate(inferlet, inferlet.createQueue('tiny'), [1, 5], 20);
  plain.close();
  for (let round = 0; round < 5; round++)
    for (const tokens of await Promise.all([1, 2, 3, 4].map(generateOnce))) assert.deepEqual(tokens, expected);
  const lost = new Promise<string>((resolve) => connection.onLost(resolve));
  host.accept(host);
  await lost;
  // The runtime has one connection for the host's state, and one for its tenant.
  const unknown = 'a connection from 127.0.0.1 shows a certificate of no registered machine';
  assert.deepEqual(host.refusalReasons, [unknown, unknown]);
  connection.close();
  await assert.rejects(openConnection(runtime, REFUSED_MS), /no GPU host answered/, 'a removed machine');
});

test('a runtime ends its connection to a machine that was removed from its list, and refuses to connect again', async () => {
  const [, runtime] = joinMachines();
  const connection = await openConnection(runtime);
  const lost = new Promise<string>((resolve) => connection.onLost(resolve));
  runtime.accept(runtime);
  assert.match(await lost, new RegExp(`${address} shows a certificate of no registered machine`));
  connection.close();
  await assertRefused(runtime, /no registered machine/, runtime);
  assert.equal(runtime.refusalReasons.at(0), `the GPU host at ${address} shows a certificate of no registered machine`);
});

test('a runtime that expects a GPU host on one machine refuses the certificate of another machine', async () => {
  const [, runtime] = joinMachines();
  await openConnection(toMachine(runtime, 'host'));
  await assertRefused(runtime, /not of runtime/, toMachine(runtime, 'runtime'));
  assert.equal(
    runtime.refusalReasons.at(0),
    `the GPU host at ${address} shows the certificate of host, not of runtime`,
  );
});

test('strangers, peers without a certificate and plain TCP are refused, and the log says why', async () => {
  const [host, , stranger] = joinMachines();
  await assertRefused(host, /127\.0\.0\.1 shows a certificate of no registered machine/, stranger);
  host.refusalReasons.length = 0;
  // Plain TCP.
  await assertRefused(host, /a connection from 127\.0\.0\.1: ERR_SSL_/);
  host.refusalReasons.length = 0;
  const port = Number(address.split(':')[1]);
  const bare = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false }).on('error', () => undefined);
  bare.resume();
  await once(bare, 'close');
  // The host may notice the end of the last plain connection only now, and log that as well.
  assert.ok(
    host.refusalReasons.includes('a connection from 127.0.0.1 shows no certificate'),
    host.refusalReasons.join('\n'),
  );
  // A connection that ends before its handshake must not end the host.
  const silent = connect(port, '127.0.0.1').on('error', () => undefined);
  await once(silent, 'connect');
  silent.destroy();
});

test('without certificates, neither side uses an address that other machines reach', async () => {
  assert.throws(() => GpuHostConnection.open('10.0.0.5:7400'), /need certificates, and there are none for 10\.0\.0\.5/);
  const bare = new GpuHost([model.host.engines[0]!.model], { log: silentLog });
  await assert.rejects(bare.listen('0.0.0.0:0'), /need certificates/);
});

test('a link to another machine is lost when no handshake comes within `LONGEST_OPENING_MS`', async (t) => {
  const [, runtime] = joinMachines();
  const silent = createServer((socket) => socket.on('error', () => undefined).resume()).listen(0, '127.0.0.1');
  t.after(() => silent.close());
  await once(silent, 'listening');
  const { port } = silent.address() as { port: number };
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const links = new TenantLinks(`127.0.0.1:${port}`, 'any', HELLO_VERSION, { security: runtime });
  const link = links.of('a');
  // Two ticks: a deadline of 5 s, as servers have for handshakes, would end the link with another text.
  for (const ms of [5000, LONGEST_OPENING_MS - 5000]) {
    t.mock.timers.tick(ms);
    await new Promise(setImmediate);
  }
  assert.equal(link.lost?.val, `the GPU host did not answer within ${LONGEST_OPENING_MS} ms`);
  links.close('the test is over');
});

test('a certificate is readable for its owner only, survives restarts, and is renewed in the last 30 of its 365 days', async () => {
  const home = path.join(directory, 'host');
  const now = Date.now();
  const first = await ensureCertificate(home, 'host', now);
  assert.equal(statSync(path.join(home, 'machine.pem')).mode & 0o777, 0o600);
  assert.deepEqual(await ensureCertificate(home, 'host', now + 334 * DAY_MS), first);
  assert.notEqual((await ensureCertificate(home, 'host', now + 336 * DAY_MS)).fingerprint, first.fingerprint);
});

test('a certificate that the registry lacks is refused after a while, or at once when an operator has removed it', () => {
  // The list keeps a certificate for 5 s after the last read that had it. Gaps of at most 5 s between two reads count in full.
  const peers = new PeerList(5000, 5000);
  const [east, west] = [['a', 'east'] as const, ['b', 'west'] as const];
  assert.deepEqual(peers.update([west, east], [], 0), { a: 'east', b: 'west' });
  assert.deepEqual(peers.update([east], [], 4999), { a: 'east', b: 'west' });
  assert.deepEqual(peers.update([east], [], 5000), { a: 'east' });
  assert.deepEqual(peers.update([east, west], ['a'], 5001), { b: 'west' });
  assert.deepEqual(peers.update([], ['a'], 5002), { b: 'west' });
});

test('an outage of the registry counts as one interval between reads, so that an empty registry may be filled again', () => {
  // The registry is read every second. The gap of a minute is an outage and counts as one second.
  const peers = new PeerList(5000, 1000);
  const [east, west] = [['a', 'east'] as const, ['b', 'west'] as const];
  peers.update([east, west], [], 0);
  assert.deepEqual(peers.update([], [], 60_000), { a: 'east', b: 'west' });
  for (const nowMs of [61_000, 62_000, 63_000])
    assert.deepEqual(peers.update([east], [], nowMs), { a: 'east', b: 'west' });
  assert.deepEqual(peers.update([east], [], 64_000), { a: 'east' });
});

test('strangers that open connections and stay silent give way to a registered machine, the oldest first', async () => {
  const [, runtime] = joinMachines();
  const linked = await openConnection(runtime);
  const [host = '', port = ''] = address.split(':');
  const silent = await Promise.all(
    Array.from({ length: 300 }, async () => {
      const socket = connect({ host, port: Number(port) });
      socket.on('error', () => undefined);
      await once(socket, 'connect');
      return socket;
    }),
  );
  try {
    const first = silent[0]!;
    if (!first.closed) await once(first, 'close');
    assert.ok(
      silent.some(({ closed }) => !closed),
      'the bound holds, and no deadline has passed',
    );
    const second = await openConnection(runtime);
    for (const connection of [linked, second]) assert.equal((await connection.stats()).models.length, 1);
  } finally {
    for (const socket of silent) socket.destroy();
  }
});
