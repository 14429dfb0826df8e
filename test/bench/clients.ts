import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { loadConfig } from '#infra/config.ts';
import { type Client, invoke, type StreamEvent, terminal } from '#test/harness/events.ts';
import { type Platform, until } from '#test/harness/platform.ts';

/** The output of an invocation that must succeed. */
export function outputOf<T>(events: readonly StreamEvent[]): T {
  const end = terminal(events);
  if (end?.event !== 'result') throw new Error(`the invocation failed: ${JSON.stringify(end?.data)}`);
  return end.data.output as T;
}

/** Sends one text message into a running invocation. */
export async function tell(platform: Platform, id: string, message: string): Promise<void> {
  const response = await platform.fetch(`/v1/invocations/${id}/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ text: message }),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
}

/**
 * Runs `inputs` in parallel up to their first message, calls `whenAllReady`, resumes each with one message, and returns their outputs.
 */
export async function startTogether<T>(
  platform: Platform,
  name: string,
  inputs: readonly unknown[],
  whenAllReady: () => Promise<void>,
): Promise<T[]> {
  const ids: string[] = [];
  let ready = 0;
  let allReady: () => void = () => undefined;
  const barrier = new Promise<void>((resolve) => {
    allReady = resolve;
  });
  const running = inputs.map((input) =>
    invoke(platform, name, input, {
      onEvent: (event) => {
        if (event.event === 'start') ids.push(event.data.invocation);
        if (event.event === 'message' && ++ready === inputs.length) allReady();
      },
    }),
  );
  const all = Promise.all(running);
  // An invocation that fails before its first message must end the wait.
  await Promise.race([barrier, all.then((ended) => ended.map((events) => outputOf(events)))]);
  await Promise.race([whenAllReady(), all]);
  await Promise.all([...ids.map((id) => tell(platform, id, 'go')), all]);
  return (await all).map((events) => outputOf<T>(events));
}

/** A stream that ended with a result, and the time from the request to its first message, in ms. */
export interface TimedStream {
  readonly firstMs: number;
  readonly events: readonly StreamEvent[];
}

/** Streams an invocation that must send a message and succeed. */
export async function timeFirstMessage(client: Client, name: string, input: unknown): Promise<TimedStream> {
  const startMs = performance.now();
  let firstMs: number | undefined;
  const events = await invoke(client, name, input, {
    signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
    onEvent: ({ event }) => {
      if (event === 'message') firstMs ??= performance.now() - startMs;
    },
  });
  outputOf(events);
  if (firstMs === undefined) throw new Error(`${name} sent no message`);
  return { firstMs, events };
}

/** Time from the request to the received outcome of an invocation that must succeed, in ms. */
export async function outcomeMs(client: Client, name: string, input: unknown): Promise<number> {
  const startMs = performance.now();
  const response = await client.fetch(`/v1/functions/${name}/invocations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(input),
    signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
  });
  const answer = await response.text();
  const tookMs = performance.now() - startMs;
  if (!response.ok || JSON.parse(answer).status !== 'succeeded') throw new Error(`${response.status} ${answer}`);
  return tookMs;
}

/** Longest that a probe may take. */
const PROBE_TIMEOUT_MS = 120_000;

/** Cancels a tenant's invocations in these states, separated by commas, until none is left. */
export async function cancelAll(tenant: Client, states: string): Promise<void> {
  const noneLeft = async () => {
    const response = await tenant.fetch(`/v1/invocations?status=${states}&limit=100`);
    const { invocations } = (await response.json()) as { invocations: readonly { id: string }[] };
    await Promise.all(invocations.map(({ id }) => tenant.fetch(`/v1/invocations/${id}`, { method: 'DELETE' })));
    return invocations.length === 0;
  };
  await until("the end of a tenant's invocations", noneLeft);
}

/** A connection to the first GPU host, to read its counters. */
export async function connectStats(platform: Platform): Promise<GpuHostConnection> {
  const [host] = loadConfig(platform.environment).gpuHosts;
  return GpuHostConnection.connect(host?.address ?? '');
}
