import assert from 'node:assert/strict';
import { json, numberOf, readEvents, type StreamEvent } from '#test/harness/events.ts';
import { type Platform, until } from '#test/harness/platform.ts';

/** An invocation that the test follows to its end, even when processes die meanwhile. */
export interface Watched {
  readonly id: string;
  readonly restartable: boolean;
  /** Key in the key-value store under which the invocation counts its runs. */
  readonly mark: string;
  readonly events: StreamEvent[];
  /** Arrival time of each event, ms since the epoch. */
  readonly arrivalsMs: number[];
  readonly ended: Promise<void>;
}

const END_WITHIN_MS = 120_000;

/** Starts an invocation and follows its events, reconnecting as often as needed. Does not wait for the end. */
export async function watch(
  platform: Platform,
  input: Readonly<Record<string, unknown>> & { readonly mark: string },
  options: { readonly restartable: boolean; readonly onEvent?: (event: StreamEvent) => void },
): Promise<Watched> {
  const { restartable, onEvent = () => undefined } = options;
  const response = await platform.fetch(`/v1/functions/${restartable ? 'counted-again' : 'counted'}/invocations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', prefer: 'respond-async' },
    body: JSON.stringify(input),
  });
  assert.equal(response.status, 202, await response.clone().text());
  const { id } = (await response.json()) as { id: string };
  const events: StreamEvent[] = [];
  const arrivalsMs: number[] = [];
  const take = (event: StreamEvent) => {
    if (isInterruption(event)) return;
    events.push(event);
    arrivalsMs.push(Date.now());
    onEvent(event);
  };
  const ended = follow(platform, id, events, take);
  // A test may fail before it awaits the end.
  ended.catch(() => undefined);
  return { id, restartable, mark: input.mark, events, arrivalsMs, ended };
}

/** Number of messages that an invocation has sent so far, in all its runs. */
export const messageCount = ({ events }: Watched): number => events.filter(({ event }) => event === 'message').length;

/** Number of runs that an invocation has begun so far. */
export const startCount = ({ events }: Watched): number => events.filter(({ event }) => event === 'start').length;

/** Waits until no invocation is queued or runs, children and probes included. */
export async function untilNoneLeft(platform: Platform): Promise<void> {
  for (const status of ['running', 'queued'])
    await until(`no invocation is ${status}`, async () => {
      const response = await platform.fetch(`/v1/invocations?status=${status}`);
      return (await json(response)).invocations.length === 0;
    });
}

async function follow(
  platform: Platform,
  id: string,
  events: readonly StreamEvent[],
  take: (event: StreamEvent) => void,
): Promise<void> {
  const giveUpAtMs = Date.now() + END_WITHIN_MS;
  while (!isOver(events)) {
    if (Date.now() > giveUpAtMs) throw new Error(`${id} did not end; last: ${JSON.stringify(events.at(-1))}`);
    const signal = AbortSignal.timeout(END_WITHIN_MS);
    try {
      const response = await platform.fetch(`/v1/invocations/${id}/events`, {
        headers: { 'last-event-id': events.at(-1)?.id ?? '0' },
        signal,
      });
      await readEvents(response, take);
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/** True for an error of the gateway itself, which asks the client to reconnect. The invocation goes on. */
const isInterruption = ({ event, id, data }: StreamEvent): boolean =>
  event === 'error' && id === '' && data.resumable === true;

const isOver = (events: readonly StreamEvent[]): boolean => ['result', 'error'].includes(events.at(-1)?.event ?? '');

/** Checks the invariants that hold for every ended invocation. Returns how the invocation ended: `result`, or the code of its error. */
export async function checkEnded(platform: Platform, watched: Watched): Promise<string> {
  const { id, events, mark, restartable } = watched;
  const details = `${mark} (${id}): ${JSON.stringify(events.slice(-3))}`;
  for (const [i, event] of events.entries()) {
    const previousNumber = numberOf(events[i - 1] ?? { id: '0' });
    if (event.event === 'gap') assert.ok(numberOf(event) > previousNumber, `numbers grow; ${details}`);
    else assert.equal(numberOf(event), previousNumber + 1, `numbers are skipped only before a gap; ${details}`);
  }
  const terminals = events.filter(({ event }) => event === 'result' || event === 'error');
  assert.equal(terminals.length, 1, details);
  assert.equal(terminals[0], events.at(-1), details);

  const stored = await readEvents(await platform.fetch(`/v1/invocations/${id}/events`));
  assert.deepEqual(
    stored,
    eventsToStore(events),
    `the log has the streamed events except those that a gap voids; ${details}`,
  );

  const state = (await (await platform.fetch(`/v1/invocations/${id}`)).json()) as {
    status: string;
    usage?: Record<string, number>;
  };
  const tokens = stored.filter(({ event }) => event === 'message').length;
  assert.equal(state.usage?.outputTokens ?? 0, tokens, `usage counts the tokens in the log; ${details}`);

  const begun = startCount(watched);
  const ran = await timesRun(platform, mark);
  if (!restartable)
    assert.ok(begun <= 1 && ran <= 1, `ran ${ran} times with ${begun} starts although not restartable; ${details}`);
  // The runtime may have died after a run had begun and before the client received its `start`.
  assert.ok(ran <= begun + 1, details);
  return terminals[0]?.event === 'result' ? 'result' : String(terminals[0]?.data.code);
}

/** Events of a stream that the log must contain: all but the events after a gap's `after` and before the gap. */
function eventsToStore(events: readonly StreamEvent[]): StreamEvent[] {
  const gaps = events.filter(({ event }) => event === 'gap');
  const isLost = (id: number) => gaps.some((gap) => id > Number(gap.data.after) && id < numberOf(gap));
  return events.filter((event) => !isLost(numberOf(event)));
}

/** Number of times that the invocation with this mark has run, as it counted itself. */
async function timesRun(platform: Platform, mark: string): Promise<number> {
  let ran = -1;
  await until('the store answers', async () => {
    const response = await platform.fetch('/v1/functions/counted/invocations', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ read: mark }),
    });
    if (response.ok) ran = ((await response.json()) as { output: { ran: number } }).output.ran;
    return response.ok;
  });
  return ran;
}
