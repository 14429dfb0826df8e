import { EventSourceParserStream } from './event-source.ts';
import type { Platform } from './platform.ts';

export interface StreamEvent {
  readonly id: string;
  readonly event: string;
  // biome-ignore lint/suspicious/noExplicitAny: the tests read what the wire says
  readonly data: any;
}

/** Invokes a function and reads its event stream to the end. `onEvent` sees each event as it comes. */
export async function invoke(
  platform: Platform,
  name: string,
  input: unknown,
  options: { onEvent?: (event: StreamEvent) => void; signal?: AbortSignal } = {},
): Promise<StreamEvent[]> {
  const response = await platform.fetch(`/v1/functions/${name}/invocations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
    body: JSON.stringify(input),
    signal: options.signal,
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return readEvents(response, options.onEvent);
}

export async function readEvents(
  response: Response,
  onEvent: (event: StreamEvent) => void = () => undefined,
): Promise<StreamEvent[]> {
  const events: StreamEvent[] = [];
  if (response.body === null) throw new Error('no body');
  for await (const frame of response.body
    .pipeThrough(new TextDecoderStream())
    .pipeThrough(new EventSourceParserStream())) {
    const event = { id: frame.id, event: frame.event, data: JSON.parse(frame.data) };
    events.push(event);
    onEvent(event);
  }
  return events;
}

export const text = (events: readonly StreamEvent[]): string =>
  events
    .filter((event) => event.event === 'message')
    .map((event) => event.data.text)
    .join('');

export const terminal = (events: readonly StreamEvent[]): StreamEvent | undefined =>
  events.find((event) => event.event === 'result' || event.event === 'error');

// biome-ignore lint/suspicious/noExplicitAny: the tests read what the wire says
export const json = async (response: Response): Promise<any> => response.json();
