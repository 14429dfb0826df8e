import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { loadConfig } from '#infra/config.ts';
import { invoke, type StreamEvent, terminal } from '#test/harness/events.ts';
import type { Platform } from '#test/harness/platform.ts';

/** The output of an invocation that must succeed. */
export function outputOf<T>(events: readonly StreamEvent[]): T {
  const end = terminal(events);
  if (end?.event !== 'result') throw new Error(`the invocation failed: ${JSON.stringify(end?.data)}`);
  return end.data.output as T;
}

/** Usage of an invocation that must succeed, by name. */
export function usageOf(events: readonly StreamEvent[]): Readonly<Record<string, number>> {
  const end = terminal(events);
  if (end?.event !== 'result') throw new Error(`the invocation failed: ${JSON.stringify(end?.data)}`);
  return end.data.usage as Record<string, number>;
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
  // An invocation that fails before its first message must end the wait.
  await Promise.race([barrier, Promise.all(running).then(() => undefined)]);
  await whenAllReady();
  await Promise.all(ids.map((id) => tell(platform, id, 'go')));
  return (await Promise.all(running)).map((events) => outputOf<T>(events));
}

/** A connection to the first GPU host, to read its counters. */
export async function connectStats(platform: Platform): Promise<GpuHostConnection> {
  const [host] = loadConfig(platform.environment).gpuHosts;
  return GpuHostConnection.connect(host?.address ?? '');
}
