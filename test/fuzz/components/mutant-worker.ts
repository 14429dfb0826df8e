import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { MutantEnd } from './run-mutant.ts';

/** Outcome of a mutant in the throw-away process; `seed` is the name of the component that was mutated. */
export type Outcome = { readonly index: number } & (
  | ({ readonly kind: 'ended'; readonly seed: string; readonly mutations: readonly string[] } & MutantEnd)
  /** The mutant made the platform's code throw an error without a code. */
  | { readonly kind: 'fault'; readonly fault: string }
  /** The process died, or did not answer within its deadline. */
  | { readonly kind: 'died' | 'hung'; readonly fault: string }
);

type Message = { readonly ready: true } | ({ readonly index: number } & (MutantEnd | { readonly fault: string }));

const PROGRAM = fileURLToPath(new URL('./worker.ts', import.meta.url));
/** Mutants per process: bounds the effect that state left in V8 can have on later mutants. */
const MUTANTS_A_PROCESS = 500;
const DEADLINE_MS = 60_000;
/** A worker reads all seeds before it is ready; on a machine under load that takes most of a minute. */
const READY_DEADLINE_MS = 300_000;
const MAX_HEAP_MB = 512;
/** The kernel ends a worker that outlives its parent in an endless loop. */
const MAX_CPU_SECONDS = 1800;

/** Runs mutants one after another in a throw-away process. A new process replaces one that died, hung, reported a fault or ran many. */
export class MutantWorker implements Disposable {
  readonly #program: string;
  #child: ChildProcess | null = null;
  #mutantsRun = 0;

  /** @param program answers as `worker.ts` does */
  constructor(program = PROGRAM) {
    this.#program = program;
  }

  async run(randomSeed: number, index: number): Promise<Outcome> {
    this.#child ??= await start(this.#program);
    const outcome = await ask(this.#child, randomSeed, index);
    this.#mutantsRun++;
    if (outcome.kind !== 'ended' || this.#mutantsRun >= MUTANTS_A_PROCESS) this[Symbol.dispose]();
    return outcome;
  }

  [Symbol.dispose](): void {
    this.#child?.kill('SIGKILL');
    this.#child = null;
    this.#mutantsRun = 0;
  }
}

async function start(program: string): Promise<ChildProcess> {
  const flags = [`--max-old-space-size=${MAX_HEAP_MB}`, '--disable-warning=ExperimentalWarning'];
  const child = spawn(
    '/bin/sh',
    ['-c', `ulimit -c 0; ulimit -t ${MAX_CPU_SECONDS}; exec "$0" "$@"`, process.execPath, ...flags, program],
    { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] },
  );
  const ready = await answer(child, READY_DEADLINE_MS);
  if ('message' in ready) return child;
  child.kill('SIGKILL');
  throw new Error(`the worker ${ready.failure} before it was ready`);
}

async function ask(child: ChildProcess, randomSeed: number, index: number): Promise<Outcome> {
  // The callback ignores the error of a closed channel, which `send` would otherwise throw: `answer` reports a process that has died.
  child.send({ seed: randomSeed, index }, () => undefined);
  const reply = await answer(child);
  if (!('message' in reply)) return { index, kind: reply.kind, fault: reply.failure };
  const { message } = reply;
  if ('ready' in message) throw new Error('the worker reported twice that it is ready');
  if ('fault' in message) return { index, kind: 'fault', fault: message.fault };
  return { ...(message as Extract<Outcome, { kind: 'ended' }>), kind: 'ended' };
}

type Answer = { message: Message } | { kind: 'died' | 'hung'; failure: string };

/** The worker's next message, or the reason why none came. */
async function answer(child: ChildProcess, deadlineMs = DEADLINE_MS): Promise<Answer> {
  if (child.exitCode !== null || child.signalCode !== null)
    return { kind: 'died', failure: `died with ${child.signalCode ?? child.exitCode} after the mutant before` };
  const { promise, resolve } = Promise.withResolvers<Answer>();
  const onMessage = (message: Message) => resolve({ message });
  const onExit = (code: number | null, signal: string | null) =>
    resolve({ kind: 'died', failure: `died with ${signal ?? code}` });
  const timer = setTimeout(
    () => resolve({ kind: 'hung', failure: `gave no answer within ${deadlineMs} ms` }),
    deadlineMs,
  );
  child.once('message', onMessage as (message: unknown) => void).once('exit', onExit);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    child.off('message', onMessage as (message: unknown) => void).off('exit', onExit);
  }
}
