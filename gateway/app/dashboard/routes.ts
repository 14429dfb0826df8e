import { type Context, Hono } from 'hono';
import { etag } from 'hono/etag';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import type { Position } from '#scheduler/invocations/types.ts';
import { type AppEnv, type AppSettings, faultOf } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { CODES } from '../errors/codes.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { DASHBOARD_SCRIPT, DASHBOARD_STYLE } from '../generated/browser.ts';
import { htmlAnswer } from '../http/answer.ts';
import { eventStreamResponse, feedOf } from '../http/event-stream.ts';
import { OpenStreams } from '../http/open-streams.ts';
import { positionOf } from '../invocations/event-id.ts';
import type { App } from '../routes/define.ts';
import { InputChecker } from '../validation/input.ts';
import type { Refused } from './forms/form.ts';
import { type Html, html, layout, textOf } from './html/parts.ts';
import { follow } from './live/follow.ts';
import { frameText } from './live/frames.ts';
import { may, orNotice, type Page, type Visit } from './page.ts';
import { administrationPage, changeLimit, createKey } from './pages/administration.ts';
import { functionPage, functionsPage, rollBack, rollbackPage } from './pages/function.ts';
import { answerQuestion, cancelInvocation, invocationPage, MAX_ANSWER_FORM_BYTES } from './pages/invocation.ts';
import { invocationsPage } from './pages/invocations.ts';
import { overviewPage } from './pages/overview.ts';
import { platformPage } from './pages/platform.ts';
import { MAX_RUN_FORM_BYTES, playgroundPage, runPlayground } from './pages/playground.ts';
import { problemPage } from './pages/problem.ts';
import { SIGN_IN, safeNext, signInPage } from './pages/sign-in.ts';
import { usagePage } from './pages/usage.ts';
import { Visits } from './visits.ts';

type Render = (visit: Visit, c: Context<AppEnv>) => Page | Promise<Page>;

/** Maximum pages that browsers with one key follow at once. */
const MAX_PAGES_OF_KEY = 24;
/** Maximum pages that all browsers together follow at once. */
const MAX_PAGES = 1000;

/** Allows only resources that the gateway itself serves, and nothing inline. */
const CONTENT_SECURITY_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/**
 * `/dashboard`: pages for people. Each page works without the script. A request that accepts an event stream gets the changes of the page at its
 * address.
 */
export function dashboardRoutes(app: App, control: ControlPlane, settings: AppSettings): void {
  const dashboard = new Hono<AppEnv>();
  const visits = new Visits(control, settings);
  const streams = new OpenStreams({ streamsPerKey: MAX_PAGES_OF_KEY, streams: MAX_PAGES }, 'pages of the dashboard');
  const inputs = new InputChecker();
  const visitOf = new WeakMap<Request, Visit>();

  dashboard.use(async function pageHeaders(c, next) {
    await next();
    c.res.headers.set('content-security-policy', CONTENT_SECURITY_POLICY);
    // With `no-referrer`, browsers would not send the origin of a form.
    c.res.headers.set('referrer-policy', 'same-origin');
    if (!c.res.headers.has('cache-control')) c.res.headers.set('cache-control', 'no-store');
  });

  /** Returns the function that logs the internal faults of one request. */
  const reporterOf = (c: Context<AppEnv>) => (error: GatewayError) => {
    if (error.code !== 'internal') return;
    settings.log.error(faultOf(c, error), 'a request failed');
  };

  dashboard.onError(async (caught, c) => {
    const error = GatewayError.from(caught);
    const report = reporterOf(c);
    report(error);
    await c.get('body').discard();
    if (error.code === 'unauthorized' && !asksForStream(c)) {
      visits.signOut(c);
      return c.redirect(signInAddress(c), 303);
    }
    const body = problemPage(error, c.get('requestId'), backFrom(c, error));
    return c.html(wholePage({ title: `${error.status}`, body }, visitOf.get(c.req.raw)), error.status, error.headers);
  });

  const openVisit = async (c: Context<AppEnv>) => {
    const visit = await visits.of(c);
    if (visit === null) return null;
    visitOf.set(c.req.raw, visit);
    // The bytes of the page count towards the tenant's share.
    c.set('principal', visit.call.principal);
    settings.admit(c, visit.call.principal);
    return visit;
  };

  /** Throws `unauthorized` without a session. */
  const requireVisit = async (c: Context<AppEnv>) => {
    const visit = await openVisit(c);
    if (visit === null) throw new GatewayError('unauthorized', 'Your session has ended.', { hint: 'Sign in again.' });
    return visit;
  };

  /** Adds a page, and the event stream of its changes. */
  const show = (path: string, render: Render) =>
    dashboard.get(path, async (c) => {
      const visit = await requireVisit(c);
      if (asksForStream(c)) return stream(c, visit, render);
      const countedVisit = { ...visit, call: { ...visit.call, memory: c.get('answer') } };
      return answer(c, visit, await render(countedVisit, c), 200);
    });

  const answer = async (c: Context<AppEnv>, visit: Visit, page: Page, status: ContentfulStatusCode) => {
    const body = await bodyOf(visit, page, reporterOf(c));
    return htmlAnswer(c, await textOf(wholePage({ ...page, body }, visit)), status);
  };

  /** Adds the action of a form. `perform` returns the address to redirect to. A refusal is answered with an error page. */
  const act = (path: string, perform: (visit: Visit, form: URLSearchParams, c: Context<AppEnv>) => Promise<string>) =>
    dashboard.post(path, async (c) => {
      const visit = await requireVisit(c);
      const form = await visits.formOf(c, visit);
      return c.redirect(await perform(visit, form, c), 303);
    });

  /** Adds the action of a form that `perform` may refuse. The page then shows the form again, as it was filled in. */
  const fill = (
    path: string,
    perform: (visit: Visit, form: URLSearchParams, c: Context<AppEnv>) => Promise<string | Refused>,
    render: (visit: Visit, refusedForm: Refused, c: Context<AppEnv>) => Promise<Page>,
    limitBytes?: number,
  ) =>
    dashboard.post(path, async (c) => {
      const visit = await requireVisit(c);
      const outcome = await perform(visit, await visits.formOf(c, visit, limitBytes), c);
      if (typeof outcome === 'string') return c.redirect(outcome, 303);
      return answer(c, visit, await render(visit, outcome, c), CODES[outcome.fault.code].status);
    });

  const stream = async (c: Context<AppEnv>, visit: Visit, render: Render) => {
    const leave = streams.enter(visit.call.principal);
    const following = new AbortController();
    const end = () => following.abort();
    const frames = follow({
      renew: () => visits.renew(c, visit.session, following.signal),
      render: async (currentVisit) => guarded(currentVisit, await render(currentVisit, c), reporterOf(c)),
      after: afterOf(c),
      signal: following.signal,
    });
    return eventStreamResponse({
      method: c.req.method,
      source: feedOf(frames),
      frame: frameText,
      isTerminal: ({ event }) => event === 'end',
      errorFrame: ({ message }) => `event: trouble\ndata: ${JSON.stringify({ message })}\n\n`,
      heartbeatMs: settings.heartbeatMs,
      client: visit.call.signal,
      // A live page never ends on its own: end it when the process begins to drain.
      shutdown: settings.draining,
      keepOpen: () => leave,
      room: settings.bodies.roomFor(visit.call.principal.tenant),
      onDisconnect: end,
      onEnd: end,
    });
  };

  assetRoutes(dashboard);

  dashboard.get('/sign-in', async (c) => {
    const next = safeNext(c.req.query('next'), new URL(c.req.url).origin);
    // A session of a suspended tenant must not keep its user from signing in with another key.
    const visit = await openVisit(c).catch((error: unknown) => {
      if (error instanceof GatewayError && error.code === 'tenant-suspended') return null;
      throw error;
    });
    if (visit !== null) return c.redirect(next, 303);
    return c.html(wholePage({ title: 'Sign in', body: signInPage({ next }) }));
  });
  dashboard.post('/sign-in', async (c) => {
    const form = await visits.form(c);
    const next = safeNext(form.get('next'), new URL(c.req.url).origin);
    if (await visits.signIn(c, form)) return c.redirect(next, 303);
    const problem = 'This key is not known. It may have been removed, or a character is missing.';
    return c.html(wholePage({ title: 'Sign in', body: signInPage({ next, problem }) }), 401);
  });
  act('/sign-out', async (visit, _form, c) => {
    visits.signOut(c, visit.session);
    return SIGN_IN;
  });

  show('/', overviewPage);
  show('/invocations', invocationsPage);
  show('/invocations/:id', (visit, c) => invocationPage(visit, c.req.param('id') ?? ''));
  fill(
    '/invocations/:id',
    (visit, form, c) => answerQuestion(visit, c.req.param('id') ?? '', form),
    (visit, refusedForm, c) => invocationPage(visit, c.req.param('id') ?? '', refusedForm),
    MAX_ANSWER_FORM_BYTES,
  );
  act('/invocations/:id/cancel', async (visit, _form, c) => cancelInvocation(visit, c.req.param('id') ?? ''));
  show('/functions', functionsPage);
  show('/functions/:name', (visit, c) => functionPage(visit, c.req.param('name') ?? ''));
  show('/functions/:name/rollback', (visit, c) => rollbackPage(visit, c.req.param('name') ?? ''));
  act('/functions/:name/rollback', (visit, form, c) => rollBack(visit, c.req.param('name') ?? '', form));
  show('/playground', (visit) => playgroundPage(visit));
  fill(
    '/playground',
    (visit, form, c) => runPlayground(visit, form, inputs, reporterOf(c)),
    playgroundPage,
    MAX_RUN_FORM_BYTES,
  );
  show('/usage', usagePage);
  show('/administration', async (visit, c) =>
    administrationPage(visit, asksForStream(c) ? null : await visits.takeNewKey(c, visit)),
  );
  act('/administration/keys', (visit, form, c) => createKey(visit, form, (key) => visits.keepNewKey(c, visit, key)));
  act('/administration/limits', (visit, form) => changeLimit(visit, form));
  show('/platform', platformPage);
  dashboard.all('/*', (c) => {
    throw new GatewayError('not-found', `There is no page at ${c.req.path}.`, {
      hint: 'Start from the overview.',
    });
  });

  // People open the URL that `npm start` prints.
  app.get('/', (c) => c.redirect('/dashboard'));
  app.route('/dashboard', dashboard);
}

/** The page's own content: its head and its fragments, each in a box that the script finds by id. */
async function bodyOf(visit: Visit, page: Page, report: (error: GatewayError) => void): Promise<Html> {
  const boxes = guarded(visit, page, report).fragments.map(
    async ({ id, look = '', render }) => html`<section id="${id}" class="${look}">${await render()}</section>`,
  );
  return html`${page.head}<div class="grid">${await Promise.all(boxes)}</div>`;
}

/** The page with every fragment wrapped in `orNotice`. */
function guarded(visit: Visit, page: Page, report: (error: GatewayError) => void): Page {
  const fragments = page.fragments.map((fragment) => ({
    ...fragment,
    render: () => orNotice(visit, fragment.render, report),
  }));
  return { ...page, fragments };
}

interface PageContent extends Pick<Partial<Page>, 'place' | 'live' | 'stream'> {
  readonly title: string;
  readonly body: Html;
}

function wholePage({ title, place, live, stream, body }: PageContent, visit?: Visit): Html {
  return layout({
    title,
    body,
    ...(place !== undefined && { place }),
    ...(visit !== undefined && { signedIn: signedIn(visit) }),
    ...(live === true && visit !== undefined && { live: liveAddress(visit.url, stream) }),
  });
}

function signedIn(visit: Visit) {
  const { tenant, keyId } = visit.call.principal;
  return { tenant, keyId, admin: may(visit, 'admin'), operator: may(visit, 'operator'), formToken: visit.formToken };
}

function asksForStream(c: Context<AppEnv>): boolean {
  return c.req.header('accept') === 'text/event-stream';
}

/** The page to go on with after an error: for a refused form, the page that contains the form. */
function backFrom({ req: { method, path, url } }: Context<AppEnv>, { code }: GatewayError): string {
  if (code === 'tenant-suspended') return SIGN_IN;
  if (method !== 'POST') return '/dashboard';
  if (path.endsWith('/sign-out')) return '/dashboard';
  return `${path.replace(/\/(cancel|keys|limits)$/, '')}${new URL(url).search}`;
}

/** The sign-in address, with the requested page as the target after sign-in. */
function signInAddress(c: Context<AppEnv>): string {
  const { pathname, search } = new URL(c.req.url);
  const next = c.req.method === 'GET' ? `?${new URLSearchParams({ next: `${pathname}${search}` })}` : '';
  return `${SIGN_IN}${next}`;
}

function liveAddress({ pathname, search }: URL, stream: Page['stream']): string {
  if (stream === undefined) return `${pathname}${search}`;
  const query = new URLSearchParams(search);
  query.set('after', stream.after);
  return `${pathname}?${query}`;
}

/**
 * Position of the last event that the browser has. When the browser reconnects by itself, a header names the event; when the script opens a
 * connection, the address names it.
 */
function afterOf(c: Context<AppEnv>): Position | null {
  return positionOf(c.req.header('last-event-id') ?? c.req.query('after') ?? '');
}

const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><circle cx="12" cy="12" r="10" fill="none" stroke="#b5651d" stroke-width="2.4"/><path d="M12 12V3.2A8.8 8.8 0 0 1 20.8 12z" fill="#b5651d"/></svg>`;

const ASSETS = [
  ['style.css', 'text/css; charset=utf-8', DASHBOARD_STYLE],
  ['live.js', 'text/javascript; charset=utf-8', DASHBOARD_SCRIPT],
  ['icon.svg', 'image/svg+xml', ICON],
] as const;

/** Serves the files that pages load, without a key. `no-cache` and the ETag make the browser ask each time whether a file has changed. */
function assetRoutes(dashboard: Hono<AppEnv>): void {
  dashboard.use('/assets/*', etag());
  for (const [name, type, text] of ASSETS)
    dashboard.get(`/assets/${name}`, (c) => c.body(text, 200, { 'content-type': type, 'cache-control': 'no-cache' }));
}
