import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { parse, print } from '@bytecodealliance/jco-transpile/wasm-tools';
import { buildArtifact } from '../build/index.ts';
import { callbackGuest, RETURN_42, watComponent } from '../testing/wat.ts';
import { link } from './instance.ts';
import { asPlan, PLAN_FORMAT, type Plan } from './plan.ts';
import { ReservedNameError, recordPlan } from './record.ts';

const RESERVED = ['__proto__', 'constructor', 'prototype'];
const ofFirstInstance = (name: string) => ({ instance: 0, name });

/** A module with an entry point `run`. */
const GUEST = `(module (memory (export "memory") 1) (func (export "run") (param i32 i32) (result i32) (i32.const 0)))`;
/** A module that imports the `run` of `GUEST` as the field `then` of a module named `__proto__`. */
const THIEF = `(module (import "__proto__" "then" (func (param i32 i32) (result i32))) (func (export "then") (param i32 i32) (result i32) (call 0 (local.get 0) (local.get 1))))`;

const PLAN: Plan = {
  format: PLAN_FORMAT,
  instances: [
    { module: 'guest.wasm', imports: [] },
    {
      module: 'thief.wasm',
      imports: [{ module: '__proto__', name: 'then', source: { kind: 'export', ...ofFirstInstance('run') } }],
    },
  ],
  entry: {
    form: 'sync',
    run: ofFirstInstance('run'),
    callback: null,
    memory: ofFirstInstance('memory'),
    realloc: null,
  },
};

const compiled = async (text: string) => new WebAssembly.Module(Uint8Array.from(await parse(text)));

/** Fails when plain objects inherit a property that they should not. */
function assertUntouched(): void {
  const { then } = {} as { then?: unknown };
  // With a `then` that every object inherits, no promise settles, and the test would hang instead of fail.
  Reflect.deleteProperty(Object.prototype, 'then');
  assert.equal(then, undefined);
  assert.deepEqual(Object.keys(Object.prototype), []);
}

describe('names reserved by JavaScript', () => {
  it('link as plain names and touch no prototype', async () => {
    let thief: WebAssembly.Exports = {};
    link({
      plan: PLAN,
      modules: new Map([
        ['guest.wasm', await compiled(GUEST)],
        ['thief.wasm', await compiled(THIEF)],
      ]),
      resolve: () => assert.fail('no import is of the host'),
      onGlobal: () => assert.fail('the component has no globals'),
      onInstance: ({ exports }) => {
        thief = exports;
      },
      trap: () => assert.fail('no import traps'),
    });
    assertUntouched();
    assert.equal((thief.then as () => number)(), 0);
  });

  for (const name of RESERVED) {
    it(`make a plan invalid: ${name}`, () => {
      const source = { kind: 'export', ...ofFirstInstance('run') } as const;
      const withImport = (item: { module: string; name: string }) => ({
        ...PLAN,
        instances: [PLAN.instances[0], { module: 'm', imports: [{ ...item, source }] }],
      });
      assert.notEqual(asPlan(withImport({ module: 'a', name: 'b' })), null);
      assert.equal(asPlan(withImport({ module: name, name: 'b' })), null);
      assert.equal(asPlan(withImport({ module: 'a', name })), null);
      assert.equal(asPlan({ ...PLAN, instances: [{ module: name, imports: [] }] }), null);
      const location = { instance: 0, name };
      const from = { module: 'm', imports: [{ module: 'a', name: 'b', source: { kind: 'export', ...location } }] };
      assert.equal(asPlan({ ...PLAN, instances: [PLAN.instances[0], from] }), null);
      const instances = PLAN.instances.slice(0, 1);
      assert.equal(asPlan({ ...PLAN, instances, entry: { ...PLAN.entry, run: location } }), null);
    });

    it(`are not recorded: ${name}`, async () => {
      for (const content of [`import "m" "${name}" (func)`, `import "${name}" "f" (func)`, `func (export "${name}")`]) {
        const bytes = await parse(`(module (${content}))`);
        const file = { name: 'evil.wasm', bytes, module: new WebAssembly.Module(bytes.slice()) };
        const recorded = recordPlan(() => assert.fail('the glue runs'), [file]);
        await assert.rejects(recorded, (error) => error instanceof ReservedNameError && error.message.includes(name));
      }
    });
  }
});

describe('a plan', () => {
  const valid = { ...PLAN, instances: PLAN.instances.slice(0, 1) };
  const imports = (source: unknown) => ({
    ...valid,
    instances: [...valid.instances, { module: 'm', imports: [{ module: 'a', name: 'b', source }] }],
  });
  const { format: _, ...withoutFormat } = valid;
  const outside = { instance: 1, name: 'x' };
  const damaged: Readonly<Record<string, unknown>> = {
    'no object': 'plan',
    'of another format': { ...valid, format: PLAN_FORMAT + 1 },
    'without a field': withoutFormat,
    'with an unknown field': { ...valid, more: 1 },
    'with an inherited field in place of its own': { ...withoutFormat, hasOwnProperty: 'format' },
    'without instances': { ...valid, instances: [] },
    'with an import from a later instance': imports({ kind: 'export', instance: 1, name: 'x' }),
    'with an import from a negative instance': imports({ kind: 'export', instance: -1, name: 'x' }),
    'with an unknown source': imports({ kind: 'file' }),
    'with a global of another type': imports({ kind: 'global', id: 0, type: 'f64', mutable: true, value: 1 }),
    'with a name that is not a string': imports({ kind: 'export', instance: 0, name: 1 }),
    'with a name that is too long': imports({ kind: 'export', instance: 0, name: 'x'.repeat(4097) }),
    'with too many instances': { ...valid, instances: new Array(1001).fill(valid.instances[0]) },
    'with an entry outside its instances': { ...valid, entry: { ...valid.entry, run: outside } },
    'with a callback outside its instances': {
      ...valid,
      entry: { ...valid.entry, form: 'callback', callback: outside },
    },
    'with a memory outside its instances': { ...valid, entry: { ...valid.entry, memory: outside } },
    'with an allocator outside its instances': { ...valid, entry: { ...valid.entry, realloc: outside } },
    'in another form with a callback': { ...valid, entry: { ...valid.entry, callback: valid.entry.run } },
    'in the callback form without a callback': { ...valid, entry: { ...valid.entry, form: 'callback' } },
  };
  it('is read unchanged', () => assert.deepEqual(asPlan(JSON.parse(JSON.stringify(valid))), valid));
  for (const [name, value] of Object.entries(damaged)) {
    it(`is refused: ${name}`, () => assert.equal(asPlan(value), null));
  }
});

describe('a component whose core module imports from __proto__', () => {
  let store: string;
  before(async () => {
    store = await mkdtemp(join(tmpdir(), 'pie-names-'));
  });
  after(() => rm(store, { recursive: true }));

  it('is refused at build, with the reason', async () => {
    const honest = await print(await watComponent(callbackGuest({ run: `${RETURN_42} (i32.const 0)` })));
    const injected = `(core module $provider (func (export "then")))
      (core instance $provided (instantiate $provider))
      (core module $evil (import "__proto__" "then" (func)))
      (core instance $run_evil (instantiate $evil (with "__proto__" (instance $provided))))`;
    const component = await parse(honest.replace(/\)\s*$/, `${injected})`));
    assert.ok(component.length < 20_000);
    const outcome = await buildArtifact(component, { store, memoryPages: 64 });
    assert.equal(outcome.ok, false);
    assert.equal(!outcome.ok && outcome.code, 'build-failed');
    assert.match(outcome.ok ? '' : outcome.message, /`__proto__`/);
    assertUntouched();
  });
});
