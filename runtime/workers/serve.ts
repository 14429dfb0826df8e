import { parentPort } from 'node:worker_threads';
import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';

/** The program of a worker. */
export interface Program<Request, Value> {
  /** Prepares state that later jobs share, such as a model's tables; its time is not charged. A rejection becomes `unavailable`. */
  readonly prepare?: (request: Request) => Promise<void> | undefined;
  /** Runs a job. A thrown error ends the worker. */
  readonly run: (request: Request) => Outcome<Value>;
  /** Buffers of an answer that are transferred instead of copied. */
  readonly transfer?: (value: Value) => ArrayBufferLike[];
}

/** Answers the jobs of a `WorkerPool` in its worker thread, one at a time. */
export function serve<Request, Value>({ prepare, run, transfer }: Program<Request, Value>): void {
  const port = parentPort;
  if (!port) throw new Error('serve() must be called in a worker thread');
  const say = (sent: Sent<Value>, memory: ArrayBufferLike[] = []) => port.postMessage(sent, memory as ArrayBuffer[]);
  /** CPU time of this thread that later jobs are not charged for: of its start, of `prepare` and of reported jobs. A coarse clock may report late. */
  let reportedMs = usedMs();

  const answer = async (request: Request): Promise<void> => {
    const preparing = prepare?.(request);
    if (preparing) {
      const failed = await preparing.then(() => null, prepareError);
      reportedMs = usedMs();
      if (failed) {
        say({ tag: 'answer', outcome: err(failed), cpuMs: 0 });
        return;
      }
    }
    const outcome = run(request);
    const cpuMs = usedMs();
    say(
      { tag: 'answer', outcome, cpuMs: cpuMs - reportedMs },
      outcome.tag === 'ok' && transfer ? transfer(outcome.val) : [],
    );
    reportedMs = cpuMs;
  };
  port.on('message', (request: Request) => void answer(request));
  say({ tag: 'ready' });
}

const prepareError = (error: unknown): HandlerError =>
  handlerError('unavailable', error instanceof Error ? error.message : String(error));

function usedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** A worker's message: that the worker has started, or the outcome of a job. */
export type Sent<Value> =
  | { readonly tag: 'ready' }
  /** `cpuMs` is the CPU time of the job. */
  | { readonly tag: 'answer'; readonly outcome: Outcome<Value>; readonly cpuMs: number };
