import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import type { Answer, Reply, Request } from './messages.ts';
import type { Vocabulary } from './vocabulary.ts';

/** How a request to a worker went. */
export type LinkReply =
  | { readonly tag: 'ok'; readonly val: Answer }
  | { readonly tag: 'err'; readonly val: HandlerError }
  /** The worker ended before it answered: because of this very request, or of something else. */
  | { readonly tag: 'ended'; readonly culprit: boolean; readonly val: HandlerError };

interface Pending {
  readonly deadlineMs: number;
  readonly resolve: (reply: LinkReply) => void;
}

export interface LinkOptions {
  readonly name: string;
  /** JavaScript heap of the worker, MiB. */
  readonly heapMb: number;
  /** For the worker to start. */
  readonly startMs: number;
}

const STACK_MB = 4;
const PROGRAM = new URL('./matching/worker.ts', import.meta.url);
/** All that a worker may touch: its own code. A thread does not inherit this process's permissions when it is given arguments, or none. */
const CODE = ['.', '../../gpu-host/protocol', '../../package.json'].map((path) =>
  fileURLToPath(new URL(path, import.meta.url)),
);

/**
 * One worker thread: requests go in order, each with a deadline that begins when the one before it is answered. A worker that overruns or crashes
 * is ended, and everything that is pending is told.
 */
export class WorkerLink {
  readonly #worker: Worker;
  readonly #pending: Pending[] = [];
  readonly #vocabularies = new Map<number, Promise<LinkReply>>();
  readonly #exited: Promise<void>;
  #timer: NodeJS.Timeout | undefined;
  #ended: HandlerError | undefined;
  /** Operations that need this worker to live on; kept by whoever uses it. */
  users = 0;
  /** When the last of them was over, in milliseconds of `performance.now`. */
  usedAt = 0;

  constructor({ name, heapMb, startMs }: LinkOptions) {
    this.#worker = new Worker(PROGRAM, {
      name,
      env: {},
      execArgv: ['--permission', ...CODE.map((path) => `--allow-fs-read=${path}`)],
      resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 32, stackSizeMb: STACK_MB },
    });
    this.#worker.on('message', (reply: Reply) => this.#answered(reply));
    this.#worker.on('error', (error) => this.#end(crash(error)));
    this.#exited = new Promise((resolve) => {
      this.#worker.on('exit', () => {
        this.#end(handlerError('unavailable', 'the grammar worker ended'));
        resolve();
      });
    });
    this.#push({ deadlineMs: startMs, resolve: () => undefined });
  }

  get ended(): boolean {
    return this.#ended !== undefined;
  }

  request(request: Request, deadlineMs: number): Promise<LinkReply> {
    if (this.#ended) return Promise.resolve({ tag: 'ended', culprit: false, val: this.#ended });
    return new Promise((resolve) => {
      this.#push({ deadlineMs, resolve });
      this.#worker.postMessage(request);
    });
  }

  /** Makes a model's vocabulary known to the worker, once. */
  learn(vocabulary: Vocabulary, deadlineMs: number): Promise<LinkReply> {
    let learned = this.#vocabularies.get(vocabulary.id);
    if (!learned) {
      learned = this.request({ kind: 'vocabulary', vocabulary }, deadlineMs);
      this.#vocabularies.set(vocabulary.id, learned);
    }
    return learned;
  }

  /** Resolves when the thread is gone. */
  end(reason: HandlerError): Promise<void> {
    this.#end(reason);
    return this.#exited;
  }

  #push(pending: Pending): void {
    this.#pending.push(pending);
    if (this.#pending.length === 1) this.#watch();
  }

  /** Starts the deadline of the request whose turn it is. */
  #watch(): void {
    clearTimeout(this.#timer);
    const [next] = this.#pending;
    if (!next || this.#ended) return;
    this.#timer = setTimeout(() => {
      // An answer may lie there already, unread while this thread was busy: it is read before this runs.
      setImmediate(() => {
        if (this.#pending[0] !== next) return;
        const text = `the grammar took more than ${next.deadlineMs} ms; use a simpler one`;
        this.#end(handlerError('limit-exceeded', text));
      });
    }, next.deadlineMs);
  }

  #answered(reply: Reply): void {
    if (this.#ended) return;
    const answered = this.#pending.shift();
    this.#watch();
    answered?.resolve(reply);
  }

  #end(reason: HandlerError): void {
    if (this.#ended) return;
    this.#ended = reason;
    clearTimeout(this.#timer);
    void this.#worker.terminate();
    for (const [index, { resolve }] of this.#pending.splice(0).entries()) {
      resolve({ tag: 'ended', culprit: index === 0, val: reason });
    }
  }
}

function crash(error: unknown): HandlerError {
  if (error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY') {
    return handlerError('limit-exceeded', 'the grammar takes too much memory; use a smaller one');
  }
  return handlerError(
    'internal',
    `the grammar worker failed: ${error instanceof Error ? error.message : String(error)}`,
  );
}
