import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { generate, must, startTestHost, tagOf, until } from '../testing/host.ts';
import { wrapBackend } from '../testing/wrapped-backend.ts';
import { GpuHostConnection } from './client.ts';
import { DeviceClient } from './device-client.ts';
import { TenantLinks } from './link.ts';
import { HELLO_VERSION } from './wire.ts';

test("a tenant's calls do not wait for those that another tenant sent before", async () => {
  // The host handles one call of a connection in each turn of its event loop.
  await using host = await startTestHost({ host: { limits: { sliceMs: 0 } } });
  const connection = await host.connect();
  const open = (tenant: string) => {
    const inferlet = connection.openInferlet({ id: tenant, tenant, maxPages: 8, arrival: 1 });
    return { inferlet, queue: inferlet.createQueue('tiny') };
  };
  const [flooding, quiet] = [open('flooding'), open('quiet')];
  must(await quiet.inferlet.synchronize(quiet.queue));
  let isFloodOver = false;
  for (let i = 0; i < 20_000; i++) {
    flooding.inferlet.send(flooding.queue, { op: 'mask-page', page: 0, slots: 0 });
  }
  const flood = flooding.inferlet.synchronize(flooding.queue).then(() => {
    isFloodOver = true;
  });
  must(await quiet.inferlet.synchronize(quiet.queue));
  assert.equal(isFloodOver, false);
  await flood;
});

test("when the host ends a tenant's link, the inferlets of other tenants go on", async () => {
  await using host = await startTestHost({ host: { limits: { maxInferlets: 1 } } });
  const connection = await host.connect();
  const open = (id: string, tenant: string) => connection.openInferlet({ id, tenant, maxPages: 8, arrival: 1 });
  const neighbour = open('neighbour', 'b');
  const queue = neighbour.createQueue('tiny');
  must(await neighbour.synchronize(queue));
  const [first, second] = [open('first', 'a'), open('second', 'a')];
  const lost = await Promise.all([first, second].map((inferlet) => inferlet.synchronize(inferlet.createQueue('tiny'))));
  assert.deepEqual(lost.map(tagOf), ['unavailable', 'unavailable']);
  must(await neighbour.synchronize(queue));
  assert.equal(connection.connected, true);
  const third = open('third', 'a');
  must(await third.synchronize(third.createQueue('tiny')));
});

test('a link closes when it has had no inferlet for a while, and a later inferlet gets another', async () => {
  await using host = await startTestHost();
  const connection = await host.connect();
  const { hostId = '', models } = connection;
  const links = new TenantLinks(host.address, hostId, HELLO_VERSION, { sweepMs: 10 });
  for (const id of ['first', 'second']) {
    const inferlet = new DeviceClient(links.of('a'), 1, { id, tenant: 'a', maxPages: 8, arrival: 1 }, models);
    must(await inferlet.synchronize(inferlet.createQueue('tiny')));
    assert.equal(host.host.stats().connections, 2, 'the connection for the state of the host, and the link');
    await inferlet.close();
    await until(() => host.host.stats().connections === 1);
  }
  links.close('the test is over');
});

test('a call of a tenant whose link opens during a long step is answered after the step', async (t) => {
  const helloMs = 100;
  let duringStep: (() => void) | undefined;
  await using host = await startTestHost({
    wrap: (backend) =>
      wrapBackend(backend, {
        forward(batch) {
          duringStep?.();
          duringStep = undefined;
          return backend.forward(batch);
        },
      }),
  });
  const connection = await GpuHostConnection.connect(host.address, { helloMs });
  t.after(() => connection.close());
  const open = (tenant: string) => {
    const inferlet = connection.openInferlet({ id: tenant, tenant, maxPages: 8, arrival: 1 });
    return { inferlet, queue: inferlet.createQueue('tiny') };
  };
  const { promise: answered, resolve } = Promise.withResolvers<unknown>();
  duringStep = () => {
    const latecomer = open('late');
    resolve(latecomer.inferlet.synchronize(latecomer.queue));
    // The step blocks the thread, as `session.run` of the ONNX backend does.
    for (const untilMs = performance.now() + 2 * helloMs; performance.now() < untilMs; );
  };
  const early = open('early');
  await generate(early.inferlet, early.queue, [1, 5], 1);
  assert.deepEqual(await answered, { tag: 'ok', val: undefined });
});

test('a link is lost when another host process than the expected one answers', async () => {
  await using host = await startTestHost();
  const connection = await host.connect();
  const links = new TenantLinks(host.address, 'an earlier process', HELLO_VERSION);
  const options = { id: 'late', tenant: 'a', maxPages: 8, arrival: 1 };
  const inferlet = new DeviceClient(links.of('a'), 1, options, connection.models);
  const queue = inferlet.createQueue('tiny');
  await until(() => inferlet.lost !== undefined);
  const outcome = await inferlet.synchronize(queue);
  assert.deepEqual(outcome, { tag: 'err', val: { tag: 'unavailable', val: 'the GPU host was restarted' } });
  links.close('the test is over');
});

test('a link whose host does not answer is lost at its deadline', async (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), 'pie-l-'));
  const address = path.join(directory, 's');
  const silent = createServer((socket) => socket.on('error', () => undefined).resume()).listen(address);
  t.after(() => {
    silent.close();
    rmSync(directory, { recursive: true });
  });
  const links = new TenantLinks(address, 'any', HELLO_VERSION, { helloMs: 20 });
  const inferlet = new DeviceClient(links.of('a'), 1, { id: 'late', tenant: 'a', maxPages: 8, arrival: 1 }, []);
  await until(() => inferlet.lost !== undefined);
  assert.equal(inferlet.lost, 'the GPU host did not answer within 20 ms');
  links.close('the test is over');
});
