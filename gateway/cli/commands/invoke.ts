import readline from 'node:readline';
import { exactJson } from '../../app/http/json.ts';
import { durationMs, MAX_CHOSEN_KEY_LENGTH, VISIBLE_ASCII } from '../../app/http/request-options.ts';
import type { InvokeOptions, PieClient } from '../../client/client.ts';
import { errorFromEvent, PieError } from '../../client/errors.ts';
import { pause } from '../../client/http.ts';
import type { InvocationStream, PieEvent } from '../../client/invocation-stream.ts';
import { type Call, defineCommand, type OptionValues } from '../command.ts';
import { EXIT, Failure, toFailure } from '../failure.ts';
import { counted, duration, wholeNumber } from '../format.ts';
import { readInput } from '../input.ts';
import type { Terminal } from '../terminal.ts';

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

export interface FollowOptions {
  readonly terminal: Terminal;
  /** True to show the function's log lines, too. */
  readonly logs: boolean;
  /** True to put each message on a line of its own. */
  readonly lines: boolean;
  /** True when the caller shows log lines elsewhere. */
  readonly logsElsewhere?: boolean;
  /** Called with every event before it is shown. */
  readonly onEvent?: (event: PieEvent) => void;
}

const LINE_FEED = 10;

/** Shows an invocation's events until it ends. Returns the exit code of a success; throws {@link Failure} for a failed invocation. */
export async function follow(stream: InvocationStream, options: FollowOptions): Promise<number> {
  const { terminal } = options;
  /** Length of the messages that still count: characters of texts, bytes of other content. */
  let shownLength = 0;
  /** `shownLength` at the last question. A new attempt voids only the messages after that question. */
  let keptLength = 0;
  let isWaiting = false;
  let atLineStart = true;
  const startedAt = performance.now();
  /** Text of the last warning. When a further attempt starts, this is the platform's warning that tells the reason. */
  let lastWarning = '';
  const endLine = async () => {
    if (!atLineStart) await terminal.write('\n');
    atLineStart = true;
  };
  for await (const event of stream) {
    options.onEvent?.(event);
    if (event.event !== 'log' || options.logsElsewhere !== true) terminal.value(event);
    switch (event.event) {
      case 'start': {
        const { attempt = 1 } = event.data;
        if (attempt === 1) break;
        // Output of earlier attempts stays visible. The remark tells the reader that it no longer counts, unless it came before a question.
        await endLine();
        shownLength = keptLength;
        const reason = lastWarning === '' ? '' : `: ${lastWarning}`;
        terminal.remark(
          isWaiting ? `— goes on (attempt ${attempt}) —` : `— starts again (attempt ${attempt})${reason} —`,
        );
        isWaiting = false;
        break;
      }
      case 'message': {
        if ('file' in event.data) {
          const { name, bytes } = event.data.file;
          await endLine();
          await terminal.text(`file ${name} (${counted(bytes, 'byte')})\n`);
          break;
        }
        const content = 'text' in event.data ? event.data.text : Buffer.from(event.data.base64, 'base64');
        const hasOwnLine = typeof content === 'string' && isJsonValue(content);
        if (hasOwnLine) await endLine();
        shownLength += content.length;
        if (typeof content === 'string') await terminal.text(content);
        else await terminal.write(content);
        if (content.length > 0)
          atLineStart = typeof content === 'string' ? content.endsWith('\n') : content.at(-1) === LINE_FEED;
        if (options.lines || hasOwnLine) await endLine();
        break;
      }
      case 'log':
        if (event.data.level === 'warn') lastWarning = event.data.message;
        if (options.logs) terminal.note(`[${event.data.level}] ${event.data.message}`);
        break;
      case 'question':
        keptLength = shownLength;
        isWaiting = true;
        await endLine();
        terminal.remark(`— ${event.data.text}`);
        terminal.remark(`— the invocation waits until ${event.data.until}: pie answer ${stream.id} '…' —`);
        break;
      case 'gap':
        await endLine();
        terminal.remark(`— a part of the output was lost: ignore the output after event ${event.data.after} —`);
        break;
      case 'result': {
        await endLine();
        const { output, usage } = event.data;
        // Messages other than files are the answer; without such messages, the result is the answer.
        if (shownLength === 0) terminal.print(JSON.stringify(output, null, 2));
        if (terminal.interactive) terminal.note(summary(output, usage, performance.now() - startedAt));
        return EXIT.ok;
      }
      case 'error': {
        await endLine();
        const error = errorFromEvent(event.data, stream.id);
        throw new Failure(error.message, {
          exitCode: error.code === 'cancelled' ? EXIT.interrupted : EXIT.failed,
          code: error.code,
          why:
            error.code === 'inferlet-error'
              ? `The function itself ended with this error${framesText(event.data.stack)}.`
              : undefined,
          advice: error.hint,
          invocation: stream.id,
        });
      }
    }
  }
  throw new Failure('The stream ended without a result.', {
    exitCode: EXIT.unreachable,
    code: 'bad-response',
    advice: `See how it ended: \`pie status ${stream.id}\`.`,
    invocation: stream.id,
  });
}

/** The frames of a thrown error, with files, lines and columns. */
const framesText = (stack: unknown): string =>
  typeof stack === 'string' ? `, thrown\n    at ${stack.split('\n').join('\n    at ')}` : '';

/** True for a message that is a JSON object or list. It gets its own line; pieces of text do not. */
function isJsonValue(text: string): boolean {
  if (!/^\s*[[{]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function summary(output: unknown, usage: Readonly<Record<string, unknown>> | undefined, ms: number): string {
  const parts = [duration(ms)];
  const tokens = typeof output === 'object' && output !== null && 'tokens' in output ? output.tokens : undefined;
  if (Array.isArray(tokens)) parts.push(counted(tokens.length, 'token'));
  else if (typeof usage?.tokens === 'number') parts.push(counted(usage.tokens, 'token'));
  if (typeof output === 'object' && output !== null && 'finishReason' in output)
    parts.push(`ended by ${output.finishReason}`);
  return `(${parts.join(', ')})`;
}

export const replay = defineCommand({
  name: 'replay',
  summary: 'Run the function version of an invocation again',
  description:
    'Invokes the version that an earlier invocation ran, with its input or another one, and streams the output. Ctrl-C cancels the new invocation.',
  arguments: [{ name: 'invocation', help: 'id of the earlier invocation', required: true }],
  options: [
    { flags: '-i, --input <json>', help: 'input instead of the earlier one: JSON, @file, or - for standard input' },
    { flags: '--logs', help: 'also show the log lines of the function' },
    { flags: '--async', help: 'only start the invocation, and print its id' },
  ],
  examples: [
    { line: 'pie replay inv_4f1c', does: 'runs it again' },
    { line: `pie replay inv_4f1c --input '{"prompt":"Once"}'`, does: 'runs the same version with another input' },
  ],
  async run(call) {
    const { options, terminal, signal } = call;
    const [id] = call.args;
    const otherInput = options.input === undefined ? undefined : readInput(options.input);
    const { client } = await call.connect();
    const { function: name, version } = await client.invocation(id, { signal });
    const input = options.input === undefined ? exactJson(await client.inputText(id, { signal })) : otherInput;
    const reference = `${name}@${version}`;
    if (options.async) {
      const state = await client.submit(reference, input, { signal });
      terminal.print(state.id);
      terminal.value(state);
      terminal.note(`Next: pie attach ${state.id}`);
      return EXIT.ok;
    }
    // Do not pass the signal: on Ctrl-C, `withCancel` cancels the invocation, and the stream then reports the invocation's end.
    const stream = await client.invoke(reference, input);
    terminal.note(`${reference} runs as ${stream.id}`);
    return withCancel(client, stream.id, call, async () => {
      // No messages follow. If closing fails, for example because the invocation has ended, the stream still reports the outcome.
      await client.closeSession(stream.id, { signal }).catch(() => undefined);
      return follow(stream, { terminal, logs: options.logs, lines: false });
    });
  },
});

export const answer = defineCommand({
  name: 'answer',
  summary: 'Answer the question of a waiting invocation',
  description:
    'Answers the question that an invocation asks a person; the invocation then continues. Without an answer, the command prints the question and the schema that the answer must match. The first answer wins.',
  arguments: [
    { name: 'invocation', help: 'id of the invocation; `pie ps --status waiting` lists them', required: true },
    { name: 'answer', help: 'the answer: JSON, @file, or - for standard input', required: false },
  ],
  options: [{ flags: '--question <number>', help: 'answer only the question with this number', parse: numberOf }],
  examples: [
    { line: 'pie answer inv_4f1c', does: 'prints the question' },
    { line: `pie answer inv_4f1c '{"approve":true}'`, does: 'answers, and the invocation goes on' },
  ],
  async run({ args: [id, answerText], options, terminal, signal, connect }) {
    const inputHint = { what: 'answer', before: `pie answer ${id}`, example: '{"approve":true}' };
    const value = answerText === undefined ? undefined : readInput(answerText, inputHint);
    const { client } = await connect();
    if (answerText === undefined) {
      const { question } = await client.invocation(id, { signal });
      if (question === undefined)
        throw new Failure(`The invocation ${id} has no open question.`, {
          code: 'not-waiting',
          advice: `\`pie status ${id}\` shows its state.`,
        });
      terminal.value(question);
      terminal.print(question.text);
      terminal.print(JSON.stringify(question.schema));
      terminal.note(`The invocation waits until ${question.until}. Next: pie answer ${id} JSON`);
      return EXIT.ok;
    }
    const state = await client.answer(id, value, { signal, question: options.question });
    terminal.value(state);
    terminal.print(`${state.id}  ${state.status}`);
    terminal.note(`Next: pie attach ${state.id}`);
    return EXIT.ok;
  },
});

function numberOf(value: string): number {
  const number = Number(value);
  if (Number.isSafeInteger(number) && number > 0) return number;
  throw new Failure('It must be the number of a question, as `pie status` shows it.');
}
