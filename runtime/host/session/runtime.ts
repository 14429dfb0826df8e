import { err, handlerError, type Outcome, ok, PAGE_QUOTA } from '#gpu-host/protocol/errors.ts';
import { LIMIT_BOUNDS } from '#scheduler/functions/manifest.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { LogLevel, ModelInfo, ModelMetadata } from '#wit/generated/host.ts';
import { world } from '#wit/generated/world.ts';
import { type GrantedModel, traitsOf } from '../device/granted.ts';
import type { Inferlet } from './inferlet.ts';
import { randomWord } from './random.ts';

/** Implements `wit/runtime.wit`. */
export const runtime = {
  version: () => world.version,
  'instance-id': (inferlet: Inferlet) => inferlet.description.id,
  tenant: (inferlet: Inferlet) => inferlet.description.tenant,
  'get-arguments': (inferlet: Inferlet) => inferlet.description.input,
  'function-name': (inferlet: Inferlet) => inferlet.description.functionName,
  'function-version': (inferlet: Inferlet) => inferlet.description.functionVersion,

  models: (inferlet: Inferlet): ModelInfo[] =>
    [...inferlet.description.models.values()].map((model) => ({
      name: model.summary.name,
      contextLength: model.summary.contextLength,
      vocabularySize: model.summary.vocabularySize,
      pageSize: model.summary.pageSize,
      traits: traitsOf(model),
    })),

  'model-traits': (inferlet: Inferlet, name: string): Outcome<readonly string[]> => {
    const model = inferlet.description.models.get(name);
    if (!model) return err(handlerError('not-found', `no model named ${name}; ask runtime.models`));
    return ok(traitsOf(model));
  },

  metadata: (inferlet: Inferlet, name: string): Outcome<ModelMetadata> => {
    const model = inferlet.description.models.get(name);
    if (!model) return err(handlerError('not-found', `no model named ${name}; ask runtime.models`));
    return model.metadata
      ? ok(model.metadata)
      : err(handlerError('unavailable', `the directory of ${name} cannot be read`));
  },

  'efficient-tokens': ({ description }: Inferlet, name: string): Outcome<number | undefined> => {
    const granted = description.models.get(name) ?? description.encoders?.get(name);
    if (!granted) return err(handlerError('not-found', `no model or encoder named ${name}; ask runtime.models`));
    return ok(granted.connection.efficientTokens(name));
  },

  'debug-query': (inferlet: Inferlet, query: string): Outcome<string> => {
    const answer = debugQuery(inferlet, query);
    if (answer !== undefined) return ok(JSON.stringify(answer));
    return err(handlerError('invalid-argument', `the query is unknown; the host answers ${DEBUG_QUERIES.join(', ')}`));
  },

  log: (inferlet: Inferlet, level: LogLevel, message: string): void => inferlet.session.log(level, message),
  'record-span': (
    inferlet: Inferlet,
    ...[name, kind, began, ended, failed]: [string, string, bigint, bigint, boolean]
  ): void => inferlet.spans.add(name, kind, Number(began), Number(ended), failed),

  'is-cancelled': (inferlet: Inferlet) => inferlet.stopped !== null,
  'time-left': (inferlet: Inferlet) => Math.floor(inferlet.description.deadline.leftMs),
  now: () => Date.now(),

  random: randomWord,

  sleep: (inferlet: Inferlet, milliseconds: number) =>
    inferlet.hooks.waits.during(inferlet.sleepers.sleep(milliseconds)),
};

const QUERIES = {
  limits: ({ description }: Inferlet) => ({
    ...description.limits,
    deadlineAt: description.deadline.at,
  }),
  usage: (inferlet: Inferlet) => ({
    inputTokens: inferlet.inputTokens,
    outputTokens: inferlet.outputTokens,
    cachedTokens: inferlet.cachedTokens,
    messages: inferlet.session.messages,
    ...inferlet.hooks.usage(),
  }),
  pages: (inferlet: Inferlet) => inferlet.heldPages(),
  room: (inferlet: Inferlet) =>
    Object.fromEntries(
      [...inferlet.description.models.values()].map((model) => [model.summary.name, roomOf(inferlet, model)]),
    ),
  grants: ({ description }: Inferlet) => description.grants,
  models: ({ description }: Inferlet) =>
    [...description.models.values()].map((model) => ({
      name: model.summary.name,
      traits: traitsOf(model),
      connected: model.connection.connected,
    })),
} as const;

type Query = keyof typeof QUERIES;

/** The queries that an inferlet may ask. */
export const DEBUG_QUERIES: readonly string[] = [...Object.keys(QUERIES), 'all'];

/** Answers a query about an inferlet; undefined for an unknown query. */
export function debugQuery(inferlet: Inferlet, query: string): unknown {
  if (query === 'all') {
    return Object.fromEntries(Object.entries(QUERIES).map(([name, answer]) => [name, answer(inferlet)]));
  }
  return Object.hasOwn(QUERIES, query) ? QUERIES[query as Query](inferlet) : undefined;
}

/** The tokens of a model that an inferlet can hold at once. */
export interface Room {
  readonly tokens: number;
  /** What leaves the inferlet less than the model's context, with its figure and what to do; absent when the inferlet has the whole context. */
  readonly cap?: string;
}

/** One page more than a context has: a sequence that is cut inside a page copies the rest of this page before it frees the page. */
const SPARE_PAGES = 1;

/**
 * The KV pages of each model that an invocation may hold. `limits.pages: "context"` stands for the pages of the largest context among the models that
 * the function may use, as often as the invocation may hold one, and at least for the platform's default. The pool and the tenant's quota bound the
 * pages, too; GPU hosts apply them.
 */
export function pagesWithin(
  { contexts, pages }: Pick<InvocationLimits, 'contexts' | 'pages'>,
  models: Iterable<{ readonly summary: Pick<GrantedModel['summary'], 'contextLength' | 'pageSize'> }>,
): number {
  if (contexts === undefined) return pages;
  const contextPages = [...models].map(({ summary }) => Math.ceil(summary.contextLength / summary.pageSize));
  return Math.min(LIMIT_BOUNDS.pages[1], Math.max(pages, contexts * (Math.max(0, ...contextPages) + SPARE_PAGES)));
}

/** The room of an inferlet on a model. Pages that others hold do not count: their owners may give them back. */
export function roomOf({ description, invocation, tenantPages }: Inferlet, { summary }: GrantedModel): Room {
  const { contextLength, pageSize, pageCount } = summary;
  const limit = Math.min(description.limits.pages, invocation?.shared.pages.maxPages ?? description.limits.pages);
  const of = (pages: number) => `${pages} KV pages of ${pageSize} tokens`;
  const caps: readonly (readonly [pages: number, text: string])[] = [
    [limit, `the invocation may hold ${of(limit)}; raise limits.pages in its manifest, or set it to "context"`],
    [pageCount, `the pool of the GPU host has ${of(pageCount)}; an operator raises \`pages\` of the model in pie.toml`],
    ...(tenantPages === null
      ? []
      : ([
          [
            tenantPages,
            `the tenant's quota ${PAGE_QUOTA} is ${of(tenantPages)}; an operator raises it with \`pie quota set\``,
          ],
        ] as const)),
  ];
  const [pages, cap] = caps.reduce((least, each) => (each[0] < least[0] ? each : least));
  return pages * pageSize < contextLength ? { tokens: pages * pageSize, cap } : { tokens: contextLength };
}
