import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { componentBytes } from '../platform.ts';
import { type Answer, ASYNC, type Harness, JSON_TYPE } from './harness.ts';

/** Tests of deploy targets, aliases, rollback and removal. */
export function describeReleases(get: () => Harness): void {
  describe('releases:', () => {
    const deploy = async (name: string, content: string, query = '', more: object = {}): Promise<Answer> => {
      const form = new FormData();
      form.set('manifest', new Blob([JSON.stringify({ name, ...more })]));
      form.set('component', new Blob([componentBytes(content)]), 'a.wasm');
      return get().ask(`/v1/functions/${name}${query}`, { method: 'PUT', body: form });
    };
    const deployVersion = async (name: string, content: string, query = '', more: object = {}): Promise<string> => {
      const { status, body } = await deploy(name, content, query, more);
      assert.ok(status === 201 || status === 200, JSON.stringify(body));
      return body.version;
    };
    const put = (path: string, body: unknown) =>
      get().ask(`/v1/functions/${path}`, { method: 'PUT', body: JSON.stringify(body), headers: JSON_TYPE });
    const rollback = (name: string, body: unknown = {}) =>
      get().ask(`/v1/functions/${name}/rollback`, { method: 'POST', body: JSON.stringify(body), headers: JSON_TYPE });
    const remove = (path: string) => get().ask(`/v1/functions/${path}`, { method: 'DELETE' });
    const live = async (name: string) => (await get().ask(`/v1/functions/${name}/aliases/live`)).body.shares;
    const submit = async (reference: string) =>
      get().ask(`/v1/functions/${reference}/invocations`, {
        method: 'POST',
        body: '{}',
        headers: { ...JSON_TYPE, ...ASYNC },
      });

    it('a deploy reports its build, grants and warnings', async () => {
      get().platform.build = () => ({
        ok: true,
        artifact: { buildMs: 7, checkMs: 1, meterMs: 2, coldStartMs: 4.5, warmStartMs: 0.01, moduleBytes: 10 },
      });
      const more = { model: 'nowhere', limits: { pages: 9999 }, grants: { store: 'read', launch: ['nobody'] } };
      const { body } = await deploy('told', '1', '?message=first&tag=v1.0', more);
      assert.deepEqual(body.report.steps, [
        { name: 'check', ms: 1 },
        { name: 'meter', ms: 2 },
      ]);
      assert.deepEqual(
        [body.report.coldStartMs, body.report.warmStartMs, body.report.buildMs, body.message],
        [4.5, 0.01, 7, 'first'],
      );
      assert.match(body.grants.join('; '), /the model nowhere; reads the tenant's store; launches the function nobody/);
      assert.match(
        body.warnings.join('; '),
        /No GPU host serves the model "nowhere"[\s\S]*grants\.launch names "nobody"/,
      );
      assert.equal(body.alias.alias, 'live');
      assert.match(body.createdBy, /^key_/);
      const { aliases } = (await get().ask('/v1/functions/told/aliases')).body;
      assert.deepEqual(
        aliases.map(({ alias, tag }: { alias: string; tag?: true }) => [alias, tag]),
        [
          ['live', undefined],
          ['v1.0', true],
        ],
      );
      const [listed] = (await get().ask('/v1/functions/told/versions')).body.versions;
      assert.deepEqual(listed.aliases, [
        { alias: 'live', weight: 100 },
        { alias: 'v1.0', weight: 100, tag: true },
      ]);
    });

    it('a dry run reports the changes and stores nothing', async () => {
      const h = get();
      const first = await deployVersion('dry', '1', '', { limits: { pages: 4 } });
      const { status, body } = await deploy('dry', '2', '?dry_run=true', { limits: { pages: 8 } });
      assert.deepEqual([status, body.exists, body.alias], [200, false, 'live']);
      assert.deepEqual(body.from, [{ version: first, weight: 100 }]);
      assert.deepEqual(
        body.changes.map(({ field }: { field: string }) => field),
        ['component', 'limits.pages'],
      );
      assert.deepEqual((await h.ask('/v1/functions/dry/versions')).body.versions.length, 1);
      h.refused(
        await deploy('dry', '2', '?dry_run=true', { limits: { pages: -1 } }),
        'invalid-manifest',
        '/limits/pages',
      );
      h.refused(
        await deploy('undone', '1', '?dry_run=true', { limits: { pages: -1 } }),
        'invalid-manifest',
        '/limits/pages',
      );
      assert.equal((await deploy('undone', '1', '?dry_run=true')).status, 200);
      h.refused(await h.ask('/v1/functions/undone'), 'unknown-function');
    });

    it('invalid aliases and tags are refused with the field named, and nothing is stored', async () => {
      const h = get();
      const first = await deployVersion('named', '1', '?tag=v1');
      for (const alias of ['Upper', 'feed', 'a%2Fb']) {
        h.refused(await deploy('named', '2', `?alias=${alias}`), 'invalid-alias', 'alias');
      }
      h.refused(await deploy('named', '2', '?tag=live'), 'invalid-alias', 'tag');
      h.refused(await deploy('named', '2', `?message=${'x'.repeat(600)}`), 'invalid-alias', 'message');
      h.refused(await deploy('named', '2', '?tag=v1'), 'conflict', 'tag');
      h.refused(await deploy('named', '2', '?dry_run=true&tag=v1'), 'conflict', 'tag');
      const second = await deployVersion('named', '2', '?alias=none');
      assert.deepEqual(await live('named'), [{ version: first, weight: 100 }]);
      const faults: [unknown, string][] = [
        [{ shares: [{ version: first, weight: 99 }] }, '/shares'],
        [{ shares: [{ version: first, weight: 1.5 }] }, '/shares/0/weight'],
        [{ shares: [{ version: '000000000000', weight: 100 }] }, '/shares/0/version'],
        [{ shares: [{ version: 'ab', weight: 100 }] }, '/shares/0/version'],
        [{ shares: [] }, '/shares'],
        [{ shares: [{ version: first, weight: 100 }], message: 'x'.repeat(600) }, '/message'],
      ];
      for (const [body, field] of faults) h.refused(await put('named/aliases/live', body), 'invalid-alias', field);
      h.refused(
        await put('named/aliases/feed', { shares: [{ version: first, weight: 100 }] }),
        'invalid-alias',
        'alias',
      );
      h.refused(await put('named/aliases/live', { shares: 'all' }), 'invalid-input', '/shares');
      h.refused(await put('named/aliases/live', { shares: [], colour: 1 }), 'invalid-input', '/colour');
      h.refused(await put('nobody/aliases/live', { shares: [{ version: first, weight: 100 }] }), 'unknown-function');
      assert.deepEqual(await live('named'), [{ version: first, weight: 100 }]);
      const set = await put('named/aliases/canary', {
        shares: [
          { version: 'v1', weight: 40 },
          { version: second.slice(0, 8), weight: 60 },
        ],
        ifRevision: 0,
      });
      assert.deepEqual(set.body.shares, [
        { version: first, weight: 40 },
        { version: second, weight: 60 },
      ]);
      h.refused(
        await put('named/aliases/canary', { shares: [{ version: first, weight: 100 }], ifRevision: 0 }),
        'conflict',
      );
      h.refused(await remove('named/aliases/live'), 'conflict');
      h.refused(await remove('named/aliases/other'), 'unknown-alias');
      assert.equal((await remove('named/aliases/canary')).status, 204);
      h.refused(await h.ask('/v1/functions/named/aliases/canary'), 'unknown-alias');
    });

    it('invocations resolve a name, an alias, a version, and a split by its weights', async () => {
      const first = await deployVersion('drawn', '1');
      const second = await deployVersion('drawn', '2', '?alias=canary');
      assert.equal((await submit('drawn')).body.version, first);
      assert.equal((await submit('drawn@canary')).body.version, second);
      assert.equal((await submit(`drawn@${second}`)).body.version, second);
      get().refused(await submit('drawn@other'), 'unknown-alias');
      await put('drawn/aliases/live', {
        shares: [
          { version: second, weight: 99 },
          { version: first, weight: 1 },
        ],
      });
      assert.equal(
        (await get().ask('/v1/functions/drawn')).body.version,
        second,
        'inspecting an alias shows its heaviest version',
      );
      const [entry] = (await get().ask('/v1/functions')).body.functions.filter(
        (f: { name: string }) => f.name === 'drawn',
      );
      assert.equal(entry.live.length, 2);
      const seen: string[] = [];
      for (let i = 0; i < 20; i++) seen.push((await submit('drawn')).body.version);
      assert.ok(seen.every((drawn) => drawn === first || drawn === second));
      // A draw takes `first` with a probability of 1 %. Six or more of twenty do so about once in thirty million runs.
      assert.ok(seen.filter((drawn) => drawn === first).length <= 5, seen.join(' '));
    });

    it('a rollback goes back one step, reports the changes, and has a dry run', async () => {
      const h = get();
      const first = await deployVersion('back', '1', '', { description: 'one' });
      const second = await deployVersion('back', '2', '', { description: 'two' });
      const planned = (await rollback('back', { dryRun: true })).body;
      assert.deepEqual([planned.dryRun, planned.to], [true, [{ version: first, weight: 100 }]]);
      assert.deepEqual(
        planned.changes.map(({ field }: { field: string }) => field),
        ['component', 'description'],
      );
      assert.deepEqual(await live('back'), [{ version: second, weight: 100 }], 'a dry run changes nothing');
      const { body } = await rollback('back', { message: 'worse', ifRevision: planned.alias.revision });
      assert.deepEqual(body.alias.shares, [{ version: first, weight: 100 }]);
      assert.equal(body.alias.message, 'worse');
      h.refused(await rollback('back'), 'conflict');
      h.refused(await rollback('back', { ifRevision: 1 }), 'conflict');
      h.refused(await rollback('back', { alias: 'canary' }), 'unknown-alias');
      h.refused(await rollback('back', { to: 'zzzz' }), 'invalid-alias', '/to');
      h.refused(await rollback('nobody'), 'unknown-function');
      assert.deepEqual((await rollback('back', { to: second.slice(0, 6) })).body.alias.shares[0].version, second);
      const { history } = (await h.ask('/v1/functions/back/aliases/live/history')).body;
      // Two deploys and two rollbacks.
      assert.equal(history.length, 4);
      h.refused(await h.ask('/v1/functions/back/aliases/other/history'), 'unknown-alias');
    });

    it('a removed function drains: it takes no new invocations, running ones end, and its name is free', async () => {
      const h = get();
      const first = await deployVersion('drains', '1');
      const { body } = await submit('drains');
      const attempt = await h.platform.attempt(body.id);
      const answer = await remove('drains');
      assert.deepEqual([answer.status, answer.body], [202, { draining: [{ version: first, unfinished: 1 }] }]);
      h.refused(await submit('drains'), 'unknown-function');
      h.refused(await submit(`drains@${first}`), 'unknown-function');
      const second = await deployVersion('drains', '2');
      assert.equal((await submit('drains')).body.version, second);
      assert.equal((await h.ask('/v1/functions/drains/draining')).body.draining.length, 1);
      await attempt.start();
      await attempt.succeed('whole');
      assert.equal((await h.ask(`/v1/invocations/${body.id}`)).body.output, 'whole');
      await h.platform.scheduler.removals.sweep();
      assert.deepEqual((await h.ask('/v1/functions/drains/draining')).body, { draining: [] });
    });

    it('the audit log has a repeated removal of a draining function only when it also cancels the invocations', async () => {
      const h = get();
      await deployVersion('twice', '1');
      const attempt = await h.platform.attempt((await submit('twice')).body.id);
      for (const path of ['twice', 'twice', 'twice?now=true', 'twice?now=true'])
        assert.equal((await remove(path)).status, 202);
      const { entries } = (await h.ask('/v1/audit?limit=10')).body as {
        entries: { action: string; target: string; details: object }[];
      };
      const removals = entries.filter(({ action, target }) => action === 'function.remove' && target === 'twice');
      assert.deepEqual(
        removals.map(({ details }) => details),
        [{ now: true }, { now: false }],
      );
      await attempt.fail('cancelled', 'The function was removed.');
    });

    it('a version without an alias can be removed, and its queued invocations cancelled', async () => {
      const h = get();
      const first = await deployVersion('single', '1');
      const second = await deployVersion('single', '2');
      h.refused(await remove(`single/versions/${second}`), 'conflict');
      const { body } = await submit(`single@${first}`);
      h.refused(await remove('single/versions/live'), 'conflict');
      assert.equal((await remove(`single/versions/${first.slice(0, 8)}?now=true`)).status, 204);
      assert.equal((await h.ask(`/v1/invocations/${body.id}`)).body.status, 'cancelled');
      h.refused(await remove(`single/versions/${first}`), 'unknown-alias');
    });

    it('a key with the invoke scope alone cannot change functions', async () => {
      const h = get();
      await deployVersion('kept', '1');
      const authorization = `Bearer ${await h.platform.key(['invoke'])}`;
      for (const [method, path] of [
        ['DELETE', 'kept'],
        ['DELETE', 'kept/versions/x'],
        ['PUT', 'kept/aliases/live'],
        ['DELETE', 'kept/aliases/canary'],
        ['POST', 'kept/rollback'],
      ] as const) {
        const body = method === 'DELETE' ? {} : { body: '{}' };
        h.refused(
          await h.ask(`/v1/functions/${path}`, { method, headers: { ...JSON_TYPE, authorization }, ...body }),
          'forbidden',
        );
      }
    });

    it('functions that run requests of all tenants can be changed by operators only', async () => {
      const h = get();
      const name = 'openai-chat';
      const first = await deployVersion(name, '1', '?tag=v1');
      const second = await deployVersion(name, '2');
      const deployer = `Bearer ${await h.platform.key(['deploy', 'admin'])}`;
      const form = () => {
        const body = new FormData();
        body.set('manifest', new Blob([JSON.stringify({ name })]));
        body.set('component', new Blob([componentBytes('3')]), 'a.wasm');
        return { body };
      };
      const json = (body: unknown) => ({ body: JSON.stringify(body), headers: JSON_TYPE });
      const calls: [string, string, object][] = [
        ['PUT', '', form()],
        ['PUT', '?dry_run=true', form()],
        ['PUT', '?alias=none', form()],
        ['PUT', '/aliases/live', json({ shares: [{ version: first, weight: 100 }] })],
        ['DELETE', '/aliases/v1', {}],
        ['POST', '/rollback', json({})],
        ['POST', '/rollback', json({ dryRun: true })],
        ['DELETE', `/versions/${first}?now=true`, {}],
        ['DELETE', '?now=true', {}],
      ];
      for (const [method, path, more] of calls) {
        const { headers = {}, ...rest } = more as { headers?: Record<string, string>; body?: FormData };
        const headersWithKey = { ...headers, authorization: deployer };
        const answer = await h.ask(`/v1/functions/${name}${path}`, { method, headers: headersWithKey, ...rest });
        h.refused(answer, 'forbidden');
        assert.match(answer.body.detail, /openai-chat .* runs the requests of all tenants; .* "operator"/);
      }
      assert.deepEqual(await live(name), [{ version: second, weight: 100 }], 'the refused changes have no effect');
      assert.equal((await h.ask(`/v1/functions/${name}/versions`)).body.versions.length, 2);
      // A key of another tenant may deploy its own function of that name, and the refused key may change other functions.
      const elsewhere = `Bearer ${await h.platform.key(['deploy'], 'elsewhere')}`;
      const deployElsewhere = await h.ask(`/v1/functions/${name}`, {
        method: 'PUT',
        headers: { authorization: elsewhere },
        ...form(),
      });
      assert.equal(deployElsewhere.status, 201);
      await deployVersion('mine', '1');
      const headers = { authorization: deployer };
      assert.equal((await h.ask('/v1/functions/mine', { method: 'DELETE', headers })).status, 204);
      // An operator may change the shared function, and the audit log records the acts.
      assert.equal((await rollback(name)).status, 200);
      assert.equal((await remove(name)).status, 204);
      const auditEntries = (await h.ask('/v1/audit?limit=10')).body.entries as Record<
        'tenant' | 'action' | 'target',
        string
      >[];
      const functionEntries = auditEntries.filter(
        ({ tenant, target }) => tenant === 'default' && target.startsWith(name),
      );
      const acts = functionEntries.map(({ action }) => action);
      assert.deepEqual(acts, ['function.remove', 'alias.rollback', 'function.deploy', 'function.deploy']);
    });

    it('a quarantined version is refused until its quarantine is lifted, and another version runs', async () => {
      const h = get();
      const name = 'quarantined';
      const first = await deployVersion(name, '1');
      const { body: invocation } = await submit(name);
      // `true`: each time, the lost sandbox held only this invocation.
      for (let i = 0; i < 2; i++) await h.platform.scheduler.quarantine.noteLoss(invocation.id, true);
      const refused = await submit(name);
      h.refused(refused, 'quarantined');
      assert.equal(refused.status, 409);
      assert.match(refused.body.detail, /quarantined@.* is quarantined: twice within ten minutes/);
      assert.match(refused.body.hint, /Deploy a new version, or lift the quarantine: `pie quarantine lift NAME`/);
      const readQuarantinedAt = async () => {
        const { functions } = (await h.ask('/v1/functions')).body;
        return functions.find((one: { name: string }) => one.name === name).quarantinedAt;
      };
      assert.ok(Math.abs(Date.parse(await readQuarantinedAt()) - Date.now()) < 60_000);
      await deployVersion(name, '2');
      assert.equal(await readQuarantinedAt(), undefined, 'the list shows the new version');
      assert.equal((await submit(name)).status, 202);
      const { versions } = (await h.ask(`/v1/functions/${name}/versions`)).body;
      const marked = versions.filter((one: { quarantinedAt?: string }) => one.quarantinedAt !== undefined);
      assert.deepEqual(
        marked.map((one: { version: string }) => one.version),
        [first],
      );
      const lifted = await remove(`${name}/quarantine`);
      assert.deepEqual([lifted.status, lifted.body], [200, { lifted: [first] }]);
      assert.deepEqual((await remove(`${name}/quarantine`)).body, { lifted: [] });
      assert.equal((await submit(`${name}@${first}`)).status, 202);
      h.refused(await remove('nothing/quarantine'), 'unknown-function');
      const acts = (await h.ask('/v1/audit?limit=10')).body.entries as { action: string; target: string }[];
      assert.ok(acts.some(({ action, target }) => action === 'quarantine.lift' && target === name));
      assert.ok(acts.some(({ action }) => action === 'function.quarantine'));
      assert.equal((await h.ask(`/v1/functions/${name}?now=true`, { method: 'DELETE' })).status < 300, true);
    });

    it('the schema of pie.json is public', async () => {
      const response = await fetch(`${get().target.url}/pie.schema.json`);
      const schema = (await response.json()) as { properties: Record<string, object> };
      assert.deepEqual([response.status, response.headers.get('access-control-allow-origin')], [200, '*']);
      assert.ok(schema.properties.expectedPages && schema.properties.limits);
    });
  });
}
