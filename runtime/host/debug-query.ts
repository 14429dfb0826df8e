import type { Inferlet } from './inferlet.ts';
import { roomOf } from './room.ts';
import { traitsOf } from './traits.ts';

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
