import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { MAX_SECRET_BYTES } from '#scheduler/secrets/rules.ts';
import type { Scope } from '../../app/control.ts';
import { componentBytes } from '../platform.ts';
import { type Answer, type Harness, JSON_TYPE } from './harness.ts';

/** Tests of tenants, keys, the audit log and secrets. */
export function describeTenants(get: () => Harness): void {
  const post = (body: unknown, headers: Record<string, string> = {}, method = 'POST') => ({
    method,
    body: JSON.stringify(body),
    headers: { ...JSON_TYPE, ...headers },
  });
  const authorizationWith = (apiKey: string) => ({ authorization: `Bearer ${apiKey}` });
  const keyOf = async (scopes: readonly Scope[], tenant?: string) =>
    authorizationWith(await get().platform.key(scopes, tenant));

  describe('tenants', () => {
    it('operators create, show, change and suspend tenants, and requests of a suspended tenant are refused', async () => {
      const h = get();
      const made = await h.ask('/v1/tenants', post({ name: 'acme', weight: 5 }));
      assert.deepEqual([made.status, made.body.name, made.body.weight, made.body.suspended], [201, 'acme', 5, false]);
      assert.equal(made.headers.get('location'), '/v1/tenants/acme');
      h.refused(await h.ask('/v1/tenants', post({ name: 'acme' })), 'conflict');
      const key = await keyOf(['admin'], 'acme');
      assert.deepEqual((await h.ask('/v1/tenants', { headers: key })).body.tenants, [made.body]);
      assert.ok((await h.ask('/v1/tenants')).body.tenants.length > 1);
      assert.equal((await h.ask('/v1/tenants/acme', post({ weight: 9 }, {}, 'PATCH'))).body.weight, 9);
      assert.equal((await h.ask('/v1/tenants/acme', post({ suspended: true }, {}, 'PATCH'))).body.suspended, true);
      const uncachedKey = authorizationWith(await h.platform.key(['invoke'], 'acme'));
      h.refused(await h.ask('/v1/functions', { headers: uncachedKey }), 'tenant-suspended');
      await h.ask('/v1/tenants/acme', post({ suspended: false }, {}, 'PATCH'));
      assert.equal((await h.ask('/v1/functions', { headers: uncachedKey })).status, 200);
      h.refused(await h.ask('/v1/tenants/default', post({ suspended: true }, {}, 'PATCH')), 'conflict');
      h.refused(await h.ask('/v1/tenants/nobody'), 'unknown-tenant');
      h.refused(await h.ask('/v1/tenants/nobody', post({}, {}, 'PATCH')), 'unknown-tenant');
    });

    it('operators set and remove the latency targets that a tenant has for functions without their own', async () => {
      const h = get();
      const latency = { firstTokenMs: 300, perTokenMs: 40 };
      assert.deepEqual((await h.ask('/v1/tenants', post({ name: 'prompt', latency }))).body.latency, latency);
      const key = await keyOf(['admin'], 'prompt');
      const change = async (body: object, headers = {}) => h.ask('/v1/tenants/prompt', post(body, headers, 'PATCH'));
      assert.deepEqual((await change({ weight: 9 })).body.latency, latency, 'another change keeps them');
      assert.deepEqual((await change({ latency: null })).body.latency, null);
      h.refused(await change({ latency }, key), 'forbidden');
      assert.deepEqual((await h.ask('/v1/tenants/prompt', { headers: key })).body.latency, null);
      const { entries } = (await h.ask('/v1/audit?tenant=prompt')).body;
      const [last] = entries.filter(({ action }: { action: string }) => action === 'tenant.latency');
      assert.deepEqual(last.details, { latency: null });
    });

    it('an invalid tenant is refused with the field of the fault, and nothing is stored', async () => {
      const h = get();
      const before = (await h.ask('/v1/tenants')).body;
      for (const [body, field] of [
        [{ name: 'Acme' }, '/name'],
        [{ name: `a${'b'.repeat(63)}` }, '/name'],
        [{ name: 'x:y' }, '/name'],
        [{}, '/name'],
        [{ name: 'fine', weight: 0 }, '/weight'],
        [{ name: 'fine', weight: 1.5 }, '/weight'],
        [{ name: 'fine', suspended: 'yes' }, '/suspended'],
        [{ name: 'fine', latency: { firstTokenMs: 300 } }, '/latency/perTokenMs'],
        [{ name: 'fine', latency: { firstTokenMs: 0, perTokenMs: 40 } }, '/latency/firstTokenMs'],
        [{ name: 'fine', color: 'red' }, '/color'],
        [7, ''],
      ] as const) {
        h.refused(await h.ask('/v1/tenants', post(body)), 'invalid-input', field);
      }
      h.refused(await h.ask('/v1/tenants', { ...post({}), body: '{' }), 'malformed-json');
      h.refused(await h.ask('/v1/tenants', { ...post({}), body: `"${'x'.repeat(70_000)}"` }), 'body-too-large');
      assert.deepEqual((await h.ask('/v1/tenants')).body, before);
    });
  });

  describe('API keys', () => {
    const create = (headers: Record<string, string>, body: object, path = '/v1/keys') =>
      get().ask(path, post({ name: 'k', scopes: ['invoke'], ...body }, headers));

    it('API keys are shown once at creation, listed without the secret, rotated and removed', async () => {
      const h = get();
      const admin = await keyOf(['admin'], 'keys');
      const made = await create(admin, { name: 'ci', expiresAt: '2035-01-01T00:00:00Z' });
      assert.equal(made.status, 201);
      assert.equal(made.headers.get('cache-control'), 'no-store');
      assert.equal((await h.ask('/v1/functions', { headers: authorizationWith(made.body.apiKey) })).status, 200);
      const self = await h.ask('/v1/keys/self', { headers: authorizationWith(made.body.apiKey) });
      assert.deepEqual([self.body.tenant, self.body.keyId, self.body.scopes], ['keys', made.body.id, ['invoke']]);
      const listed = await h.ask('/v1/tenants/keys/keys');
      const { apiKey, ...shown } = made.body;
      const own = listed.body.keys.find(({ id }: { id: string }) => id === shown.id);
      assert.deepEqual({ ...own, lastUsedAt: null }, shown);
      assert.equal(JSON.stringify(listed.body).includes(apiKey), false);
      const next = await h.ask(`/v1/keys/${shown.id}/rotate`, post({ graceMs: 0 }, admin));
      assert.deepEqual([next.status, next.body.name, next.body.expiresAt], [201, 'ci', '2035-01-01T00:00:00.000Z']);
      assert.equal((await h.ask('/v1/functions', { headers: authorizationWith(next.body.apiKey) })).status, 200);
      assert.equal((await h.ask(`/v1/keys/${next.body.id}`, { method: 'DELETE', headers: admin })).status, 204);
      h.refused(await h.ask(`/v1/keys/${next.body.id}`, { method: 'DELETE', headers: admin }), 'unknown-key');
      h.refused(await h.ask(`/v1/keys/key_${'0'.repeat(12)}/rotate`, post({}, admin)), 'unknown-key');
      h.refused(await create({}, {}, '/v1/tenants/nobody/keys'), 'unknown-tenant');
    });

    it('an API key can create keys only with its own scopes, and cannot change keys that have more', async () => {
      const h = get();
      const admin = await keyOf(['admin'], 'scoped');
      const operator = await create({}, { scopes: ['operator'] }, '/v1/tenants/scoped/keys');
      h.refused(await create(admin, { scopes: ['operator'] }), 'forbidden', '/scopes');
      h.refused(await h.ask(`/v1/keys/${operator.body.id}/rotate`, post({}, admin)), 'forbidden');
      h.refused(await h.ask(`/v1/keys/${operator.body.id}`, { method: 'DELETE', headers: admin }), 'forbidden');
      assert.equal((await create(admin, { scopes: ['admin'] })).status, 201);
      for (const scopes of [['invoke'], ['deploy'], ['invoke', 'deploy']] as Scope[][]) {
        const lesser = await keyOf(scopes, 'scoped');
        h.refused(await create(lesser, {}), 'forbidden');
        h.refused(await h.ask('/v1/audit', { headers: lesser }), 'forbidden');
      }
      for (const [method, path, body] of [
        ['GET', '/v1/tenants/default', undefined],
        ['GET', '/v1/tenants/default/keys', undefined],
        ['POST', '/v1/tenants/default/keys', { name: 'k', scopes: ['invoke'] }],
        ['GET', '/v1/audit?tenant=default', undefined],
        ['POST', '/v1/tenants', { name: 'mine' }],
        ['PATCH', '/v1/tenants/scoped', { weight: 1000 }],
      ] as const) {
        const init = body === undefined ? { method, headers: admin } : post(body, admin, method);
        h.refused(await h.ask(path, init), 'forbidden');
      }
    });

    it('the last API key with the admin scope cannot be removed', async () => {
      const h = get();
      const admin = await keyOf(['admin'], 'lonely');
      const { keyId } = (await h.ask('/v1/keys/self', { headers: admin })).body;
      h.refused(await h.ask(`/v1/keys/${keyId}`, { method: 'DELETE', headers: admin }), 'conflict');
      await create(admin, { scopes: ['admin'] });
      assert.equal((await h.ask(`/v1/keys/${keyId}`, { method: 'DELETE', headers: admin })).status, 204);
    });

    it('an invalid API key is refused with the field of the fault', async () => {
      const h = get();
      const count = async () => (await h.ask('/v1/keys')).body.keys.length;
      const before = await count();
      for (const [body, field] of [
        [{ name: '' }, '/name'],
        [{ name: 'a\nb' }, '/name'],
        [{ scopes: [] }, '/scopes'],
        [{ scopes: ['root'] }, '/scopes/0'],
        [{ expiresAt: 'tomorrow' }, '/expiresAt'],
        [{ expiresAt: '2020-01-01T00:00:00Z' }, '/expiresAt'],
        [{ expiresAt: '2999-01-01T00:00:00Z' }, '/expiresAt'],
        [{ tenant: 'other' }, '/tenant'],
      ] as const) {
        h.refused(await create({}, body), 'invalid-input', field);
      }
      for (const graceMs of [-1, 1.5, 1e12]) {
        h.refused(await h.ask(`/v1/keys/key_${'0'.repeat(12)}/rotate`, post({ graceMs })), 'invalid-input', '/graceMs');
      }
      h.refused(await h.ask('/v1/keys/nonsense', { method: 'DELETE' }), 'invalid-input', 'id');
      assert.equal(await count(), before);
    });
  });

  describe('the audit log', () => {
    it('has every act, newest first, in pages, separately for each tenant', async () => {
      const h = get();
      await h.ask('/v1/tenants', post({ name: 'watched' }));
      const admin = await keyOf(['admin'], 'watched');
      const { keyId } = (await h.ask('/v1/keys/self', { headers: admin })).body;
      const made = (await h.ask('/v1/keys', post({ name: 'k', scopes: ['invoke'] }, admin))).body;
      await h.ask(`/v1/keys/${made.id}`, { method: 'DELETE', headers: admin });
      const read = async (query: string, headers = admin) =>
        (await h.ask(`/v1/audit${query}`, { headers })).body.entries;
      const acts = (entries: { actor: string; action: string; target: string }[]) =>
        entries.map(({ actor, action, target }) => [actor === keyId, action, target]);
      const expectedActs = [
        [true, 'key.remove', made.id],
        [true, 'key.create', made.id],
        [false, 'tenant.create', 'watched'],
      ];
      assert.deepEqual(acts(await read('')), expectedActs);
      const [first] = await read('?limit=1');
      assert.deepEqual(acts(await read(`?before=${first.cursor}`)), expectedActs.slice(1));
      // Without an `authorization` header, the harness sends its own key, an operator's.
      assert.deepEqual(acts(await read('?tenant=watched', {} as never)), expectedActs);
      assert.ok((await read('?limit=1000', {} as never)).length > 3);
      h.refused(await h.ask('/v1/audit?before=x'), 'invalid-input', 'before');
      h.refused(await h.ask('/v1/audit?limit=0'), 'invalid-input', 'limit');
    });
  });

  describe('secrets', () => {
    const put = (name: string, value: unknown, headers: Record<string, string> = {}) =>
      get().ask(`/v1/secrets/${name}`, post({ value }, headers, 'PUT'));
    const revisions = ({ body }: Answer) =>
      body.usedBy.map(({ function: name, revision }: { function: string; revision: number }) => [name, revision]);

    it('secrets are stored, named without their values, used by later deploys, and kept while in use', async () => {
      const h = get();
      const value = 'a secret value';
      const first = await put('API_TOKEN', value);
      assert.equal(first.status, 200);
      const zone = 'a secret zone';
      const manifest = { name: 'keeper', secrets: ['API_TOKEN'], environment: { ZONE: zone } };
      const component = componentBytes('keeper');
      const version = (await h.deploy(manifest, component)).body.version;
      const second = await put('API_TOKEN', 'another');
      assert.ok(second.body.revision > first.body.revision);
      assert.deepEqual(revisions(second), [['keeper', first.body.revision]]);
      h.refused(await h.ask('/v1/secrets/API_TOKEN', { method: 'DELETE' }), 'conflict');
      const again = await h.deploy(manifest, component);
      assert.equal(again.status, 201);
      assert.notEqual(again.body.version, version, 'the same content with another value is another version');
      assert.equal((await h.deploy(manifest, component)).body.version, again.body.version);
      const listed = await h.ask('/v1/secrets');
      const shown = listed.body.secrets.find(({ name }: { name: string }) => name === 'API_TOKEN');
      assert.deepEqual(revisions({ ...listed, body: shown }), [['keeper', second.body.revision]]);
      const keeper = '/v1/functions/keeper';
      for (const path of ['/v1/secrets', '/v1/functions', keeper, `${keeper}/versions`, '/v1/audit']) {
        const text = JSON.stringify((await h.ask(path)).body);
        assert.ok(!text.includes(value) && !text.includes(zone), path);
      }
      assert.deepEqual((await h.ask('/v1/functions/keeper')).body.manifest.environment, { ZONE: '(sealed)' });
      h.refused(
        await h.deploy({ ...manifest, environment: { ZONE: '(sealed)' } }, component),
        'invalid-manifest',
        '/environment/ZONE',
      );
      await h.deploy({ ...manifest, environment: { ZONE: 'elsewhere' } }, component);
      const back = await h.ask('/v1/functions/keeper/rollback', post({ dryRun: true }));
      assert.deepEqual(back.body.changes, [{ field: 'environment.ZONE', from: '(a value)', to: '(another value)' }]);
      const other = await keyOf(['admin'], 'elsewhere');
      assert.deepEqual((await h.ask('/v1/secrets', { headers: other })).body, { secrets: [] });
      h.refused(await h.ask('/v1/secrets/API_TOKEN', { method: 'DELETE', headers: other }), 'unknown-secret');
      await h.ask('/v1/functions/keeper', { method: 'DELETE' });
      assert.equal((await h.ask('/v1/secrets/API_TOKEN', { method: 'DELETE' })).status, 204);
      h.refused(await h.ask('/v1/secrets/API_TOKEN', { method: 'DELETE' }), 'unknown-secret');
    });

    it('a secret with a wrong name or value is refused, and so is a deploy that names an unknown secret', async () => {
      const h = get();
      for (const name of ['lower', 'A-B', '1A', `A${'B'.repeat(64)}`, '%00', 'A%3AB']) {
        h.refused(await put(name, 'value'), 'invalid-secret', '/name');
      }
      for (const value of ['', 'é'.repeat(MAX_SECRET_BYTES)])
        h.refused(await put('FINE', value), 'invalid-secret', '/value');
      h.refused(await put('FINE', 7), 'invalid-input', '/value');
      h.refused(await put('FINE', 'x', await keyOf(['invoke'])), 'forbidden');
      assert.deepEqual((await h.ask('/v1/secrets')).body, { secrets: [] });
      const answer = await h.deploy({ name: 'wants', secrets: ['NOT_THERE'] }, componentBytes('wants'));
      h.refused(answer, 'unknown-secret', '/secrets');
      assert.match(answer.body.detail, /NOT_THERE/);
      h.refused(await h.ask('/v1/functions/wants'), 'unknown-function');
    });
  });
}
