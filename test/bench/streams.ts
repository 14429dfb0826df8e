import type { Client } from '#test/harness/events.ts';

/** One stream as its client received it. */
export interface ReceivedStream {
  readonly tokens: number;
  readonly text: string;
  /** Time from the request to the first message, in ms. */
  readonly firstMs: number;
  /** Times between two arrivals that held messages, in ms. */
  readonly gapsMs: readonly number[];
}

interface Arrival {
  readonly atMs: number;
  readonly bytes: Uint8Array;
}

const STREAM_TIMEOUT_MS = 300_000;

/**
 * Streams the text of one invocation of a completion function and keeps the bytes with their arrival times. The returned function parses
 * them; call it after every clock has stopped, so that parsing takes no time from the platform.
 */
export async function receive(client: Client, input: object, name = 'text-completion'): Promise<() => ReceivedStream> {
  const startMs = performance.now();
  const response = await client.fetch(`/v1/functions/${name}/invocations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
    body: JSON.stringify(input),
    signal: AbortSignal.timeout(STREAM_TIMEOUT_MS),
  });
  if (!response.ok || response.body === null) throw new Error(`${response.status} ${await response.text()}`);
  const arrivals: Arrival[] = [];
  for await (const bytes of response.body) arrivals.push({ atMs: performance.now() - startMs, bytes });
  return () => parse(arrivals);
}

/** @throws Error when the messages do not add up to the result's text, or the invocation failed. */
function parse(arrivals: readonly Arrival[]): ReceivedStream {
  const decoder = new TextDecoder();
  const messagesAtMs: number[] = [];
  let rest = '';
  let text = '';
  let result: { readonly text: string; readonly tokens: readonly number[] } | undefined;
  for (const { atMs, bytes } of arrivals) {
    const frames = (rest + decoder.decode(bytes, { stream: true })).split('\n\n');
    rest = frames.pop() ?? '';
    let messages = 0;
    for (const frame of frames) {
      const event = /^event: ?(.*)$/m.exec(frame)?.[1];
      const data = /^data: ?(.*)$/m.exec(frame)?.[1] ?? 'null';
      if (event === 'message') {
        text += JSON.parse(data).text;
        messages++;
      } else if (event === 'result') result = JSON.parse(data).output;
      else if (event === 'error') throw new Error(`the invocation failed: ${data}`);
    }
    if (messages > 0) messagesAtMs.push(atMs);
  }
  if (result === undefined) throw new Error('the stream ended without a result');
  if (text !== result.text) throw new Error('the messages that arrived are not the text of the result');
  return {
    tokens: result.tokens.length,
    text,
    firstMs: messagesAtMs[0] ?? Number.NaN,
    gapsMs: messagesAtMs.slice(1).map((atMs, i) => atMs - (messagesAtMs[i] ?? atMs)),
  };
}
