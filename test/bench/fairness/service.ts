/** Weights of a prompt's token and of an output's token in a tenant's service (Sheng et al., VTC, OSDI '24, section 5.1). */
export const WEIGHTS = { input: 1, output: 2 } as const;

/** A request of one of two clients, as the client saw it. Times are in ms from the beginning of the load. */
export interface Request {
  readonly client: 0 | 1;
  readonly sentMs: number;
  /** End of the request's stream; the end of the load for a request that still waited then. */
  readonly endMs: number;
  readonly input: number;
  readonly output: number;
  /** Arrivals of the pieces of its output, which have equally many tokens; empty for a request that never began. */
  readonly piecesMs: readonly number[];
}

/** Service of two clients while both waited. */
export interface ServiceComparison {
  /** The largest difference of their service within any window in which both waited all the time. */
  readonly difference: number;
  /** Time in which both waited, ms. */
  readonly waitedMs: number;
  /** Service of each client in that time. */
  readonly served: readonly [number, number];
}

/** A change at one moment: a request of the client opens (`open` is 1) or ends (-1), or the client receives `service`. */
interface Change {
  readonly atMs: number;
  readonly client: 0 | 1;
  readonly open: number;
  readonly service: number;
}

/** Bound of VTC on the difference of the service of two clients in any window in which both wait (theorem 4.4). */
export const boundOf = (longestInput: number, batchTokens: number): number =>
  2 * Math.max(WEIGHTS.input * longestInput, WEIGHTS.output * batchTokens);

/**
 * Compares the service of two clients in the windows in which both wait. A client surely waits while more of its requests are open than the
 * platform runs at once (`slots`). A prompt's service counts when the first piece of its output arrives, a piece's service when the piece arrives.
 */
export function compareService(requests: readonly Request[], slots: number, untilMs: number): ServiceComparison {
  const changes = requests.flatMap(changesOf).sort((a, b) => a.atMs - b.atMs);
  const open: [number, number] = [0, 0];
  const served: [number, number] = [0, 0];
  let difference = 0;
  let waitedMs = 0;
  /** The window in which both wait: its beginning, and the least and largest lead of the first client since then. */
  let window: { fromMs: number; lead: number; least: number; largest: number } | undefined;
  for (const { atMs, client, open: opened, service } of changes) {
    if (atMs > untilMs) break;
    open[client] += opened;
    if (window) {
      served[client] += service;
      window.lead += client === 0 ? service : -service;
      window.least = Math.min(window.least, window.lead);
      window.largest = Math.max(window.largest, window.lead);
      difference = Math.max(difference, window.largest - window.least);
    }
    const bothWait = open[0] > slots && open[1] > slots;
    if (window && !bothWait) {
      waitedMs += atMs - window.fromMs;
      window = undefined;
    } else if (!window && bothWait) window = { fromMs: atMs, lead: 0, least: 0, largest: 0 };
  }
  if (window) waitedMs += untilMs - window.fromMs;
  return { difference, waitedMs, served };
}

function changesOf({ client, sentMs, endMs, input, output, piecesMs }: Request): Change[] {
  const pieces = piecesMs.map((atMs, i) => ({
    atMs,
    client,
    open: 0,
    service: (i === 0 ? WEIGHTS.input * input : 0) + (WEIGHTS.output * output) / piecesMs.length,
  }));
  return [{ atMs: sentMs, client, open: 1, service: 0 }, ...pieces, { atMs: endMs, client, open: -1, service: 0 }];
}
