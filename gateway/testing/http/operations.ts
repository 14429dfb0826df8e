import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { MachineLease } from '#scheduler/machines/lease.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { ASYNC, type Harness, JSON_TYPE, json } from './harness.ts';

/** Tests of the list of invocations, load, drains, machines, the audit of operators' acts, and the webhook secret. */
export function describeOperations(get: () => Harness): void {
  describe('the list of invocations', () => {
    it('has pages and filters, and holds the invocations of one tenant', async () => {
      const h = get();
      await h.platform.register({ name: 'listed' });
      const ids: string[] = [];
      for (let i = 0; i < 5; i++) {
        const init = { method: 'POST', body: '{}', headers: { ...JSON_TYPE, ...ASYNC } };
        ids.unshift((await json(await h.send('/v1/functions/listed/invocations', init))).id);
      }
      const [succeeded = '', running = ''] = ids;
      await (await h.platform.attempt(succeeded)).succeed({ large: true });
      await (await h.platform.attempt(running)).start();
      const seen: string[] = [];
      let cursor = '';
      do {
        const { body } = await h.ask(`/v1/invocations?function=listed&limit=2${cursor}`);
        assert.ok(body.invocations.length <= 2);
        seen.push(...body.invocations.map(({ id }: { id: string }) => id));
        cursor = body.cursor === null ? '' : `&cursor=${body.cursor}`;
      } while (cursor !== '');
      // The list is newest first; invocations of the same millisecond follow the order of their ids, which the test cannot foresee.
      assert.deepEqual(seen.toSorted(), ids.toSorted());
      const idsWith = async (query: string) =>
        (await h.ask(`/v1/invocations?function=listed&${query}`)).body.invocations.map(({ id }: { id: string }) => id);
      assert.deepEqual(await idsWith('status=succeeded'), [succeeded]);
      assert.deepEqual(await idsWith('status=running'), [running]);
      assert.equal((await idsWith('status=queued,running')).length, 4);
      const [first] = (await h.ask('/v1/invocations?limit=1')).body.invocations;
      assert.deepEqual([first.tenant, 'output' in first], ['default', false]);
      assert.deepEqual((await h.ask('/v1/invocations?function=Not-A-Name')).body, { invocations: [], cursor: null });
      for (const [query, field] of [
        ['status=done', 'status'],
        ['limit=0', 'limit'],
        ['limit=1000', 'limit'],
        ['cursor=x', 'cursor'],
      ])
        h.refused(await h.ask(`/v1/invocations?${query}`), 'invalid-input', field);
      h.refused(await h.ask('/v1/invocations?tenant=No_Name'), 'invalid-input', 'tenant');
      h.refused(await h.ask('/v1/invocations?tenant=nobody'), 'unknown-tenant');

      const admin = { authorization: `Bearer ${await h.platform.key(['admin'], 'another')}` };
      assert.deepEqual((await h.ask('/v1/invocations', { headers: admin })).body.invocations, []);
      h.refused(await h.ask('/v1/invocations?tenant=default', { headers: admin }), 'forbidden');
      h.refused(await h.ask('/v1/load', { headers: admin }), 'forbidden');
      h.refused(await h.ask(`/v1/invocations/${succeeded}`, { headers: admin }), 'unknown-invocation');
      const operator = { authorization: `Bearer ${await h.platform.key(['operator'], 'another')}` };
      assert.ok((await h.ask('/v1/invocations?tenant=default', { headers: operator })).body.invocations.length > 0);
      assert.equal((await h.ask(`/v1/invocations/${succeeded}`, { headers: operator })).body.id, succeeded);
    });
  });

  it('the load names runtimes, and the tenants with queued or running work', async () => {
    const h = get();
    const id = await h.submit();
    const { body } = await h.ask('/v1/load');
    const ownLoad = body.tenants.find(({ tenant }: { tenant: string }) => tenant === 'default');
    assert.ok(ownLoad.waiting + ownLoad.running > 0 && ownLoad.weight > 0, JSON.stringify(body));
    assert.ok(body.waiting + body.running >= ownLoad.waiting + ownLoad.running);
    await (await h.platform.attempt(id)).succeed(1);
    assert.deepEqual(
      body.runtimes.map(({ name, alive }: Record<string, unknown>) => [name, alive]),
      [['test-runtime', true]],
    );
  });

  it('the load names the isolation of each runtime and its notice', async () => {
    const h = get();
    const isolationOf = async () => {
      const [{ isolation, isolationNotice }] = (await h.ask('/v1/load')).body.runtimes;
      return [isolation, isolationNotice];
    };
    assert.deepEqual(await isolationOf(), [null, null]);
    await h.platform.lease.describe({ isolation: { layers: 'namespaces' } });
    assert.deepEqual(await isolationOf(), ['namespaces', null]);
    await h.platform.lease.describe({ isolation: { layers: 'process', notice: 'No namespaces here.' } });
    assert.deepEqual(await isolationOf(), ['process', 'No namespaces here.']);
  });

  it('the load names the machines and whether their supervisors are alive', async () => {
    const h = get();
    const { store } = h.platform.scheduler;
    const machine = { roles: ['runtime', 'gpu-host'], host: 'h', pid: 1, version: '1.2.3', gpuHosts: [] } as const;
    const options = { log: silentLog, onTaken: () => assert.fail('no other supervisor') };
    const lease = await MachineLease.claim(store, { ...machine, name: 'east' }, options);
    // The supervisor of `west` has died, and its lease has run out.
    await MachineLease.claim(store, { ...machine, name: 'west' }, options).then((west) => west.abandon());
    await store.redis.del(store.keys.machineLease('west'));
    const { machines } = (await h.ask('/v1/load')).body;
    const shown = { roles: ['runtime', 'gpu-host'], host: 'h', version: '1.2.3' };
    const [{ startedAt }] = machines;
    assert.ok(Math.abs(Date.now() - Date.parse(startedAt)) < 60_000);
    assert.deepEqual(machines, [
      { name: 'east', alive: true, ...shown, startedAt, joinedAt: null, drained: false, running: 0 },
      {
        name: 'west',
        alive: false,
        ...shown,
        startedAt: machines[1].startedAt,
        joinedAt: null,
        drained: false,
        running: 0,
      },
    ]);
    await lease.release();
    await store.redis.del(store.keys.machine('west'));
  });

  it('a machine counts an invocation once when its runtime and its GPU host both run it', async () => {
    const h = get();
    const { store, runtimes } = h.platform.scheduler;
    const host = { name: 'gpu-host-1@east', address: '10.0.0.1:7400' };
    const machine = {
      roles: ['runtime'],
      host: 'h',
      pid: 1,
      version: '1.2.3',
      name: 'east',
      gpuHosts: [host],
    } as const;
    const machineLease = await MachineLease.claim(store, machine, {
      log: silentLog,
      onTaken: () => assert.fail('no other supervisor'),
    });
    const other = 'gpu-host-1@west';
    const loads = [
      { name: 'runtime-1@east', machine: 'east', running: 5, gpuHosts: { [host.name]: 2, [other]: 3 } },
      { name: 'runtime-1@west', machine: 'west', running: 7, gpuHosts: { [host.name]: 4, [other]: 3 } },
    ];
    const leases = await Promise.all(
      loads.map(async ({ name, machine: at, running, gpuHosts }) => {
        const hosts = [host.name, other].map((each) => ({ name: each, connected: true, models: [] }));
        const lease = await runtimes.acquire({ name, machine: at, slots: 0, gpuHosts: hosts });
        // Writes the load, as the next renewal of the lease would.
        await store.redis.set(store.keys.alive(lease.id), JSON.stringify({ running, gpuHosts }), 'KEEPTTL');
        return lease;
      }),
    );
    try {
      // 5 of the machine's own runtime, and 4 of the other machine's runtime on a GPU host of this machine.
      assert.equal((await h.ask('/v1/load')).body.machines[0].running, 5 + 4);
    } finally {
      await Promise.all([...leases.map((lease) => lease.release()), machineLease.release()]);
    }
  });

  it('an operator drains a machine with its GPU hosts only while another GPU host is connected, and undrains it', async () => {
    const h = get();
    const { store, drains } = h.platform.scheduler;
    const host = { name: 'gpu-host-1@east', address: '10.0.0.1:7400' };
    const machine = {
      name: 'east',
      roles: ['runtime'],
      host: 'h',
      pid: 1,
      version: '1.2.3',
      gpuHosts: [host],
    } as const;
    const lease = await MachineLease.claim(store, machine, {
      log: silentLog,
      onTaken: () => assert.fail('no other supervisor'),
    });
    const change = (body: object, name = 'east') =>
      h.ask(`/v1/machines/${name}`, { method: 'PATCH', headers: JSON_TYPE, body: JSON.stringify(body) });
    await h.platform.lease.describe({ gpuHosts: [{ name: host.name, connected: true, models: [] }] });
    h.refused(await change({ drained: true }), 'conflict');
    assert.deepEqual(await drains.names(), new Set());
    const otherHost = { name: 'gpu-host-1@west', connected: true, models: [] };
    await h.platform.lease.describe({ gpuHosts: [{ name: host.name, connected: false, models: [] }, otherHost] });
    const drained = await change({ drained: true });
    assert.deepEqual([drained.status, drained.body.drained, drained.body.running], [200, true, 0]);
    assert.deepEqual(await drains.names(), new Set([host.name, 'machine/east']));
    assert.equal((await change({ drained: false })).body.drained, false);
    assert.deepEqual(await drains.names(), new Set());
    assert.equal((await change({ drained: true, force: true })).status, 200);
    h.refused(await change({ drained: false, force: true }), 'invalid-input', '/force');
    await change({ drained: false });
    h.refused(await change({ drained: true }, 'nowhere'), 'unknown-machine');
    await lease.release();
    await h.platform.lease.describe({ gpuHosts: undefined });
  });

  it('a drain of a machine without GPU hosts waits until its runtime takes no more invocations', async () => {
    const h = get();
    const { store, drains, runtimes } = h.platform.scheduler;
    const machine = { name: 'south', roles: ['runtime'], host: 'h', pid: 1, version: '1.2.3', gpuHosts: [] } as const;
    const machineLease = await MachineLease.claim(store, machine, {
      log: silentLog,
      onTaken: () => assert.fail('no other supervisor'),
    });
    const runtime = await runtimes.acquire({ name: 'runtime-1@south', machine: 'south', slots: 1, accepting: true });
    let isPaused = false;
    // Reports the pause some time after the drain.
    const stop = await drains.onChange(async () => {
      await sleep(100);
      isPaused = true;
      await runtime.describe({ accepting: false });
    });
    try {
      const body = JSON.stringify({ drained: true, force: true });
      const drained = await h.ask('/v1/machines/south', { method: 'PATCH', headers: JSON_TYPE, body });
      assert.deepEqual([drained.status, drained.body.drained, isPaused], [200, true, true]);
    } finally {
      stop();
      await drains.undrainMachine(machine);
      await Promise.all([runtime.release(), machineLease.release()]);
    }
  });

  it('tokens for machines need a Redis that the machines can reach, and strangers cannot join', async () => {
    const h = get();
    const post = (path: string, body: object) =>
      h.ask(path, { method: 'POST', headers: JSON_TYPE, body: JSON.stringify(body) });
    h.refused(await post('/v1/machines/tokens', {}), 'conflict');
    h.refused(await post('/v1/machines/tokens', { ttlSeconds: 1 }), 'invalid-input', '/ttlSeconds');
    h.refused(await post('/v1/machines/tokens', { roles: ['cook'] }), 'invalid-input', '/roles/0');
    h.refused(await post('/v1/machines/tokens', { roles: [] }), 'invalid-input', '/roles');
    h.refused(await post('/join', { version: 1, token: 'x', sealed: 'y' }), 'invalid-input', '/token');
    const { body, status } = await post('/join', { version: 1, token: 'abcdefghijkl', sealed: 'y' });
    // A gateway in workerd takes no machines.
    assert.ok(['join-refused', 'not-found'].includes(body.code) && [403, 404].includes(status), JSON.stringify(body));
    const versionsAnswer = await h.ask('/join');
    if (status === 404) h.refused(versionsAnswer, 'not-found');
    else assert.deepEqual(versionsAnswer.body, { versions: { oldest: 1, newest: 1 } });
  });

  it('the load names the kernel limits of each runtime and their notice', async () => {
    const h = get();
    const limitsOf = async () => (await h.ask('/v1/load')).body.runtimes[0].limits;
    assert.equal(await limitsOf(), null);
    await h.platform.lease.describe({ limits: { memory: 'cgroup', demotion: 'cgroup' } });
    assert.deepEqual(await limitsOf(), { memory: 'cgroup', demotion: 'cgroup', notice: null });
    await h.platform.lease.describe({ limits: { memory: 'rlimit', demotion: 'none', notice: 'No cgroups.' } });
    assert.deepEqual(await limitsOf(), { memory: 'rlimit', demotion: 'none', notice: 'No cgroups.' });
  });

  it('the load names the models and devices of each GPU host and its connection', async () => {
    const h = get();
    const onCard = {
      name: 'tiny',
      backend: 'cuda',
      precision: 'bf16',
      kv: 'fp8',
      reason: 'it is there',
      pageSize: 16,
      pageCount: 64,
      device: { name: 'A card', index: 0, memory: { takenBytes: 3, totalBytes: 8 } },
    };
    const onCpu = {
      ...onCard,
      backend: 'onnx',
      precision: 'int8',
      kv: undefined,
      reason: undefined,
      device: { name: 'CPU' },
    };
    await h.platform.lease.describe({
      gpuHosts: [
        { name: 'gpu-host-2', connected: false, hostId: 'b', models: [onCpu] },
        { name: 'gpu-host-1', connected: true, hostId: 'a', models: [onCard] },
      ],
    });
    const { body } = await h.ask('/v1/load');
    const common = { model: 'tiny', pages: 64, pageSize: 16 };
    const card = { device: 'A card', deviceIndex: 0, memory: { takenBytes: 3, totalBytes: 8 } };
    const cpu = { device: 'CPU', deviceIndex: null, memory: null };
    assert.deepEqual(body.gpuHosts, [
      {
        name: 'gpu-host-1',
        connected: true,
        drained: false,
        running: 0,
        models: [{ ...common, backend: 'cuda', precision: 'bf16', kv: 'fp8', reason: 'it is there', ...card }],
      },
      {
        name: 'gpu-host-2',
        connected: false,
        drained: false,
        running: 0,
        models: [{ ...common, backend: 'onnx', precision: 'int8', kv: null, reason: null, ...cpu }],
      },
    ]);
  });

  it('operators drain and undrain GPU hosts, and drain the last connected one only by force', async () => {
    const h = get();
    const { drains } = h.platform.scheduler;
    // The second host is one of a machine among several.
    const names = ['drain-1', 'drain-2@east', 'drain-away'];
    // Reports the GPU hosts and their drains, as a runtime does.
    const reportDrains = async () => {
      const drained = await drains.names();
      const gpuHosts = names.map((name) => ({
        name,
        connected: name !== 'drain-away',
        models: [],
        ...(drained.has(name) && { drain: { since: 1 } }),
      }));
      await h.platform.lease.describe({ gpuHosts });
    };
    await reportDrains();
    const stop = await drains.onChange(() => void reportDrains());
    const change = (name: string, body: object, headers: Record<string, string> = {}) =>
      h.ask(`/v1/gpu-hosts/${encodeURIComponent(name)}`, {
        method: 'PATCH',
        body: JSON.stringify(body),
        headers: { ...JSON_TYPE, ...headers },
      });
    try {
      const admin = { authorization: `Bearer ${await h.platform.key(['admin'])}` };
      h.refused(await change('drain-1', { drained: true }, admin), 'forbidden');
      h.refused(await change('drain-9', { drained: true }), 'unknown-gpu-host');
      h.refused(await change('drain-9', { drained: false }), 'unknown-gpu-host');
      h.refused(await change('-', { drained: true }), 'invalid-input', 'host');
      h.refused(await change('drain-1', {}), 'invalid-input', '/drained');
      h.refused(await change('drain-1', { drained: true, now: true }), 'invalid-input', '/now');
      h.refused(await change('drain-1', { drained: false, force: true }), 'invalid-input', '/force');
      assert.deepEqual([...(await drains.names())], []);

      const { status, body } = await change('drain-1', { drained: true });
      assert.deepEqual([status, body.name, body.drained, body.connected], [200, 'drain-1', true, true]);
      assert.equal((await change('drain-1', { drained: true })).status, 200, 'a repeated drain');
      assert.equal((await change('drain-away', { drained: true })).status, 200, 'a host that is away');
      const last = await change('drain-2@east', { drained: true });
      h.refused(last, 'conflict');
      assert.match(last.body.hint, /--force/);
      assert.equal((await change('drain-2@east', { drained: true, force: true })).body.drained, true);
      const states = (await h.ask('/v1/load')).body.gpuHosts as { name: string; drained: boolean }[];
      assert.deepEqual(
        states.map(({ name, drained }) => [name, drained]),
        names.map((name) => [name, true]),
      );
      for (const name of names) assert.equal((await change(name, { drained: false })).body.drained, false);
      assert.equal((await change('drain-1', { drained: false })).status, 200, 'a repeated undrain');
      const acts = (await h.ask('/v1/audit?limit=1000')).body.entries as Record<string, unknown>[];
      assert.deepEqual(
        acts.flatMap(({ action, target, details }) =>
          String(action).startsWith('gpu-host.') ? [`${action} ${target} ${JSON.stringify(details)}`] : [],
        ),
        [
          'gpu-host.undrain drain-away {}',
          'gpu-host.undrain drain-2@east {}',
          'gpu-host.undrain drain-1 {}',
          'gpu-host.drain drain-2@east {"force":true}',
          'gpu-host.drain drain-away {}',
          'gpu-host.drain drain-1 {}',
        ],
      );
    } finally {
      stop();
      await h.platform.lease.describe({ gpuHosts: undefined });
    }
  });

  it('the audit log of a tenant has the acts of operators on its invocations, but none of its own', async () => {
    const h = get();
    await h.platform.register({ name: 'theirs' }, 'theirs');
    const owner = { authorization: `Bearer ${await h.platform.key(['admin'], 'theirs')}` };
    // Without an `authorization` header, the harness sends its own key: an operator's key of another tenant.
    const operator = {};
    const { keyId: operatorKey } = (await h.ask('/v1/keys/self')).body;
    const submit = { method: 'POST', headers: { ...owner, ...ASYNC, 'webhook-url': 'https://u.example/a?token=s' } };
    const { id, webhook } = await json(await h.send('/v1/functions/theirs/invocations', submit));
    assert.equal(webhook.url, 'https://u.example/a');
    const attempt = await h.platform.attempt(id);
    const act = async (headers: Record<string, string>) => {
      const message = { method: 'POST', body: '{"text":"x"}', headers: { ...headers, ...JSON_TYPE } };
      assert.equal((await h.ask(`/v1/invocations/${id}/messages`, message)).status, 202);
      const file = `/v1/invocations/${id}/files/f.txt`;
      assert.equal((await h.ask(file, { method: 'PUT', body: new Uint8Array(3), headers })).status, 200);
      assert.equal((await h.send(file, { headers })).status, 200);
      assert.equal((await h.ask(`/v1/invocations/${id}`, { method: 'DELETE', headers })).status, 202);
    };
    await act(owner);
    const entries = async () => (await h.ask('/v1/audit', { headers: owner })).body.entries;
    assert.deepEqual(await entries(), []);
    await act(operator);
    await attempt.succeed(1);
    // These acts are refused, so they have no entries.
    const message = { method: 'POST', headers: JSON_TYPE };
    for (const body of ['{"text":"x"}', '{"close":true}'])
      h.refused(await h.ask(`/v1/invocations/${id}/messages`, { ...message, body }), 'conflict');
    h.refused(await h.ask(`/v1/invocations/${id}/answer`, { ...message, body: 'true' }), 'not-waiting');
    const put = { method: 'PUT', body: new Uint8Array(3) };
    h.refused(await h.ask(`/v1/invocations/${id}/files/late.txt`, put), 'conflict');
    for (const headers of [owner, operator]) await (await h.send(`/v1/invocations/${id}/events`, { headers })).text();
    const [state] = (await h.ask('/v1/invocations?tenant=theirs')).body.invocations;
    assert.equal((await h.ask('/v1/invocations?tenant=theirs', { headers: owner })).body.invocations.length, 1);
    assert.deepEqual([state.id, state.webhook.url], [id, 'https://u.example/a']);
    assert.deepEqual(
      (await entries()).map(({ actor, action, target }: Record<string, string>) => [actor, action, target]),
      [
        [operatorKey, 'invocation.list', 'theirs'],
        ...['read', 'cancel', 'read-file', 'put-file', 'message'].map((verb) => [
          operatorKey,
          `invocation.${verb}`,
          id,
        ]),
      ],
    );
    const count = async (verb: string) =>
      (await entries()).filter(({ action }: { action: string }) => action === `invocation.${verb}`).length;
    // One read is recorded so far, so the loop begins with the second.
    for (const [index, part] of ['', '/input', '/events', '/files'].entries()) {
      for (const headers of [owner, operator]) {
        const answer = await h.send(`/v1/invocations/${id}${part}`, { headers });
        assert.equal(answer.status, 200);
        await answer.text();
      }
      assert.equal(await count('read'), 2 + index, `one more entry for the operator's read of "${part}"`);
    }
    const readsBefore = await count('read-file');
    for (const headers of [owner, operator])
      assert.equal((await h.send(`/v1/invocations/${id}/files/f.txt`, { method: 'HEAD', headers })).status, 200);
    assert.equal(
      await count('read-file'),
      readsBefore + 1,
      'HEAD counts as a read, since it tells that the file exists',
    );
  });

  it('the webhook secret stays until rotated, belongs to one tenant, and needs the admin scope', async () => {
    const h = get();
    const first = (await h.ask('/v1/webhooks/secret')).body.secret;
    assert.match(first, /^whsec_[A-Za-z0-9+/]{43}=$/);
    assert.equal((await h.ask('/v1/webhooks/secret')).body.secret, first);
    const next = (await h.ask('/v1/webhooks/secret', { method: 'POST' })).body.secret;
    assert.notEqual(next, first);
    assert.equal((await h.ask('/v1/webhooks/secret')).body.secret, next);
    const stored = await h.platform.scheduler.store.call((redis) =>
      redis.get(h.platform.scheduler.store.keys.webhookSecret('default')),
    );
    const partOfSecret = next.slice('whsec_'.length, 30);
    assert.equal(stored?.includes(partOfSecret), false, 'Redis holds the secret encrypted');
    const other = { authorization: `Bearer ${await h.platform.key(['admin'], 'another')}` };
    assert.notEqual((await h.ask('/v1/webhooks/secret', { headers: other })).body.secret, next);
    const invoker = { authorization: `Bearer ${await h.platform.key(['invoke'])}` };
    h.refused(await h.ask('/v1/webhooks/secret', { headers: invoker }), 'forbidden');
    const acts = (await h.ask('/v1/audit', { headers: other })).body.entries;
    assert.ok(acts.some(({ action }: { action: string }) => action === 'webhook-secret.read'));
  });
}
