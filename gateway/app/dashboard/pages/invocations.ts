import { z } from '@hono/zod-openapi';
import { FUNCTION_NAME } from '#scheduler/functions/aliases.ts';
import { STATUSES } from '../../control.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import { invocationCursor } from '../../schemas/invocations.ts';
import { html, NONE } from '../html/html.ts';
import { empty } from '../html/parts.ts';
import { type Page, tenantOf, type Visit, withTenant } from '../page.ts';
import { invocationTable } from './invocation-table.ts';

const PAGE_SIZE = 25;

const querySchema = z.object({
  function: z.string().regex(FUNCTION_NAME).optional(),
  status: z.enum(STATUSES).optional(),
  cursor: invocationCursor.optional(),
});

/** Invocations, newest first, filtered by function and status. */
export async function invocationsPage(visit: Visit): Promise<Page> {
  const { control, call, now, url } = visit;
  const tenant = tenantOf(visit);
  // An empty form field sets no filter.
  const nonEmptyParams = Object.fromEntries([...url.searchParams].filter(([, value]) => value !== ''));
  const parsed = querySchema.safeParse(nonEmptyParams);
  if (!parsed.success)
    throw new GatewayError('invalid-input', 'The filter in the address is not valid.', {
      hint: 'Go to the invocations, and choose a function and a status from the lists.',
    });
  const query = parsed.data;
  const isFiltered = query.function !== undefined || query.status !== undefined;
  const functions = tenant === call.principal.tenant ? await control.functions(call) : [];
  const names = new Set(functions.map(({ name }) => name));
  if (query.function !== undefined) names.add(query.function);

  const choice = (value: string, text: string, chosen: boolean) =>
    html`<option value="${value}"${chosen ? html` selected` : NONE}>${text}</option>`;
  const filter = html`<form class="row" method="get" action="/dashboard/invocations">
${tenant === call.principal.tenant ? NONE : html`<input type="hidden" name="tenant" value="${tenant}">`}
<div><label for="function">Function</label><select id="function" name="function">${choice('', 'All functions', query.function === undefined)}${[...names].sort().map((name) => choice(name, name, name === query.function))}</select></div>
<div><label for="status">Status</label><select id="status" name="status">${choice('', 'Any status', query.status === undefined)}${STATUSES.map((status) => choice(status, status, status === query.status))}</select></div>
<button>Filter</button>${isFiltered ? html`<a class="button" href="${withTenant('/dashboard/invocations', visit, tenant)}">Clear</a>` : NONE}
</form>`;

  return {
    title: 'Invocations',
    place: 'invocations',
    head: html`<div class="head"><div class="titles"><h1>Invocations</h1><p>Tenant ${tenant}, newest first</p></div></div><div class="card section">${filter}</div>`,
    // Later pages do not update, so that rows do not move while they are read.
    live: query.cursor === undefined,
    fragments: [
      {
        id: 'list',
        look: 'wide card',
        render: async () => {
          const page = await control.operations.invocations(call, { ...query, tenant, limit: PAGE_SIZE });
          if (page.invocations.length === 0)
            return isFiltered
              ? empty('No invocation fits this filter.', 'Choose another function or status.')
              : empty(
                  'Nothing was invoked yet.',
                  html`Try <code>pie invoke text-completion --input '{"prompt": "Once upon a time"}'</code>.`,
                );
          const filterQuery = {
            ...(query.function === undefined ? {} : { function: query.function }),
            ...(query.status === undefined ? {} : { status: query.status }),
          };
          const olderLink =
            page.cursor === null
              ? NONE
              : html`<a class="button" rel="next" href="${withTenant('/dashboard/invocations', visit, tenant, { ...filterQuery, cursor: page.cursor })}">Older</a>`;
          const newestLink =
            query.cursor === undefined
              ? NONE
              : html`<a class="button" href="${withTenant('/dashboard/invocations', visit, tenant, filterQuery)}">Newest</a>`;
          return html`<h2 class="unseen">List</h2>${invocationTable('Invocations, newest first', page.invocations, now)}<div class="actions">${newestLink}${olderLink}</div>`;
        },
      },
    ],
  };
}
