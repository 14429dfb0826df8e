import { randomUUID } from 'node:crypto';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import type { EventLog } from '#scheduler/invocations/event-log.ts';
import type { Files } from '#scheduler/invocations/files.ts';
import type { Inbox } from '#scheduler/invocations/inbox.ts';
import type { Invocations } from '#scheduler/invocations/invocations.ts';
import type { TerminalEvent, Usage } from '#scheduler/invocations/types.ts';
import { type GrantedModel, Inferlet } from '../host/inferlet.ts';
import type { OwnFiles } from '../host/own.ts';
import type { Services } from '../host/services.ts';
import { Session } from '../host/session-state.ts';
import type { Ending, ExecutionOptions } from '../lowering/execution.ts';
import { GuestTrap } from '../lowering/trap.ts';
import type { ChildJobs } from './child-job.ts';
import { type ChildAttempt, ChildRuns } from './child-runs.ts';
import { Children } from './children.ts';
import { Family } from './family.ts';
import { inboxSource } from './inbox-source.ts';
import { LaunchError, type Launched, type Launcher } from './launch.ts';
import { type AttemptLog, Outbox } from './outbox.ts';
import { resultData } from './result-event.ts';
import { type Stop, Stopping } from './stopping.ts';
import { isLost, untilStored } from './stored.ts';
import { type Verdict, verdictOf } from './verdict.ts';
import { WaitMonitor } from './waiting.ts';

export interface RunnerOptions {
  readonly invocations: Invocations;
  readonly inbox: Inbox;
  readonly events: EventLog;
  readonly files: Files;
  /** How children are made of a tenant's functions. */
  readonly jobs: ChildJobs;
  readonly launcher: Launcher;
  /** Identifies this life of this process; see `RuntimeLease.id`. */
  readonly runtimeId: string;
  /** Models granted to a function, by name; the first is its default. */
  readonly modelsOf: (job: InvocationJob) => Promise<ReadonlyMap<string, GrantedModel>>;
  /** What a function may do besides computing. */
  readonly grantsOf: (job: InvocationJob) => Promise<Grants>;
  /** What inferlets may use besides devices. */
  readonly services: Services;
  readonly slices: ExecutionOptions['slices'];
  /** Told what an invocation held at most. */
  readonly observePages?: (job: InvocationJob, peak: Readonly<Record<string, number>>) => void;
  /** Told of errors that no caller sees. */
  readonly onError?: (error: unknown) => void;
}

/** The store takes any error. */
const NO_ROOM: Verdict = {
  kind: 'error',
  code: 'output-limit',
  message:
    'The invocation and its children have logged as much as they may together, and this result finds no room: return less, or send less.',
};

/** One run of an inferlet that is about to begin. */
type Run = ChildAttempt;

interface Attempt extends Omit<Run, 'begin'> {
  readonly epoch: number;
  readonly startedAt: number;
  readonly outbox: Outbox;
}

/** Runs invocations: each from its job to exactly one terminal event, and everything that it held given back. */
export class InvocationRunner {
  readonly #options: RunnerOptions;
  readonly #waiting = new WaitMonitor();
  readonly #children: ChildRuns;

  constructor(options: RunnerOptions) {
    this.#options = options;
    this.#children = new ChildRuns({ ...options, run: (child) => this.#run(child) });
  }

  /** Children that run beside the invocations that were admitted. */
  get children(): number {
    return this.#children.count;
  }

  /** A client asks for a child's cancellation; nothing happens when it does not run here. */
  cancelChild(id: string, message: string): void {
    this.#children.cancel(id, message);
  }

  /** Runs one invocation to its end, and all its children to theirs. The signal aborts with a `StopReason`. */
  async run(job: InvocationJob, signal: AbortSignal): Promise<void> {
    const { invocations, runtimeId } = this.#options;
    // One token for every repetition: an answer that came too late has begun the attempt all the same.
    const token = randomUUID();
    const begin = () => invocations.beginAttempt(job.id, runtimeId, token);
    await this.#run({ job, signal, begin, depth: 0, family: new Family(job) });
  }

  /** Answers how it ended, null when it was not begun. */
  async #run({ begin, ...run }: Run): Promise<Verdict | null> {
    const { invocations, launcher } = this.#options;
    const startedAt = Date.now();
    const { job, signal } = run;
    const { tenant, function: name, version, limits } = job;
    // The instance is made ready while the store answers; if it refuses, the instance is thrown away.
    const launching = launcher
      .launch({ tenant, function: name, version, memoryMb: limits.memoryMb })
      .catch((error: unknown) => asLaunchError(error));
    const begun = await untilStored(begin, signal);
    if (begun === null || 'refused' in begun) {
      const unused = await launching;
      if (!(unused instanceof LaunchError)) unused.execution.dispose();
      return null;
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
    const attempt: Attempt = { ...run, epoch: begun.epoch, startedAt, outbox };
    const launched = await launching;
    if (launched instanceof LaunchError) {
      return this.#finish(attempt, { kind: 'error', code: launched.code, message: launched.message }, {});
    }
    kill = (trap) => launched.execution.kill(trap);
    try {
      return await this.#execute(attempt, launched);
    } catch (error) {
      this.#options.onError?.(error);
      launched.execution.dispose();
      return this.#finish(
        attempt,
        { kind: 'error', code: 'internal', message: 'The runtime failed; its log says how.' },
        {},
      );
    }
  }

  async #execute(attempt: Attempt, launched: Launched): Promise<Verdict> {
    const { job, outbox, startedAt, signal, family, depth, epoch } = attempt;
    const { execution } = launched;
    const { guest } = execution;
    const [models, grants] = await Promise.all([this.#options.modelsOf(job), this.#options.grantsOf(job)]);
    const { id, tenant, function: functionName, version: functionVersion, arrival, limits } = job;
    const deadlineAt = Math.min(job.submittedAt + job.deadlineMs, startedAt + limits.wallMs);
    const session = new Session(outbox, inboxSource(this.#options.inbox, id));
    const children = new Children(this.#children, {
      ...{ job, epoch, depth, family, grants, deadlineAt },
      charge: (cpuMs) => execution.charge(cpuMs),
      takePlaces: () => inferlet.takePlaces(),
    });
    const inferlet = new Inferlet(
      {
        ...{ id, tenant, functionName, functionVersion, arrival, input: job.input, grants, limits, models, deadlineAt },
        ...(job.traceparent !== undefined && { traceparent: job.traceparent }),
      },
      session,
      this.#options.services,
      {
        waits: this.#waiting.watch(),
        usage: () => ({ cpuMs: round(execution.cpuMs), calls: guest.calls, memoryBytes: guest.memoryBytes }),
        cpu: { charge: (cpuMs) => execution.charge(cpuMs), usedUp: () => execution.cpuMs > limits.cpuMs },
        terminated: (cause) => stopping.stop({ code: 'terminated', message: cause }),
      },
      { children, files: ownFiles(this.#options.files, id, epoch), shared: family },
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
        ...(job.parent !== undefined && { parent: job.parent }),
      }),
    );

    const onAbort = () => {
      const reason = signal.reason as Stop;
      if (reason.code === 'runtime-lost') children.abandon(reason.message);
      stopping.stop(reason);
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    const wallTimer = setTimeout(
      () =>
        stopping.stop({
          code: 'deadline-exceeded',
          message: `The inferlet ran longer than its ${limits.wallMs} ms (manifest: limits.wallMs${job.parent === undefined ? '' : ', or what its parent had left'}).`,
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
      children.end();
    }
    const wallMs = performance.now() - ranFrom;
    const { lostDevice } = inferlet;
    const released = inferlet.release();
    const memoryBytes = guest.memoryBytes;
    execution.dispose();

    // Where the time before the inferlet's first call of the platform went; numbers only.
    const firstCall = guest.firstCallAt === 0 ? {} : { firstCallMs: round(guest.firstCallAt - ranFrom) };
    outbox.add('metric', JSON.stringify({ queuedMs, ...rounded(launched.timings), ...firstCall }));
    // Whoever sees the end of an invocation sees the end of its children.
    await Promise.all([outbox.flushed(), children.settled()]);
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
      cachedTokens: inferlet.cachedTokens,
      cpuMs: round(execution.cpuMs),
      wallMs: round(wallMs),
      queuedMs,
      kvPagesPeak: Math.max(0, ...Object.values(pages)),
      memoryBytes,
      messages: session.messages,
      calls: guest.calls,
    };
    const finished = await this.#finish(attempt, verdict, usage);
    // A root is admitted for what its children hold as well.
    if (depth === 0) this.#options.observePages?.(job, Object.fromEntries(family.pages.peak));
    await released;
    return finished;
  }

  /** Answers the verdict, `silent` when somebody else had ended the invocation before. */
  async #finish(attempt: Attempt, verdict: Verdict, usage: Usage): Promise<Verdict> {
    const { job, epoch, outbox } = attempt;
    if (verdict.kind === 'silent') {
      outbox.close();
      return verdict;
    }
    const terminal: TerminalEvent =
      verdict.kind === 'result'
        ? { event: 'result', data: resultData(verdict.output, usage) }
        : {
            event: 'error',
            data: JSON.stringify({ code: verdict.code, message: verdict.message, usage }),
            code: verdict.code,
            message: verdict.message,
          };
    const outcome = await outbox.finish((seq) => this.#options.invocations.finish(job.id, epoch, seq, terminal, usage));
    if (outcome === 'full') return this.#finish(attempt, NO_ROOM, usage);
    return outcome === 'ok' ? verdict : { kind: 'silent' };
  }
}

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

/** The files of one attempt: what it puts there carries its epoch. */
function ownFiles(files: Files, id: string, epoch: number): OwnFiles {
  return {
    put: (name, mediaType, content) => files.put(id, name, mediaType, content, epoch),
    appears: (name, signal) => files.appears(id, name, signal),
    get: (name) => files.get(id, name),
    list: () => files.list(id),
  };
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
