import { includesScope, TENANT_NAME } from '#scheduler/tenants/rules.ts';
import type { Call, ControlPlane, Scope } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { type Html, html } from './html/html.ts';
import type { Place } from './html/layout.ts';
import { notice } from './html/parts.ts';
import type { Session } from './session/sessions.ts';

/** One request of a signed-in user. */
export interface Visit {
  readonly control: ControlPlane;
  readonly call: Call;
  readonly session: Session;
  /** Value of the hidden field of forms. */
  readonly formToken: string;
  readonly url: URL;
  readonly now: number;
}

/** A part of a page. While a browser follows the page, the gateway renders the part again and sends it when it has changed. */
export interface Fragment {
  /** Unique on its page. */
  readonly id: string;
  /** CSS classes of its box. */
  readonly look?: string;
  readonly render: () => Html | Promise<Html>;
  /** The live stream never sends this part: either the script adds events to it, or it does not change. */
  readonly fixed?: true;
}

/** Content of one address. */
export interface Page {
  readonly title: string;
  readonly place: Place;
  /** Shown above the fragments; never updated. */
  readonly head: Html;
  readonly fragments: readonly Fragment[];
  /** Set when the script also follows the events of an invocation: those of `id`, from the one behind the event with the id `after`. */
  readonly stream?: { readonly id: string; readonly after: string };
  /** False for a final page, or for a page that changes only by its reader's actions. */
  readonly live: boolean;
}

/** True when the key's scopes cover an action. The dashboard hides the actions that a key lacks the scope for. */
export function may({ call }: Visit, scope: Scope): boolean {
  return includesScope(call.principal.scopes, scope);
}

/** Throws `forbidden` when the key's scopes do not cover an action. */
export function demand(visit: Visit, scope: Scope): void {
  if (!may(visit, scope))
    throw new GatewayError('forbidden', `This needs the scope "${scope}", which the key you signed in with lacks.`, {
      hint: `Sign in with a key that has the scope "${scope}".`,
    });
}

/** The tenant that a page is about: the key's own, or the one that an operator names. */
export function tenantOf(visit: Visit): string {
  const tenant = visit.url.searchParams.get('tenant') ?? visit.call.principal.tenant;
  if (tenant === visit.call.principal.tenant) return tenant;
  demand(visit, 'operator');
  if (!TENANT_NAME.test(tenant)) throw new GatewayError('unknown-tenant', 'There is no tenant of this name.');
  return tenant;
}

/** An address with `query`, and with `tenant` where the page shows another tenant than the key's own. */
export function withTenant(path: string, visit: Visit, tenant: string, query: Record<string, string> = {}): string {
  const search = new URLSearchParams({
    ...(tenant === visit.call.principal.tenant ? {} : { tenant }),
    ...query,
  }).toString();
  return search === '' ? path : `${path}?${search}`;
}

/** Renders a part. If its data is unavailable, the part says so, and the other parts stay. */
export async function orNotice(
  visit: Visit,
  render: () => Html | Promise<Html>,
  report: (error: GatewayError) => void,
): Promise<Html> {
  try {
    return html`${await render()}`;
  } catch (caught) {
    visit.call.signal.throwIfAborted();
    const error = GatewayError.from(caught);
    // The key was just removed: the whole page fails, not only this part.
    if (error.code === 'unauthorized') throw error;
    report(error);
    return notice('bad', `This cannot be shown now: ${error.message}`);
  }
}

/** Shares one request among all parts that need its answer. */
export function once<T>(ask: () => Promise<T>): () => Promise<T> {
  let asked: Promise<T> | undefined;
  return () => {
    asked ??= ask();
    return asked;
  };
}

export function unknownInvocation(id: string): GatewayError {
  return new GatewayError('unknown-invocation', `There is no invocation "${id}", or it was deleted.`, {
    hint: 'The list of invocations shows the existing ones.',
  });
}
