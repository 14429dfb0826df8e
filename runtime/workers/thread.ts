import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { unexpected } from '#runtime/unexpected.ts';
import { patientTimer } from '../patient-timer.ts';
import { startConfinedThread, type Thread } from '../sandboxes/index.ts';
import type { Sent } from './messages.ts';

/** The program and the limits of a worker thread. */
export interface ThreadOptions {
  /** Module that calls `serve`. */
  readonly program: URL;
  /** Noun for a job in error messages, such as `the image`. */
  readonly noun: string;
  /** Files and folders that the thread may read; it has no other permissions. */
  readonly readable: readonly string[];
  /** JavaScript heap, MiB. */
  readonly heapMb: number;
}

/** Time limit for a worker's start, on a loaded machine. */
const START_MS = 10_000;

/** One job's turn in a worker. */
interface Turn<Value> {
  readonly deadlineMs: number;
  readonly resolve: (outcome: Outcome<Value>) => void;
  readonly charge: (cpuMs: number) => void;
}

/** A job as sent to a worker. */
export interface Posted<Request> {
  readonly request: Request;
  /** Buffers that are transferred to the worker. */
  readonly transfer?: readonly ArrayBuffer[];
}

/** A worker thread that runs one job at a time. Overrunning the deadline or crashing ends the thread and its job. */
export class WorkerThread<Request, Value> {
  readonly #noun: string;
  readonly #worker: Thread;
  readonly #exited: Promise<void>;
  #turn: Turn<Value> | undefined;
  /** Stops the timer of the worker's start, or of the current turn. */
  #stopTimer: () => void;
  #startedAt = performance.now();
  #ready = false;
  #ended = false;
  /** The job to send once the worker has started. */
  #posted: Posted<Request> | undefined;

  constructor({ program, noun, readable, heapMb }: ThreadOptions) {
    this.#noun = noun;
    this.#worker = startConfinedThread({
      program,
      name: noun,
      read: readable,
      resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 8 },
    });
    this.#worker.on('message', (sent: Sent<Value>) => this.#onMessage(sent));
    this.#worker.on('error', (error) => this.#end(this.#crash(error)));
    this.#exited = new Promise((resolve) => {
      this.#worker.on('exit', () => {
        this.#end(this.#endedError());
        resolve();
      });
    });
    const startError = handlerError('unavailable', `the worker for ${noun} did not start`);
    this.#stopTimer = patientTimer(START_MS, () => this.#end(startError));
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** Runs a job. The deadline begins when the worker gets it. */
  run(posted: Posted<Request>, deadlineMs: number, charge: (cpuMs: number) => void): Promise<Outcome<Value>> {
    return new Promise((resolve) => {
      if (this.#ended) {
        resolve(err(this.#endedError()));
        return;
      }
      this.#turn = { deadlineMs, resolve, charge };
      this.#posted = posted;
      if (this.#ready) this.#begin();
    });
  }

  /** Cancels the job: answers it with `why`, and ends the thread if the job has begun. */
  cancel(why: HandlerError): void {
    if (this.#posted === undefined) {
      if (this.#turn) this.#end(why);
      return;
    }
    const turn = this.#turn;
    this.#turn = undefined;
    this.#posted = undefined;
    turn?.resolve(err(why));
  }

  /** Ends the thread. Resolves when it has exited. */
  end(): Promise<void> {
    this.#end(handlerError('closed', 'the runtime is going down'));
    return this.#exited;
  }

  #begin(): void {
    const turn = this.#turn;
    const posted = this.#posted;
    if (!turn || !posted) return;
    this.#posted = undefined;
    this.#startedAt = performance.now();
    this.#worker.postMessage(posted.request, posted.transfer ?? []);
    this.#stopTimer = patientTimer(turn.deadlineMs, () => {
      if (this.#turn !== turn) return;
      const text = `${this.#noun} took more than ${turn.deadlineMs} ms; send a smaller one`;
      this.#end(handlerError('limit-exceeded', text));
    });
  }

  #onMessage(sent: Sent<Value>): void {
    if (this.#ended) return;
    this.#stopTimer();
    if (sent.tag === 'ready') {
      this.#ready = true;
      this.#begin();
      return;
    }
    const turn = this.#turn;
    this.#turn = undefined;
    turn?.charge(sent.cpuMs);
    const { outcome } = sent;
    // `unavailable`: the worker could not prepare, for example because a file of the model is missing. `unexpected` removes paths from the text.
    const isUnprepared = outcome.tag === 'err' && outcome.val.tag === 'unavailable';
    turn?.resolve(isUnprepared ? err(handlerError('unavailable', unexpected(outcome.val.val))) : outcome);
  }

  #end(why: HandlerError): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#stopTimer();
    void this.#worker.terminate();
    const turn = this.#turn;
    this.#turn = undefined;
    // Charge at most the deadline: the timer waits longer for a stalled process, and the guest does not pay for that.
    if (turn && this.#posted === undefined) turn.charge(Math.min(performance.now() - this.#startedAt, turn.deadlineMs));
    turn?.resolve(err(why));
  }

  #endedError(): HandlerError {
    return handlerError('unavailable', `the worker for ${this.#noun} ended; try again`);
  }

  #crash(error: unknown): HandlerError {
    if (error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY') {
      return handlerError('limit-exceeded', `${this.#noun} takes too much memory; send a smaller one`);
    }
    return handlerError('internal', `the worker for ${this.#noun} failed: ${unexpected(error)}`);
  }
}
