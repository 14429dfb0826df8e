import assert from 'node:assert/strict';
import { stripTypeScriptTypes } from 'node:module';
import { describe, it } from 'node:test';
import { runInThisContext } from 'node:vm';
import fc from 'fast-check';
import { flatten, layoutOf, signatureOf } from '#wit/generate/layout.ts';
import { Emitter } from '#wit/generate/lowering/emitter.ts';
import type { WitType } from '#wit/generate/model.ts';
import * as contract from '#wit/generated/world.ts';
import { Guest } from './guest.ts';

const signature = (interfaceName: string, coreName: string) => {
  const entry = contract.world.imports.find(({ name }) => name === interfaceName);
  const found = [...(entry?.functions ?? []), ...(entry?.resources.flatMap(({ functions }) => functions) ?? [])].find(
    (item) => item.coreName === coreName,
  );
  assert.ok(found);
  return signatureOf(found, interfaceName);
};

describe('the layout of the contract', () => {
  it('equals that of the canonical ABI', () => {
    // Computed by hand from "Alignment" and "Element Size" of the Component Model's CanonicalABI.md.
    // The terms of a sum are the sizes of the fields.
    assert.deepEqual(layoutOf(contract.typesErrorType), { size: 12, align: 4 });
    assert.deepEqual(layoutOf(contract.sessionMessageType), { size: 12, align: 4 });
    assert.deepEqual(layoutOf(contract.fusedSamplerType), { size: 20, align: 4 });
    assert.deepEqual(layoutOf(contract.fusedOutputType), { size: 24, align: 4 });
    assert.deepEqual(layoutOf(contract.fusedStepRequestType), { size: 4 * 8 + 20 + 4 + 24, align: 4 });
    assert.deepEqual(layoutOf(contract.fusedRunChunkType), { size: 12, align: 4 });
    assert.deepEqual(layoutOf(contract.fusedFinishReasonType), { size: 1, align: 1 });
    assert.deepEqual(layoutOf(contract.runtimeModelInfoType), { size: 28, align: 4 });
    assert.deepEqual(layoutOf(contract.allocateExportInfoType), { size: 24, align: 4 });
    assert.deepEqual(layoutOf(contract.allocateImportedType), { size: 16, align: 4 });
    assert.deepEqual(layoutOf(contract.grammarSourceType), { size: 12, align: 4 });
    assert.deepEqual(layoutOf(contract.grammarMatchStatusType), { size: 2, align: 1 });
    assert.deepEqual(layoutOf(contract.kvFilesFileInfoType), { size: 8 + 4 + 4 + 1 + 1 + 2 + 8 + 4, align: 4 });
    assert.deepEqual(layoutOf(contract.httpRequestType), { size: 3 * 8 + 12 + 8 + 4, align: 4 });
    assert.deepEqual(layoutOf(contract.httpResponseHeadType), { size: 4 + 8 + 8, align: 4 });
    assert.deepEqual(layoutOf(contract.storeEntryType), { size: 16, align: 8 });
    assert.deepEqual(layoutOf(contract.messagingEnvelopeType), { size: 8 + 12, align: 4 });
    assert.deepEqual(layoutOf(contract.childrenEndingType), { size: 4 + 16, align: 4 });
    assert.deepEqual(layoutOf(contract.runtimeModelMetadataType), { size: 8 + 8 + 6 * 4, align: 8 });
    assert.deepEqual(layoutOf(contract.fileExchangeFileInfoType), { size: 24, align: 8 });
    assert.deepEqual(layoutOf({ kind: 'option', value: { kind: 'u64' } }), { size: 16, align: 8 });
  });

  it('passes more than 16 core parameters, and more than one core result, in memory', () => {
    assert.equal(signature('fused', 'step').spilled, true);
    assert.equal(signature('fused', '[constructor]run').spilled, false);
    assert.equal(signature('forward', 'forward').spilled, false);
    assert.equal(signature('fused', 'step').returnPointer, false);
    assert.equal(signature('tokenize', 'tokenize').returnPointer, true);
    assert.equal(signature('allocate', 'page-size').returnPointer, false);
    assert.equal(signature('grammar', 'step').spilled, true);
    assert.equal(signature('grammar', '[method]matcher.fork').returnPointer, false);
    assert.equal(signature('introspect', 'forward-scores').spilled, false);
    assert.equal(signature('adapter', 'forward-with-adapter').spilled, false);
    assert.equal(signature('adapter', 'step').spilled, true);
    assert.equal(signature('http', '[constructor]exchange').spilled, false);
    assert.equal(signature('runtime', 'metadata').returnPointer, true);
  });

  it('joins the core types of the cases of a variant', () => {
    assert.deepEqual(flatten(contract.fusedOutputType), ['i32', 'i32', 'i32', 'f32', 'f32', 'i32']);
    const wide: WitType = {
      kind: 'variant',
      interface: 'x',
      name: 'y',
      js: 'Y',
      cases: [
        { name: 'a', type: { kind: 'f32' } },
        { name: 'b', type: { kind: 'u64' } },
      ],
    };
    assert.deepEqual(flatten(wide), ['i32', 'i64']);
  });
});

/** Random JavaScript values of a type. */
function arbitrary(type: WitType): fc.Arbitrary<unknown> {
  switch (type.kind) {
    case 'bool':
      return fc.boolean();
    case 'u8':
      return fc.integer({ min: 0, max: 255 });
    case 'u16':
      return fc.integer({ min: 0, max: 0xffff });
    case 's32':
      return fc.integer();
    case 'u64':
      return fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
    case 'f32':
      return fc.float({ noNaN: true });
    case 'string':
      return fc.string({ unit: 'grapheme', maxLength: 30, size: 'max' });
    case 'list': {
      const items = fc.array(arbitrary(type.element), { maxLength: 6 });
      if (type.element.kind === 'u32') return items.map((values) => Uint32Array.from(values as number[]));
      if (type.element.kind === 'f32') return items.map((values) => Float32Array.from(values as number[]));
      if (type.element.kind === 'u8') return items.map((values) => Uint8Array.from(values as number[]));
      return items;
    }
    case 'option':
      return fc.option(arbitrary(type.value), { nil: undefined });
    case 'result':
      return fc.oneof(payload('ok', type.ok), payload('err', type.err));
    case 'record':
      return fc.record(Object.fromEntries(type.fields.map((field) => [field.js, arbitrary(field.type)])), {
        noNullPrototype: true,
      });
    case 'variant':
      return fc.oneof(...type.cases.map(({ name, type: value }) => payload(name, value)));
    case 'enum':
      return fc.constantFrom(...type.cases.map(({ name }) => name));
    default:
      return fc.integer({ min: 0, max: 0xffff_ffff });
  }
}

function payload(tag: string, type: WitType | null): fc.Arbitrary<unknown> {
  return type ? arbitrary(type).map((val) => ({ tag, val })) : fc.constant({ tag });
}

/** Generated code that stores and loads one type. */
function codec(type: WitType) {
  const emitter = new Emitter(() => 0);
  const store = emitter.store(type, 'p', 'v');
  const load = emitter.load(type, 'p');
  const source = `${emitter.helpers}\n({ store(g, p, v) { ${store} }, load(g, p) { return ${load}; } })`;
  return runInThisContext(stripTypeScriptTypes(`{${source}}`)) as {
    store(guest: Guest, address: number, value: unknown): void;
    load(guest: Guest, address: number): unknown;
  };
}

/** A guest whose allocator only counts up, and whose memory grows during host calls. */
function bareGuest(): { guest: Guest; root: number } {
  const memory = new WebAssembly.Memory({ initial: 1 });
  let top = 1024;
  const guest = new Guest();
  guest.attach(memory, (_old, _oldSize, align, size) => {
    const at = Math.ceil(top / align) * align;
    top = at + size;
    while (top > memory.buffer.byteLength) memory.grow(1);
    return at;
  });
  return { guest, root: 8 };
}

describe('storing and loading', () => {
  const types: WitType[] = [
    ...Object.values(contract).filter((value): value is never => typeof value === 'object' && 'cases' in value),
    ...Object.values(contract).filter((value): value is never => typeof value === 'object' && 'fields' in value),
    { kind: 'result', ok: contract.fusedStepResultType, err: contract.typesErrorType },
    { kind: 'list', element: { kind: 'list', element: { kind: 'u8' } } },
    { kind: 'option', value: { kind: 'u64' } },
    { kind: 'tuple', items: [{ kind: 'u8' }, { kind: 'string' }, { kind: 'bool' }, { kind: 's32' }] },
  ];
  for (const type of types) {
    it(`returns every stored value of ${'name' in type ? type.name : JSON.stringify(type).slice(0, 60)}`, () => {
      const { store, load } = codec(type);
      const values = type.kind === 'tuple' ? fc.tuple(...type.items.map(arbitrary)) : arbitrary(type);
      fc.assert(
        fc.property(values, (value) => {
          const { guest, root } = bareGuest();
          store(guest, root, value);
          assert.deepEqual(load(guest, root), value);
        }),
        { seed: 21, numRuns: 60 },
      );
    });
  }
});
