import { EventSourceParserStream } from './event-source.ts';

export interface StreamEvent {
  readonly id: string;
  readonly event: string;
  // biome-ignore lint/suspicious/noExplicitAny: the tests read what the wire says
  readonly data: any;
}

/** The number in an event's id, `<epoch>-<number>`. */
export const numberOf = ({ id }: Pick<StreamEvent, 'id'>): number => Number(id.split('-').at(-1));

/** A client: an operator with the platform's key, or a tenant with its own. */
export interface Client {
  fetch(route: string, init?: RequestInit): Promise<Response>;
}

/** A client of the gateway at `url` with a key. */
export const clientWith = (url: string, apiKey: string): Client => ({
  fetch: (route, init = {}) =>
    fetch(`${url}${route}`, {
      ...init,
      headers: { authorization: `Bearer ${apiKey}`, ...(init.headers as Record<string, string>) },
    }),
});

export interface InvokeOptions {
  onEvent?: (event: StreamEvent) => void;
  signal?: AbortSignal;
  /** Invocations with the same key run on the same GPU host. */
  affinity?: string;
}

/** Invokes a function and reads its event stream to the end. `onEvent` receives each event as it arrives. */
export async function invoke(
  client: Client,
  name: string,
  input: unknown,
  options: InvokeOptions = {},
): Promise<StreamEvent[]> {
  const response = await client.fetch(`/v1/functions/${name}/invocations`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'text/event-stream',
      ...(options.affinity !== undefined && { 'x-session-affinity': options.affinity }),
    },
    body: JSON.stringify(input),
    signal: options.signal,
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return readEvents(response, options.onEvent);
}

/** An invocation that waits for a message of its client. */
export interface HeldInvocation {
  readonly id: string;
  readonly ended: Promise<StreamEvent[]>;
  goOn(): Promise<void>;
}

/** Invokes a function that sends a message, then waits for an answer. Resolves when the function's message arrives or the invocation ends. */
export async function hold(client: Client, name: string, input: unknown): Promise<HeldInvocation> {
  const messageArrived = Promise.withResolvers<void>();
  let id = '';
  const ended = invoke(client, name, input, {
    onEvent: ({ event, data }) => {
      if (event === 'start') id = data.invocation;
      else if (event === 'message') messageArrived.resolve();
    },
  });
  await Promise.race([messageArrived.promise, ended]);
  return { id, ended, goOn: () => say(client, id, { text: 'go on' }) };
}

/** Sends a message to an invocation. */
export async function say(client: Client, id: string, message: unknown): Promise<void> {
  const response = await client.fetch(`/v1/invocations/${id}/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(message),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
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
