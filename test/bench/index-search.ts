import path from 'node:path';
import { IndexClient } from '#index-host/protocol/client.ts';
import { loadConfig } from '#infra/config.ts';
import { ROOT } from '#infra/install.ts';
import { INDEX_HOST } from '#infra/storage-settings.ts';
import { deploySource } from '#test/harness/deploy.ts';
import { invoke } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { outputOf } from './clients.ts';
import { format, isEnoughFor, median, quantile } from './statistics.ts';
import { nearest, vectorSource } from './vectors.ts';

const DIMENSIONS = 384;
const LIMIT = 10;
const COUNT = 100_000;
const QUICK_COUNT = 10_000;
/** Queries for each repetition: by default a run has 5 repetitions, a quick run one. */
const QUERIES = 40;
const QUICK_QUERIES = 40;
/** Entries of each call that fills an index. */
const BATCH = 256;
const OPTIONS = { signal: new AbortController().signal, deadlineMs: 60_000 };
/** Tenant of the platform's own key; the guest queries this tenant's indexes. */
const TENANT = 'default';

/** Kinds of vectors. `rank` is the dimension of the subspace near which they lie; null for vectors that fill the whole space. */
const KINDS = [
  { name: 'like embeddings', rank: 32 },
  { name: 'independent values', rank: null },
] as const;

interface Measurement {
  /** Name of the kind of vectors. */
  readonly vectors: string;
  readonly where: string;
  readonly times: readonly number[];
  readonly recall: number | null;
}

/** Recall and time of the nearest ten among 100,000 vectors: at the index host's socket, and in a guest. */
export const indexSearch: Bench = {
  name: 'index',
  summary: 'nearest vectors of an index: recall, time at the index host and in a guest, against a search of all',
  help: `Fills an index with ${COUNT} vectors of ${DIMENSIONS} values and asks for the ${LIMIT} nearest to other vectors, one query at a time. The
baseline compares all vectors in plain JavaScript: its results define the recall, and the ratio is its time over that of the index. Times are those
at the socket of the index host (alone, while another tenant fills an index, and after a kill and restart) and those in a guest, whose calls go
through sandbox and runtime. Vectors like those of encoders lie near a space of 32 dimensions; vectors of independent values are the worst case.`,
  quick: `${QUICK_COUNT} vectors instead of ${COUNT}: with fewer, the index gains less over a search of all.`,
  async run({ repetitions, quick, progress }) {
    const [count, queries] = quick ? [QUICK_COUNT, QUICK_QUERIES * repetitions] : [COUNT, QUERIES * repetitions];
    const measurements: Measurement[] = [];
    const fills: string[] = [];
    await using platform = await Platform.start({ functions: false });
    const { index } = loadConfig({ ...process.env, PIE_HOME: platform.home });
    const client = new IndexClient(index.socket, TENANT);
    const neighbour = new IndexClient(index.socket, 'neighbour');
    try {
      await deploySource(platform, path.join(ROOT, 'test/inferlets/index-search'));
      for (const { name, rank } of KINDS) {
        const indexName = `bench-${rank ?? 'all'}`;
        const nextVector = vectorSource(DIMENSIONS, { rank });
        const matrix = new Float32Array(count * DIMENSIONS);
        for (let row = 0; row < count; row++) matrix.set(nextVector(), row * DIMENSIONS);
        const queryVectors = Array.from({ length: queries }, nextVector);
        const began = performance.now();
        await fill(client, indexName, matrix);
        fills.push(`${name} ${format((performance.now() - began) / 1000, 0)} s`);
        progress(`${name}: filled`);
        const exactTimes: number[] = [];
        const truth = queryVectors.map((vector) => {
          const startMs = performance.now();
          const rows = nearest(matrix, vector, LIMIT);
          exactTimes.push(performance.now() - startMs);
          return new Set(rows.map(String));
        });
        measurements.push({ vectors: name, where: 'all compared', times: exactTimes, recall: 1 });
        const add = (where: string, result: Pick<Measurement, 'times' | 'recall'>) => {
          measurements.push({ vectors: name, where, ...result });
          const recall = result.recall === null ? '' : `, recall ${format(result.recall, 4)}`;
          progress(`${name}, ${where}: p50 ${format(median(result.times))} ms${recall}`);
        };
        add('index host', await ask(client, indexName, queryVectors, truth));
        const filling = new AbortController();
        const [, besideFill] = await Promise.all([
          fillFor(neighbour, nextVector, filling.signal),
          ask(client, indexName, queryVectors, truth).finally(() => filling.abort()),
        ]);
        add('index host, another tenant fills', besideFill);
        add('guest', await askInGuest(platform, indexName, queryVectors));
        const restarted = platform.restarted(INDEX_HOST);
        process.kill(platform.pid(INDEX_HOST), 'SIGKILL');
        await restarted;
        const first = await ask(client, indexName, queryVectors.slice(0, 1), truth);
        add('index host, first after a kill', first);
        add('index host, after a kill', await ask(client, indexName, queryVectors, truth));
        await client.drop(indexName, OPTIONS);
      }
    } finally {
      client.close();
      neighbour.close();
    }
    const baseline = (kind: string) =>
      median(measurements.find(({ vectors, where }) => vectors === kind && where === 'all compared')?.times ?? []);
    return {
      title: `Index: the ${LIMIT} nearest of ${count} vectors of ${DIMENSIONS} values, in ms`,
      header: ['vectors', 'where', 'n', `recall@${LIMIT}`, 'p50', 'p95', 'all compared ÷ p50'],
      rows: measurements.map(({ vectors, where, times, recall }) => [
        vectors,
        where,
        String(times.length),
        recall === null ? '' : format(recall, 4),
        format(median(times)),
        isEnoughFor(0.95, times.length) ? format(quantile(times, 0.95)) : '',
        format(baseline(vectors) / median(times), 1),
      ]),
      notes: [
        `One query at a time. Filling the index by calls of ${BATCH} entries took: ${fills.join(', ')}.`,
        'The first query after a kill opens the index. A time in a guest is the mean of 20 queries, since its clock counts whole milliseconds.',
      ],
      data: measurements,
    };
  },
};

async function fill(client: IndexClient, name: string, matrix: Float32Array): Promise<void> {
  await client.create({ name, dimensions: DIMENSIONS, metric: 'cosine' }, OPTIONS);
  for (let row = 0; row < matrix.length / DIMENSIONS; row += BATCH) {
    const vectors = matrix.subarray(row * DIMENSIONS, (row + BATCH) * DIMENSIONS);
    const entries = Array.from({ length: vectors.length / DIMENSIONS }, (_, i) => ({
      id: `${row + i}`,
      text: null,
      metadata: [],
    }));
    await client.upsert(name, entries, vectors, OPTIONS);
  }
}

/** Fills an index of another tenant until the signal aborts. */
async function fillFor(client: IndexClient, nextVector: () => Float32Array, signal: AbortSignal): Promise<void> {
  await client.create({ name: 'other', dimensions: DIMENSIONS, metric: 'cosine' }, OPTIONS);
  const vectors = Float32Array.from(Array.from({ length: BATCH }, () => [...nextVector()]).flat());
  for (let call = 0; !signal.aborted; call++) {
    const entries = Array.from({ length: BATCH }, (_, i) => ({ id: `${call}-${i}`, text: null, metadata: [] }));
    await client.upsert('other', entries, vectors, OPTIONS);
  }
  await client.drop('other', OPTIONS);
}

async function ask(
  client: IndexClient,
  name: string,
  queryVectors: readonly Float32Array[],
  truth: readonly ReadonlySet<string>[],
): Promise<Pick<Measurement, 'times' | 'recall'>> {
  const times: number[] = [];
  let matches = 0;
  for (const [i, vector] of queryVectors.entries()) {
    const startMs = performance.now();
    const found = await client.query(name, { vector, text: null, filter: [], limit: LIMIT }, OPTIONS);
    times.push(performance.now() - startMs);
    matches += found.filter(({ id }) => truth[i]?.has(id)).length;
  }
  return { times, recall: matches / (LIMIT * queryVectors.length) };
}

async function askInGuest(
  platform: Platform,
  name: string,
  queryVectors: readonly Float32Array[],
): Promise<Pick<Measurement, 'times' | 'recall'>> {
  const input = { name, vectors: queryVectors.map((vector) => [...vector]), limit: LIMIT };
  const { times } = outputOf<{ times: number[] }>(await invoke(platform, 'index-search', input));
  return { times, recall: null };
}
