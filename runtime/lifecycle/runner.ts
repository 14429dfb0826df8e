import { randomUUID } from 'node:crypto';
import type { InvocationJob, Peak } from '#scheduler/admission/job.ts';
import type { Begun } from '#scheduler/admission/worker.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import type { EndLog } from '#scheduler/invocations/endings.ts';
import type { Files } from '#scheduler/invocations/files.ts';
import type { Inbox } from '#scheduler/invocations/inbox.ts';
import type { Invocations } from '#scheduler/invocations/invocations.ts';
import type { EventLog } from '#scheduler/invocations/log.ts';
import type { Questions } from '#scheduler/invocations/questions.ts';
import type { FinishOutcome, Usage } from '#scheduler/invocations/types.ts';
import type { LiveServer } from '#scheduler/live/server.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import { SecretError } from '#scheduler/secrets/secrets.ts';
import { sumOfUsage } from '#scheduler/usage/metered.ts';
import type { Services } from '../host/services/services.ts';
import type { InferletDescription } from '../host/session/inferlet.ts';
import { pagesWithin } from '../host/session/runtime.ts';
import { GuestTrap } from '../lowering/trap.ts';
import type { RunObserver } from '../telemetry/run-observer.ts';
import { type Attempt, AttemptRun, attemptLog, type ReleasedRun, type RunServices, silentMeter } from './attempt.ts';
import type { ChildJobs } from './child-job.ts';
import { type ChildAttempt, ChildRuns } from './children.ts';
import { Family } from './family.ts';
import { LaunchError, type Launched, type Launcher, Launches } from './launch.ts';

import { eventPaces, Outbox, WriteTicks } from './outbox.ts';
import { waitForPerson } from './questions.ts';
import { endedBy, mayRestart, restart } from './restart.ts';
import { orStopped } from './stopping.ts';
import { isLost, untilStored } from './stored.ts';
import {
  GrantRetries,
  type MetQuota,
  quotaCode,
  quotaStop,
  TOKENS_USED_UP,
  UsageReports,
  worthReporting,
} from './usage.ts';
import { failure, NO_ROOM, refusedByQuota, terminalEvent, type Verdict } from './verdict.ts';
import { WaitMonitor } from './waiting.ts';

export interface RunnerOptions {
  readonly invocations: Invocations;
  readonly inbox: Inbox;
  readonly events: EventLog;
  readonly files: Files;
  readonly questions: Questions;
  /** Makes the jobs of children. */
  readonly jobs: ChildJobs;
  readonly launcher: Launcher;
  /** Identifies this life of this process; see `RuntimeLease.id`. */
  readonly runtimeId: string;
  /** The models and encoders that the job's function may use. */
  readonly modelsOf: (
    job: InvocationJob,
    family: Family,
  ) => Promise<Required<Pick<InferletDescription, 'models' | 'encoders'>>>;
  /** The grants in the manifest of the job's function. */
  readonly grantsOf: (job: InvocationJob) => Promise<Grants>;
  /** Secrets and plain variables of the job's function. @throws SecretError when one cannot be opened, or all are too long */
  readonly variablesOf: (job: InvocationJob) => Promise<ReadonlyMap<string, string>>;
  /** Services that inferlets may use besides devices. */
  readonly services: Services;
  /** Called with the peak use of a root's family when the run does not end the invocation. The write of an end records the peak itself. */
  readonly observePeak?: (job: InvocationJob, peak: Family['peak']) => Promise<void>;
  /** The token quota with the fewest tokens left, among those of the job's tenant and function; null when there is none. */
  readonly tokenQuota?: (job: InvocationJob) => Promise<MetQuota | null>;
  /** Measures and traces runs. */
  readonly observer?: RunObserver;
  /** Shows events to followers before they are in the log. Without it, the outbox writes events at once. */
  readonly live?: LiveServer | undefined;
  /** Gets the ends of attempts that the platform causes. */
  readonly ends: EndLog;
  readonly log: Logger;
}

/** Fields of a log record about an invocation. */
const named = ({ id, function: name, tenant }: InvocationJob) => ({ invocation: id, function: name, tenant });

const FAULT = failure('internal', 'The runtime failed; its log says how.');

/** The verdict when `variablesOf` throws a `SecretError`. Its message has no part of a secret's value. */
const secretFailure = ({ message }: SecretError): Verdict => failure('artifact-unavailable', message);

/** Code and message that the observer records for a result, and for an attempt that no longer owns its invocation. */
const OBSERVED_RESULT = { code: 'ok', message: '' };
const OBSERVED_LOST = { code: 'lost', message: 'Another process has ended the invocation, or runs it now.' };

/** Data about the end of a run, besides its verdict. */
interface EndedRun {
  /** The most that the root's family held, from which admission learns; null for a child. */
  readonly peak: Peak | null;
  /** See `AttemptRun.lateTokens`. */
  readonly lateTokens: number;
  /** Decides the verdict anew, because the outbox may have ended meanwhile; null when the attempt had no run. */
  readonly conclude: () => Verdict | null;
}

/** An attempt that the store has begun, with its instance. */
interface BegunAttempt {
  readonly attempt: Attempt;
  readonly launched: Launched | LaunchError;
  /** When the launch ended, milliseconds since the Unix epoch by this machine's clock. */
  readonly launchedAt: number;
}

/** The `EndedRun` of an attempt that ends before its inferlet runs, or because the runtime failed. */
const NO_RUN: EndedRun = { peak: null, lateTokens: 0, conclude: () => null };

/** Runs each invocation from its job to exactly one terminal event, and gives back everything that it held. */
export class InvocationRunner {
  readonly #options: RunnerOptions;
  readonly #served = new Served();
  readonly #eventPaces = eventPaces();
  readonly #writeTicks = new WriteTicks();
  readonly #children: ChildRuns;
  readonly #runServices: RunServices;
  readonly #launches: Launches;

  constructor(options: RunnerOptions) {
    this.#options = options;
    this.#launches = new Launches(options.launcher);
    this.#children = new ChildRuns({
      ...options,
      queues: options.services.storeQueues,
      run: (child) => this.#run(child),
    });
    const { inbox, files, services } = options;
    const waiting = new WaitMonitor();
    const reports = new UsageReports();
    const grantRetries = new GrantRetries();
    this.#runServices = { inbox, files, services, children: this.#children, waiting, reports, grantRetries };
  }

  /** Number of children that run besides the admitted invocations. */
  get children(): number {
    return this.#children.count;
  }

  /** Invocations that each GPU host serves, children included, by host name. */
  get served(): Readonly<Record<string, number>> {
    return this.#served.counts;
  }

  /** Cancels a child for a client; ignores a child that does not run here. */
  cancelChild(id: string, message: string): void {
    this.#children.cancel(id, message);
  }

  get #clock(): () => number {
    return this.#options.jobs.clock ?? Date.now;
  }

  /** Number of attempts that the store may begin with the next fetch, while their instances are still being launched. */
  get beginsAllowed(): number {
    return this.#launches.room;
  }

  /**
   * Runs one attempt of an invocation to its end, and the children that it launches. The signal aborts with a `StopReason`.
   *
   * @param fetched returns the outcome when the store began the attempt as the runtime fetched its job; null when `run` must begin the attempt
   * @returns `ended` when the run ended the invocation; `not-held` when the store refused the attempt because this runtime does not hold the
   *   job; else undefined, for instance when the invocation was requeued or waits for a person.
   */
  async run(
    job: InvocationJob,
    signal: AbortSignal,
    fetched: Begun | null = null,
  ): Promise<'ended' | 'not-held' | undefined> {
    const { invocations, runtimeId, live } = this.#options;
    // All tries of `beginAttempt` send the same token, so that the store recognizes them: a try without an answer may have begun the attempt.
    const token = randomUUID();
    let isHeldHere = true;
    const begin = async () => {
      const begun = fetched
        ? await fetched()
        : await invocations.beginAttempt(job.id, runtimeId, token, job.fetchToken, live !== undefined);
      isHeldHere = !('refused' in begun && begun.refused === 'not-held');
      return begun;
    };
    const skipsCrowd = fetched !== null;
    const verdict = await this.#run({ job, signal, begin, skipsCrowd, depth: 0, family: new Family(job) });
    if (verdict !== null && verdict.kind !== 'silent') return 'ended';
    return isHeldHere ? undefined : 'not-held';
  }

  /** Runs an attempt of a root or a child: builds, runs and settles it. Resolves to its verdict; null when the attempt did not begin. */
  async #run(child: ChildAttempt): Promise<Verdict | null> {
    // What the attempt holds until it is settled: its place among the paced attempts, and among those that GPU hosts serve.
    using held = new DisposableStack();
    const begun = await this.#begin(child, held);
    if (begun === null) return null;
    const { attempt, launched, launchedAt } = begun;
    try {
      if (launched instanceof LaunchError) return await this.#notLaunched(attempt, launched);
      attempt.observed?.launched(launched, launchedAt);
      const run = await this.#build(attempt, launched, held);
      if (run === null) return await this.#finish(attempt, { kind: 'silent' }, {});
      const end = await run.run();
      return await this.#settle(attempt, run, await run.release(end));
    } catch (error) {
      if (launched instanceof LaunchError) throw error;
      return await this.#failed(attempt, launched, error);
    } finally {
      // Without effect when `#finish` has told the observer the end: only the first call counts.
      attempt.observed?.ended(FAULT.code, FAULT.message, attempt.meter.usage() ?? {});
    }
  }

  /** Begins an attempt in the store while its instance is launched. Resolves to null when the store refuses the attempt. */
  async #begin({ begin, ...run }: ChildAttempt, held: DisposableStack): Promise<BegunAttempt | null> {
    const { invocations, live } = this.#options;
    const { job, signal } = run;
    const launching = this.#launches.begin(job);
    if (!run.skipsCrowd) await this.#launches.crowd(job, launching);
    const clock = this.#clock;
    const startedAt = clock();
    const begun = await untilStored(begin, signal).catch(async (error: unknown) => {
      await launching.dispose();
      throw error;
    });
    if (begun === null || 'refused' in begun) {
      await launching.dispose();
      return null;
    }
    const { epoch, attempt: number, kvPages, tokenCeiling, usageBefore, queuedAt } = begun;
    const runStart = { startedAt, clock, attempt: number, runtimeId: this.#options.runtimeId };
    const observed = this.#options.observer?.begin(job, runStart);
    // Replaced once the instance exists. Until then the outbox has no events, so it cannot end.
    let kill: (trap: GuestTrap) => void = () => undefined;
    const meter = silentMeter();
    const pace = held.use(this.#eventPaces.enter(job.tenant));
    const logKey = { id: job.id, epoch, showsOwnEvents: live !== undefined };
    const outbox = new Outbox(begun.nextSeq, attemptLog(invocations, logKey, meter), {
      usage: meter,
      pace,
      shows: live && {
        begin: (unlogged) => live.begin(job.id, epoch, unlogged, job.submitter),
        ticks: this.#writeTicks,
      },
      onEnd: (end, cause) => {
        if (cause !== undefined && end !== 'over-quota')
          this.#options.log.error({ ...named(job), error: cause, why: end }, 'events can no longer be written');
        kill(
          new GuestTrap(end === 'full' ? 'output-limit' : 'terminated', `its events can no longer be written (${end})`),
        );
      },
      isAbandoned: () => isLost(signal),
    });
    if (run.depth === 0) run.family.pages.epoch = epoch;
    const stored = { epoch, number, kvPages, tokenCeiling, usageBefore, queuedAt };
    const attempt: Attempt = { ...run, ...stored, startedAt, clock, outbox, meter, observed };
    const launched = await orStopped(launching.launched(begun.standing), signal, run.depth);
    if (!(launched instanceof LaunchError)) kill = (trap) => launched.run.kill(trap);
    return { attempt, launched, launchedAt: launching.endedAt };
  }

  /** Builds the run of an attempt: the models, grants and variables of its function. Resolves to null when this runtime is lost. */
  async #build(attempt: Attempt, launched: Launched, held: DisposableStack): Promise<AttemptRun | null> {
    const { job: unboundJob, signal, family } = attempt;
    const { models, encoders } = await this.#options.modelsOf(unboundJob, family);
    const ownPages = pagesWithin(unboundJob.limits, models.values());
    if (attempt.depth === 0) family.bound(ownPages);
    const pages = Math.min(ownPages, family.pages.maxPages);
    const job = { ...unboundJob, limits: { ...unboundJob.limits, pages } };
    held.use(this.#served.enter(models, encoders));
    const [grants, variables] = await Promise.all([
      this.#options.grantsOf(job),
      untilStored(() => this.#options.variablesOf(job), signal),
    ]);
    if (variables === null) {
      launched.run.dispose();
      return null;
    }
    return new AttemptRun({ ...attempt, job }, launched, { models, encoders, grants, variables }, this.#runServices);
  }

  /** Settles an ended run: restarts its invocation, lets it wait for a person, or writes its end. */
  async #settle(
    attempt: Attempt,
    run: AttemptRun,
    { conclude, question, lost, released }: ReleasedRun,
  ): Promise<Verdict> {
    const { job, depth, family } = attempt;
    const verdict = conclude();
    const wait = { released, usage: () => run.usage() };
    const restarted =
      depth === 0 && mayRestart(verdict) ? await restart(this.#options, { attempt, verdict, lost, ...wait }) : null;
    const waitingVerdict =
      verdict.kind === 'result' && question !== null
        ? await waitForPerson(this.#options.questions, attempt, { question, ...wait })
        : null;
    const usage = run.usage();
    // Admission charges a root for all that its family holds.
    const peak = depth === 0 ? family.peak : null;
    // The outbox may have ended during the restart or the question.
    const final = restarted ?? waitingVerdict ?? (await this.#withQuotaName(job, conclude()));
    const lateTokens = run.lateTokens(usage);
    const finished = await this.#finish(attempt, final, usage, { peak, lateTokens, conclude });
    if (peak !== null && finished.kind === 'silent') {
      this.#options.observePeak?.(job, peak).catch((error: unknown) => {
        this.#options.log.warn({ ...named(job), error }, 'the peak of a run could not be stored');
      });
    }
    await released;
    if (finished.kind !== 'silent') await this.#countLate(attempt, usage, lateTokens);
    return finished;
  }

  /** Ends or restarts an attempt that got no instance. */
  async #notLaunched(attempt: Attempt, { code, message, figures }: LaunchError): Promise<Verdict> {
    if (isLost(attempt.signal)) return this.#finish(attempt, { kind: 'silent' }, {});
    const verdict = failure(code, message, figures);
    const endedAttempt = { attempt, lost: [], released: Promise.resolve(), usage: () => ({}) };
    const restarted =
      attempt.depth === 0 && mayRestart(verdict) ? await restart(this.#options, { ...endedAttempt, verdict }) : null;
    return this.#finish(attempt, restarted ?? verdict, {});
  }

  /** Ends an attempt whose run the runtime failed to build, run or settle. */
  async #failed(attempt: Attempt, launched: Launched, error: unknown): Promise<Verdict> {
    const { job, meter } = attempt;
    this.#options.log.error({ ...named(job), error }, 'an attempt failed');
    const usage = meter.usage() ?? {};
    // Freeze the usage, so that the observer records the same as the terminal event.
    meter.usage = () => usage;
    launched.run.dispose();
    return await this.#finish(attempt, error instanceof SecretError ? secretFailure(error) : FAULT, usage);
  }

  /** Counts the usage that GPU hosts reported only after the end. */
  async #countLate({ job, epoch, meter, signal }: Attempt, reported: Usage, lateTokens: number): Promise<void> {
    const usage = meter.usage();
    if (!usage || (lateTokens === 0 && !worthReporting(reported, usage))) return;
    await untilStored(() => this.#options.invocations.settle(job, epoch, usage, lateTokens), signal).catch(
      (error: unknown) => this.#options.log.error({ ...named(job), error }, 'late usage could not be counted'),
    );
  }

  /**
   * Names the token quota in the verdict `TOKENS_USED_UP`: the runtime refused the tokens without knowing which quota
   * had no room.
   */
  async #withQuotaName(job: InvocationJob, verdict: Verdict): Promise<Verdict> {
    if (verdict.kind !== 'error' || verdict.message !== TOKENS_USED_UP.message) return verdict;
    try {
      const quota = await this.#options.tokenQuota?.(job);
      if (!quota) return verdict;
      const { message, figures, cause, retryAfterMs } = quotaStop(quota, this.#clock());
      return { ...failure(quotaCode(quota.quota), message, figures), cause, retryAfterMs };
    } catch (error) {
      this.#options.log.warn({ ...named(job), error }, 'the quota that ended an invocation is unknown');
    }
    return verdict;
  }

  /** Writes the end and returns the written verdict; `silent` when the store no longer lets this attempt end the invocation. */
  async #finish(attempt: Attempt, verdict: Verdict, usage: Usage, run: EndedRun = NO_RUN): Promise<Verdict> {
    const { invocations } = this.#options;
    const { job, epoch, outbox, observed } = attempt;
    if (verdict.kind === 'silent') {
      // Without effect after a restart or a question, which have told the observer their own ends.
      observed?.ended(OBSERVED_LOST.code, OBSERVED_LOST.message, usage);
      outbox.close();
      return verdict;
    }
    const totalUsage = attempt.usageBefore === null ? usage : sumOfUsage(attempt.usageBefore, usage);
    const terminal = terminalEvent(verdict, totalUsage);
    const outcome = await outbox
      .finish<FinishOutcome>(
        (seq, lastSeq, lastEvents, lastShownSeq) =>
          invocations.finish(
            job.id,
            epoch,
            seq,
            terminal,
            usage,
            lastSeq,
            run.peak,
            lastEvents,
            lastShownSeq,
            run.lateTokens,
          ),
        'unwritten',
      )
      .catch(refusedByQuota);
    // The log refused the last events. The verdict was decided without knowing this.
    if (outcome === 'unwritten') return this.#finish(attempt, run.conclude() ?? verdict, usage, run);
    if (outcome === 'full') return this.#finish(attempt, NO_ROOM, usage, run);
    // This outcome is the verdict of `refusedByQuota`.
    if (outcome !== null && typeof outcome === 'object') return this.#finish(attempt, outcome, usage, run);
    const written = verdict.kind === 'result' ? OBSERVED_RESULT : verdict;
    const { code, message } = outcome === 'ok' ? written : OBSERVED_LOST;
    observed?.ended(code, message, usage);
    if (outcome === 'ok' && verdict.kind === 'error' && 'end' in verdict)
      this.#options.ends.note(endedBy(job), { code: verdict.code, ...verdict.end }, 'ended');
    return outcome === 'ok' ? verdict : { kind: 'silent' };
  }
}

/** A model or an encoder, and the connection to its GPU host. */
interface Placed {
  readonly connection: { readonly name: string };
}

/** Counts the invocations that each GPU host serves: those that may use a model or an encoder on it. */
export class Served {
  readonly #counts = new Map<string, number>();

  /** Number of invocations by the GPU host's name. */
  get counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }

  /** Counts an invocation at each GPU host of its models and encoders until the result is disposed of. */
  enter(...grantedMaps: readonly ReadonlyMap<string, Placed>[]): Disposable {
    const placed = grantedMaps.flatMap((granted) => [...granted.values()]);
    const hosts = new Set(placed.map(({ connection }) => connection.name));
    for (const host of hosts) this.#add(host, 1);
    return {
      [Symbol.dispose]: () => {
        for (const host of hosts) this.#add(host, -1);
      },
    };
  }

  #add(host: string, change: 1 | -1): void {
    const count = (this.#counts.get(host) ?? 0) + change;
    if (count > 0) this.#counts.set(host, count);
    else this.#counts.delete(host);
  }
}
