import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import type { Inbox } from '#scheduler/invocations/inbox.ts';
import type { Invocations } from '#scheduler/invocations/invocations.ts';
import type { EventLog } from '#scheduler/invocations/log.ts';
import { type AttemptOutcome, type InvocationEvent, partsOf } from '#scheduler/invocations/types.ts';
import type { LiveServer } from '#scheduler/live/server.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import { Shares } from '#scheduler/policies/shares.ts';
import { QuotaExceeded } from '#scheduler/quotas/exceeded.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import type { Ending, Message } from '#wit/generated/host.ts';
import { fromStore, type StoreQueues } from '../host/services/ask.ts';
import type { ChildLauncher, MessageReader, RunningChild } from '../host/services/services.ts';
import type { Deadline } from '../host/session/inferlet.ts';

import type { TextUser } from '../texts/service.ts';
import {
  type ChildJobs,
  childJob,
  findFunction,
  type ParentJob,
  quoted,
  referenceOf,
  refuseInput,
} from './child-job.ts';
import type { Family } from './family.ts';
import type { Stop } from './stopping.ts';
import { isLost, untilStored } from './stored.ts';
import type { Verdict } from './verdict.ts';

/** An inferlet that launches children. */
export interface Parent {
  readonly job: InvocationJob;
  /** Epoch of the parent's running attempt. */
  readonly epoch: number;
  /** Generations between the parent and its root. */
  readonly depth: number;
  readonly family: Family;
  readonly grants: Grants;
  readonly deadline: Deadline;
  /** The tenant and the account that pay for the checks of the children's inputs. */
  readonly texts: TextUser;
  /** Takes the parent's place in the age order of the GPU hosts first, so that its children count as newer: the newest loses its memory first. */
  readonly takePlaces: () => void;
}

interface Launching {
  readonly run: ChildRun | null;
  readonly outcome: Outcome<RunningChild>;
  /** The child's ending; null when the child never began. */
  readonly ended: Promise<Ending | null>;
}

/**
 * The children of one inferlet. Children bypass admission: they run at once, in this runtime, on the resources that their root was admitted
 * for, so that a parent never waits for a child that cannot be admitted. No child outlives its parent.
 */
export class Children implements ChildLauncher {
  readonly #runs: ChildRuns;
  readonly #parent: Parent;
  readonly #running = new Set<ChildRun>();
  /** Launches under way, and children that have begun and not ended. */
  readonly #openChildren = new Set<Promise<unknown>>();
  #stopReason: Stop | null = null;

  constructor(runs: ChildRuns, parent: Parent) {
    this.#runs = runs;
    this.#parent = parent;
  }

  async launch(reference: string, input: string): Promise<Outcome<RunningChild>> {
    const refused = this.#refusal(reference) ?? refuseInput(input) ?? this.#enter();
    if (refused) return err(refused);
    const launching = this.#launch(reference, input);
    this.#track(this.#leaveAfter(launching));
    return (await launching).outcome;
  }

  stop(reason: HandlerError): void {
    const { tag, val } = reason;
    const code = tag === 'terminated' || tag === 'deadline-exceeded' ? tag : 'cancelled';
    this.#stop({ code, message: `Its parent was stopped: ${val}` });
  }

  /** Stops the children without grace: the parent's code no longer runs, so nothing reads their last messages. */
  end(): void {
    this.#stop({ code: 'cancelled', message: 'Its parent has ended.', graceMs: 0 });
  }

  /** Abandons the children: this runtime was declared dead, so the reaper ends them. */
  abandon(message: string): void {
    this.#stop({ code: 'runtime-lost', message });
  }

  /**
   * Resolves when each child has its terminal event, or when this runtime will never write that event. Call it after `stop`, `end` or `abandon`,
   * which also prevent further launches.
   */
  async settled(): Promise<void> {
    while (this.#openChildren.size > 0) await Promise.all(this.#openChildren);
  }

  #stop(reason: Stop): void {
    this.#stopReason ??= reason;
    for (const run of this.#running) run.stop(reason);
  }

  #refusal(reference: string): HandlerError | null {
    if (this.#stopReason) return handlerError('cancelled', this.#stopReason.message);
    const { launch } = this.#parent.grants;
    const { name } = referenceOf(reference);
    if (launch === '*' || launch.includes(name)) return null;
    const text = `this function may not launch ${quoted(name)}: name it in the manifest's grants.launch`;
    return handlerError('unsupported', text);
  }

  /** Counts a new child in its family and in this runtime; returns an error when a limit forbids the child. */
  #enter(): HandlerError | null {
    const { family, depth, job } = this.#parent;
    const refused = this.#runs.enter(job.tenant);
    if (refused) return refused;
    const full = family.enter(depth);
    if (full) this.#runs.leave(job.tenant);
    return full;
  }

  /** Stops counting a child. @param begun false when the child never began */
  #leave(begun: boolean): void {
    this.#parent.family.leave(begun);
    this.#runs.leave(this.#parent.job.tenant);
  }

  async #launch(reference: string, input: string): Promise<Launching> {
    const failWith = (error: HandlerError): Launching => ({
      run: null,
      outcome: err(error),
      ended: Promise.resolve(null),
    });
    const { job, epoch, family } = this.#parent;
    const found = await this.#runs.find(job, reference);
    if (found.tag === 'err') return failWith(found.val);
    // The parent pays for the CPU time, because a schema may be slow to check.
    const checked = await this.#runs.jobs.texts.check(this.#parent.texts, input, found.val);
    if (checked.tag === 'err') return failWith(checked.val);
    if (this.#stopReason) return failWith(handlerError('cancelled', this.#stopReason.message));
    this.#parent.takePlaces();
    const leftMs = this.#parent.deadline.leftMs;
    const child = childJob(this.#runs.jobs, job, family.root, found.val, input, leftMs);
    const run = this.#runs.create(child);
    this.#running.add(run);
    const { begun, ended } = this.#runs.start(run, child, {
      epoch,
      depth: this.#parent.depth + 1,
      family,
      token: randomUUID(),
    });
    const refused = await begun;
    return { run, outcome: refused ? err(refused) : ok(run), ended };
  }

  /** Stops counting a child once it has ended or cannot begin. The parent learns of the ending only afterwards. */
  async #leaveAfter(launching: Promise<Launching>): Promise<void> {
    let begun = false;
    const whenEnded = launching.then(({ run, outcome, ended }) => {
      begun = outcome.tag === 'ok';
      return ended.finally(() => run && this.#running.delete(run));
    });
    const ending = await whenEnded.finally(() => this.#leave(begun));
    const { run } = await launching;
    if (run && ending) run.settle(ending);
  }

  #track(child: Promise<unknown>): void {
    const tracked = child.catch(() => undefined).finally(() => this.#openChildren.delete(tracked));
    this.#openChildren.add(tracked);
  }
}

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

/** Maximum characters of a result that are kept in memory for the parent; a longer result is read from the child's log. */
const MAX_KEPT_RESULT = 4096;

export interface ChildRunOptions extends MessageSource {
  readonly inbox: Inbox;
}

/**
 * One child, as long as its parent has a handle to it. An ended child takes little memory: the parent reads the child's messages, and a long
 * result, from the child's event log.
 */
export class ChildRun implements RunningChild {
  readonly id: string;
  readonly #options: ChildRunOptions;
  readonly #stop = new AbortController();
  readonly #ended = Promise.withResolvers<void>();
  /** Null while the child runs, and when it succeeded with a result too long to keep. */
  #keptEnding: Ending | null = null;
  #storedBytes = 0;

  constructor(options: ChildRunOptions) {
    this.id = options.id;
    this.#options = options;
  }

  /** Aborts with a `Stop`. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  get ended(): Promise<unknown> {
    return this.#ended.promise;
  }

  /** Records how the child ended, once its terminal event is stored. */
  settle(ending: Ending): void {
    if (ending.tag === 'success' && ending.val.length > MAX_KEPT_RESULT) {
      this.#storedBytes = Buffer.byteLength(ending.val);
    } else this.#keptEnding = ending;
    this.#ended.resolve();
  }

  /**
   * @param refusalOf returns an error when unread results leave no room for a result of this many bytes, else null; see `RunningChild.ending`
   */
  async ending(refusalOf: (bytes: number) => HandlerError | null): Promise<Outcome<Ending>> {
    await this.#ended.promise;
    if (this.#keptEnding) return ok(this.#keptEnding);
    return this.#options.read(this.#storedBytes, () => this.#readStored(refusalOf));
  }

  async #readStored(refusalOf: (bytes: number) => HandlerError | null): Promise<Outcome<Ending>> {
    const refused = refusalOf(this.#storedBytes);
    if (refused) return err(refused);
    const lastEvent = await this.#options.events.last(this.id);
    const output = lastEvent?.event === 'result' ? (partsOf(lastEvent.data)?.output ?? null) : null;
    return output === null
      ? err(handlerError('closed', 'the result of the child is not kept any more'))
      : ok({ tag: 'success', val: output });
  }

  stop(reason: Stop): void {
    if (!this.#stop.signal.aborted) this.#stop.abort(reason);
  }

  cancel(message: string): void {
    this.stop({ code: 'cancelled', message });
  }

  async send(message: Message): Promise<Outcome<undefined>> {
    try {
      const content = message.tag === 'text' ? { text: message.val } : { bytes: message.val };
      switch (await this.#options.inbox.push(this.id, content)) {
        case 'ok':
          return ok(undefined);
        case 'full':
          return err(handlerError('limit-exceeded', 'too many messages wait for the child to receive them'));
        case 'too-large':
          return err(handlerError('limit-exceeded', 'the message is too large; send it in parts'));
        case 'closed':
          return err(handlerError('closed', 'the session with the child is already closed'));
        case 'ended':
        case 'unknown':
          return err(handlerError('closed', 'the child has ended'));
      }
    } catch (error) {
      return err(fromStore(error));
    }
  }

  async closeInbox(): Promise<void> {
    await untilStored(() => this.#options.inbox.close(this.id), this.signal);
  }

  messages(signal: AbortSignal): MessageReader {
    const messages = new ChildMessages(this.#options, signal);
    this.#ended.promise.then(() => messages.end());
    return messages;
  }
}

/** Bounds the events of a running child that are read ahead of a slow parent: a read ends after 2 events, and at most 64 KiB wait. */
const READ_AHEAD = { readCount: 2, maxWaitingLength: 64 * 1024 };
const RETRY_MS = 200;

/** Maximum bytes that a read of one entry returns: a single event of the largest size. */
const MAX_ENTRY_BYTES = 1 << 20;

/** The child whose messages are read. */
export interface MessageSource {
  readonly id: string;
  readonly tenant: string;
  readonly events: EventLog;
  /** Makes a call to the store that reads up to `bytes`, once the tenant's queue has room. */
  readonly read: <T>(bytes: number, call: () => Promise<T>) => Promise<T>;
}

/**
 * Reads the messages of a child from its event log, as a client would. It keeps only a few messages that it has read ahead, so a parent that
 * reads late or never costs little memory. It follows the log only while the child runs: for an ended child it keeps no more than a position
 * in the log.
 */
export class ChildMessages {
  readonly #source: MessageSource;
  readonly #signal: AbortSignal;
  #followedEvents: AsyncIterableIterator<InvocationEvent, void> | null = null;
  #readAhead: InvocationEvent[] = [];
  #lastSeq = 0;
  #isReading = false;
  #ended = false;

  /** @param signal aborts when the parent stops reading */
  constructor(source: MessageSource, signal: AbortSignal) {
    this.#source = source;
    this.#signal = signal;
  }

  /** The next message; null after the last. Calls must not overlap. @throws StoreError for a fault of the platform */
  async next(): Promise<Message | null> {
    this.#isReading = true;
    try {
      for (;;) {
        const event = await this.#eventThroughOutage();
        if (!event) return null;
        this.#lastSeq = event.seq;
        const message = event.event === 'message' ? messageOf(event.data) : null;
        if (message) return message;
      }
    } finally {
      this.#isReading = false;
      if (this.#ended) this.#unfollow();
    }
  }

  /** Stops following: the child has ended, and its log has all its messages. */
  end(): void {
    this.#ended = true;
    if (!this.#isReading) this.#unfollow();
  }

  /** Drops the messages that were read ahead: the parent reads no more. */
  close(): void {
    this.#readAhead = [];
    this.end();
  }

  async #eventThroughOutage(): Promise<InvocationEvent | null> {
    while (!this.#signal.aborted) {
      try {
        return await this.#event();
      } catch (error) {
        this.#unfollow();
        const { code } = StoreError.from(error);
        // The child's record is gone: no more events can come.
        if (code === 'invalid-argument') return null;
        if (code !== 'store-unavailable') throw error;
        await sleep(RETRY_MS);
      }
    }
    return null;
  }

  async #event(): Promise<InvocationEvent | null> {
    if (this.#ended) return this.#nextStored();
    const { id, tenant, events } = this.#source;
    this.#followedEvents ??= events.follow(id, this.#lastSeq, this.#signal, { tenant, ...READ_AHEAD });
    const next = await this.#followedEvents.next();
    return next.done ? null : next.value;
  }

  async #nextStored(): Promise<InvocationEvent | null> {
    const ahead = this.#readAhead.shift();
    if (ahead) return ahead;
    // Read one entry of the log: some kilobytes, or a single event.
    const { id, events, read } = this.#source;
    const from = { epoch: null, seq: this.#lastSeq };
    const [first, ...others] = (await read(MAX_ENTRY_BYTES, () => events.readSome(id, from, 1))).events;
    this.#readAhead = others;
    return first ?? null;
  }

  #unfollow(): void {
    this.#followedEvents?.return?.().catch(() => undefined);
    this.#followedEvents = null;
  }
}

/** The message in a `message` event; null when the event announces a file. */
function messageOf(data: string): Message | null {
  const content = JSON.parse(data) as { readonly text?: string; readonly base64?: string };
  if (content.text !== undefined) return { tag: 'text', val: content.text };
  if (content.base64 !== undefined) return { tag: 'bytes', val: Buffer.from(content.base64, 'base64') };
  return null;
}
