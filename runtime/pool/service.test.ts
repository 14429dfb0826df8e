import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { DeployedFunction } from '#scheduler/functions/functions.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { TEST_LIMITS } from '#scheduler/testing/fixture.ts';
import { CollectedLog } from '#scheduler/testing/log.ts';
import type { StoredProgram } from '../fleet/sandbox.ts';
import { Service, type ServiceOptions } from './service.ts';

type Changed = { readonly tenant: string; readonly name: string } | null;

/** A function whose version asks for `min` ready instances. All have the same component. */
function deployed(tenant: string, name: string, min: number): DeployedFunction {
  const manifest = { name, pool: { min } };
  const component = { componentHash: 'component', componentBytes: 1 };
  const version = { ...component, tenant, name, version: 'v1', manifest, createdAt: 0 };
  const live = { alias: 'live', shares: [{ version: 'v1', weight: 100 }], revision: 1, at: 0, by: 'key' };
  return { tenant, name, versions: [version], aliases: [live] } as unknown as DeployedFunction;
}

/** Starts a service over functions in memory, so that no read of the store waits for a turn of the event loop. */
async function open(functions: Map<string, DeployedFunction>, store = { isAway: false }) {
  /** Number of instances that the service asked the fleet to keep ready, by tenant. */
  const kept = new Map<string, number>();
  const log = new CollectedLog();
  const { errors } = log;
  let notify: (changed: Changed) => void = () => undefined;
  const scheduler = {
    functions: {
      deployedFunctions: async function* () {
        yield* functions.values();
      },
      read: async (tenant: string, name: string) => {
        if (store.isAway) throw new StoreError('store-unavailable', 'away');
        return functions.get(`${tenant}/${name}`) ?? null;
      },
    },
    releases: {
      onChange: async (listener: typeof notify) => {
        notify = listener;
        return () => undefined;
      },
    },
  } as unknown as ServiceOptions['scheduler'];
  const service = new Service({
    scheduler,
    launcher: { read: async () => ({}) as StoredProgram },
    fleet: { keep: (tenant, _program, min) => void kept.set(tenant, min) },
    limits: TEST_LIMITS,
    log,
  });
  await service.start();
  await service.settled();
  const change = async (changed: Changed) => {
    notify(changed);
    await service.settled();
    assert.deepEqual(errors, []);
  };
  return { kept, errors, change, announce: (changed: Changed) => notify(changed), close: () => service.close() };
}

describe('the service of functions', () => {
  it('keeps as many instances of a program as all its served versions ask for', async () => {
    const functions = new Map([
      ['t/a', deployed('t', 'a', 2)],
      ['t/b', deployed('t', 'b', 3)],
      ['u/a', deployed('u', 'a', 4)],
    ]);
    const { kept, change, close } = await open(functions);
    assert.deepEqual(Object.fromEntries(kept), { t: 5, u: 4 });
    functions.set('t/b', deployed('t', 'b', 1));
    await change({ tenant: 't', name: 'b' });
    assert.deepEqual(Object.fromEntries(kept), { t: 3, u: 4 });
    functions.delete('t/a');
    await change(null);
    assert.deepEqual(Object.fromEntries(kept), { t: 1, u: 4 });
    functions.delete('t/b');
    await change({ tenant: 't', name: 'b' });
    assert.deepEqual(Object.fromEntries(kept), { t: 0, u: 4 });
    close();
  });

  it('reads a change again when the first read failed because the store was away', { timeout: 240_000 }, async ({
    mock,
  }) => {
    mock.timers.enable({ apis: ['setTimeout'] });
    const functions = new Map([['t/a', deployed('t', 'a', 2)]]);
    const store = { isAway: false };
    const { kept, errors, announce, close } = await open(functions, store);
    functions.set('t/a', deployed('t', 'a', 5));
    store.isAway = true;
    announce({ tenant: 't', name: 'a' });
    while (errors.length === 0) await new Promise(setImmediate);
    store.isAway = false;
    while (kept.get('t') !== 5) {
      mock.timers.tick(1000);
      await new Promise(setImmediate);
    }
    close();
  });

  it('lets other work of the event loop run while it reads thousands of functions again', async () => {
    const tenants = Array.from({ length: 2000 }, (_, i) => `t${i}`);
    const { kept, change, close } = await open(
      new Map(tenants.map((tenant) => [`${tenant}/f`, deployed(tenant, 'f', 1)])),
    );
    assert.equal(kept.size, tenants.length);
    let turns = 0;
    const count = () => {
      turns += 1;
      counting = setImmediate(count);
    };
    let counting: NodeJS.Immediate = setImmediate(count);
    await change(null).finally(() => clearImmediate(counting));
    assert.ok(turns > 0, 'the event loop turned meanwhile');
    close();
  });
});
