/**
 * The contract as plain data: what `wit/*.wit` says, resolved. Names are those of WIT (kebab-case); `js` is the same name in JavaScript.
 * Types form a graph of objects, so no name has to be looked up: all interfaces that use a record refer to one object.
 */

export const PRIMITIVES = [
  'bool',
  ...(['u8', 'u16', 'u32', 'u64', 's8', 's16', 's32', 's64', 'f32', 'f64'] as const),
  ...(['char', 'string'] as const),
] as const;
export type PrimitiveKind = (typeof PRIMITIVES)[number];

export interface PrimitiveType {
  readonly kind: PrimitiveKind;
}
export interface ListType {
  readonly kind: 'list';
  readonly element: WitType;
}
export interface OptionType {
  readonly kind: 'option';
  readonly value: WitType;
}
export interface TupleType {
  readonly kind: 'tuple';
  readonly items: readonly WitType[];
}
/** `result<T, E>`; null stands for `_`, a side without a value. */
export interface ResultType {
  readonly kind: 'result';
  readonly ok: WitType | null;
  readonly err: WitType | null;
}
export interface FutureType {
  readonly kind: 'future';
  readonly value: WitType | null;
}
/** A handle of a resource. A `borrow` leaves the resource with its owner; an `own` makes the receiver the owner. */
export interface HandleType {
  readonly kind: 'own' | 'borrow';
  /** Interface that declares the resource, such as `queue`. */
  readonly interface: string;
  /** Name of the resource, such as `run`. */
  readonly resource: string;
}
export interface Field {
  readonly name: string;
  readonly js: string;
  readonly type: WitType;
  readonly docs?: string;
}
/** Members common to all declared types. */
export interface Named {
  readonly interface: string;
  readonly name: string;
  readonly js: string;
  readonly docs?: string;
}
export interface RecordType extends Named {
  readonly kind: 'record';
  readonly fields: readonly Field[];
}
/** In JavaScript `{ tag, val }`, the tag being the case's WIT name. */
export interface VariantType extends Named {
  readonly kind: 'variant';
  readonly cases: readonly { readonly name: string; readonly type: WitType | null; readonly docs?: string }[];
}
/** In JavaScript the case's WIT name, a string. */
export interface EnumType extends Named {
  readonly kind: 'enum';
  readonly cases: readonly { readonly name: string; readonly docs?: string }[];
}
export type NamedType = RecordType | VariantType | EnumType;
export type WitType =
  | PrimitiveType
  | ListType
  | OptionType
  | TupleType
  | ResultType
  | FutureType
  | HandleType
  | NamedType;

export interface WitFunction {
  /** WIT name, such as `set-priority`. A constructor has the name `constructor`. */
  readonly name: string;
  readonly js: string;
  readonly kind: 'function' | 'method' | 'static' | 'constructor';
  /** Resource to which the function belongs; null for a plain function. */
  readonly resource: string | null;
  /** Name of the core Wasm import or export, such as `[method]queue.set-priority`. */
  readonly coreName: string;
  /** Declared parameters. A method's core function takes the resource's handle (a borrow) before them. */
  readonly params: readonly Field[];
  /** Null for a function without a result. A constructor's result is an `own` of its resource. */
  readonly result: WitType | null;
  readonly async: boolean;
  readonly docs?: string;
}

export interface WitResource extends Named {
  readonly functions: readonly WitFunction[];
}

export interface WitInterface {
  /** Name in the package, such as `input-text`. */
  readonly name: string;
  readonly js: string;
  /** Full name, as core modules import it, such as `pie:inferlet/input-text@0.1.0`. */
  readonly id: string;
  readonly types: readonly NamedType[];
  readonly resources: readonly WitResource[];
  /** Plain functions; those of resources are with their resource. */
  readonly functions: readonly WitFunction[];
  readonly docs?: string;
}

export interface WitWorld {
  /** Such as `pie:inferlet`. */
  readonly package: string;
  /** Such as `0.1.0`. */
  readonly version: string;
  readonly name: string;
  readonly imports: readonly WitInterface[];
  readonly exports: readonly WitFunction[];
  readonly docs?: string;
}

/** `input-text` → `inputText`. */
export const camelCase = (name: string): string =>
  name.replace(/-([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());

/** `input-text` → `InputText`. */
export const pascalCase = (name: string): string => camelCase(`-${name}`);

/** The types that a type consists of. A part without a type, such as the side `_` of a `result`, is null. */
export function parts(type: WitType): readonly (WitType | null)[] {
  switch (type.kind) {
    case 'list':
      return [type.element];
    case 'option':
    case 'future':
      return [type.value];
    case 'tuple':
      return type.items;
    case 'result':
      return [type.ok, type.err];
    case 'record':
      return type.fields.map((field) => field.type);
    case 'variant':
      return type.cases.map((entry) => entry.type);
    default:
      return [];
  }
}
