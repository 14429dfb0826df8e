import { type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import type { Inbox } from '#scheduler/invocations/inbox.ts';
import type { Invocations } from '#scheduler/invocations/invocations.ts';
import type { EventLog } from '#scheduler/invocations/log.ts';
import { type AttemptOutcome, partsOf } from '#scheduler/invocations/types.ts';
import type { LiveServer } from '#scheduler/live/server.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import { Shares } from '#scheduler/policies/shares.ts';
import { QuotaExceeded } from '#scheduler/quotas/exceeded.ts';
import type { Ending } from '#wit/generated/host.ts';
import type { StoreQueues } from '../host/store-queues.ts';
import { type ChildJobs, findFunction, type ParentJob } from './child-job.ts';
import { ChildRun } from './child-run.ts';
import type { Family } from './family.ts';
import { isLost, untilStored } from './stored.ts';
import type { Verdict } from './verdict.ts';

/** Maximum children that one runtime runs at once, of all tenants: each holds an instance's memory, and none waits for a slot. */
const MAX_RUNS = 1024;
const PARENT_ENDED = 'the parent has ended; nothing begins for it';

export interface ChildRunsOptions {
  readonly invocations: Invocations;
  readonly inbox: Inbox;
  readonly events: EventLog;
  /** Bounds the parents' searches for functions, and their reads of their children's logs. */
  readonly queues: StoreQueues;
  readonly runtimeId: string;
  readonly jobs: ChildJobs;
  /** Shows the children's events to followers; without it, followers read the log. */
  readonly live?: LiveServer | undefined;
  /** Runs a child from its beginning to its end. Resolves to its verdict; null when the child did not begin. */
  readonly run: (attempt: ChildAttempt) => Promise<Verdict | null>;
  readonly log: Logger;
}

/** A child's only attempt. The runner describes an attempt of a client's invocation, at depth 0, in the same way. */
export interface ChildAttempt {
  readonly job: InvocationJob;
  readonly signal: AbortSignal;
  readonly depth: number;
  readonly family: Family;
  /** Begins the attempt in the store, before the guest runs. */
  readonly begin: () => Promise<AttemptOutcome>;
  /**
   * True when the attempt does not wait in a crowd of launches (`Launches.crowd`): a child, whose parent waits for it, and an attempt that the
   * store began when the runtime fetched its job.
   */
  readonly skipsCrowd: boolean;
}

/** A child's parent and its place in the family. */
export interface Origin {
  /** Epoch of the parent's attempt. */
  readonly epoch: number;
  readonly depth: number;
  readonly family: Family;
  /** Unique to the child, so that the store recognizes a repeated `beginChild`. */
  readonly token: string;
}

/** All children that one runtime runs. */
export class ChildRuns {
  readonly #options: ChildRunsOptions;
  readonly #runs = new Map<string, ChildRun>();
  readonly #places = new Shares(MAX_RUNS);

  constructor(options: ChildRunsOptions) {
    this.#options = options;
  }

  /** Number of children that run now. */
  get count(): number {
    return this.#runs.size;
  }

  get jobs(): ChildJobs {
    return this.#options.jobs;
  }

  /** Finds the function that an inferlet names for its child. */
  find(parent: ParentJob, reference: string): Promise<Outcome<FunctionVersion>> {
    const { jobs, queues } = this.#options;
    return findFunction(jobs, queues, parent, reference);
  }

  /** Takes one of the places for a child of a tenant; returns an error when it gets none. The caller must give a taken place back with `leave`. */
  enter(tenant: string): HandlerError | null {
    if (this.#places.enter(tenant)) return null;
    const text = `this runtime runs ${this.#places.total} children (the limit is ${MAX_RUNS}), and this tenant has its part of them; try again later`;
    return handlerError('unavailable', text);
  }

  leave(tenant: string): void {
    this.#places.leave(tenant);
  }

  /** Cancels a child for a client; false when no child of that id runs here. */
  cancel(id: string, message: string): boolean {
    const run = this.#runs.get(id);
    if (!run) return false;
    run.cancel(message);
    return true;
  }

  create({ id, tenant }: InvocationJob): ChildRun {
    const { inbox, events, queues } = this.#options;
    return new ChildRun({ id, tenant, inbox, events, read: (bytes, call) => queues.during(tenant, bytes, call) });
  }

  /**
   * Starts a child. `begun` resolves with null once the child's record is stored, or with an error. `ended` resolves with the child's ending
   * when the child has its terminal event, or when this runtime will never write one. Neither promise rejects. The caller then gives the child's
   * place back (`leave`) and passes the ending to `run.settle`, in this order: once the parent knows the ending, it may launch the next child.
   */
  start(
    run: ChildRun,
    job: InvocationJob,
    origin: Origin,
  ): { begun: Promise<HandlerError | null>; ended: Promise<Ending> } {
    const begun = Promise.withResolvers<HandlerError | null>();
    this.#runs.set(run.id, run);
    const ended = this.#runToEnd(run, job, origin, begun.resolve).finally(() => this.#runs.delete(run.id));
    return { begun: begun.promise, ended };
  }

  /** @param onBegun resolves `begun` of {@link start}; only the first call takes effect */
  async #runToEnd(
    run: ChildRun,
    job: InvocationJob,
    origin: Origin,
    onBegun: (refused: HandlerError | null) => void,
  ): Promise<Ending> {
    const { signal } = run;
    const { family, depth } = origin;
    let verdict: Verdict | null;
    try {
      const begin = () => this.#begin(job, origin, onBegun);
      verdict = await this.#options.run({ job, signal, family, depth, begin, skipsCrowd: true });
    } catch (error) {
      this.#options.log.error({ error, invocation: job.id, tenant: job.tenant }, 'a child could not be run');
      // This call has no effect when the child had begun.
      onBegun(handlerError('internal', 'the platform failed before the child had begun'));
      verdict = { kind: 'silent' };
    }
    // This call has no effect when `#begin` has reported an outcome. Otherwise the child was stopped before it could begin.
    onBegun(handlerError(isLost(signal) ? 'terminated' : 'cancelled', PARENT_ENDED));
    switch (verdict?.kind) {
      case 'result':
        return { tag: 'success', val: verdict.output };
      case 'error':
        return failure(verdict.code, verdict.message);
      case 'silent':
        return this.#endWithoutVerdict(job.id, signal);
      case undefined:
        return failure('internal', 'The child ended without having begun.');
    }
  }

  /**
   * Stores the record of a child, which begins its attempt.
   *
   * @param onBegun gets the outcome: null, or the error for the parent
   */
  async #begin(
    job: InvocationJob,
    origin: Origin,
    onBegun: (refused: HandlerError | null) => void,
  ): Promise<AttemptOutcome> {
    const { invocations, runtimeId, live } = this.#options;
    const { id, tenant, function: name, version, submittedAt, deadlineMs, arrival, parent = '', functionOwner } = job;
    const outcome = await invocations
      .beginChild(
        {
          id,
          tenant,
          function: name,
          version,
          submittedAt,
          deadlineMs,
          arrival,
          parent,
          runtimeId,
          parentEpoch: origin.epoch,
          root: origin.family.root.id,
          ...(functionOwner !== undefined && { functionOwner }),
        },
        origin.token,
        live !== undefined,
      )
      .catch((error: unknown) => {
        if (error instanceof QuotaExceeded) return error;
        throw error;
      });
    if (outcome instanceof QuotaExceeded) {
      onBegun(handlerError('limit-exceeded', outcome.message));
      return { refused: 'ended' };
    }
    if ('refused' in outcome) {
      const refusal =
        outcome.refused === 'not-deployed'
          ? handlerError('not-found', `${name}@${version} is no longer deployed`)
          : handlerError('cancelled', PARENT_ENDED);
      onBegun(refusal);
      return { refused: 'ended' };
    }
    onBegun(null);
    return { ...outcome, attempt: 1, usageBefore: null, queuedAt: submittedAt };
  }

  /** Ends a child that has no verdict from this runtime, and returns the ending that the store has for it. */
  async #endWithoutVerdict(id: string, signal: AbortSignal): Promise<Ending> {
    const { invocations, events, runtimeId, log } = this.#options;
    const lost = failure('runtime-lost', 'The runtime that ran this invocation was lost.');
    try {
      const message = 'The runtime stopped without ending this invocation.';
      const failOutcome = await untilStored(() => invocations.fail(id, 'internal', message, runtimeId), signal);
      // `untilStored` returns null once this runtime was declared dead. The reaper then ends the child as lost.
      if (failOutcome === null) return lost;
      const record = await untilStored(() => invocations.get(id), signal);
      if (record === null) return lost;
      if (record.failure) return failure(record.failure.code, record.failure.message);
      const terminal = await untilStored(() => events.terminal(id, record), signal);
      const result = terminal?.event === 'result' ? partsOf(terminal.data) : null;
      return result ? { tag: 'success', val: result.output } : lost;
    } catch (error) {
      log.error({ error, invocation: id }, 'the end of a child could not be recorded');
      return failure('internal', 'The runtime could not record how the child ended.');
    }
  }
}

function failure(code: string, message: string): Ending {
  return { tag: 'failure', val: { code, message } };
}
