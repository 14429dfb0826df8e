import path from 'node:path';
import { randomEncoder } from '#gpu-host/models/encoder/random-encoder.ts';
import { call, deploySource } from '#test/harness/deploy.ts';
import { invoke } from '#test/harness/events.ts';
import { newHome, Platform, ROOT } from '#test/harness/platform.ts';
import { PASSES } from '../../functions/sdk/src/workflow/passes.ts';
import { SearchEngine } from '../../functions/search-generation/testing/search-engine.ts';
import type { Bench } from './bench.ts';
import { outputOf } from './clients.ts';
import { inTurn } from './rounds.ts';
import { format, formatSpread, mean, spread } from './statistics.ts';

const AT_ONCE = [1, 16];
/** The port that functions/search-generation/pie.json grants, and the time of a search. */
const ENGINE_PORT = 8898;
const SEARCH_MS = 150;
/** The sizes of MiniLM-L6, with random weights: the time is that of the real ones. */
const MINI = {
  hidden_size: 384,
  intermediate_size: 1536,
  num_hidden_layers: 6,
  num_attention_heads: 12,
  max_position_embeddings: 512,
};
const APPLICATIONS = [
  'document-qa/tree',
  'document-qa/refine',
  'advanced-rag',
  'contextual-retrieval',
  'search-generation',
];

const NODES = 1000;

/** One way to run an application: the names of its passes. */
interface Way {
  readonly name: string;
  readonly passes: readonly string[];
}

const ALONE = PASSES.filter(({ name }) => name !== 'context-prefetch').map(({ name }) => ({ name, passes: [name] }));
const WAYS: readonly Way[] = [
  { name: 'modules', passes: [] },
  { name: 'all', passes: PASSES.map(({ name }) => name) },
  ...ALONE,
];

/** Workflows with their passes over the same graphs component by component. */
export const workflow: Bench = {
  name: 'workflow',
  summary: 'workflows with all passes and with each alone, over the same component by component',
  help: `Runs each application with no pass (one component after another, as LlamaDist in the Ayo paper; the calls of a component at once), with all passes and
with each pass alone, one query and ${Math.max(...AT_ONCE)} queries at once. Times are from the request to the outcome at the HTTP client, the mean of the queries. Encoders have the size of
MiniLM-L6 and random weights; a search of the search engine takes ${SEARCH_MS} ms. Each query has a document of its own, so that no prefix is computed
already. A round runs all ways, which take turns in going first.`,
  async run({ repetitions, quick, progress }) {
    const home = await newHome();
    const weights = path.join(home, 'mini');
    await randomEncoder(`${weights}-encoder`, { kind: 'embedding', config: MINI }, 7);
    await randomEncoder(`${weights}-ranker`, { kind: 'reranker', config: MINI }, 7);
    await using engine = await SearchEngine.start({ delayMs: SEARCH_MS, port: ENGINE_PORT });
    const functions = [...new Set(APPLICATIONS.map((name) => name.split('/')[0] as string))];
    await using platform = await Platform.start({ home, functions, config: configuration(weights) });
    const rounds = quick ? 1 : repetitions * 2;
    const costs = await costOfNodes(platform);
    const rows: string[][] = [];
    const data: Record<string, unknown> = {};
    let query = 0;
    for (const application of APPLICATIONS) {
      // The first query of each kind makes instances and warms up the engines.
      for (const way of WAYS.slice(0, 2)) await runAtOnce(platform, application, way, engine.url, 2, () => query++);
      for (const atOnce of AT_ONCE) {
        // A quick run shows each pass alone for one query only.
        const ways = quick && atOnce > 1 ? WAYS.slice(0, 2) : WAYS;
        const times = ways.map((): number[] => []);
        for (let round = 0; round < rounds; round++) {
          const sides = ways.map(
            (way) => () => runAtOnce(platform, application, way, engine.url, atOnce, () => query++),
          );
          for (const [i, elapsedMs] of (await inTurn(round, sides)).entries()) times[i]?.push(elapsedMs);
        }
        const base = times[0] ?? [];
        const gains = times.map((own) => spread(own.map((elapsedMs, i) => (base[i] ?? Number.NaN) / elapsedMs)));
        rows.push([
          application,
          String(atOnce),
          formatSpread(spread(base), 0),
          ...gains.slice(1).map((gain) => formatSpread(gain)),
        ]);
        data[`${application} ${atOnce}`] = Object.fromEntries(ways.map(({ name }, i) => [name, times[i]]));
        progress(`${application}, ${atOnce} at once: ${format(gains[1]?.median ?? Number.NaN)}×`);
      }
    }
    return {
      title: 'Workflows over the same component by component: latency of these over that of the passes',
      header: ['application', 'at once', 'components, ms', 'all', ...ALONE.map(({ name }) => name)],
      rows,
      notes: [
        'Median (min–max) of the ratios within a round; aim on two cores: 1.1 or more, none below 0.98.',
        `A node without work costs the guest ${costs}.`,
        `${rounds} rounds; encoders as large as MiniLM-L6; ${SEARCH_MS} ms for a search.`,
      ],
      data,
    };
  },
};

/** What the library itself costs for each node, by a graph of nodes that do nothing. */
async function costOfNodes(platform: Platform): Promise<string> {
  await deploySource(platform, path.join(ROOT, 'functions/sdk/fixtures/workflow.ts'), { name: 'empty-workflow' });
  await call(platform, 'empty-workflow', { nodes: NODES });
  const { times } = await call(platform, 'empty-workflow', { nodes: NODES });
  const { make, optimise, makeAndRun } = times as Record<string, number>;
  const micros = (elapsedMs = 0) => `${format((elapsedMs * 1000) / NODES, 0)} µs`;
  return `${micros(make)} to make and check, ${micros(optimise)} for all passes, ${micros((makeAndRun ?? 0) - (make ?? 0))} to run`;
}

/** Mean time of queries that begin at once. */
async function runAtOnce(
  platform: Platform,
  application: string,
  { passes }: Way,
  engine: string,
  count: number,
  next: () => number,
): Promise<number> {
  const [name = '', mode] = application.split('/');
  const times = await Promise.all(
    Array.from({ length: count }, async () => {
      const startMs = performance.now();
      outputOf(await invoke(platform, name, { ...inputOf(name, next(), engine), ...(mode && { mode }), passes }));
      return performance.now() - startMs;
    }),
  );
  return mean(times);
}

function inputOf(name: string, query: number, engine: string): object {
  const question = `Number ${query}: who went to the park with the dog?`;
  if (name === 'search-generation') return { question, engine, search: 'always', queries: 3 };
  const sentence = (i: number) =>
    `In story ${query} on day ${i} Tim went to the park with his mom and saw a big dog that ran away.`;
  const document = Array.from({ length: name === 'contextual-retrieval' ? 8 : 24 }, (_, i) => sentence(i)).join(' ');
  return { document, question };
}

const configuration = (weights: string): string => `
[http]
private_hosts = ["127.0.0.1"]

[[model]]
name = "stories15m"

[[model]]
name = "mini-encoder"
kind = "embedding"
source = "file:${weights}-encoder"

[[model]]
name = "mini-ranker"
kind = "reranker"
source = "file:${weights}-ranker"
`;
