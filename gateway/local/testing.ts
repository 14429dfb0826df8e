/** `pie/testing`: inferlets in tests, on a platform of their own with real models. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { deployFunction } from '../cli/commands/deploy.ts';
import { Failure } from '../cli/failure.ts';
import { findFunction } from '../cli/function-source.ts';
import type { PieClient } from '../client/client.ts';
import { PieError } from '../client/errors.ts';
import { freePort, LocalPlatform } from './platform.ts';

const INVOCATION_LIMIT_MS = 60_000;

export interface TestPlatformOptions {
  /** Models, by name or source (`hf:…`, `file:…`); `['stories15m']` by default. The platform downloads missing models. */
  readonly models?: readonly string[];
  /** More configuration, as the text of a pie.toml: `[http]`, `[runtime]` and so on. */
  readonly config?: string;
  /** Receives the platform's output while it starts, download progress included; standard error by default. */
  readonly onProgress?: (line: string) => void;
}

export interface DeployOptions {
  /** Members that replace those of the manifest: another name, for example, or the address of a test server as a granted host. */
  readonly manifest?: Readonly<Record<string, unknown>>;
}

export interface InvokeOptions {
  /** Messages to send to the inferlet, in order. The session is closed after the last one. */
  readonly send?: readonly string[];
  /** Longest wait for the end, milliseconds; 60,000 by default. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** Called with each text message as it comes. */
  readonly onMessage?: (text: string) => void;
}

/** Outcome of one invocation. */
export interface Invoked {
  readonly id: string;
  /** Return value of `run`. */
  // biome-ignore lint/suspicious/noExplicitAny: the test knows what its function returns
  readonly output: any;
  /** Text messages, in order. */
  readonly messages: readonly string[];
  readonly logs: readonly { readonly level: string; readonly message: string }[];
  /** Tokens, pages, CPU time and the like. */
  readonly usage: Readonly<Record<string, number>>;
}

export class InvocationError extends Error {
  override readonly name = 'InvocationError';
  /** `inferlet-error` for an error of the function itself, else the platform's code (`deadline-exceeded`, …). */
  readonly code: string;
  readonly messages: readonly string[];
  readonly logs: Invoked['logs'];

  constructor(code: string, message: string, transcript: Pick<Invoked, 'messages' | 'logs'>) {
    super(message);
    this.code = code;
    this.messages = transcript.messages;
    this.logs = transcript.logs;
  }
}

/**
 * A platform for tests, with a temporary home, a free port and no functions. It ends with {@link stop}, with the block of an `await using`, or
 * with this process.
 *
 * @example
 * await using platform = await startPlatform();
 * const hello = await platform.deploy('.');
 * const { output, messages } = await hello.invoke({ prompt: 'Once upon a time' });
 */
export class TestPlatform implements AsyncDisposable {
  /** Address of the platform's HTTP API. */
  readonly url: string;
  readonly apiKey: string;
  /** The platform's temporary home, with its logs. */
  readonly home: string;
  readonly #platform: LocalPlatform;

  /** @internal */
  constructor(platform: LocalPlatform) {
    this.#platform = platform;
    this.url = platform.url;
    this.apiKey = platform.apiKey;
    this.home = platform.home;
  }

  /** Builds and deploys a folder with a pie.json, a source file or a component. A compile error names its place in the source. */
  async deploy(source: string | URL, options: DeployOptions = {}): Promise<TestInferlet> {
    try {
      const functionSource = findFunction(typeof source === 'string' ? source : fileURLToPath(source), undefined);
      const manifest = { ...functionSource.manifest, ...options.manifest };
      await deployFunction(this.#platform.client, { ...functionSource, manifest });
      return new TestInferlet(this.#platform.client, manifest.name);
    } catch (error) {
      throw readableError(error);
    }
  }

  /** Ends the platform and removes its home. */
  async stop(): Promise<void> {
    await this.#platform.stop();
    removeHome(this.#platform.home);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

export class TestInferlet {
  readonly name: string;
  readonly #client: PieClient;

  /** @internal */
  constructor(client: PieClient, name: string) {
    this.name = name;
    this.#client = client;
  }

  /** Invokes the function and waits. Throws {@link InvocationError} when the invocation fails, `PieError` when its input or a message is refused. */
  async invoke(input: unknown = {}, options: InvokeOptions = {}): Promise<Invoked> {
    const { send = [], timeoutMs = INVOCATION_LIMIT_MS, onMessage } = options;
    const sendFailure = new AbortController();
    const deadline = AbortSignal.any([AbortSignal.timeout(timeoutMs), sendFailure.signal]);
    const signal = options.signal === undefined ? deadline : AbortSignal.any([deadline, options.signal]);
    const stream = await this.#client.invoke(this.name, input, { signal, cancelOnDisconnect: true });
    const sending = this.#sendAll(stream.id, send, signal).catch((error: unknown) => sendFailure.abort(error));
    const messages: string[] = [];
    const logs: { level: string; message: string }[] = [];
    let keptCount = 0;
    for await (const event of stream) {
      // A new attempt voids the messages of the earlier one, except those that came before a question.
      if (event.event === 'start') messages.length = keptCount;
      if (event.event === 'question') keptCount = messages.length;
      if (event.event === 'log') logs.push(event.data);
      if (event.event === 'message' && 'text' in event.data) {
        messages.push(event.data.text);
        onMessage?.(event.data.text);
      }
      if (event.event === 'error') throw new InvocationError(event.data.code, event.data.message, { messages, logs });
      if (event.event === 'result') {
        await sending;
        const { output, usage } = event.data;
        return { id: stream.id, output, messages, logs, usage: usage as Readonly<Record<string, number>> };
      }
    }
    throw new Error(`The stream of ${stream.id} ended without a result.`);
  }

  /** Sends the messages, then closes the session. Ignores a refusal after the invocation's end, because the stream reports that end. */
  async #sendAll(id: string, messages: readonly string[], signal: AbortSignal): Promise<void> {
    try {
      for (const message of messages) await this.#client.send(id, message, { signal });
      await this.#client.closeSession(id, { signal });
    } catch (error) {
      if (!(error instanceof PieError) || error.code !== 'conflict') throw error;
    }
  }
}

/**
 * Starts a platform for tests. It needs `redis-server` on this machine, or `REDIS_URL`. On failure, throws an error that says what to do.
 */
export async function startPlatform(options: TestPlatformOptions = {}): Promise<TestPlatform> {
  const {
    models = ['stories15m'],
    config = '',
    onProgress = (line) => void process.stderr.write(`${line}\n`),
  } = options;
  const home = mkdtempSync(path.join(os.tmpdir(), 'pie-test-'));
  try {
    writeFileSync(path.join(home, 'pie.toml'), `${config}\n${models.map(modelEntry).join('\n')}`);
    const platform = await LocalPlatform.start({
      home,
      port: await freePort(),
      onProgress,
      environment: { PIE_CONFIG: undefined, PIE_HOST: undefined, PIE_MODEL: undefined },
    });
    return new TestPlatform(platform);
  } catch (error) {
    removeHome(home);
    throw readableError(error);
  }
}

/** The entry of `pie.toml` for a model. Its name is the last part of the source, in lower case. */
function modelEntry(source: string): string {
  const name = source
    .toLowerCase()
    .replace(/^[a-z]+:(.*[/])?/, '')
    .replace(/[^a-z0-9._-]+/g, '-');
  return `[[model]]\nname = ${JSON.stringify(name)}\nsource = ${JSON.stringify(source)}\n`;
}

function removeHome(home: string): void {
  // The platform's last process may still be writing its log.
  rmSync(home, { recursive: true, force: true, maxRetries: 10 });
}

/** Puts the cause and the advice of a command's failure into the message of an error, because a test report shows only the message. */
function readableError(error: unknown): unknown {
  if (!(error instanceof Failure)) return error;
  const lines = [error.message, error.why && `why: ${error.why}`, error.advice && `what to do: ${error.advice}`];
  return new Error(lines.filter(Boolean).join('\n'), { cause: error });
}
