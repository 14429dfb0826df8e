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
import type { FrameWriter, WordReader } from './frames.ts';
import { MAX_ADDRESSES, MAX_LIST, MAX_PIXEL_BYTES, NO_PAGE_LIMIT, PIECE_BYTES } from './wire.ts';

/**
 * Writes and reads one field of a call. Reading checks only the form of the words; handlers check the values. `keptList` is the last context (list of
 * pages to read) of the call's queue, which both ends of the connection know.
 */
export interface Field<T> {
  put(writer: FrameWriter, value: T, keptList: KeptList): void;
  /** @throws ProtocolFault */
  read(reader: WordReader, keptList: KeptList): T;
  /** The limit that a list exceeds: a list in the value, or a list that the host must make for it. Undefined when no list exceeds its limit. */
  exceeds?(value: T): number | undefined;
  /** Number of page or embed addresses in the value, or that the value asks for. The host compares addresses to keep dependent calls in order. */
  addresses?(value: T): number;
  /** Number of items in the lists of the value, or in the list that the host must make for it. */
  items?(value: T): number;
}

export type Fields = Readonly<Record<string, Field<unknown>>>;
type ValueOf<F> = F extends Field<infer T> ? T : never;
/** Names of the fields whose values may be undefined. */
type OptionalOf<F extends Fields> = { [K in keyof F]: undefined extends ValueOf<F[K]> ? K : never }[keyof F];
/** The object that has the values of the fields. A field whose value may be undefined is an optional member. */
export type ValuesOf<F extends Fields> = { readonly [K in Exclude<keyof F, OptionalOf<F>>]: ValueOf<F[K]> } & {
  readonly [K in OptionalOf<F>]?: ValueOf<F[K]>;
};

export const u32: Field<number> = { put: (writer, value) => writer.put(value), read: (reader) => reader.u32() };
export const i32: Field<number> = { put: (writer, value) => writer.put(value), read: (reader) => reader.i32() };
const f32: Field<number> = { put: (writer, value) => writer.putFloat(value), read: (reader) => reader.f32() };
/** A number of pages or embeds to allocate: the host makes a list of so many addresses. */
export const count: Field<number> = {
  ...u32,
  exceeds: (value) => (value > MAX_ADDRESSES ? MAX_ADDRESSES : undefined),
  addresses: (value) => value,
  items: (value) => value,
};
/** A whole number from 0 to 2^53, sent as two words. */
export const wide: Field<number> = { put: (writer, value) => writer.putWide(value), read: (reader) => reader.wide() };
export const text: Field<string> = { put: (writer, value) => writer.putText(value), read: (reader) => reader.text() };
export const list: Field<Uint32Array> = {
  put: (writer, value) => writer.putList(value),
  read: (reader) => reader.list(),
  exceeds: ({ length }) => (length > MAX_LIST ? MAX_LIST : undefined),
  items: ({ length }) => length,
};
/** Floats of 32 bits, each sent as a word with the same bits. */
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
/**
 * The context of a call: the pages that the call reads. It mostly equals the context of the queue's previous call, so only the difference is sent.
 * The argument `true` makes this context the queue's last one.
 */
export const contextPages: Field<Uint32Array> = {
  ...addresses,
  put: (writer, value, keptList) => keptList.put(writer, value, true),
  read: (reader, keptList) => keptList.read(reader, true),
};
/**
 * Pages that are mostly the same as the context of the same call, so only the difference to this context is sent. The argument `false` leaves the
 * queue's last context as it is.
 */
export const pagesOfContext: Field<Uint32Array> = {
  ...addresses,
  put: (writer, value, keptList) => keptList.put(writer, value, false),
  read: (reader, keptList) => keptList.read(reader, false),
};
export const pixels: Field<Uint8Array> = {
  put: (writer, value) => writer.putBytes(value),
  read: (reader) => reader.bytes(MAX_PIXEL_BYTES),
};

/** One piece of the bytes of pages that are sent to another host. */
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

/** A field whose value may be undefined: a flag, then the value if it is defined. */
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

/** A record: its members one after another, in the order of `fields`. Every member has a field, also a member that may be undefined. */
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

/** Reads fields in order, adds their values to `values`, and returns `values`. */
export function readAll(
  reader: WordReader,
  entries: Entries,
  values: Record<string, unknown>,
  keptList: KeptList,
): object {
  for (const [name, field] of entries) values[name] = field.read(reader, keptList);
  return values;
}

/** The first limit that one of the values exceeds; undefined when no value exceeds a limit. */
export function exceededIn(entries: Entries, values: object): number | undefined {
  for (const [name, field] of entries) {
    const limit = field.exceeds?.((values as Record<string, unknown>)[name]);
    if (limit !== undefined) return limit;
  }
  return undefined;
}

/** Number of addresses or items in all values. */
export function sumIn(counted: 'addresses' | 'items', entries: Entries, values: object): number {
  let sum = 0;
  for (const [name, field] of entries) sum += field[counted]?.((values as Record<string, unknown>)[name]) ?? 0;
  return sum;
}

/** The name of a case of an enum or variant, sent as the index of the case in the contract. `what` names the type in errors. */
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

/** The allowed tokens of a step, as `StepRequest.allowed` has them. Undefined, which allows every token, is sent as an empty list. */
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

/** Maximum pages of a tenant. No host has more pages than a word can count, so a larger maximum is sent as `NO_PAGE_LIMIT`. */
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

/** Number of queues whose last context each end of a stream remembers. */
const SLOTS = 1024;
/** Addresses kept of a context: 32,768 tokens with pages of 16. The rest of a longer context is sent again with every call. */
const MAX_KEPT = 2048;
const EMPTY = new Uint32Array(0);

/**
 * The last context of each queue, as one end of a stream knows it. A context is the list of pages that a call reads. A decode loop reads the same
 * pages in each call, or one more. A list is therefore sent in two parts: the number of leading addresses that it shares with the last context,
 * and the addresses after these. Both ends keep the same contexts, because both see the calls in the same order.
 */
export class PageLists {
  readonly #slots: (KeptList | undefined)[] = new Array(SLOTS);

  /** The last context of a queue; an empty one when another queue has used the slot since. */
  of(inferlet: number, queue: number): KeptList {
    const slot = (Math.imul(inferlet, 31) + queue) & (SLOTS - 1);
    const keptList = this.#slots[slot];
    if (keptList?.inferlet === inferlet && keptList.queue === queue) return keptList;
    const newList = new KeptList(inferlet, queue);
    this.#slots[slot] = newList;
    return newList;
  }
}

/** The last context of one queue. */
export class KeptList {
  readonly inferlet: number;
  readonly queue: number;
  /** Never changed in place: calls share it. */
  #list = EMPTY;

  constructor(inferlet: number, queue: number) {
    this.inferlet = inferlet;
    this.queue = queue;
  }

  /** Forgets the list of an operation that did not fit a frame: the other end never saw that list. The next `put` then sends its list whole. */
  forget(): void {
    this.#list = EMPTY;
  }

  /** Writes a list. @param keep true when the list is a context (the field `contextPages`): it becomes the last one of the queue */
  put(writer: FrameWriter, values: Uint32Array, keep: boolean): void {
    const sameCount = this.#commonLength(values);
    writer.put(sameCount);
    // The limit holds for the whole list, with the addresses that are not sent.
    writer.putList(values.subarray(sameCount), MAX_ADDRESSES - sameCount);
    if (keep && (sameCount < this.#list.length || values.length > sameCount)) this.#list = values.slice(0, MAX_KEPT);
  }

  /** Reads a list as `put` wrote it. The caller must not change the list. @throws ProtocolFault */
  read(reader: WordReader, keep: boolean): Uint32Array {
    const sameCount = reader.u32();
    if (sameCount > this.#list.length)
      throw new ProtocolFault('malformed', `a list repeats ${sameCount} of ${this.#list.length} addresses`);
    const tail = reader.list();
    if (tail.length === 0 && sameCount === this.#list.length) return this.#list;
    const list = new Uint32Array(sameCount + tail.length);
    list.set(this.#list.subarray(0, sameCount));
    list.set(tail, sameCount);
    if (keep) this.#list = list.length > MAX_KEPT ? list.slice(0, MAX_KEPT) : list;
    return list;
  }

  #commonLength(values: Uint32Array): number {
    const list = this.#list;
    const maxSame = Math.min(list.length, values.length);
    let sameCount = 0;
    while (sameCount < maxSame && list[sameCount] === values[sameCount]) sameCount++;
    return sameCount;
  }
}
