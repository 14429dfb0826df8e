import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { componentBytes } from '../platform.ts';
import { type Harness, JSON_TYPE, json } from './harness.ts';

/** Members that every JavaScript object inherits. */
const INHERITED = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf', '__defineGetter__'];
const METHODS = ['get', 'put', 'post', 'patch', 'delete'];

interface OpenApi {
  readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

/** Tests that names such as `constructor`, which every JavaScript object inherits, are harmless as names of functions, files, keys and others. */
export function describeNames(get: () => Harness): void {
  describe('names of inherited members of objects', () => {
    it('such names cause no server error in any address, query or body', async () => {
      const h = get();
      const { paths } = (await json(await h.send('/openapi.json'))) as OpenApi;
      let requestCount = 0;
      for (const [path, operations] of Object.entries(paths)) {
        const methods = METHODS.filter((method) => Object.hasOwn(operations, method));
        for (const method of methods) {
          for (const name of INHERITED) {
            const address = path.replaceAll(/\{[^}]+\}/g, name);
            const query = INHERITED.map((each) => `${each}=${name}`).join('&');
            // The body is written as text: the gateway's `JSON.parse` makes even `__proto__` an own member.
            const members = ['name', 'model', 'quota', 'alias', 'tenant', 'text', 'value', name];
            const body = `{${members.map((each) => `${JSON.stringify(each)}:${JSON.stringify(name)}`).join(',')}}`;
            const answer = await h.ask(`${address}?${query}`, {
              method: method.toUpperCase(),
              headers: JSON_TYPE,
              ...(method === 'get' ? {} : { body }),
            });
            assert.ok(answer.status < 500, `${method} ${address}: ${answer.status} ${JSON.stringify(answer.body)}`);
            requestCount += 1;
          }
        }
      }
      // The document has routes: the loops above were not empty.
      assert.ok(requestCount > 200, `${requestCount} requests`);
      // No request has changed the prototype of all objects.
      assert.equal(Object.hasOwn(Object.prototype, 'name'), false);
    });

    it('functions, aliases, files and tenants may have such names where the grammar of names permits', async () => {
      const h = get();
      const name = 'constructor';
      const deployAnswer = await h.deploy(
        { name, environment: {}, expectedPages: { [name]: 3 } },
        componentBytes(name),
      );
      assert.equal(deployAnswer.status, 201, JSON.stringify(deployAnswer.body));
      const { version } = deployAnswer.body;
      const shares = [{ version, weight: 100 }];
      const alias = { method: 'PUT', headers: JSON_TYPE, body: JSON.stringify({ shares }) };
      assert.equal((await h.ask(`/v1/functions/${name}/aliases/${name}`, alias)).status, 200);
      assert.equal((await h.ask(`/v1/functions/${name}@${name}`)).body.version, version);
      const invoked = await h.ask(`/v1/functions/${name}@${name}/invocations`, {
        method: 'POST',
        body: '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}',
        headers: { ...JSON_TYPE, prefer: 'respond-async' },
      });
      assert.equal(invoked.status, 202, JSON.stringify(invoked.body));
      const { id } = invoked.body;
      const stored = await h.platform.scheduler.invocations.get(id);
      assert.equal(stored?.function, name);
      for (const file of INHERITED) {
        const put = { method: 'PUT', headers: { 'content-type': 'text/plain' }, body: file };
        assert.equal((await h.ask(`/v1/invocations/${id}/files/${file}`, put)).status, 200);
        assert.equal(await (await h.send(`/v1/invocations/${id}/files/${file}`)).text(), file);
      }
      const { files } = (await h.ask(`/v1/invocations/${id}/files`)).body;
      assert.deepEqual(files.map((file: { name: string }) => file.name).sort(), [...INHERITED].sort());
      const tenant = await h.ask('/v1/tenants', { method: 'POST', headers: JSON_TYPE, body: JSON.stringify({ name }) });
      assert.equal(tenant.status, 201, JSON.stringify(tenant.body));
      const key = await h.platform.key(['invoke', 'deploy'], name);
      const { functions } = (await h.ask('/v1/functions', { headers: { authorization: `Bearer ${key}` } })).body;
      assert.equal(
        functions.some((fn: { name: string }) => fn.name === name),
        false,
        "another tenant's function is not visible",
      );
      assert.equal(({} as { polluted?: number }).polluted, undefined);
      await (await h.platform.attempt(id)).succeed(1);
    });

    it('such names give no rights as members of a body', async () => {
      const h = get();
      const key = await h.platform.key(['admin', 'invoke'], 'inheriting');
      const headers = { ...JSON_TYPE, authorization: `Bearer ${key}` };
      const body = '{"name":"k","scopes":["invoke"],"__proto__":{"scopes":["operator"],"tenant":"default"}}';
      const keyAnswer = await h.ask('/v1/keys', { method: 'POST', headers, body });
      if (keyAnswer.status === 201)
        assert.deepEqual([keyAnswer.body.scopes, keyAnswer.body.tenant ?? 'inheriting'], [['invoke'], 'inheriting']);
      else h.refused(keyAnswer, 'invalid-input', '/__proto__');
    });
  });
}
