import fc from 'fast-check';
import type { WitType } from '#wit/generate/model.ts';
import { codePoint } from '../../testing/code-point.ts';

const nat32 = fc.integer({ min: 0, max: 0xffff_ffff });
const s32 = fc.integer({ min: -0x8000_0000, max: 0x7fff_ffff });
const u64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const text = fc.string({ unit: codePoint, maxLength: 20, size: 'max' });
const float = fc.float({ noNaN: true });

const LISTS: Partial<Record<WitType['kind'], fc.Arbitrary<unknown>>> = {
  u8: fc.uint8Array({ maxLength: 40, size: 'max' }),
  u32: fc.uint32Array({ maxLength: 12 }),
  f32: fc.float32Array({ maxLength: 12, noNaN: true }),
};

/**
 * Random values of a WIT type in the form that host functions take and return. A resource is represented by its number.
 */
export function arbitraryOf(type: WitType): fc.Arbitrary<unknown> {
  switch (type.kind) {
    case 'bool':
      return fc.boolean();
    case 'u8':
      return fc.nat(255);
    case 'u16':
      return fc.nat(65535);
    case 'u32':
    case 'own':
    case 'borrow':
      return nat32;
    case 's32':
      return s32;
    case 'u64':
      return u64;
    case 'f32':
      return float;
    case 'f64':
      return fc.double();
    case 'string':
      return text;
    case 'list':
      return LISTS[type.element.kind] ?? fc.array(arbitraryOf(type.element), { maxLength: 4 });
    case 'option':
      return fc.option(arbitraryOf(type.value), { nil: undefined });
    case 'result':
      return fc.oneof(side('ok', type.ok), side('err', type.err));
    case 'record': {
      const fields = type.fields.map(({ js, type: of }) => [js, arbitraryOf(of)] as const);
      return fc
        .tuple(...fields.map(([, values]) => values))
        .map((values) => Object.fromEntries(fields.map(([js], i) => [js, values[i]])));
    }
    case 'variant':
      return fc.oneof(
        ...type.cases.map(({ name, type: of }) =>
          of ? arbitraryOf(of).map((val) => ({ tag: name, val })) : fc.constant({ tag: name }),
        ),
      );
    case 'enum':
      return fc.constantFrom(...type.cases.map(({ name }) => name));
    default:
      throw new TypeError(`the contract has no value of ${type.kind}`);
  }
}

const side = (tag: string, type: WitType | null): fc.Arbitrary<unknown> =>
  type ? arbitraryOf(type).map((val) => ({ tag, val })) : fc.constant({ tag, val: undefined });
