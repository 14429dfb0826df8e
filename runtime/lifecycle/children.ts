import { randomUUID } from 'node:crypto';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import type { Ending } from '#wit/generated/host.ts';
import type { ChildLauncher, RunningChild } from '../host/children.ts';
import type { Deadline } from '../host/inferlet.ts';
import type { TextUser } from '../texts/service.ts';
import { childJob, quoted, referenceOf, refuseInput } from './child-job.ts';
import type { ChildRun } from './child-run.ts';
import type { ChildRuns } from './child-runs.ts';
import type { Family } from './family.ts';
import type { Stop } from './stopping.ts';

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
