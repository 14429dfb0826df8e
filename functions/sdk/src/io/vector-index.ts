import type { Metric } from 'pie:inferlet/index@0.1.0';
import { batchesOf } from '../context/long-text.ts';
import { InferletError } from '../errors.ts';
import { settle, index as wire } from '../raw.ts';

/** Maximum number of entries in one call of the platform. */
const CALL_ENTRIES = 256;
/** Maximum bytes of all entries in one call. */
const CALL_BYTES = 3 * 2 ** 20;
const DELETED_AT_ONCE = 256;
/** Maximum bytes of a UTF-16 unit in UTF-8. */
const CHARACTER_BYTES = 3;
const FLOAT_BYTES = 4;
/** Assumed bytes of an entry besides its texts and its vector. */
const OTHER_BYTES = 256;

/** Measure of nearness: `cosine` compares directions, `euclidean` distances; `dot-product` is for vectors whose length matters. */
export type { Metric };

export type FieldValue = string | number | boolean;

/** An entry as it is stored. */
export interface IndexEntry {
  /** 1 to 512 bytes. A later entry of the same id replaces it. */
  readonly id: string;
  readonly vector: ArrayLike<number>;
  /** A text that queries find by its words; at most 64 KiB. */
  readonly text?: string | undefined;
  /** Up to 32 named values for filters. */
  readonly fields?: Readonly<Record<string, FieldValue>>;
}

/** A condition on a field: a value that the field must equal, a list of values of which it must equal one, or comparisons that must all hold. */
export type FieldCondition =
  | FieldValue
  | readonly FieldValue[]
  | {
      readonly not?: FieldValue | readonly FieldValue[];
      readonly below?: string | number;
      readonly atMost?: string | number;
      readonly above?: string | number;
      readonly atLeast?: string | number;
    };

/** Conditions by the field's name; all must hold. */
export type Filter = Readonly<Record<string, FieldCondition>>;

/** A vector, a text, or both. A query with both joins the ranking by vector and the ranking by text. */
export interface IndexQuery {
  readonly vector?: ArrayLike<number> | undefined;
  readonly text?: string | undefined;
  readonly filter?: Filter;
  /** Most matches, 1 to 256; 10 by default. */
  readonly limit?: number;
}

/** An entry that a query found. */
export interface IndexMatch {
  readonly id: string;
  /** Larger is better. For a vector, nearness by the metric; for a text, BM25; for both, the sum of 1 / (60 + rank) over the two rankings. */
  readonly score: number;
  readonly text?: string | undefined;
  readonly fields: Readonly<Record<string, FieldValue>>;
}

export interface IndexStats {
  readonly name: string;
  readonly dimensions: number;
  readonly metric: Metric;
  readonly entries: number;
  /** Bytes that count for the tenant's limits. */
  readonly bytes: number;
}

/** The shape of an index. */
export interface IndexOptions {
  /** Number of values in a vector, 1 to 4,096. */
  readonly dimensions: number;
  /** `cosine` by default. */
  readonly metric?: Metric;
}

/**
 * A durable index of vectors with texts and fields. The tenant's functions with the grant `store` (manifest: `grants.store`) share it; other
 * functions get `unsupported`. In a large index, the search for the nearest vectors is approximate.
 *
 * @example
 * const index = await VectorIndex.open('notes', { dimensions: 384 });
 * await index.upsert([{ id: 'a', vector, text: 'The cat sleeps.', fields: { year: 2026 } }]);
 * const matches = await index.query({ vector: asked, text: 'cat', filter: { year: { atLeast: 2025 } }, limit: 5 });
 */
export class VectorIndex {
  readonly name: string;

  /** An index that exists already: calls fail with `not-found` when it does not. */
  constructor(name: string) {
    this.name = name;
  }

  /** Makes the index, unless it exists. @throws InferletError `invalid-argument` when it exists with another shape */
  static async open(name: string, { dimensions, metric = 'cosine' }: IndexOptions): Promise<VectorIndex> {
    await settle(wire.create(name, dimensions, metric));
    return new VectorIndex(name);
  }

  /** The tenant's indexes. */
  static async list(): Promise<IndexStats[]> {
    return (await settle(wire.listIndexes())).map(statsOf);
  }

  /**
   * Stores entries. Each replaces an earlier entry with its id. Many entries take several calls; each call stores all of its entries or none.
   *
   * @throws InferletError `limit-exceeded` when the tenant's indexes have no room, and `invalid-argument` for vectors of different lengths or a
   * field that is not a text, a number or a boolean
   */
  async upsert(entries: readonly IndexEntry[]): Promise<void> {
    checkLengths(entries);
    // The platform refuses an entry that is too large for a call of its own.
    for (const part of batchesOf(entries, sizeOf, CALL_ENTRIES, CALL_BYTES)) {
      const vectors = new Float32Array(part.reduce((sum, { vector }) => sum + vector.length, 0));
      let at = 0;
      for (const { vector } of part) {
        vectors.set(vector, at);
        at += vector.length;
      }
      const list = part.map(({ id, text, fields = {} }) => ({
        id,
        text,
        fields: Object.entries(fields).map(([name, value]) => ({ name, value: wireValue(name, value) })),
      }));
      await settle(wire.upsert(this.name, list, vectors));
    }
  }

  /** Deletes entries. @returns the number of entries deleted */
  async delete(ids: readonly string[]): Promise<number> {
    let deleted = 0;
    for (let at = 0; at < ids.length; at += DELETED_AT_ONCE) {
      deleted += await settle(wire.deleteEntries(this.name, ids.slice(at, at + DELETED_AT_ONCE)));
    }
    return deleted;
  }

  /** The best matches, the best one first. */
  async query({ vector, text, filter = {}, limit = 10 }: IndexQuery): Promise<IndexMatch[]> {
    const queryVector = vector && Float32Array.from(vector);
    const found = await settle(wire.query(this.name, queryVector, text, conditionsOf(filter), limit));
    return found.map(({ entry, score }) => ({
      id: entry.id,
      score,
      text: entry.text ?? undefined,
      fields: Object.fromEntries(entry.fields.map(({ name, value }) => [name, value.val])),
    }));
  }

  async stats(): Promise<IndexStats> {
    return statsOf(await settle(wire.stats(this.name)));
  }

  /** Deletes the index with its entries. @returns true if there was one */
  drop(): Promise<boolean> {
    return settle(wire.dropIndex(this.name));
  }
}

type WireCondition = Parameters<typeof wire.query>[3][number];
type WireValue = WireCondition['values'][number];

const COMPARISONS = { below: 'less', atMost: 'at-most', above: 'greater', atLeast: 'at-least' } as const;

function conditionsOf(filter: Filter): WireCondition[] {
  return Object.entries(filter).flatMap(([field, wanted]): WireCondition[] => {
    if (typeof wanted !== 'object' || wanted === null || Array.isArray(wanted)) {
      return [{ field, comparison: 'equal', values: valuesOf(field, wanted) }];
    }
    const { not, ...bounds } = wanted as Exclude<FieldCondition, FieldValue | readonly FieldValue[]>;
    const ordered = Object.entries(bounds).flatMap(([name, bound]): WireCondition[] =>
      bound === undefined ? [] : [{ field, comparison: comparisonOf(field, name), values: [wireValue(field, bound)] }],
    );
    return not === undefined ? ordered : [{ field, comparison: 'not-equal', values: valuesOf(field, not) }, ...ordered];
  });
}

const valuesOf = (field: string, values: unknown): WireValue[] =>
  (Array.isArray(values) ? (values as readonly unknown[]) : [values]).map((value) => wireValue(field, value));

/** Throws for an unknown name. A filter may come from a client's JSON, and the engine ends an inferlet that passes a wrong enum value to a call. */
function comparisonOf(field: string, name: string): WireCondition['comparison'] {
  if (Object.hasOwn(COMPARISONS, name)) return COMPARISONS[name as keyof typeof COMPARISONS];
  const known = Object.keys(COMPARISONS).join(', ');
  throw new InferletError('invalid-argument', `The filter of "${field}" takes not, ${known}, but no "${name}".`);
}

/** Throws for a value of another type, because the engine would end the inferlet for it, too. */
function wireValue(field: string, val: unknown): WireValue {
  if (typeof val === 'string') return { tag: 'text', val };
  if (typeof val === 'number') return { tag: 'number', val };
  if (typeof val === 'boolean') return { tag: 'boolean', val };
  const got = val === null ? 'null' : typeof val;
  throw new InferletError('invalid-argument', `"${field}" takes a text, a number or a boolean, not ${got}.`);
}

const statsOf = ({ name, dimensions, metric, entries, bytes }: IndexStats): IndexStats => ({
  name,
  dimensions,
  metric,
  entries: Number(entries),
  bytes: Number(bytes),
});

/** Throws for vectors of different lengths: the platform receives them as one list, and would divide this list at the wrong places. */
function checkLengths(entries: readonly IndexEntry[]): void {
  const length = entries[0]?.vector.length;
  const other = entries.find(({ vector }) => vector.length !== length);
  if (!other) return;
  const found = `that of "${entries[0]?.id}" has ${length} values, that of "${other.id}" ${other.vector.length}`;
  throw new InferletError('invalid-argument', `The vectors of one call must have one length: ${found}.`);
}

function sizeOf({ id, vector, text = '', fields = {} }: IndexEntry): number {
  let characters = id.length + text.length;
  for (const [name, value] of Object.entries(fields)) characters += name.length + String(value).length;
  return characters * CHARACTER_BYTES + vector.length * FLOAT_BYTES + OTHER_BYTES;
}
