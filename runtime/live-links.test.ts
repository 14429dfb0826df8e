import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { ensureCertificate } from '#infra/links/security.ts';
import { TestMachine } from '#scheduler/links/testing/machine.ts';
import { LiveClient } from '#scheduler/live/client.ts';
import { LiveServer } from '#scheduler/live/server.ts';
import { eventually } from '#scheduler/testing/fixture.ts';

const EPOCH = 7;

describe('live events between machines', () => {
  let directory: string;
  let machines: [TestMachine, TestMachine, TestMachine];
  let server: LiveServer;
  let port: number;
  before(async () => {
    directory = mkdtempSync(path.join(tmpdir(), 'pie-ll-'));
    const made = ['run', 'front', 'stranger'].map(async (name) => {
      mkdirSync(path.join(directory, name));
      return new TestMachine(name, await ensureCertificate(path.join(directory, name), name, Date.now()));
    });
    machines = (await Promise.all(made)) as typeof machines;
    server = new LiveServer();
    port = (await server.listen('127.0.0.1:0', machines[0])) ?? assert.fail('no port');
  });
  after(async () => {
    await server.close();
    rmSync(directory, { recursive: true });
  });
  beforeEach(() => {
    const [run, front] = machines;
    for (const each of machines) {
      each.accept(run, front);
      each.refusalReasons.length = 0;
    }
  });

  /** Follows an invocation as the machine `from`, which expects the runtime at the server's address to be on `machine`. */
  function follow(from: TestMachine | undefined, machine = 'run') {
    const client = new LiveClient(async () => ({ address: `127.0.0.1:${port}`, machine }), 'gateway', {
      security: from,
    });
    const told: string[] = [];
    client.follow('r', 'a', {
      attached: (logged) => told.push(`logged ${logged}`),
      events: (events) => told.push(...events.map(({ data }) => data)),
      lost: () => told.push('lost'),
    });
    const hears = (what: string) => eventually(() => told.includes(what), `${what}; it was told ${told.join(', ')}`);
    return { told, hears, [Symbol.dispose]: () => client.close() };
  }
  const begin = () => {
    const { show, end } = server.begin('a', EPOCH, () => ({ logged: 0, events: [] }));
    return { show: (text: string) => show(1, [{ event: 'message', data: text }]), [Symbol.dispose]: end };
  };

  // This test comes first: the server may report a follower of an earlier test late.
  test('are not requested from another machine by a process without certificates', async () => {
    let connections = 0;
    const client = new LiveClient(async () => {
      connections += 1;
      return { address: `127.0.0.1:${port}`, machine: 'run' };
    }, 'gateway');
    const [run] = machines;
    const listener = {
      attached: () => assert.fail('attached'),
      events: () => assert.fail('told'),
      lost: () => undefined,
    };
    client.follow('r', 'a', listener);
    await eventually(() => connections >= 2, 'it asks again where the runtime is');
    assert.deepEqual(run.refusalReasons, [], 'the runtime saw no connection');
    client.close();
  });

  test('reach a registered machine until it is removed, and again once it is registered', async () => {
    const [run, front] = machines;
    using attempt = begin();
    using follower = follow(front);
    await follower.hears('logged 0');
    attempt.show('once');
    await follower.hears('once');
    // Removes `front` from the registered machines.
    run.accept(run);
    await follower.hears('lost');
    assert.equal(server.followed, 0, 'a removed machine follows nothing');
    assert.equal(run.refusalReasons[0], 'a connection from 127.0.0.1 shows a certificate of no registered machine');
    run.accept(run, front);
    await eventually(() => follower.told.filter((each) => each === 'logged 0').length === 2, 'it is attached again');
  });

  test('come only from the machine that registered the runtime', async () => {
    const [, front] = machines;
    using _attempt = begin();
    using follower = follow(front, 'front');
    const refusal = `the runtime at 127.0.0.1:${port} shows the certificate of run, not of front`;
    await eventually(
      () => front.refusalReasons.includes(refusal),
      `the log names both; it has ${front.refusalReasons.join()}`,
    );
    assert.equal(follower.told.includes('logged 0'), false);
  });

  test('are refused to strangers, to peers without a certificate and over plain TCP', async () => {
    const [run, front, stranger] = machines;
    using follower = follow(stranger);
    await eventually(
      () => run.refusalReasons.some((why) => why.endsWith('of no registered machine')),
      'the stranger is refused',
    );
    assert.equal(follower.told.includes('logged 0'), false);
    const bare = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false }).on('error', () => undefined);
    await once(bare.resume(), 'close');
    const plain = connect(port, '127.0.0.1').on('error', () => undefined);
    plain.write('GET / HTTP/1.1\r\n\r\n');
    await once(plain.resume(), 'close');
    assert.ok(run.refusalReasons.includes('a connection from 127.0.0.1 shows no certificate'));
    assert.ok(
      run.refusalReasons.some((why) => why.startsWith('a connection from 127.0.0.1: ERR_SSL_')),
      run.refusalReasons.join(),
    );
    assert.equal(server.followed, 0);
    await assert.rejects(new LiveServer().listen('0.0.0.0:0'), /need certificates, and there are none for 0\.0\.0\.0/);
    assert.deepEqual(front.refusalReasons, []);
  });
});
