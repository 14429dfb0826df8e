import readline from 'node:readline';
import { durationMs } from '../../app/http/durations.ts';
import { MAX_CHOSEN_KEY_LENGTH, VISIBLE_ASCII } from '../../app/http/visible-ascii.ts';
import type { InvokeOptions, PieClient } from '../../client/client.ts';
import { PieError } from '../../client/errors.ts';
import { pause } from '../../client/http.ts';
import { type Call, defineCommand, type OptionValues } from '../command.ts';
import { EXIT, Failure, toFailure } from '../failure.ts';
import { wholeNumber } from '../whole-number.ts';
import { follow } from './follow.ts';
import { readInput } from './input.ts';

const OPTIONS = [
  { flags: '-i, --input <json>', help: 'input: JSON, @file, or - for standard input (default: {})' },
  { flags: '-m, --message <text>', help: 'send this message to the function (may be repeated)', repeat: true },
  { flags: '--interactive', help: 'send each line of standard input as a message' },
  { flags: '--logs', help: 'also show the log lines of the function' },
  { flags: '--async', help: 'only start the invocation, and print its id' },
  { flags: '--cancel-after <time>', help: 'end the invocation after this time: 90, 30s, 5m, 1h', parse: parseTime },
  { flags: '--webhook <url>', help: 'notify this https URL when the invocation ends', parse: parseUrl },
  {
    flags: '--session-affinity <key>',
    help: 'prefer the GPU host of earlier invocations with this key',
    parse: parseKey,
  },
  {
    flags: '--concurrency-key <key>',
    help: 'refuse the invocation while --concurrency-limit others with this key are open',
    parse: parseKey,
  },
  {
    flags: '--concurrency-limit <count>',
    help: 'limit of --concurrency-key (default: 1)',
    parse: wholeNumber(1, 1000),
  },
  {
    flags: '--debounce-key <key>',
    help: 'start after --debounce-delay; a later invocation with this key takes the place of this one',
    parse: parseKey,
  },
  { flags: '--debounce-delay <time>', help: 'delay of --debounce-key: 30s, 5m, 1h', parse: parseTime },
  {
    flags: '--debounce-max <time>',
    help: 'start at the latest this long after the first one (default: 10 delays)',
    parse: parseTime,
  },
  {
    flags: '--idempotency-key <key>',
    help: 'a repeated request with this key gets the ended first invocation; it is refused until the first has ended',
  },
] as const;

type Options = OptionValues<typeof OPTIONS>;

export const invoke = defineCommand({
  name: 'invoke',
  summary: 'Invoke a function and stream its output',
  description:
    'Invokes a function and prints its messages as they arrive, or its result when it sends none. Ctrl-C cancels the invocation. ' +
    'With neither --interactive nor --async, the command closes the session after the messages of --message.',
  arguments: [{ name: 'function', help: 'name of the function, or name@version', required: true }],
  options: OPTIONS,
  examples: [
    {
      line: `pie invoke text-completion --input '{"prompt":"Once upon a time","maxTokens":80}'`,
      does: 'streams a story',
    },
    { line: 'pie invoke echo-session --interactive', does: 'holds a conversation; Ctrl-D ends it' },
    { line: `pie invoke text-completion --input @input.json --json`, does: 'prints one event a line as JSON' },
  ],
  async run(call) {
    const { options, terminal, signal } = call;
    const [name] = call.args;
    const { interactive, message: messages } = options;
    if (interactive && options.input === '-') {
      throw new Failure('Standard input cannot be both the input and the messages.', {
        advice: 'Give the input as JSON or @file.',
      });
    }
    const input = readInput(options.input);
    const requestOptions = invokeOptions(options);
    const { client, credentials } = await call.connect();
    if (options.async) {
      const state = await client.submit(name, input, { ...requestOptions, signal });
      // Print the id before sending messages: when a message is refused, the invocation runs on, and the user needs the id.
      terminal.print(state.id);
      terminal.value({ ...state, url: `${credentials.url}/v1/invocations/${state.id}` });
      for (const message of messages) await client.send(state.id, message);
      terminal.note(`Next: pie attach ${state.id}`);
      return EXIT.ok;
    }
    // Do not pass the signal: on Ctrl-C, `withCancel` cancels the invocation, and the stream then reports the invocation's end.
    const stream = await client.invoke(name, input, requestOptions);
    return await withCancel(client, stream.id, call, async () => {
      const talk = new Talk(client, stream.id, (text) => terminal.note(text));
      for (const message of messages) void talk.say(message);
      const stopReading = interactive ? talk.readLines(process.stdin) : talk.close();
      try {
        return await follow(stream, {
          terminal,
          logs: options.logs,
          lines: interactive || messages.length > 0,
        });
      } finally {
        stopReading();
        talk.end();
      }
    });
  },
});

function debounceOf({
  debounceKey: key,
  debounceDelay: delayMs,
  debounceMax: maxMs,
}: Options): InvokeOptions['debounce'] {
  if (key === undefined && delayMs === undefined && maxMs === undefined) return undefined;
  if (key === undefined || delayMs === undefined)
    throw new Failure('A debounced invocation needs both --debounce-key and --debounce-delay.', {
      advice: 'For example: --debounce-key document-4711 --debounce-delay 30s.',
    });
  return { key, delayMs, maxMs };
}

function invokeOptions(options: Options): InvokeOptions {
  const { concurrencyKey: key, concurrencyLimit: limit } = options;
  if (key === undefined && limit !== undefined)
    throw new Failure('--concurrency-limit is the limit of a --concurrency-key, which is missing.', {
      advice: 'Add --concurrency-key, or leave --concurrency-limit out.',
    });
  return {
    concurrency: key === undefined ? undefined : { key, limit },
    debounce: debounceOf(options),
    cancelAfterMs: options.cancelAfter,
    webhook: options.webhook,
    affinity: options.sessionAffinity,
    idempotencyKey: options.idempotencyKey,
  };
}

/** A key that travels as a header. */
function parseKey(value: string): string {
  if (VISIBLE_ASCII.test(value) && value.length <= MAX_CHOSEN_KEY_LENGTH) return value;
  throw new Failure(`It must be 1 to ${MAX_CHOSEN_KEY_LENGTH} visible ASCII characters without spaces.`);
}

/** A URL that travels as a header, so it must be visible ASCII. The gateway checks the rest. */
function parseUrl(value: string): string {
  if (VISIBLE_ASCII.test(value)) return value;
  throw new Failure('It must be visible ASCII: write the host in its xn-- form, and other characters as %XX.');
}

/** Milliseconds of an option that takes a time. */
export function parseTime(value: string): number {
  const ms = durationMs(value);
  if (ms !== null && ms > 0) return ms;
  throw new Failure('It must be seconds (90), or a number with a unit: 30s, 5m, 1h.');
}

/**
 * Awaits `run`. Ctrl-C cancels the invocation, and so does a closed output; `run` still waits for the invocation's end. SIGTERM cancels the
 * invocation and ends this process.
 */
export async function withCancel(
  client: PieClient,
  id: string,
  call: Pick<Call, 'signal' | 'terminal'>,
  run: () => Promise<number>,
): Promise<number> {
  const cancel = () => {
    call.terminal.note(`\nCancelling ${id} … (Ctrl-C again leaves it)`);
    client
      .cancel(id)
      .catch((error: unknown) => call.terminal.note(`${id} could not be cancelled: ${toFailure(error).message}`));
  };
  const terminate = () => {
    client
      .cancel(id)
      .catch(() => undefined)
      .finally(() => process.exit(EXIT.interrupted));
  };
  if (call.signal.aborted) cancel();
  call.signal.addEventListener('abort', cancel, { once: true });
  process.once('SIGTERM', terminate);
  try {
    return await run();
  } finally {
    call.signal.removeEventListener('abort', cancel);
    process.off('SIGTERM', terminate);
  }
}

/** Lines that may wait to be sent. The command reads no further from standard input while so many wait. */
const MAX_UNSENT = 256;
/** Errors after which a message is sent again: the function has not taken the earlier messages yet, or the gateway lacks memory. */
const RETRIED_CODES: ReadonlySet<string> = new Set(['too-many-requests', 'gateway-busy']);
const FIRST_PAUSE_MS = 50;
const MAX_PAUSE_MS = 1000;

/** The client's side of a conversation; sends messages in order. */
class Talk {
  readonly #client: PieClient;
  readonly #id: string;
  readonly #note: (text: string) => void;
  #lastSend: Promise<void> = Promise.resolve();
  #isOver = false;

  constructor(client: PieClient, id: string, note: (text: string) => void) {
    this.#client = client;
    this.#id = id;
    this.#note = note;
  }

  /** Sends a message after the earlier ones. Resolves when it was sent, or could not be sent. */
  say(message: string): Promise<void> {
    return this.#queue('A message was not sent', () => this.#client.send(this.#id, message));
  }

  /** Tells the function that no more messages follow. Returns a function that does nothing, for callers that may also call `readLines`. */
  close(): () => void {
    void this.#queue('The function was not told that no more messages follow', () =>
      this.#client.closeSession(this.#id),
    );
    return () => undefined;
  }

  /** Stops the retries of unsent messages: the command no longer follows the invocation. */
  end(): void {
    this.#isOver = true;
  }

  /** Sends each line; the end of the input closes the session. Returns a function that stops the reading. */
  readLines(input: NodeJS.ReadableStream): () => void {
    const lines = readline.createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY });
    let isStopped = false;
    let isOpen = true;
    let unsent = 0;
    lines.on('line', (line) => {
      unsent += 1;
      if (unsent >= MAX_UNSENT) lines.pause();
      void this.say(line).then(() => {
        unsent -= 1;
        if (unsent < MAX_UNSENT && isOpen) lines.resume();
      });
    });
    lines.on('close', () => {
      isOpen = false;
      if (!isStopped) this.close();
    });
    return () => {
      isStopped = true;
      lines.close();
      // A terminal with an active reader would keep this process alive.
      input.pause();
    };
  }

  #queue(failure: string, send: () => Promise<void>): Promise<void> {
    this.#lastSend = this.#lastSend
      .then(() => this.#sendWithRetries(send))
      .catch((error: unknown) => {
        // An ended invocation takes no messages; its end reports the cause.
        if (error instanceof PieError && error.code === 'conflict') return;
        this.#note(`${failure}: ${error instanceof Error ? error.message : String(error)}`);
      });
    return this.#lastSend;
  }

  /** Sends again while the gateway refuses the message. A function that is slow or waits to start thus loses no message. */
  async #sendWithRetries(send: () => Promise<void>): Promise<void> {
    if (this.#isOver) return;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)) {
      try {
        return await send();
      } catch (error) {
        if (this.#isOver || !(error instanceof PieError) || !RETRIED_CODES.has(error.code)) throw error;
      }
      await pause(pauseMs);
    }
  }
}
