import { z } from '@hono/zod-openapi';
import { aliasNameFault, LIVE, MAX_MESSAGE } from '#scheduler/functions/aliases.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import { shortVersion } from '../html/format.ts';
import { html, NONE } from '../html/html.ts';
import { empty, facts, table, tokenField } from '../html/parts.ts';
import { demand, type Page, type Visit } from '../page.ts';
import { sharesText } from './function.ts';

const ALIASES_HINT = 'The page of the function lists its aliases.';

const aliasSchema = z.string().refine((alias) => aliasNameFault(alias) === null);

const formSchema = z.object({
  alias: aliasSchema,
  revision: z.coerce.number().int().min(0),
  message: z.string().max(MAX_MESSAGE),
});

/** Shows the changes of a rollback, and the button that performs it. */
export async function rollbackPage(visit: Visit, name: string): Promise<Page> {
  demand(visit, 'deploy');
  const { control, call, url } = visit;
  const parsed = aliasSchema.safeParse(url.searchParams.get('alias') ?? LIVE);
  if (!parsed.success) throw new GatewayError('not-found', 'There is no alias of this name.', { hint: ALIASES_HINT });
  const alias = parsed.data;
  // Read the revision first: if the alias changes before the plan is read, `rollBack` refuses to undo that change unseen.
  const current = (await control.releases.aliases(call, name)).find((entry) => entry.alias === alias);
  if (current === undefined)
    throw new GatewayError('not-found', `The function "${name}" has no alias "${alias}".`, { hint: ALIASES_HINT });
  const plan = await control.releases.rollback(call, name, { alias, dryRun: true });
  const path = `/dashboard/functions/${encodeURIComponent(name)}`;

  return {
    title: `Roll back ${name}`,
    place: 'functions',
    head: html`<p class="crumbs"><a href="/dashboard/functions">Functions</a> / <a href="${path}">${name}</a></p>
<div class="head"><div class="titles"><h1>Roll back <code>${alias}</code></h1><p>Nothing has changed yet. New invocations of ${alias} would run what it served before; running ones go on as they began.</p></div></div>`,
    live: false,
    fragments: [
      {
        id: 'plan',
        look: 'wide card',
        render: () =>
          html`<h2>What changes</h2>${facts([
            ['Serves now', sharesText(plan.from)],
            ['Would serve', sharesText(plan.to)],
          ])}<h3>Differences</h3>${
            plan.changes.length === 0
              ? empty('Manifest, component, secrets and environment are the same.')
              : html`<div class="diff">${table(
                  'Differences',
                  [{ head: 'Field' }, { head: 'Now' }, { head: 'After' }],
                  plan.changes.map(({ field, from, to }) => [
                    html`<code>${field}</code>`,
                    from === null ? '–' : html`<code class="from">${changedText(field, from)}</code>`,
                    to === null ? '–' : html`<code class="to">${changedText(field, to)}</code>`,
                  ]),
                )}</div>`
          }`,
      },
      {
        id: 'confirm',
        look: 'wide card',
        render: () =>
          html`<h2 class="unseen">Confirm</h2><form method="post" action="${path}/rollback?alias=${alias}">${tokenField(visit.formToken)}
<input type="hidden" name="alias" value="${alias}"><input type="hidden" name="revision" value="${current.revision}">
<label for="message">Why (optional, kept in the history)</label><input id="message" name="message" maxlength="${MAX_MESSAGE}" autocomplete="off">
<div class="actions"><button class="primary">Roll back ${alias}</button><a class="button" href="${path}">Leave it</a></div></form>`,
      },
    ],
  };
}

/** The text of a changed field. Shortens the component's hash: a prefix is enough to tell two hashes apart. */
function changedText(field: string, text: string) {
  return field === 'component' ? html`<span title="${text}">${shortVersion(text)}</span>` : html`${text}${NONE}`;
}

/** Performs the rollback that the form confirms. Returns the address to redirect to. */
export async function rollBack(visit: Visit, name: string, form: URLSearchParams): Promise<string> {
  demand(visit, 'deploy');
  const parsed = formSchema.safeParse({
    alias: form.get('alias'),
    revision: form.get('revision'),
    message: form.get('message') ?? '',
  });
  if (!parsed.success)
    throw new GatewayError('invalid-input', 'The form is not complete.', {
      hint: 'Go back, reload the page and try again.',
    });
  const { alias, revision, message } = parsed.data;
  await visit.control.releases.rollback(visit.call, name, {
    alias,
    ifRevision: revision,
    ...(message === '' ? {} : { message }),
  });
  return `/dashboard/functions/${encodeURIComponent(name)}?done=rolled-back`;
}
