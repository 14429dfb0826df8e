import fc from 'fast-check';

/** Plain objects, as the decoder makes them. */
export function record<T>(model: { [K in keyof T]: fc.Arbitrary<T[K]> }): fc.Arbitrary<T> {
  return fc.record(model, { noNullPrototype: true }) as fc.Arbitrary<T>;
}

export const u32 = fc.integer({ min: 0, max: 0xffffffff });
export const i32 = fc.integer({ min: -0x80000000, max: 0x7fffffff });
export const f32 = fc.float({ noNaN: true });
export const list = fc.array(u32, { maxLength: 40, size: 'max' }).map((values) => Uint32Array.from(values));
export const text = fc.oneof(
  { weight: 9, arbitrary: fc.string({ unit: 'grapheme', maxLength: 50, size: 'max' }) },
  { weight: 1, arbitrary: fc.constant('\ufeffafter a byte order mark') },
);
