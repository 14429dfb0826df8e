import { randomUUID } from 'node:crypto';
import { handlerError } from '#gpu-host/protocol/errors.ts';
import type { InvocationJob, StopReason } from '#scheduler/admission/job.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import type { Inbox } from '#scheduler/invocations/inbox.ts';
import type { Invocations } from '#scheduler/invocations/invocations.ts';
import type { TerminalEvent, Usage } from '#scheduler/invocations/types.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { type GrantedModel, Inferlet } from '../host/inferlet.ts';
import { Session } from '../host/session-state.ts';
import type { Ending, Execution, ExecutionOptions } from '../lowering/execution.ts';
import { GuestTrap } from '../lowering/trap.ts';
import { inboxSource } from './inbox-source.ts';
import { LaunchError, type Launched, type Launcher } from './launch.ts';
import { type AttemptLog, Outbox } from './outbox.ts';
import { type Verdict, verdictOf } from './verdict.ts';
import { WaitMonitor } from './waiting.ts';

/** How long an inferlet that is told to stop may go on, to say goodbye. */
const STOP_GRACE_MS = 250;
const STORE_RETRY_MS = 100;

export interface RunnerOptions {
  readonly invocations: Invocations;
  readonly inbox: Inbox;
  readonly launcher: Launcher;
  /** Identifies this life of this process; see `RuntimeLease.id`. */
  readonly runtimeId: string;
  /** Models granted to a function, by name; the first is its default. */
  readonly modelsOf: (job: InvocationJob) => Promise<ReadonlyMap<string, GrantedModel>>;
  /** What a function may do besides computing. */
  readonly grantsOf: (job: InvocationJob) => Promise<Grants>;
  readonly slices: ExecutionOptions['slices'];
  /** Told what an invocation held at most. */
  readonly observePages?: (job: InvocationJob, peak: Readonly<Record<string, number>>) => void;
  /** Told of errors that no caller sees. */
  readonly onError?: (error: unknown) => void;
}

interface Attempt {
  readonly job: InvocationJob;
  readonly epoch: number;
  readonly startedAt: number;
  readonly outbox: Outbox;
}

/** Runs invocations: each from its job to exactly one terminal event, and everything that it held given back. */
export class InvocationRunner {
  readonly #options: RunnerOptions;
  readonly #waiting = new WaitMonitor();

  constructor(options: RunnerOptions) {
    this.#options = options;
  }

  /** Runs one invocation to its end. The signal aborts with a `StopReason`. */
  async run(job: InvocationJob, signal: AbortSignal): Promise<void> {
    const { invocations, launcher, runtimeId } = this.#options;
    const startedAt = Date.now();
    const { tenant, function: name, version, limits } = job;
    // The instance is made ready while the store answers; if it refuses, the instance is thrown away.
    const launching = launcher
      .launch({ tenant, function: name, version, memoryMb: limits.memoryMb })
      .catch((error: unknown) => asLaunchError(error));
    // One token for every repetition: an answer that came too late has begun the attempt all the same.
    const token = randomUUID();
    const begun = await untilStored(() => invocations.beginAttempt(job.id, runtimeId, token), signal);
    if (begun === null || 'refused' in begun) {
      const unused = await launching;
      if (!(unused instanceof LaunchError)) unused.execution.dispose();
      return;
    }
    let kill: (trap: GuestTrap) => void = () => undefined;
    const outbox = new Outbox(begun.nextSeq, attemptLog(invocations, job.id, begun.epoch), {
      onEnd: (end, cause) => {
        if (cause !== undefined) this.#options.onError?.(cause);
        kill(
          new GuestTrap(end === 'full' ? 'output-limit' : 'terminated', `its events can no longer be written (${end})`),
        );
      },
      abandoned: () => isLost(signal),
    });
    const attempt: Attempt = { job, epoch: begun.epoch, startedAt, outbox };
    const launched = await launching;
    if (launched instanceof LaunchError) {
      await this.#finish(attempt, { kind: 'error', code: launched.code, message: launched.message }, {});
      return;
    }
    kill = (trap) => launched.execution.kill(trap);
    try {
      await this.#execute(attempt, launched, signal);
    } catch (error) {
      this.#options.onError?.(error);
      launched.execution.dispose();
      await this.#finish(
        attempt,
        { kind: 'error', code: 'internal', message: 'The runtime failed; its log says how.' },
        {},
      );
    }
  }

  async #execute(attempt: Attempt, launched: Launched, signal: AbortSignal): Promise<void> {
    const { job, outbox, startedAt } = attempt;
    const { execution } = launched;
    const { guest } = execution;
    const [models, grants] = await Promise.all([this.#options.modelsOf(job), this.#options.grantsOf(job)]);
    const { id, tenant, function: functionName, version: functionVersion, arrival, limits } = job;
    const deadlineAt = Math.min(job.submittedAt + job.deadlineMs, startedAt + limits.wallMs);
    const session = new Session(outbox, inboxSource(this.#options.inbox, id));
    const inferlet = new Inferlet(
      { id, tenant, functionName, functionVersion, arrival, input: job.input, grants, limits, models, deadlineAt },
      session,
      {
        waits: this.#waiting.watch(),
        cpu: { charge: (cpuMs) => execution.charge(cpuMs), usedUp: () => execution.cpuMs > limits.cpuMs },
        terminated: (cause) => stopping.stop({ code: 'terminated', message: cause }),
      },
    );
    const stopping = new Stopping(execution, inferlet);
    guest.context = inferlet;
    execution.options = { slices: this.#options.slices, cpuLimitMs: limits.cpuMs };
    const queuedMs = Math.max(0, startedAt - job.submittedAt);
    outbox.add(
      'start',
      JSON.stringify({
        invocation: id,
        function: functionName,
        version: functionVersion,
        queuedMs,
        coldStart: launched.coldStart,
      }),
    );

    const onAbort = () => stopping.stop(signal.reason as StopReason);
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    const wallTimer = setTimeout(
      () =>
        stopping.stop({
          code: 'deadline-exceeded',
          message: `The inferlet ran longer than its ${limits.wallMs} ms (manifest: limits.wallMs).`,
        }),
      Math.min(limits.wallMs, 2 ** 31 - 1),
    );
    const ranFrom = performance.now();
    let ending: Ending;
    try {
      ending = await execution.start(job.input);
    } finally {
      clearTimeout(wallTimer);
      stopping.dispose();
      signal.removeEventListener('abort', onAbort);
    }
    const wallMs = performance.now() - ranFrom;
    const { lostDevice } = inferlet;
    const released = inferlet.release();
    const memoryBytes = guest.memoryBytes;
    execution.dispose();

    // Where the time before the inferlet's first call of the platform went; numbers only.
    const firstCall = guest.firstCallAt === 0 ? {} : { firstCallMs: round(guest.firstCallAt - ranFrom) };
    outbox.add('metric', JSON.stringify({ queuedMs, ...rounded(launched.timings), ...firstCall }));
    await outbox.flushed();
    const verdict = verdictOf({
      ending,
      stop: stopping.reason,
      outboxEnd: outbox.end,
      handlerErrors: guest.handlerErrors as never,
      lostDevice,
      stderr: guest.stderr,
      memoryBytes,
      memoryLimitBytes: launched.memoryLimitBytes,
    });
    const pages = Object.fromEntries(inferlet.pagesPeak);
    const usage: Usage = {
      inputTokens: inferlet.inputTokens,
      outputTokens: inferlet.outputTokens,
      cpuMs: round(execution.cpuMs),
      wallMs: round(wallMs),
      queuedMs,
      kvPagesPeak: Math.max(0, ...Object.values(pages)),
      memoryBytes,
      messages: session.messages,
      calls: guest.calls,
    };
    await this.#finish(attempt, verdict, usage);
    this.#options.observePages?.(job, pages);
    await released;
  }

  async #finish(attempt: Attempt, verdict: Verdict, usage: Usage): Promise<void> {
    const { job, epoch, outbox } = attempt;
    if (verdict.kind === 'silent') {
      outbox.close();
      return;
    }
    const terminal: TerminalEvent =
      verdict.kind === 'result'
        ? { event: 'result', data: `{"output":${verdict.output},"usage":${JSON.stringify(usage)}}` }
        : {
            event: 'error',
            data: JSON.stringify({ code: verdict.code, message: verdict.message, usage }),
            code: verdict.code,
            message: verdict.message,
          };
    await outbox.finish((seq) => this.#options.invocations.finish(job.id, epoch, seq, terminal, usage));
  }
}

/** Stops an inferlet: it is told, gets a moment, and is killed. */
class Stopping {
  readonly #execution: Execution;
  readonly #inferlet: Inferlet;
  #reason: StopReason | null = null;
  #timer: NodeJS.Timeout | null = null;

  constructor(execution: Execution, inferlet: Inferlet) {
    this.#execution = execution;
    this.#inferlet = inferlet;
  }

  get reason(): StopReason | null {
    return this.#reason;
  }

  stop(reason: StopReason): void {
    if (this.#reason) return;
    this.#reason = reason;
    const trap = () =>
      this.#execution.kill(new GuestTrap(reason.code === 'runtime-lost' ? 'terminated' : reason.code, reason.message));
    if (reason.code === 'runtime-lost') {
      trap();
      return;
    }
    this.#timer = setTimeout(trap, STOP_GRACE_MS);
    this.#inferlet.stop(handlerError(reason.code, reason.message));
  }

  dispose(): void {
    if (this.#timer) clearTimeout(this.#timer);
  }
}

/** Whether this runtime was declared dead: others own its invocations. */
const isLost = (signal: AbortSignal): boolean =>
  signal.aborted && (signal.reason as StopReason).code === 'runtime-lost';

/** The log of an attempt. When Redis has lost the attempt itself, it is not the attempt's any more. */
function attemptLog(invocations: Invocations, id: string, epoch: number): AttemptLog {
  return {
    append: (firstSeq, events) => invocations.append(id, epoch, firstSeq, events),
    lastSeq: async () => {
      const record = await invocations.get(id);
      return record?.status === 'running' && record.epoch === epoch ? record.seq : null;
    },
  };
}

/** Repeats a call while the store cannot be reached; null when this runtime has lost the invocation meanwhile. */
async function untilStored<T>(call: () => Promise<T>, signal: AbortSignal): Promise<T | null> {
  for (;;) {
    if (isLost(signal)) return null;
    try {
      return await call();
    } catch (error) {
      if (StoreError.from(error).code !== 'store-unavailable') throw error;
      await new Promise((resolve) => setTimeout(resolve, STORE_RETRY_MS));
    }
  }
}

function asLaunchError(error: unknown): LaunchError {
  if (error instanceof LaunchError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new LaunchError('internal', `The inferlet could not be started: ${message}`, { cause: error });
}

const round = (milliseconds: number): number => Math.round(milliseconds * 1000) / 1000;

function rounded(timings: Launched['timings']): Record<string, number> {
  return Object.fromEntries(Object.entries(timings).map(([name, value]) => [name, round(value)]));
}
