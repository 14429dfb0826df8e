import type { WitFunction, WitType } from './model.ts';

/** A core Wasm value type. */
export type CoreType = 'i32' | 'i64' | 'f32' | 'f64';

/** Maximum core parameters of a function; more are passed in memory. */
export const MAX_FLAT_PARAMS = 16;
/** Maximum core results of a function; more are passed in memory. */
export const MAX_FLAT_RESULTS = 1;

/** Bytes of a value in linear memory and the alignment of its address (Component Model, Canonical ABI, "Alignment", "Element Size"). */
export interface Layout {
  readonly size: number;
  readonly align: number;
}

const layouts = new WeakMap<WitType, Layout>();

const alignTo = (offset: number, align: number): number => Math.ceil(offset / align) * align;

/** Size and alignment of a type in linear memory. */
export function layoutOf(type: WitType): Layout {
  let layout = layouts.get(type);
  if (!layout) {
    layout = computeLayout(type);
    layouts.set(type, layout);
  }
  return layout;
}

function computeLayout(type: WitType): Layout {
  switch (type.kind) {
    case 'bool':
    case 'u8':
    case 's8':
      return { size: 1, align: 1 };
    case 'u16':
    case 's16':
      return { size: 2, align: 2 };
    case 'u32':
    case 's32':
    case 'f32':
    case 'char':
    case 'own':
    case 'borrow':
    case 'future':
      return { size: 4, align: 4 };
    case 'u64':
    case 's64':
    case 'f64':
      return { size: 8, align: 8 };
    case 'string':
    case 'list':
      return { size: 8, align: 4 };
    case 'record':
      return sequence(type.fields.map((field) => field.type)).layout;
    case 'tuple':
      return sequence(type.items).layout;
    default: {
      const cases = casesOf(type);
      const align = Math.max(
        discriminantSize(cases.length),
        ...cases.map((entry) => (entry ? layoutOf(entry).align : 1)),
      );
      const payload = Math.max(0, ...cases.map((entry) => (entry ? layoutOf(entry).size : 0)));
      return { size: alignTo(payloadOffset(type) + payload, align), align };
    }
  }
}

/** Offsets of the members of a record or tuple in bytes, and the layout of the whole value. */
export function sequence(types: readonly WitType[]): { readonly offsets: readonly number[]; readonly layout: Layout } {
  let offset = 0;
  let align = 1;
  const offsets = types.map((type) => {
    const member = layoutOf(type);
    align = Math.max(align, member.align);
    offset = alignTo(offset, member.align);
    const at = offset;
    offset += member.size;
    return at;
  });
  return { offsets, layout: { size: alignTo(offset, align), align } };
}

/** Types with a discriminant. */
export type CaseType = Extract<WitType, { kind: 'variant' | 'enum' | 'option' | 'result' }>;

export function hasCases(type: WitType): type is CaseType {
  return type.kind === 'variant' || type.kind === 'enum' || type.kind === 'option' || type.kind === 'result';
}

/** Payload of each case, null for a case without one; the index is the discriminant. */
export function casesOf(type: WitType): readonly (WitType | null)[] {
  switch (type.kind) {
    case 'variant':
      return type.cases.map((entry) => entry.type);
    case 'enum':
      return type.cases.map(() => null);
    case 'option':
      return [null, type.value];
    case 'result':
      return [type.ok, type.err];
    default:
      throw new TypeError(`${type.kind} has no cases`);
  }
}

/** Bytes of the discriminant of a type with this number of cases. */
export function discriminantSize(cases: number): 1 | 2 | 4 {
  if (cases <= 0x100) return 1;
  return cases <= 0x1_0000 ? 2 : 4;
}

/** Offset of the payload of a type with cases, in bytes. */
export function payloadOffset(type: WitType): number {
  const cases = casesOf(type);
  const align = Math.max(1, ...cases.map((entry) => (entry ? layoutOf(entry).align : 1)));
  return alignTo(discriminantSize(cases.length), align);
}

/** Types of the core values that pass a value of a type as a parameter or result ("Flattening"). */
export function flatten(type: WitType): readonly CoreType[] {
  switch (type.kind) {
    case 'u64':
    case 's64':
      return ['i64'];
    case 'f32':
    case 'f64':
      return [type.kind];
    case 'string':
    case 'list':
      return ['i32', 'i32'];
    case 'record':
      return type.fields.flatMap((field) => flatten(field.type));
    case 'tuple':
      return type.items.flatMap(flatten);
    case 'variant':
    case 'enum':
    case 'option':
    case 'result':
      return ['i32', ...joinCases(casesOf(type))];
    default:
      return ['i32'];
  }
}

/** Types of the core values that can hold the payload of each case. */
export function joinCases(cases: readonly (WitType | null)[]): readonly CoreType[] {
  const joined: CoreType[] = [];
  for (const entry of cases) {
    if (!entry) continue;
    flatten(entry).forEach((type, index) => {
      const other = joined[index];
      joined[index] = other === undefined ? type : join(other, type);
    });
  }
  return joined;
}

function join(a: CoreType, b: CoreType): CoreType {
  if (a === b) return a;
  if ((a === 'i32' && b === 'f32') || (a === 'f32' && b === 'i32')) return 'i32';
  return 'i64';
}

/** A function's core signature, as a guest that imports it sees it (synchronous lowering). */
export interface Signature {
  /** Types of the arguments in order, the resource of a method first. */
  readonly params: readonly WitType[];
  /** True when all arguments lie in memory, behind one pointer. */
  readonly spilled: boolean;
  /** True when the result is written where the last core parameter points. */
  readonly returnPointer: boolean;
}

/** Types of a function's arguments, the borrowed resource of a method first. */
export function paramTypes(fn: WitFunction, interfaceName: string): readonly WitType[] {
  const declaredTypes = fn.params.map((param) => param.type);
  if (fn.kind !== 'method' || fn.resource === null) return declaredTypes;
  return [{ kind: 'borrow', interface: interfaceName, resource: fn.resource }, ...declaredTypes];
}

export function signatureOf(fn: WitFunction, interfaceName: string): Signature {
  const params = paramTypes(fn, interfaceName);
  return {
    params,
    spilled: params.flatMap(flatten).length > MAX_FLAT_PARAMS,
    returnPointer: fn.result !== null && flatten(fn.result).length > MAX_FLAT_RESULTS,
  };
}
