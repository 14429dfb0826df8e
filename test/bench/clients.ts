import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { loadConfig } from '#infra/config.ts';
import { type Client, invoke, type StreamEvent, say, terminal } from '#test/harness/events.ts';
import { type Platform, until } from '#test/harness/platform.ts';

/** The output of an invocation that must succeed. */
export function outputOf<T>(events: readonly StreamEvent[]): T {
  const end = terminal(events);
  if (end?.event !== 'result') throw new Error(`the invocation failed: ${JSON.stringify(end?.data)}`);
  return end.data.output as T;
}

/** Runs `inputs` in parallel up to their first message, calls `whenAllReady`, resumes each with one message, and returns their outputs. */
export async function startTogether<T>(
  client: Client,
  name: string,
  inputs: readonly unknown[],
  whenAllReady: () => Promise<void>,
): Promise<T[]> {
  const ids: string[] = [];
  let ready = 0;
  let isResumed = false;
  const allReady = Promise.withResolvers<void>();
  const run = async (input: unknown): Promise<T> => {
    const events = await invoke(client, name, input, {
      onEvent: ({ event, data }) => {
        if (event === 'start') ids.push(data.invocation);
        if (event === 'message' && ++ready === inputs.length) allReady.resolve();
      },
    });
    const output = outputOf<T>(events);
    // The other invocations would never be resumed: they wait until all have sent a message.
    if (!isResumed) throw new Error(`${name} ended before all invocations were ready`);
    return output;
  };
  const outputs = Promise.all(inputs.map(run));
  await Promise.race([allReady.promise, outputs]);
  await Promise.race([whenAllReady(), outputs]);
  isResumed = true;
  await Promise.race([Promise.all(ids.map((id) => say(client, id, { text: 'go' }))), outputs]);
  return outputs;
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
