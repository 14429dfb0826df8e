import { raw } from 'hono/html';
import { Items } from '#scheduler/invocations/follower.ts';
import { hasEnded } from '#scheduler/invocations/types.ts';
import type { HeldInvocation, InvocationEvent } from '../../control.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import { JsonText } from '../../http/json-text.ts';
import { BEGINNING, positionOf } from '../../invocations/event-id.ts';
import type { Refused } from '../forms/filled.ts';
import { jsonText, measured, moment, shortVersion } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';
import { badge, code, empty, facts, notice, tokenField } from '../html/parts.ts';
import { demand, may, once, type Page, unknownInvocation, type Visit } from '../page.ts';
import { lateNotice, questionCard } from './answer.ts';
import { lasted } from './invocation-table.ts';
import { MAX_TEXT, type Transcript, transcript } from './transcript.ts';
import { stepsOf, waterfall } from './waterfall.ts';

/** Maximum past events that the page begins with. `MAX_TEXT` bounds their characters, too, but never drops the last event. */
const PAST_EVENTS = 500;
/** Longest wait for the past events. */
const PAST_MS = 3000;
/** Maximum characters of the result that the page shows. */
const MAX_RESULT = 20_000;

/** One invocation: its state, its open question, its usage, and its output as it arrives. `refusedForm` is the form of a refused answer. */
export async function invocationPage(visit: Visit, id: string, refusedForm?: Refused): Promise<Page> {
  const { control, call, now } = visit;
  const state = await control.invocation(call, id);
  if (state === null) throw unknownInvocation(id);
  const isActive = isOpen(state);
  const loadPast = once(() => readPast(visit, state));
  const done = visit.url.searchParams.get('done');
  const isLate = refusedForm?.fault.code === 'not-waiting';

  return {
    title: `Invocation ${id}`,
    place: 'invocations',
    head: html`<p class="crumbs"><a href="/dashboard/invocations">Invocations</a></p>${
      done === 'cancelled' ? notice('good', isActive ? 'It was asked to stop.' : 'It has ended.') : NONE
    }${done === 'answered' && state.question === undefined ? notice('good', 'The answer was taken.') : NONE}${
      refusedForm !== undefined && isLate ? lateNotice(refusedForm) : NONE
    }`,
    live: isActive,
    stream: { id, after: state.lastEventId },
    fragments: [
      { id: 'state', look: 'wide bare', render: () => stateHead(visit, state, isActive) },
      { id: 'question', look: 'wide card', render: () => questionCard(visit, state, isLate ? undefined : refusedForm) },
      {
        id: 'facts',
        look: 'wide card',
        render: () =>
          html`<h2 class="unseen">State</h2>${facts([
            [
              'Function',
              html`<a href="/dashboard/functions/${encodeURIComponent(state.function)}">${state.function}</a>`,
            ],
            ['Version', html`<code title="${state.version}">${shortVersion(state.version)}</code>`],
            ['Created', moment(state.createdAt, now)],
            ['Started', state.startedAt === undefined ? '–' : moment(state.startedAt, now)],
            ['Ended', state.endedAt === undefined ? '–' : moment(state.endedAt, now)],
            [state.startedAt === undefined ? 'Waiting for' : 'Ran for', lasted(state, now)],
            ...(state.parent === undefined
              ? []
              : [
                  [
                    'Launched by',
                    html`<a class="mono" href="/dashboard/invocations/${encodeURIComponent(state.parent)}">${state.parent}</a>`,
                  ] as const,
                ]),
            ...(state.schedule === undefined ? [] : [['Schedule', state.schedule] as const]),
            ...(state.webhook === undefined ? [] : [['Webhook', state.webhook.status] as const]),
          ])}${
            state.error === undefined
              ? NONE
              : html`<div class="actions">${notice('bad', html`${code(state.error.code)} ${state.error.message}`)}</div>`
          }`,
      },
      { id: 'written', look: 'wide card', render: async () => outputCard(state, await loadPast()), fixed: true },
      { id: 'result', look: 'wide card', render: () => resultCard(state) },
      {
        id: 'steps',
        look: 'wide card',
        render: async () => (isActive ? NONE : waterfall(stepsOf(state, (await loadPast()).events))),
      },
      { id: 'usage', look: 'wide card', render: () => usageCard(state) },
      { id: 'happened', look: 'wide card', render: async () => eventsCard(await loadPast()), fixed: true },
    ],
  };
}

/** Asks for cancellation. Returns the address to redirect to. */
export async function cancelInvocation(visit: Visit, id: string): Promise<string> {
  demand(visit, 'invoke');
  const state = await visit.control.cancel(visit.call, id, 'Cancelled on the dashboard.');
  if (state === null) throw unknownInvocation(id);
  return `/dashboard/invocations/${encodeURIComponent(id)}?done=cancelled`;
}

export function isOpen({ status }: HeldInvocation): boolean {
  return !hasEnded(status);
}

function stateHead(visit: Visit, state: HeldInvocation, isActive: boolean): Html {
  const cancel =
    isActive && may(visit, 'invoke')
      ? html`<details class="confirm"><summary class="button danger">Cancel…</summary><div class="panel"><p>It stops soon. Its output so far is kept.</p>
<form method="post" action="/dashboard/invocations/${encodeURIComponent(state.id)}/cancel">${tokenField(visit.formToken)}<button class="danger">Cancel this invocation</button></form></div></details>`
      : NONE;
  const replayQuery = new URLSearchParams({
    function: state.function,
    version: state.version,
    from: state.id,
  }).toString();
  const replay = may(visit, 'invoke')
    ? html`<a class="button" href="/dashboard/playground?${replayQuery}">Run again…</a>`
    : NONE;
  return html`<div class="head"><div class="titles"><h1 class="mono">${state.id}</h1></div>${badge(state.status)}${cancel}${replay}</div>`;
}

function usageCard({ usage, status }: HeldInvocation): Html {
  const usageEntries = Object.entries(usage ?? {});
  if (usageEntries.length === 0)
    return html`<h2>Usage</h2>${empty(status === 'queued' ? 'It has not begun.' : 'Nothing was reported yet.')}`;
  return html`<h2>Usage</h2>${facts(
    usageEntries.map(([name, value]) => {
      const { label, text } = measured(name, value);
      return [label, text] as const;
    }),
  )}`;
}

export function resultCard({ output }: HeldInvocation): Html {
  if (output === undefined) return NONE;
  const text = textOf(output);
  const shownText = text.length > MAX_RESULT ? `${text.slice(0, MAX_RESULT)}\n…` : text;
  return html`<h2>Result</h2><pre class="console" tabindex="0" role="region" aria-label="Result">${shownText}</pre>`;
}

/** Shows a long output unformatted. */
function textOf(output: unknown): string {
  if (!(output instanceof JsonText)) return jsonText(output);
  return output.text.length > MAX_RESULT ? output.text : jsonText(output.value);
}

export interface Past extends Transcript {
  /** Number of the first event that the page shows. */
  readonly first: number;
  readonly events: readonly InvocationEvent[];
}

export function outputCard(state: HeldInvocation, { text, first }: Past): Html {
  const omittedNote =
    first > 1
      ? html`<p class="muted">This begins with event ${first}: <code>pie attach ${state.id}</code> shows all.</p>`
      : NONE;
  const emptyNote =
    text === ''
      ? html`<p id="no-output" class="muted">${isOpen(state) ? 'Nothing was written yet.' : 'It wrote no text.'}</p>`
      : NONE;
  return html`<h2 id="h-output">Output</h2>${omittedNote}<pre id="output" class="console output" tabindex="0" role="log" aria-live="off" aria-labelledby="h-output">${text}</pre>${emptyNote}`;
}

export function eventsCard({ rows }: Past): Html {
  return html`<h2 id="h-events">Events</h2><ol id="events" class="console rows" tabindex="0" role="log" aria-live="off" aria-labelledby="h-events">${raw(rows)}</ol>`;
}

/** Reads the last events of an invocation, up to the last one that its state names. */
export async function readPast({ control, call }: Visit, { id, lastEventId }: HeldInvocation): Promise<Past> {
  const last = positionOf(lastEventId) ?? BEGINNING;
  const after = { epoch: null, seq: Math.max(0, last.seq - PAST_EVENTS) };
  const events: InvocationEvent[] = [];
  let heldCharacters = 0;
  const reading = new AbortController();
  const signal = AbortSignal.any([call.signal, reading.signal, AbortSignal.timeout(PAST_MS)]);
  try {
    if (last.seq > 0)
      for await (const event of new Items(control.events(call, id, after), signal)) {
        events.push(event);
        heldCharacters += event.data.length;
        while (heldCharacters > MAX_TEXT && events.length > 1) {
          const dropped = events.shift();
          heldCharacters -= dropped?.data.length ?? 0;
        }
        if (event.seq >= last.seq) break;
      }
  } catch (error) {
    // An old invocation may have a state but no events, since the store keeps events for a shorter time. When `PAST_MS` have passed, the page shows
    // the events that have come so far.
    const isGone = error instanceof GatewayError && error.code === 'unknown-invocation';
    if (!signal.aborted && !isGone) throw error;
  } finally {
    reading.abort();
  }
  return { ...(await transcript(events)), first: events[0]?.seq ?? 1, events };
}
