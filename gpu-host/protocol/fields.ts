import {
  HANDLER_ERROR_CASES,
  type HandlerError,
  type LogitChanges,
  type Mask,
  OUTPUT_CASES,
  type Output,
  RIGHTS_CASES,
  type RunRequest,
  type Sampler,
  TIER_CASES,
} from '#wit/generated/host.ts';
import type { StepRequest, TenantLimit } from './calls.ts';
import { ProtocolFault } from './errors.ts';
import type { KeptList } from './page-lists.ts';
import { MAX_ADDRESSES, MAX_LIST, MAX_PIXEL_BYTES, NO_PAGE_LIMIT, PIECE_BYTES } from './wire.ts';
import type { FrameWriter, WordReader } from './words.ts';

/** The form of one field of a call on the wire. Reading checks the form only; handlers check the values. */
export interface Field<T> {
  put(writer: FrameWriter, value: T, keptList: KeptList): void;
  /** @throws ProtocolFault */
  read(reader: WordReader, keptList: KeptList): T;
  /** The limit that a list is above: a list in the value, or the list that the value asks for. Undefined when no list is above its limit. */
  exceeds?(value: T): number | undefined;
  /** Number of addresses in the value. The host orders calls by their addresses. */
  addresses?(value: T): number;
  /** Number of items in the lists of the value, or in the list that the value asks for. */
  items?(value: T): number;
}

export type Fields = Readonly<Record<string, Field<unknown>>>;
type ValueOf<F> = F extends Field<infer T> ? T : never;
type OptionalOf<F extends Fields> = { [K in keyof F]: undefined extends ValueOf<F[K]> ? K : never }[keyof F];
export type ValuesOf<F extends Fields> = { readonly [K in Exclude<keyof F, OptionalOf<F>>]: ValueOf<F[K]> } & {
  readonly [K in OptionalOf<F>]?: ValueOf<F[K]>;
};

export const u32: Field<number> = { put: (writer, value) => writer.put(value), read: (reader) => reader.u32() };
export const i32: Field<number> = { put: (writer, value) => writer.put(value), read: (reader) => reader.i32() };
const f32: Field<number> = { put: (writer, value) => writer.putFloat(value), read: (reader) => reader.f32() };
/** A number of items; the host makes a list of this length. */
export const count: Field<number> = {
  ...u32,
  exceeds: (value) => (value > MAX_ADDRESSES ? MAX_ADDRESSES : undefined),
  addresses: (value) => value,
  items: (value) => value,
};
/** A whole number up to 2^53. */
export const wide: Field<number> = { put: (writer, value) => writer.putWide(value), read: (reader) => reader.wide() };
export const text: Field<string> = { put: (writer, value) => writer.putText(value), read: (reader) => reader.text() };
export const list: Field<Uint32Array> = {
  put: (writer, value) => writer.putList(value),
  read: (reader) => reader.list(),
  exceeds: ({ length }) => (length > MAX_LIST ? MAX_LIST : undefined),
  items: ({ length }) => length,
};
/** Floats, as the words of their bits. */
const floats: Field<Float32Array> = {
  put: (writer, { buffer, byteOffset, length }) => writer.putList(new Uint32Array(buffer, byteOffset, length)),
  read: (reader) => new Float32Array(reader.list().buffer),
  exceeds: ({ length }) => (length > MAX_LIST ? MAX_LIST : undefined),
  items: ({ length }) => length,
};
/** A list of page or embed addresses. */
export const addresses: Field<Uint32Array> = {
  put: (writer, value) => writer.putList(value, MAX_ADDRESSES),
  read: (reader) => reader.list(),
  exceeds: ({ length }) => (length > MAX_ADDRESSES ? MAX_ADDRESSES : undefined),
  addresses: ({ length }) => length,
  items: ({ length }) => length,
};
/** The pages that a call reads, its context. They mostly equal the context of the queue's previous call, so only the difference is sent. */
export const contextPages: Field<Uint32Array> = {
  ...addresses,
  put: (writer, value, keptList) => keptList.put(writer, value, true),
  read: (reader, keptList) => keptList.read(reader, true),
};
/** Pages that mostly equal the same call's context, sent as the difference to it. */
export const pagesOfContext: Field<Uint32Array> = {
  ...addresses,
  put: (writer, value, keptList) => keptList.put(writer, value, false),
  read: (reader, keptList) => keptList.read(reader, false),
};
export const pixels: Field<Uint8Array> = {
  put: (writer, value) => writer.putBytes(value),
  read: (reader) => reader.bytes(MAX_PIXEL_BYTES),
};

/** A piece of pages on their way to another host. */
export const piece: Field<Uint8Array> = {
  put: (writer, value) => writer.putBytes(value),
  read: (reader) => reader.bytes(PIECE_BYTES),
};

export const flag: Field<boolean> = {
  put: (writer, value) => writer.put(value ? 1 : 0),
  read: (reader) => {
    const word = reader.u32();
    if (word > 1) throw new ProtocolFault('malformed', `a flag of ${word}`);
    return word === 1;
  },
};

/** A flag, then the value if there is one. */
function optional<T>(field: Field<T>): Field<T | undefined> {
  return {
    put: (writer, value, keptList) => {
      writer.put(value === undefined ? 0 : 1);
      if (value !== undefined) field.put(writer, value, keptList);
    },
    read: (reader, keptList) => (flag.read(reader, keptList) ? field.read(reader, keptList) : undefined),
    exceeds: (value) => (value === undefined ? undefined : field.exceeds?.(value)),
    items: (value) => (value === undefined ? 0 : (field.items?.(value) ?? 0)),
  };
}

export const optionalText = optional(text);

/** The fields of a record one after another, in wire order. `fields` has a field for each member, also for one that may be undefined. */
function record<T extends object>(fields: { readonly [Name in keyof T]-?: Field<T[Name]> }): Field<T> {
  const entries: Entries = Object.entries(fields);
  return {
    put: (writer, value, keptList) => putAll(writer, entries, value, keptList),
    read: (reader, keptList) => readAll(reader, entries, {}, keptList) as T,
    exceeds: (value) => exceededIn(entries, value),
    addresses: (value) => sumIn('addresses', entries, value),
    items: (value) => sumIn('items', entries, value),
  };
}

export type Entries = readonly (readonly [name: string, field: Field<unknown>])[];

export function putAll(writer: FrameWriter, entries: Entries, values: object, keptList: KeptList): void {
  for (const [name, field] of entries) field.put(writer, (values as Record<string, unknown>)[name], keptList);
}

/** Adds the fields that it reads to `values`. */
export function readAll(
  reader: WordReader,
  entries: Entries,
  values: Record<string, unknown>,
  keptList: KeptList,
): object {
  for (const [name, field] of entries) values[name] = field.read(reader, keptList);
  return values;
}

export function exceededIn(entries: Entries, values: object): number | undefined {
  for (const [name, field] of entries) {
    const limit = field.exceeds?.((values as Record<string, unknown>)[name]);
    if (limit !== undefined) return limit;
  }
  return undefined;
}

export function sumIn(what: 'addresses' | 'items', entries: Entries, values: object): number {
  let sum = 0;
  for (const [name, field] of entries) sum += field[what]?.((values as Record<string, unknown>)[name]) ?? 0;
  return sum;
}

/** One of the cases of an enum or variant, sent as its index in the contract's list. */
function choice<Case extends string>(cases: readonly Case[], what: string): Field<Case> {
  return {
    put: (writer, value) => writer.put(cases.indexOf(value)),
    read: (reader) => {
      const code = reader.u32();
      const chosen = cases[code];
      if (chosen === undefined) throw new ProtocolFault('malformed', `unknown ${what} ${code}`);
      return chosen;
    },
  };
}

export const rights = choice(RIGHTS_CASES, 'rights of a file');
export const tier = choice(TIER_CASES, 'tier of an export');

export const mask = optional(record<Mask>({ runs: list, rowLengths: list }));
const sampler = record<Sampler>({ temperature: f32, topK: u32, topP: f32, minP: f32, seed: u32 });

const outputTag = choice(OUTPUT_CASES, 'output of a step');
const output: Field<Output> = {
  put: (writer, value, keptList) => {
    outputTag.put(writer, value.tag, keptList);
    if (value.tag === 'sample') sampler.put(writer, value.val, keptList);
    else if (value.tag === 'distributions') writer.put(value.val);
  },
  read: (reader, keptList) => {
    const tag = outputTag.read(reader, keptList);
    switch (tag) {
      case 'none':
        return { tag };
      case 'sample':
        return { tag, val: sampler.read(reader, keptList) };
      case 'distributions':
        return { tag, val: reader.u32() };
    }
  },
};

/** An empty list allows every token. */
const allowed: Field<Uint32Array | undefined> = {
  put: (writer, value) => (value ? writer.putList(value) : writer.put(0)),
  read: (reader) => {
    const words = reader.list();
    return words.length === 0 ? undefined : words;
  },
  exceeds: (words) => words && list.exceeds?.(words),
  items: (words) => words?.length ?? 0,
};

export const stepRequest = record<StepRequest>({
  tokens: list,
  positions: list,
  inPages: contextPages,
  outPages: pagesOfContext,
  mask,
  rows: u32,
  output,
  allowed,
  adapter: optionalText,
});
export const runRequest = record<RunRequest>({
  token: u32,
  position: u32,
  pages: addresses,
  maxTokens: u32,
  sampler,
  stopTokens: list,
});
export const logitChanges = record<LogitChanges>({
  frequency: f32,
  presence: f32,
  biasTokens: list,
  biasValues: floats,
  chosen: list,
});

/** A limit that does not fit into a word is written as no limit: no host has that many pages. */
export const tenantLimit: Field<TenantLimit> = {
  put: (writer, { pages, readAt }) => {
    writer.put(Math.min(pages ?? NO_PAGE_LIMIT, NO_PAGE_LIMIT));
    writer.putWide(readAt);
  },
  read: (reader) => {
    const pages = reader.u32();
    return { pages: pages === NO_PAGE_LIMIT ? null : pages, readAt: reader.wide() };
  },
};

export const handlerErrorField = record<HandlerError>({ tag: choice(HANDLER_ERROR_CASES, 'error code'), val: text });
