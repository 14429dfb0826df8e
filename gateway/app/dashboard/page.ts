import { TENANT_NAME } from '#scheduler/tenants/rules.ts';
import { includesScope } from '#scheduler/tenants/scopes.ts';
import type { Call, ControlPlane, Scope } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { type Html, html } from './html/html.ts';
import type { Place } from './html/layout.ts';
import { notice } from './html/parts.ts';
import type { Session } from './session/sessions.ts';

/** One request of somebody who is signed in. */
export interface Visit {
  readonly control: ControlPlane;
  readonly call: Call;
  readonly session: Session;
  /** For the hidden field of forms. */
  readonly formToken: string;
  readonly url: URL;
  readonly now: number;
}

/** A part of a page that is rendered again while somebody looks, and sent when it changed. */
export interface Fragment {
  /** Unique on its page. */
  readonly id: string;
  /** Classes of its box. */
  readonly look?: string;
  readonly render: () => Html | Promise<Html>;
  /** Only rendered with the whole page: the script keeps it up, or it does not change. */
  readonly fixed?: true;
}

/** What one address shows. */
export interface Page {
  readonly title: string;
  readonly place: Place;
  /** Above the fragments; it stays as it is. */
  readonly head: Html;
  readonly fragments: readonly Fragment[];
  /** An invocation whose events are followed as well, after that number. */
  readonly stream?: { readonly id: string; readonly after: number };
  /** False for what changes no more, or only by what its reader does. */
  readonly live: boolean;
}

/** Whether this key's scopes cover an action: what it may not do it is not offered. */
export function may({ call }: Visit, scope: Scope): boolean {
  return includesScope(call.principal.scopes, scope);
}

/** Throws `forbidden`. */
export function demand(visit: Visit, scope: Scope): void {
  if (!may(visit, scope))
    throw new GatewayError('forbidden', `This needs the scope "${scope}", which the key you signed in with lacks.`, {
      hint: `Sign in with a key that has the scope "${scope}".`,
    });
}

/** The tenant that a page is about: the key's own, or the one that an operator names. */
export function tenantOf(visit: Visit): string {
  const named = visit.url.searchParams.get('tenant') ?? visit.call.principal.tenant;
  if (named === visit.call.principal.tenant) return named;
  demand(visit, 'operator');
  if (!TENANT_NAME.test(named)) throw new GatewayError('unknown-tenant', 'There is no tenant of this name.');
  return named;
}

/** An address that keeps the tenant an operator looks at. */
export function withTenant(path: string, visit: Visit, tenant: string, query: Record<string, string> = {}): string {
  const search = new URLSearchParams({
    ...(tenant === visit.call.principal.tenant ? {} : { tenant }),
    ...query,
  }).toString();
  return search === '' ? path : `${path}?${search}`;
}

/** A part whose data cannot be had says so in its place; the others stand. */
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
    // The key was removed just now: that concerns the whole page.
    if (error.code === 'unauthorized') throw error;
    report(error);
    return notice('bad', `This cannot be shown now: ${error.message}`);
  }
}

/** Asks once, however many parts want it. */
export function once<T>(ask: () => Promise<T>): () => Promise<T> {
  let asked: Promise<T> | undefined;
  return () => {
    asked ??= ask();
    return asked;
  };
}
