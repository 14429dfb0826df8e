import { PAGE_QUOTA } from '#gpu-host/protocol/errors.ts';
import { LIMIT_BOUNDS } from '#scheduler/functions/manifest.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { Inferlet } from './inferlet.ts';
import type { GrantedModel } from './traits.ts';

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
