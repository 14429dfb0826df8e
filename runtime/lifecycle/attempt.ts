import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import { within } from '#gpu-host/protocol/within.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import type { Files } from '#scheduler/invocations/files.ts';
import type { Inbox } from '#scheduler/invocations/inbox.ts';
import type { Invocations } from '#scheduler/invocations/invocations.ts';
import type { AskedQuestion } from '#scheduler/invocations/questions.ts';
import type { AppendOutcome, LaunchTimings, MetricData, StartData, Usage } from '#scheduler/invocations/types.ts';
import type { Metered, PageLimit } from '#scheduler/quotas/exceeded.ts';
import type { TokenAsk } from '#scheduler/quotas/grants.ts';
import type { Message } from '#wit/generated/host.ts';
import type { InvocationFiles, Services } from '../host/services/services.ts';
import { Inferlet, type InferletDescription } from '../host/session/inferlet.ts';
import { type MessageSource, Session } from '../host/session/session-state.ts';
import type { ObservedRun } from '../telemetry/run-observer.ts';
import type { StepTrace } from '../telemetry/step-trace.ts';
import type { TextService } from '../texts/service.ts';
import { Account } from '../workers/account.ts';
import { type ChildAttempt, type ChildRuns, Children } from './children.ts';
import type { GuestEnd, GuestEnding, Launched } from './launch.ts';
import type { AttemptLog, Outbox } from './outbox.ts';
import { type Stop, Stopping } from './stopping.ts';
import {
  AttemptGrants,
  AttemptUsage,
  chargedIn,
  type GrantRetries,
  quotaStop,
  rounded,
  shortStop,
  TOKENS_USED_UP,
  type UsageReports,
} from './usage.ts';
import { MAX_RESULT, type Verdict, verdictOf } from './verdict.ts';
import type { WaitMonitor } from './waiting.ts';
import { WallTime } from './wall-time.ts';

/** An attempt that the store has begun. */
export interface Attempt extends Omit<ChildAttempt, 'begin'> {
  readonly epoch: number;
  /** 1 for the first attempt. */
  readonly number: number;
  /** KV pages that the tenant may hold. */
  readonly kvPages: PageLimit;
  /** Tokens of the tenant's quotas that the attempt was granted at its beginning; null without a token quota. */
  readonly tokenCeiling: number | null;
  /** When the invocation began to wait for this attempt, milliseconds since the Unix epoch. */
  readonly queuedAt: number;
  /** Usage of the earlier attempts; null for a first attempt. */
  readonly usageBefore: Usage | null;
  /** Reports usage to the store and handles the replies. */
  readonly meter: AttemptMeter;
  /**
   * When the runtime was ready to begin the attempt, milliseconds since the Unix epoch: it then asks the store, unless the store began the attempt
   * with the fetch. A wait in a crowd of launches (`Launches.crowd`) is over by then. The wall time of the run begins later, when the instance is
   * ready.
   */
  readonly startedAt: number;
  /** The platform's clock; `startedAt` is a time of this clock. */
  readonly clock: () => number;
  readonly outbox: Outbox;
  readonly observed: ObservedRun | undefined;
}

/** Longest time that the `start` event waits for the inferlet's first message, so that one write carries both. */
const START_LINGER_MS = 10;
/** Longest wait, at an inferlet's end, for the GPU hosts' final usage: about as long as a device step takes. */
const LAST_USAGE_MS = 250;

/** The parts of the runner that all its attempts share. */
export interface RunServices {
  readonly inbox: Inbox;
  readonly files: Files;
  readonly services: Services;
  readonly children: ChildRuns;
  readonly waiting: WaitMonitor;
  readonly reports: UsageReports;
  readonly grantRetries: GrantRetries;
}

/** The models, encoders, grants and variables that a function may use. */
export interface Granted extends Required<Pick<InferletDescription, 'models' | 'encoders'>> {
  readonly grants: Grants;
  readonly variables: ReadonlyMap<string, string>;
}

/** A run whose inferlet has ended and whose children have their terminal events. */
export interface ReleasedRun {
  /** Decides the verdict anew at each call, because the outbox may end between two calls. */
  readonly conclude: () => Verdict;
  /** The question to a person that the inferlet leaves; it counts only if the verdict is a result. */
  readonly question: AskedQuestion | null;
  /** GPU hosts that were lost, along with the attempt's memory on them. */
  readonly lost: readonly Pick<GpuHostConnection, 'connected'>[];
  /** Resolves when the attempt has given back everything it held on GPU hosts. */
  readonly released: Promise<void>;
}

/** The run of one attempt's inferlet: its parts, its start and stop, and the release of what it held. */
export class AttemptRun {
  readonly #attempt: Attempt;
  readonly #launched: Launched;
  readonly #runServices: RunServices;
  readonly #wallTime: WallTime;
  readonly #queuedMs: number;
  readonly #cpu: { readonly charge: (cpuMs: number) => void; readonly usedUp: () => boolean };
  readonly #children: Children;
  readonly #inferlet: Inferlet;
  readonly #stopping: Stopping;
  readonly #usage: AttemptUsage;
  readonly #grants: AttemptGrants;
  #isReleased = false;
  /** Token of the last client message that the inferlet has handled. */
  #handledToken: Buffer | undefined;

  constructor(attempt: Attempt, launched: Launched, granted: Granted, runServices: RunServices) {
    const { job, family, depth, epoch, startedAt } = attempt;
    const { run } = launched;
    this.#attempt = attempt;
    this.#launched = launched;
    this.#runServices = runServices;
    this.#wallTime = new WallTime(job, family.heldTime, attempt.clock);
    this.#queuedMs = Math.max(0, startedAt - attempt.queuedAt);
    this.#cpu = { charge: (cpuMs) => run.charge(cpuMs), usedUp: () => run.cpuMs > job.limits.cpuMs };
    family.redactor.add(`${job.function}@${job.version}`, granted.variables);
    const { traceparent = job.traceparent, steps } = attempt.observed?.beginInferlet(() => this.#measurements()) ?? {};
    const tracedJob = { ...job, ...(traceparent !== undefined && { traceparent }) };
    this.#children = new Children(runServices.children, {
      job: tracedJob,
      epoch,
      depth,
      family,
      grants: granted.grants,
      deadline: this.#wallTime,
      texts: { tenant: job.tenant, account: new Account(this.#cpu) },
      takePlaces: () => this.#inferlet.takePlaces(),
    });
    this.#inferlet = this.#makeInferlet(granted, tracedJob.traceparent, steps);
    this.#stopping = new Stopping(run, this.#inferlet);
    family.memory.enter(run);
    this.#usage = new AttemptUsage({ inferlet: this.#inferlet, run, queuedMs: this.#queuedMs, held: family.heldTime });
    const { tokens } = this.#inferlet;
    this.#grants = new AttemptGrants({
      tokens,
      retries: runServices.grantRetries,
      report: () => attempt.outbox.reportAgain(),
      refused: (quota) => {
        const stop = shortStop(quota, attempt.clock());
        tokens.refuseQuota(handlerError('limit-exceeded', stop.message));
        this.#stopping.stop(stop);
      },
    });
    tokens.grant(attempt.tokenCeiling);
    this.#connectMeter();
  }

  usage(): Usage {
    return this.#usage.snapshot();
  }

  /** Granted tokens beyond `usage` that GPU hosts may still report as used, after the end of the run. */
  lateTokens(usage: Usage): number {
    const { tokens } = this.#inferlet;
    return this.#isReleased || !tokens.isBounded ? 0 : Math.max(0, tokens.charged - chargedIn(usage));
  }

  /** Runs the guest until it ends or is stopped. */
  async run(): Promise<GuestEnd> {
    const { job, outbox, signal, meter, observed } = this.#attempt;
    const { run } = this.#launched;
    this.#addStartEvent();
    const onAbort = () => {
      const reason = signal.reason as Stop;
      if (reason.code === 'runtime-lost') this.#children.abandon(reason.message);
      this.#stopping.stop(reason);
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    const endWallTime = this.#wallTime.limit(
      (reason) => this.#stopping.stop(reason),
      () => run.deadline(this.#wallTime.leftMs),
    );
    const unwatchUsage = this.#runServices.reports.watch(
      outbox,
      () => this.usage(),
      () => this.#inferlet.tokens.hasSurplus,
    );
    try {
      return await run.start(this.#inferlet, { input: job.input, cpuLimitMs: job.limits.cpuMs });
    } finally {
      endWallTime();
      unwatchUsage();
      this.#usage.returned();
      // An ended inferlet keeps its verdict, even if its last events exceed a quota.
      meter.answered = () => undefined;
      meter.ask = () => null;
      this.#grants.end();
      observed?.returned();
      this.#stopping.dispose();
      signal.removeEventListener('abort', onAbort);
      this.#children.end();
    }
  }

  /**
   * Begins to give back all that the inferlet held, adds its `metric` event, and waits until its children have ended
   * and its events are in the log. The outbox may keep the last few events, to write them with the terminal event.
   */
  async release(end: GuestEnd): Promise<ReleasedRun> {
    const { job, outbox, family } = this.#attempt;
    const { run, timings, memoryLimitBytes, memoryCanGrow, placed } = this.#launched;
    // Read both now: `release` of the inferlet clears them.
    const { lostDevice, lostConnections: lost } = this.#inferlet;
    const lostHosts = lost.map(({ name }) => name);
    outbox.hurry();
    const released = this.#inferlet.release().then(() => {
      this.#isReleased = true;
    });
    const memoryBytes = family.memory.leave(run);
    run.dispose();
    // `metric` has the times of the steps before the inferlet's first host call, the preempted time, and the spans that the inferlet recorded.
    const firstCall = end.firstCallMs === null ? {} : { firstCallMs: rounded(end.firstCallMs) };
    const preempted = this.#usage.preemptedMs > 0 ? { preemptedMs: this.#usage.preemptedMs } : {};
    const spans = this.#inferlet.spans.report(family.redactor.redact);
    const metric: MetricData = {
      queuedMs: this.#queuedMs,
      ...preempted,
      ...roundedTimings(timings),
      ...firstCall,
      ...spans,
    };
    outbox.addLast('metric', JSON.stringify(metric));
    const [fault] = await Promise.all([
      resultFault(this.#runServices.services.texts, end.ending, job.tenant, this.#cpu.charge),
      outbox.almostFlushed(),
      this.#children.settled(),
      within(LAST_USAGE_MS, released),
    ]);
    const conclude = () =>
      verdictOf({
        ending: end.ending,
        resultFault: fault,
        stop: this.#stopping.reason,
        outboxEnd: outbox.end,
        outboxCause: outbox.cause,
        handlerErrors: end.handlerErrors,
        lostDevice,
        lostHosts,
        stderr: end.stderr,
        memoryBytes,
        memoryLimitBytes,
        memoryCanGrow,
        cpuMs: rounded(run.cpuMs),
        cpuLimitMs: job.limits.cpuMs,
        ...(placed && { placed }),
        redact: family.redactor.redact,
      });
    const { askedQuestion } = this.#inferlet;
    return { conclude, question: askedQuestion && { ...askedQuestion, handled: this.#handledToken }, lost, released };
  }

  #makeInferlet(granted: Granted, traceparent: string | undefined, steps: StepTrace | undefined): Inferlet {
    const { job, outbox, family, epoch, kvPages, clock } = this.#attempt;
    const { run, placed } = this.#launched;
    const { id, tenant, function: functionName, version: functionVersion, arrival, input, limits } = job;
    const { waiting, inbox, files, services } = this.#runServices;
    const onHandled = (token: Buffer) => {
      this.#handledToken = token;
    };
    return new Inferlet(
      {
        id,
        tenant,
        functionName,
        functionVersion,
        arrival,
        input,
        limits,
        ...granted,
        deadline: this.#wallTime,
        clock,
        ...(job.latency && { latency: job.latency }),
        mayAsk: job.parent === undefined,
        ...(job.resumption && { resumption: job.resumption }),
        ...(traceparent !== undefined && { traceparent }),
        epoch,
        tenantPages: kvPages,
      },
      new Session(outbox, inboxSource(inbox, id, epoch, onHandled), family.redactor.redact, placed),
      services,
      {
        waits: waiting.watch(() => run.answered()),
        usage: () => ({ cpuMs: rounded(run.cpuMs), calls: run.calls, memoryBytes: run.memoryBytes }),
        cpu: this.#cpu,
        ...(steps && { steps }),
        terminated: ({ cause, retryAfterMs }) =>
          this.#stopping.stop({
            code: 'terminated',
            message: `The GPU host took the invocation's memory: ${cause}.`,
            cause,
            retryAfterMs,
            figures: { retryAfterMs },
          }),
        held: (isHeld) => family.heldTime.change(isHeld),
        quotaReached: () => this.#stopping.stop(TOKENS_USED_UP),
        askForTokens: () => this.#grants.request(),
      },
      { children: this.#children, files: ownFiles(files, id, epoch), shared: family },
    );
  }

  /** Connects the attempt's meter: the outbox reads the inferlet's usage, and the quotas in the store's answers limit the inferlet. */
  #connectMeter(): void {
    const { meter, clock } = this.#attempt;
    meter.usage = () => this.usage();
    meter.mark = () => this.#usage.mark();
    meter.marked = () => this.#usage.marked();
    meter.ask = () => this.#grants.ask();
    meter.unanswered = () => this.#grants.answered(null);
    meter.answered = ({ exceeded, tokens, kvPages }, hasAsked) => {
      if (kvPages) this.#inferlet.limitTenant(kvPages);
      if (hasAsked) this.#grants.answered(tokens);
      if (exceeded) this.#stopping.stop(quotaStop(exceeded, clock()));
    };
  }

  #addStartEvent(): void {
    const { job, number, outbox } = this.#attempt;
    const start: StartData = {
      invocation: job.id,
      function: job.function,
      version: job.version,
      queuedMs: this.#queuedMs,
      coldStart: this.#launched.coldStart,
      ...(number > 1 && { attempt: number }),
      ...(job.parent !== undefined && { parent: job.parent }),
    };
    outbox.add('start', JSON.stringify(start), START_LINGER_MS);
  }

  #measurements() {
    const { session, firstTokenAt, lastTokenAt, model, description } = this.#inferlet;
    return {
      times: { firstMessageAt: session.firstMessageAt, firstTokenAt, lastTokenAt },
      model,
      gpuHost: description.models.get(model)?.connection.name ?? '',
    };
  }
}

function roundedTimings({ buildMs, compileMs, instantiateMs }: LaunchTimings): LaunchTimings {
  return { buildMs: rounded(buildMs), compileMs: rounded(compileMs), instantiateMs: rounded(instantiateMs) };
}

/**
 * Connects an attempt's log with its inferlet: the log reports the inferlet's usage, and the inferlet obeys the quotas
 * in the store's answers.
 */
export interface AttemptMeter {
  /** Copies the present token counts; see `MarkedUsage`. */
  mark: () => void;
  /** Usage up to now, with the token counts of the last `mark`; undefined while there is no inferlet. */
  marked: () => Usage | undefined;
  /** Usage up to now; undefined while there is no inferlet. */
  usage: () => Usage | undefined;
  /** The tokens to ask for with a report of usage; null for none. `answered` or `unanswered` follows. */
  ask: () => TokenAsk | null;
  /** Called with the store's answer to a call that reported usage. @param hasAsked true when the call carried an `ask` */
  answered: (answer: Metered<unknown>, hasAsked: boolean) => void;
  /** Called when a call that carried an `ask` has failed. */
  unanswered: () => void;
}

/** The meter of an attempt whose inferlet does not exist yet; `AttemptRun` replaces its functions. */
export function silentMeter(): AttemptMeter {
  return {
    mark: () => undefined,
    marked: () => undefined,
    usage: () => undefined,
    ask: () => null,
    answered: () => undefined,
    unanswered: () => undefined,
  };
}

/**
 * The log of an attempt. Its `lastSeq` resolves to null when the attempt is over, or when Redis has lost the attempt.
 *
 * @param showsOwnEvents true when the attempt itself shows its events to followers; see `AttemptWrite`
 * @param meter gets the store's answers to reported usage
 */
export function attemptLog(
  invocations: Invocations,
  { id, epoch, showsOwnEvents }: { readonly id: string; readonly epoch: number; readonly showsOwnEvents: boolean },
  meter: AttemptMeter,
): AttemptLog {
  /** Makes a call that reports usage, with an ask for tokens. */
  const metered = async (call: (ask: TokenAsk | null) => Promise<Metered<AppendOutcome>>): Promise<AppendOutcome> => {
    const ask = meter.ask();
    try {
      const answer = await call(ask);
      meter.answered(answer, ask !== null);
      return answer.outcome;
    } catch (error) {
      if (ask !== null) meter.unanswered();
      throw error;
    }
  };
  return {
    append: async (firstSeq, events, usage) => {
      const write = { id, epoch, firstSeq, events, usage, showsOwnEvents };
      return usage ? metered((ask) => invocations.write({ ...write, ask })) : (await invocations.write(write)).outcome;
    },
    report: (usage) => metered((ask) => invocations.report(id, epoch, usage, ask)),
    lastSeq: async () => {
      const record = await invocations.get(id);
      return record?.status === 'running' && record.epoch === epoch ? record.seq : null;
    },
  };
}

/** An invocation's files, for one attempt: each `put` names the attempt's epoch, so that the store refuses it once the attempt is over. */
export function ownFiles(files: Files, id: string, epoch: number): InvocationFiles {
  return {
    put: (name, mediaType, content) => files.put(id, name, mediaType, content, epoch),
    appears: (name, signal) => files.appears(id, name, signal),
    get: (name) => files.get(id, name),
    list: () => files.list(id),
  };
}

/**
 * The client's messages to one attempt of an invocation, in the shape of `session.receive`.
 *
 * @param handled see `InboxHandler.handled`
 */
export function inboxSource(inbox: Inbox, id: string, epoch: number, handled?: (token: Buffer) => void): MessageSource {
  return {
    attach: ({ message, closed }) =>
      inbox.attach(
        id,
        {
          message: (received) => {
            const content: Message =
              'text' in received ? { tag: 'text', val: received.text } : { tag: 'bytes', val: received.bytes };
            return message(content);
          },
          closed,
          ...(handled && { handled }),
        },
        epoch,
      ),
  };
}

/**
 * Returns the error when a guest's result is not JSON, or takes too long to be checked. Returns null for JSON, for endings without a result, and
 * for a result that `verdictOf` refuses for its length. The guest pays for the CPU time of the check, but its CPU limit does not stop the check:
 * the guest has already ended.
 */
export async function resultFault(
  texts: Pick<TextService, 'check'>,
  ending: GuestEnding,
  tenant: string,
  charge: (cpuMs: number) => void,
): Promise<HandlerError | null> {
  if (ending.kind !== 'returned' || !ending.ok || ending.text.length > MAX_RESULT) return null;
  const checked = await texts.check({ tenant, account: new Account({ charge, usedUp: () => false }) }, ending.text);
  return checked.tag === 'err' ? checked.val : null;
}
