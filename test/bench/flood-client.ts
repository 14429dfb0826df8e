/** The flooding client of `pie bench flood`. Its own thread keeps its work out of the times that the other client measures. */
import { parentPort, workerData } from 'node:worker_threads';
import { submit } from '#test/harness/tenants.ts';

/** Input of this thread, which posts the number of submitted invocations when the gateway has accepted all of them. */
export interface Flood {
  readonly url: string;
  readonly apiKey: string;
  readonly name: string;
  readonly input: unknown;
  readonly invocations: number;
  /** Concurrent requests. */
  readonly atOnce: number;
}

const { url, apiKey, name, input, invocations, atOnce } = workerData as Flood;
const client = {
  fetch: (route: string, init: RequestInit = {}) =>
    fetch(`${url}${route}`, {
      ...init,
      headers: { authorization: `Bearer ${apiKey}`, ...(init.headers as Record<string, string>) },
    }),
};
let unsubmitted = invocations;
await Promise.all(
  Array.from({ length: atOnce }, async () => {
    while (unsubmitted-- > 0) await submit(client, name, input);
  }),
);
parentPort?.postMessage(invocations);
