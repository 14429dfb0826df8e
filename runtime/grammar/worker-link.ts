import { fileURLToPath } from 'node:url';
import { type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { packagePaths } from '#infra/install.ts';
import { unexpected } from '#runtime/unexpected.ts';
import { patientTimer } from '../patient-timer.ts';
import { startConfinedThread, type Thread } from '../sandboxes/index.ts';
import type { Answer, Request, SentReply } from './messages.ts';
import type { Vocabulary } from './vocabulary.ts';

/** Outcome of a request to a worker. */
export type LinkReply =
  | Outcome<Answer>
  /** No answer: the request was withdrawn, or the worker ended. `culprit` is true when this request ended the worker. */
  | { readonly tag: 'ended'; readonly culprit: boolean; readonly val: HandlerError };

/** The side for which a request is made, such as an inferlet. It pays for the request's CPU time. */
export interface Asker {
  /** Called when the request's turn comes. Returns null, or an error if the request is not wanted any more. */
  refuse(): HandlerError | null;
  /** Charges the CPU time of the worker's answer or, when no answer came, the elapsed time up to the deadline. */
  charge(cpuMs: number): void;
}

interface Pending {
  /** Null for the worker's start. */
  readonly request: Request | null;
  readonly asker: Asker;
  readonly deadlineMs: number;
  /** True when the same operation of an inferlet has made an earlier request, such as a compilation. */
  readonly isFollowUp: boolean;
  readonly resolve: (reply: LinkReply) => void;
}

export interface LinkOptions {
  readonly name: string;
  /** JavaScript heap of the worker, MiB. */
  readonly heapMb: number;
  /** Time limit for the worker's start. */
  readonly startMs: number;
  /** Time for which the worker serves its tenant although other tenants wait. */
  readonly turnMs: number;
}

/** Stack of a worker, MiB. */
const STACK_MB = 4;
const PROGRAM = new URL('./matching/worker.ts', import.meta.url);
/** Files that a worker may read: its own code. */
const CODE = [
  ...['.', '../../gpu-host/protocol', '../../scheduler/functions/schema', '../../package.json'].map((path) =>
    fileURLToPath(new URL(path, import.meta.url)),
  ),
  ...packagePaths('@cfworker/json-schema'),
];

/** The asker of requests that free memory. These are the platform's own requests, so no guest is charged. */
const PLATFORM: Asker = { refuse: () => null, charge: () => undefined };

/**
 * One worker thread. Requests go in order, but follow-up requests of an operation go first. The link sends a request after the previous answer,
 * and then starts the request's deadline. A worker that misses a deadline or crashes is ended, and all pending requests get the error. The request
 * at fault also pays for this worker's start and vocabularies.
 */
export class WorkerLink {
  readonly #worker: Thread;
  readonly #turnMs: number;
  readonly #pending: Pending[] = [];
  /** Answers to the vocabularies that were sent, by the vocabulary's id. */
  readonly #vocabularies = new Map<number, Promise<LinkReply>>();
  readonly #exited: Promise<void>;
  /** The asker of the worker's start and vocabularies. It sums up their CPU time, for which only a request that ends the worker pays. */
  readonly #setUp: Asker = { refuse: () => null, charge: (cpuMs) => (this.#setUpMs += cpuMs) };
  #setUpMs = 0;
  #clearDeadline: () => void = () => undefined;
  /** Time at which the deadline of the first pending request began, by `performance.now`. */
  #deadlineStartMs = 0;
  /** Time of the first answer to a guest, when the worker's turn begins; undefined while the worker is set up. */
  #servesSince: number | undefined;
  /** Set by `retire`: the reason for which the worker ends after its current request. */
  #retireReason: HandlerError | undefined;
  #endReason: HandlerError | undefined;
  /** Number of operations that need this worker; the `Workers` count them. */
  users = 0;
  /** End of the last such operation, in milliseconds of `performance.now`. */
  usedAt = 0;

  constructor({ name, heapMb, startMs, turnMs }: LinkOptions) {
    this.#turnMs = turnMs;
    this.#worker = startConfinedThread({
      program: PROGRAM,
      name,
      read: CODE,
      resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 32, stackSizeMb: STACK_MB },
    });
    this.#worker.on('message', (sent: SentReply) => this.#onAnswer(sent));
    this.#worker.on('error', (error) => this.#fail(crash(error)));
    this.#exited = new Promise((resolve) => {
      this.#worker.on('exit', () => {
        this.#fail(handlerError('unavailable', 'the grammar worker ended'));
        resolve();
      });
    });
    this.#push({ request: null, asker: this.#setUp, deadlineMs: startMs, isFollowUp: false, resolve: () => undefined });
  }

  get ended(): boolean {
    return this.#endReason !== undefined;
  }

  /** Milliseconds until the worker's turn is over, at the time `now`; infinite while the worker is set up. */
  turnLeft(now: number): number {
    return this.#servesSince === undefined
      ? Number.POSITIVE_INFINITY
      : Math.max(0, this.#servesSince + this.#turnMs - now);
  }

  /**
   * @param isFollowUp true when the same operation has made an earlier request, such as the compilation of its grammar. Follow-ups go before
   *   first requests: within one turn of the worker, some operations get their answers although others set up grammars and matchers.
   */
  request(request: Request, deadlineMs: number, asker = PLATFORM, isFollowUp = false): Promise<LinkReply> {
    if (this.#endReason) return Promise.resolve({ tag: 'ended', culprit: false, val: this.#endReason });
    return new Promise((resolve) => this.#push({ request, asker, deadlineMs, isFollowUp, resolve }));
  }

  /** Makes a model's vocabulary known to the worker, once. */
  learn(vocabulary: Vocabulary, deadlineMs: number): Promise<LinkReply> {
    let learned = this.#vocabularies.get(vocabulary.id);
    if (!learned) {
      learned = this.request({ kind: 'vocabulary', vocabulary }, deadlineMs, this.#setUp);
      this.#vocabularies.set(vocabulary.id, learned);
    }
    return learned;
  }

  /** Ends the worker now. Resolves when its thread is gone. */
  end(reason: HandlerError): Promise<void> {
    this.#end(reason);
    return this.#exited;
  }

  /** Ends the worker after its current request. Resolves when the thread is gone. */
  retire(reason: HandlerError): Promise<void> {
    this.#retireReason = reason;
    if (this.#pending.length === 0) this.#end(reason);
    return this.#exited;
  }

  #push(pending: Pending): void {
    // A follow-up goes before the first request that is not a follow-up, but never to the front: the worker already has the request there.
    const insertAt = pending.isFollowUp
      ? this.#pending.findIndex(({ isFollowUp }, index) => index > 0 && !isFollowUp)
      : -1;
    if (insertAt > 0) this.#pending.splice(insertAt, 0, pending);
    else this.#pending.push(pending);
    if (this.#pending.length === 1) this.#begin();
  }

  /** Sends the request whose turn it is, and starts its deadline. */
  #begin(): void {
    this.#clearDeadline();
    const next = this.#firstWanted();
    if (!next) return;
    this.#deadlineStartMs = performance.now();
    if (next.request) this.#worker.postMessage(next.request);
    this.#clearDeadline = patientTimer(next.deadlineMs, () => {
      if (this.#pending[0] !== next) return;
      const text = `the grammar took more than ${next.deadlineMs} ms; use a simpler one`;
      this.#fail(handlerError('limit-exceeded', text));
    });
  }

  /** The first pending request that is not withdrawn. */
  #firstWanted(): Pending | undefined {
    for (let [next] = this.#pending; next; [next] = this.#pending) {
      const refused = next.asker.refuse();
      if (!refused) return next;
      this.#pending.shift();
      next.resolve({ tag: 'ended', culprit: false, val: refused });
    }
    return undefined;
  }

  #onAnswer({ reply, cpuMs }: SentReply): void {
    if (this.#endReason) return;
    const answeredRequest = this.#pending.shift();
    answeredRequest?.asker.charge(cpuMs);
    if (answeredRequest && answeredRequest.asker !== this.#setUp && answeredRequest.asker !== PLATFORM)
      this.#servesSince ??= performance.now();
    if (this.#retireReason) this.#end(this.#retireReason);
    else this.#begin();
    answeredRequest?.resolve(reply);
  }

  /** Ends the worker because of its current request, which pays for the time since its deadline began. */
  #fail(reason: HandlerError): void {
    const [culprit] = this.#pending;
    if (this.#endReason) return;
    this.#pending.shift();
    // When this process stalls, the timer fires late. The guest does not pay for the delay.
    const elapsedMs = Math.min(performance.now() - this.#deadlineStartMs, culprit?.deadlineMs ?? 0);
    culprit?.asker.charge(elapsedMs + this.#setUpMs);
    this.#end(reason);
    culprit?.resolve({ tag: 'ended', culprit: true, val: reason });
  }

  #end(reason: HandlerError): void {
    if (this.#endReason) return;
    this.#endReason = reason;
    this.#clearDeadline();
    void this.#worker.terminate();
    for (const { resolve } of this.#pending.splice(0)) resolve({ tag: 'ended', culprit: false, val: reason });
  }
}

function crash(error: unknown): HandlerError {
  if (error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY') {
    return handlerError('limit-exceeded', 'the grammar takes too much memory; use a smaller one');
  }
  return handlerError('internal', `the grammar worker failed: ${unexpected(error)}`);
}
