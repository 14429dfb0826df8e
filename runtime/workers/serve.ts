import { parentPort } from 'node:worker_threads';
import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Sent } from './messages.ts';

/** What a worker does with its jobs. */
export interface Program<Request, Value> {
  /** Makes ready what the job needs and stays for others, such as a model's tables: nobody is charged for that. A rejection is answered `unavailable`. */
  readonly prepare?: (request: Request) => Promise<void> | undefined;
  /** What it throws ends the worker. */
  readonly run: (request: Request) => Outcome<Value>;
  /** Memory of an answer that goes over to the other side. */
  readonly transfer?: (value: Value) => ArrayBufferLike[];
}

/** Answers the jobs of a `WorkerPool`, whose worker thread this is, one after the other. */
export function serve<Request, Value>({ prepare, run, transfer }: Program<Request, Value>): void {
  const port = parentPort;
  if (!port) throw new Error('serve() is called in a worker thread');
  const say = (sent: Sent<Value>, memory: ArrayBufferLike[] = []) => port.postMessage(sent, memory as ArrayBuffer[]);
  /** CPU time of this thread that was told of: its start is nobody's; what a coarse clock misses of one job is told with a later one. */
  let toldMs = usedMs();

  const answer = async (request: Request): Promise<void> => {
    const preparing = prepare?.(request);
    if (preparing) {
      const failed = await preparing.then(() => null, unprepared);
      toldMs = usedMs();
      if (failed) {
        say({ tag: 'answer', outcome: err(failed), cpuMs: 0 });
        return;
      }
    }
    const outcome = run(request);
    const cpuMs = usedMs();
    say(
      { tag: 'answer', outcome, cpuMs: cpuMs - toldMs },
      outcome.tag === 'ok' && transfer ? transfer(outcome.val) : [],
    );
    toldMs = cpuMs;
  };
  port.on('message', (request: Request) => void answer(request));
  say({ tag: 'ready' });
}

const unprepared = (error: unknown): HandlerError =>
  handlerError('unavailable', error instanceof Error ? error.message : String(error));

function usedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
