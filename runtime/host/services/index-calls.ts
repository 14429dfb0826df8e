import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { CallOptions, IndexClient } from '#index-host/protocol/client.ts';
import {
  MAX_CALL_BYTES,
  MAX_CONDITION_VALUES,
  MAX_CONDITIONS,
  MAX_DIMENSIONS,
  MAX_ENTRIES_PER_CALL,
  MAX_FIELDS,
} from '#index-host/protocol/messages.ts';
import type * as Wire from '#index-host/protocol/types.ts';
import { IndexError } from '#index-host/protocol/types.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import type { Condition, Field, IndexEntry, IndexInfo, Match, Metric, Value } from '#wit/generated/host.ts';
import type { Inferlet } from '../session/inferlet.ts';
import { ask, fromStore } from './ask.ts';

/** Longest time for one call; the invocation's deadline may be sooner. */
const MAX_CALL_MS = 60_000;
/** Bytes that a number or a boolean counts as. */
const VALUE_BYTES = 8;
const NO_VECTOR = new Float32Array(0);

/** Implements `wit/index.wit`. Bounds the content of a call; the index host checks names, ids and values. */
export const index = {
  create: (inferlet: Inferlet, name: string, dimensions: number, metric: Metric): Promise<Outcome<IndexInfo>> =>
    call(inferlet, 'write', name.length, async (client, options) =>
      infoOf(await client.create({ name, dimensions, metric }, options)),
    ),

  upsert: (
    inferlet: Inferlet,
    name: string,
    entries: readonly IndexEntry[],
    vectors: Float32Array,
  ): Promise<Outcome<undefined>> => {
    const bytes = vectors.byteLength + entries.reduce((sum, entry) => sum + entryBytes(entry), name.length);
    const refused =
      tooMany('entries', entries.length, MAX_ENTRIES_PER_CALL) ??
      tooMany('bytes', bytes, MAX_CALL_BYTES) ??
      tooMany(
        'fields of an entry',
        maxCountOf(entries, ({ fields }) => fields.length),
        MAX_FIELDS,
      );
    // `vectors` may be a view of the guest's memory.
    const copiedVectors = refused ? NO_VECTOR : vectors.slice();
    const write = async (client: IndexClient, options: CallOptions) => {
      const { tenant } = inferlet.description;
      const maxBytes = (await inferlet.services.indexes.sums.room(tenant)) ?? undefined;
      const list = entries.map(({ id, text, fields }) => ({ id, text: text ?? null, metadata: metadataOf(fields) }));
      await note(inferlet, await client.upsert(name, list, copiedVectors, { ...options, maxBytes }));
      return undefined;
    };
    return call(inferlet, 'write', bytes, write, refused);
  },

  'delete-entries': (inferlet: Inferlet, name: string, ids: readonly string[]): Promise<Outcome<number>> => {
    const bytes = ids.reduce((sum, id) => sum + Buffer.byteLength(id), name.length);
    const refused = tooMany('ids', ids.length, MAX_ENTRIES_PER_CALL) ?? tooMany('bytes', bytes, MAX_CALL_BYTES);
    const write = async (client: IndexClient, options: CallOptions) =>
      note(inferlet, await client.delete(name, ids, options));
    return call(inferlet, 'write', bytes, write, refused);
  },

  query: (
    inferlet: Inferlet,
    name: string,
    vector: Float32Array | undefined,
    text: string | undefined,
    filter: readonly Condition[],
    limit: number,
  ): Promise<Outcome<readonly Match[]>> => {
    const bytes = (vector?.byteLength ?? 0) + Buffer.byteLength(text ?? '') + filterBytes(filter) + name.length;
    // The index host cannot tell an empty vector from none, and would find entries by the text alone.
    const empty = vector?.length === 0 ? handlerError('invalid-argument', 'the vector of the query is empty') : null;
    const refused =
      empty ??
      tooMany('values of a vector', vector?.length ?? 0, MAX_DIMENSIONS) ??
      tooMany('conditions', filter.length, MAX_CONDITIONS) ??
      tooMany(
        'values of a condition',
        maxCountOf(filter, ({ values }) => values.length),
        MAX_CONDITION_VALUES,
      ) ??
      tooMany('bytes', bytes, MAX_CALL_BYTES);
    const copiedVector = refused ? null : (vector?.slice() ?? null);
    const read = async (client: IndexClient, options: CallOptions) => {
      const conditions = filter.map(({ field, comparison, values }) => ({
        field,
        comparison,
        values: values.map(({ val }) => val),
      }));
      const found = await client.query(
        name,
        { vector: copiedVector, text: text ?? null, filter: conditions, limit },
        options,
      );
      return found.map(matchOf);
    };
    return inferlet.unread.keep(call(inferlet, 'read', bytes, read, refused), (matches) =>
      matches.reduce((sum, { entry }) => sum + entryBytes(entry), 0),
    );
  },

  stats: (inferlet: Inferlet, name: string): Promise<Outcome<IndexInfo>> =>
    call(inferlet, 'read', name.length, async (client, options) => infoOf(await client.stats(name, options))),

  'list-indexes': (inferlet: Inferlet): Promise<Outcome<readonly IndexInfo[]>> =>
    call(inferlet, 'read', 0, async (client, options) => (await client.list(options)).map(infoOf)),

  'drop-index': (inferlet: Inferlet, name: string): Promise<Outcome<boolean>> =>
    call(inferlet, 'write', name.length, async (client, options) => {
      const count = await note(inferlet, await client.drop(name, options));
      return count > 0;
    }),
};

/**
 * Makes a call of the index host. It fails after `MAX_CALL_MS`, at the invocation's deadline, and when the inferlet is stopped.
 *
 * @param bytes bytes that the call carries
 * @param make makes the call; not called when the call is refused
 * @param fault error in the arguments; a missing grant takes precedence
 */
function call<T>(
  inferlet: Inferlet,
  needs: 'read' | 'write',
  bytes: number,
  make: (client: IndexClient, options: CallOptions) => Promise<T>,
  fault: HandlerError | null = null,
): Promise<Outcome<T>> {
  const { description, services, stopping } = inferlet;
  const refused = checkGrant(description.grants.store, needs) ?? fault;
  if (refused) return Promise.resolve(err(refused));
  const work = async (): Promise<Outcome<T>> => {
    const deadlineMs = Math.min(MAX_CALL_MS, description.deadline.leftMs);
    const withdrawn = new AbortController();
    const withdraw = () => withdrawn.abort(new IndexError('cancelled', 'the inferlet was stopped'));
    stopping.addEventListener('abort', withdraw, { once: true });
    try {
      const options = { signal: withdrawn.signal, deadlineMs };
      return ok(await services.indexes.during(description.tenant, bytes, (client) => make(client, options)));
    } catch (error) {
      if (needs === 'write' && isUncertain(error)) void services.indexes.settle(description.tenant);
      return err(error instanceof IndexError ? handlerError(error.code, error.message) : fromStore(error));
    } finally {
      stopping.removeEventListener('abort', withdraw);
    }
  };
  return ask(inferlet, work, bytes);
}

/** True when the index host may have made the write, or a part of it, although the call failed. */
const isUncertain = (error: unknown): boolean =>
  error instanceof IndexError && ['cancelled', 'deadline-exceeded', 'unavailable', 'internal'].includes(error.code);

/** Tells Redis the tenant's bytes after a write. If this fails, the next write tells the bytes. */
async function note({ description, services }: Inferlet, changed: Wire.IndexWriteOutcome): Promise<number> {
  await services.indexes.sums.note(description.tenant, changed).catch(() => undefined);
  return changed.count;
}

function checkGrant(grantedAccess: Grants['store'], needs: 'read' | 'write'): HandlerError | null {
  if (grantedAccess === 'write' || grantedAccess === needs) return null;
  const text =
    grantedAccess === 'none'
      ? 'the function was not granted the store, to which indexes belong (manifest: "grants": {"store": true})'
      : 'the function may only read the store and the indexes (manifest: "grants": {"store": "read"})';
  return handlerError('unsupported', text);
}

function tooMany(what: string, count: number, max: number): HandlerError | null {
  return count <= max ? null : handlerError('limit-exceeded', `${count} ${what} in one call; ${max} is the limit`);
}

const maxCountOf = <T>(list: readonly T[], count: (one: T) => number): number =>
  list.reduce((most, one) => Math.max(most, count(one)), 0);

const valueBytes = ({ tag, val }: Value): number => (tag === 'text' ? Buffer.byteLength(val) : VALUE_BYTES);

const entryBytes = ({ id, text = '', fields }: IndexEntry): number =>
  fields.reduce(
    (sum, { name, value }) => sum + Buffer.byteLength(name) + valueBytes(value),
    Buffer.byteLength(id) + Buffer.byteLength(text),
  );

const filterBytes = (filter: readonly Condition[]): number =>
  filter.reduce(
    (sum, { field, values }) => values.reduce((all, value) => all + valueBytes(value), sum + Buffer.byteLength(field)),
    0,
  );

const metadataOf = (fields: readonly Field[]): Wire.Metadata => fields.map(({ name, value }) => [name, value.val]);

function matchOf({ id, score, text, metadata }: Wire.Match): Match {
  const fields = metadata.map(([name, value]) => ({ name, value: wireValue(value) }));
  return { entry: { id, text: text ?? undefined, fields }, score };
}

function wireValue(val: Wire.FieldValue): Value {
  if (typeof val === 'string') return { tag: 'text', val };
  return typeof val === 'number' ? { tag: 'number', val } : { tag: 'boolean', val };
}

const infoOf = ({ name, dimensions, metric, entries, bytes }: Wire.IndexStats): IndexInfo => ({
  name,
  dimensions,
  metric,
  entries: BigInt(entries),
  bytes: BigInt(bytes),
});
