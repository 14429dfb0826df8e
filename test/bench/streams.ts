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

/** Frames of an event stream that arrived together. */
interface Arrival {
  readonly atMs: number;
  readonly frames: readonly { readonly event: string; readonly data: string }[];
}

const STREAM_TIMEOUT_MS = 300_000;

/**
 * Streams the text of one invocation of a completion function and keeps the bytes with their arrival times. The returned function parses
 * the bytes; call it after every clock has stopped, so that parsing takes no time from the platform.
 */
export async function receive(client: Client, input: object, name = 'text-completion'): Promise<() => ReceivedStream> {
  const headers = { 'content-type': 'application/json', accept: 'text/event-stream' };
  const init = { method: 'POST', headers, body: JSON.stringify(input) };
  const arrivals = await arrivalsOf((signal) => client.fetch(`/v1/functions/${name}/invocations`, { ...init, signal }));
  return () => textOf(arrivals());
}

/** Approximate tokens of each prompt of {@link inputsOf}. An engine that is compared with these streams begins with as many tokens in its cache. */
export const PROMPT_TOKENS = 8;

/** Inputs of a completion function, each with a prompt of its own. */
export function inputsOf(count: number, maxTokens: number): readonly object[] {
  return Array.from({ length: count }, (_, i) => ({
    prompt: `Once upon a time, number ${i}`,
    maxTokens,
    temperature: 0,
  }));
}

/** As `receive`, for several invocations at once. */
export function receiveAll(
  client: Client,
  inputs: readonly object[],
  name?: string,
): Promise<(() => ReceivedStream)[]> {
  return Promise.all(inputs.map((input) => receive(client, input, name)));
}

/** As `receive`, for `/v1/completions` of the platform or of a server that sends the token ids with each piece. */
export async function receiveCompletion(url: string, apiKey: string, body: object): Promise<() => ReceivedStream> {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` };
  const init = { method: 'POST', headers, body: JSON.stringify({ ...body, stream: true, return_token_ids: true }) };
  const arrivals = await arrivalsOf((signal) => fetch(url, { ...init, signal }));
  return () => completionOf(arrivals());
}

async function arrivalsOf(send: (signal: AbortSignal) => Promise<Response>): Promise<() => Arrival[]> {
  const startMs = performance.now();
  const response = await send(AbortSignal.timeout(STREAM_TIMEOUT_MS));
  if (!response.ok || response.body === null) throw new Error(`${response.status} ${await response.text()}`);
  const chunks: { readonly atMs: number; readonly bytes: Uint8Array }[] = [];
  for await (const bytes of response.body) chunks.push({ atMs: performance.now() - startMs, bytes });
  return () => {
    const decoder = new TextDecoder();
    let rest = '';
    return chunks.map(({ atMs, bytes }) => {
      const texts = (rest + decoder.decode(bytes, { stream: true })).split('\n\n');
      rest = texts.pop() ?? '';
      return { atMs, frames: texts.flatMap(frameOf) };
    });
  };
}

/** Parses a frame; empty for a comment, which the gateway sends as a heartbeat on a quiet stream. */
function frameOf(text: string): Arrival['frames'] {
  const data = /^data: ?(.*)$/m.exec(text)?.[1];
  return data === undefined ? [] : [{ event: /^event: ?(.*)$/m.exec(text)?.[1] ?? 'message', data }];
}

/** @throws Error when the messages do not add up to the result's text, or the invocation failed. */
function textOf(arrivals: readonly Arrival[]): ReceivedStream {
  const messagesAtMs: number[] = [];
  let text = '';
  let result: { readonly text: string; readonly tokens: readonly number[] } | undefined;
  for (const { atMs, frames } of arrivals) {
    let messages = 0;
    for (const { event, data } of frames) {
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
  return { tokens: result.tokens.length, text, ...timesOf(messagesAtMs) };
}

/** @throws Error when the stream reports an error or ends without `[DONE]` */
function completionOf(arrivals: readonly Arrival[]): ReceivedStream {
  const messagesAtMs: number[] = [];
  let text = '';
  let tokens = 0;
  let isDone = false;
  for (const { atMs, frames } of arrivals) {
    let messages = 0;
    for (const { data } of frames) {
      if (data === '[DONE]') {
        isDone = true;
        continue;
      }
      const { choices, error } = JSON.parse(data);
      if (error !== undefined) throw new Error(`the completion failed: ${data}`);
      for (const choice of choices) {
        text += choice.text;
        tokens += choice.token_ids?.length ?? 0;
        if (choice.finish_reason === null) messages++;
      }
    }
    if (messages > 0) messagesAtMs.push(atMs);
  }
  if (!isDone) throw new Error('the stream of a completion broke off');
  return { tokens, text, ...timesOf(messagesAtMs) };
}

const timesOf = (messagesAtMs: readonly number[]) => ({
  firstMs: messagesAtMs[0] ?? Number.NaN,
  gapsMs: messagesAtMs.slice(1).map((atMs, i) => atMs - (messagesAtMs[i] ?? atMs)),
});
