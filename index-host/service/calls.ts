import { type IndexRequest, MAX_VALUE } from '../protocol/messages.ts';
import {
  type Entry,
  IndexError,
  type IndexStats,
  type IndexSum,
  type IndexWriteOutcome,
  type Match,
} from '../protocol/types.ts';
import { type Catalog, refuseBroken } from './catalog.ts';

/**
 * Answers one request of a tenant. `floats` are the vectors of the request, one after another. All tenants share one thread, so work on an index
 * waits for its tenant's turn (`Catalog.turn`).
 */
export async function answer(
  catalog: Catalog,
  tenant: string,
  request: IndexRequest,
  floats: Float32Array,
  signal: AbortSignal,
): Promise<IndexStats | IndexStats[] | IndexSum | Match[] | IndexWriteOutcome> {
  await catalog.load(tenant, signal);
  switch (request.op) {
    case 'create': {
      const { name, dimensions, metric } = request;
      return catalog.turn(tenant, () => catalog.create(tenant, { name, dimensions, metric }), signal);
    }
    case 'upsert': {
      const { name, maxBytes } = request;
      const vectors = vectorsOf(catalog.stats(tenant, name), floats, request.entries.length);
      const entries = request.entries.map((entry, i): Entry => ({ ...entry, vector: vectors[i] as Float32Array }));
      const room = () => catalog.room(tenant, name, maxBytes);
      await catalog.add(tenant, name, (index) => index.upsert(entries, room), signal);
      return writeOutcome(catalog, tenant, entries.length);
    }
    case 'delete': {
      const deleted = await catalog.use(tenant, request.name, (index) => index.delete(request.ids), signal);
      return writeOutcome(catalog, tenant, deleted);
    }
    case 'query': {
      const { name, text, filter, limit } = request;
      if (floats.length === 0 && text === null) {
        throw new IndexError('invalid-argument', 'a query needs a vector, a text, or both');
      }
      const stats = catalog.stats(tenant, name);
      const vector = floats.length === 0 ? null : (vectorsOf(stats, floats, 1)[0] ?? null);
      return catalog.use(tenant, name, (index) => index.query({ vector, text, filter, limit }), signal);
    }
    case 'stats':
      return catalog.turn(tenant, () => catalog.stats(tenant, request.name), signal);
    case 'list':
      return catalog.turn(tenant, () => catalog.list(tenant), signal);
    case 'sum':
      return catalog.turn(tenant, () => catalog.sum(tenant), signal);
    case 'drop':
      // A drop deletes one index, or none when the tenant has no index of that name.
      return writeOutcome(catalog, tenant, Number(await catalog.drop(tenant, request.name, signal)));
  }
}

/** Outcome of a write of `count` entries or indexes, with the bytes that all indexes of the tenant have after it. */
function writeOutcome(catalog: Catalog, tenant: string, count: number): IndexWriteOutcome {
  return { count, ...catalog.sum(tenant) };
}

/** Cuts floats into `count` vectors. @throws IndexError for vectors that the index cannot take */
function vectorsOf(stats: IndexStats, floats: Float32Array, count: number): Float32Array[] {
  refuseBroken(stats);
  const { name, dimensions, metric } = stats;
  if (floats.length !== count * dimensions) {
    const text = `the vectors have ${floats.length} values; the index "${name}" of ${dimensions} dimensions takes ${count * dimensions} for ${count}`;
    throw new IndexError('invalid-argument', text);
  }
  return Array.from({ length: count }, (_, i) => {
    const vector = floats.subarray(i * dimensions, (i + 1) * dimensions);
    if (!vector.every(Number.isFinite)) {
      throw new IndexError('invalid-argument', `the vector ${i} has a value that is not a finite number`);
    }
    if (metric === 'cosine' && vector.every((value) => value === 0)) {
      throw new IndexError('invalid-argument', `the vector ${i} is zero, and has no direction to compare`);
    }
    if (metric !== 'cosine' && vector.some((value) => Math.abs(value) > MAX_VALUE)) {
      const text = `the vector ${i} has a value beyond ±${MAX_VALUE}, the most for ${metric}: scale the vectors, or use cosine`;
      throw new IndexError('invalid-argument', text);
    }
    return vector;
  });
}
