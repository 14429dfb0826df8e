import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { patientTimer } from '../patient-timer.ts';
import type { Request, Sent } from './messages.ts';

const PROGRAM = new URL('./worker.ts', import.meta.url);
/** All that a worker may touch: its own code and the decoders'. */
const CODE = [
  ...['.', '../../package.json'].map((path) => fileURLToPath(new URL(path, import.meta.url))),
  ...['pngjs', 'jpeg-js'].map((name) => dirname(fileURLToPath(import.meta.resolve(`${name}/package.json`)))),
];
/** JavaScript heap; the pixels themselves are beside it, bounded by the size that the header says. */
const HEAP_MB = 512;
/** For a worker to start, on a loaded machine. */
const START_MS = 10_000;

/** One picture's turn in a worker. */
interface Turn {
  readonly deadlineMs: number;
  readonly resolve: (outcome: Outcome<Uint8Array>) => void;
  readonly charge: (cpuMs: number) => void;
}

/** A worker thread that prepares one picture at a time. One that overruns its deadline or crashes is ended, and so is its picture. */
export class ImageThread {
  readonly #worker: Worker;
  readonly #exited: Promise<void>;
  #turn: Turn | undefined;
  #endTurn: () => void;
  #startedAt = performance.now();
  #ready = false;
  #ended = false;
  /** Its picture, when the worker has not started yet. */
  #request: Request | undefined;

  constructor() {
    this.#worker = new Worker(PROGRAM, {
      name: 'images',
      env: {},
      execArgv: ['--permission', ...CODE.map((path) => `--allow-fs-read=${path}`)],
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB, maxYoungGenerationSizeMb: 32 },
    });
    this.#worker.on('message', (sent: Sent) => this.#told(sent));
    this.#worker.on('error', (error) => this.#end(crash(error)));
    this.#exited = new Promise((resolve) => {
      this.#worker.on('exit', () => {
        this.#end(handlerError('unavailable', 'the image worker ended; try again'));
        resolve();
      });
    });
    const missing = handlerError('unavailable', 'the image worker did not start');
    this.#endTurn = patientTimer(START_MS, () => this.#end(missing));
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** Prepares a picture, whose bytes go over to the worker. The deadline begins when the worker has it. */
  run(request: Request, deadlineMs: number, charge: (cpuMs: number) => void): Promise<Outcome<Uint8Array>> {
    return new Promise((resolve) => {
      if (this.#ended) {
        resolve(err(handlerError('unavailable', 'the image worker ended; try again')));
        return;
      }
      this.#turn = { deadlineMs, resolve, charge };
      this.#request = request;
      if (this.#ready) this.#begin();
    });
  }

  /** Nobody wants its picture any more: that is answered with `why`, and the thread is ended if it has begun. */
  cancel(why: HandlerError): void {
    if (this.#request === undefined) {
      if (this.#turn) this.#end(why);
      return;
    }
    const turn = this.#turn;
    this.#turn = undefined;
    this.#request = undefined;
    turn?.resolve(err(why));
  }

  /** Resolves when the thread is gone. */
  end(): Promise<void> {
    this.#end(handlerError('closed', 'the runtime is going down'));
    return this.#exited;
  }

  #begin(): void {
    const turn = this.#turn;
    const request = this.#request;
    if (!turn || !request) return;
    this.#request = undefined;
    this.#startedAt = performance.now();
    this.#worker.postMessage(request, [request.image.buffer as ArrayBuffer]);
    this.#endTurn = patientTimer(turn.deadlineMs, () => {
      if (this.#turn !== turn) return;
      const text = `the picture took more than ${turn.deadlineMs} ms to decode; use a smaller one`;
      this.#end(handlerError('limit-exceeded', text));
    });
  }

  #told(sent: Sent): void {
    if (this.#ended) return;
    this.#endTurn();
    if (sent.tag === 'ready') {
      this.#ready = true;
      this.#begin();
      return;
    }
    const turn = this.#turn;
    this.#turn = undefined;
    turn?.charge(sent.cpuMs);
    turn?.resolve(sent.tag === 'ok' ? ok(sent.pixels) : err(handlerError('invalid-argument', sent.text)));
  }

  #end(why: HandlerError): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#endTurn();
    void this.#worker.terminate();
    const turn = this.#turn;
    this.#turn = undefined;
    // No more than it was given: the timer is patient with a process that stood still, and the guest pays for none of that.
    if (turn && this.#request === undefined)
      turn.charge(Math.min(performance.now() - this.#startedAt, turn.deadlineMs));
    turn?.resolve(err(why));
  }
}

function crash(error: unknown): HandlerError {
  if (error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY') {
    return handlerError('limit-exceeded', 'the picture takes too much memory to decode; use a smaller one');
  }
  const text = error instanceof Error ? error.message : String(error);
  return handlerError('internal', `the image worker failed: ${text}`);
}
