import { within } from '#gpu-host/protocol/within.ts';
import { unexpected } from '#runtime/unexpected.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import { quarantineText, type Standing } from '#scheduler/quarantine/policy.ts';
import { LaunchError, type Launched, type Launcher } from './launch.ts';

/** Maximum launches of one tenant in progress; above it, the tenant's attempts wait for their instances before they begin. */
const CROWD = 4;
/** Longest such wait: a launch that takes longer waits for something else than the processor, such as a compilation. */
const LONGEST_WAIT_MS = 50;
/** Maximum versions whose bad standing is remembered; the oldest is evicted first. */
const MAX_REMEMBERED = 1024;

const nameOf = ({ tenant, function: name, version }: InvocationJob): string => `${tenant}/${name}@${version}`;

/**
 * Launches instances for attempts. The early launch runs while the store begins the attempt. Its instance is discarded if the store refuses
 * the attempt, or requires a separate sandbox for it. A version whose last known standing was not `clear` gets no early launch.
 */
export class Launches {
  readonly #launcher: Launcher;
  /** Early launches in progress, by tenant. */
  readonly #inProgress = new Map<string, number>();
  readonly #suspects = new Set<string>();

  constructor(launcher: Launcher) {
    this.#launcher = launcher;
  }

  /** Number of launches that may begin now without a crowd. */
  get room(): number {
    return Math.max(0, CROWD - [...this.#inProgress.values()].reduce((sum, count) => sum + count, 0));
  }

  begin(job: InvocationJob): Launching {
    const name = nameOf(job);
    const launching = new Launching(this.#launcher, job, !this.#suspects.has(name), (standing) => {
      this.#suspects.delete(name);
      if (standing === 'clear') return;
      this.#suspects.add(name);
      const [oldest] = this.#suspects;
      if (this.#suspects.size > MAX_REMEMBERED && oldest !== undefined) this.#suspects.delete(oldest);
    });
    this.#count(job.tenant, 1);
    void launching.prepared().then(() => this.#count(job.tenant, -1));
    return launching;
  }

  /**
   * In a crowd, delays an attempt's beginning until its instance is ready, but not for long. Admission sends a runtime few invocations beyond
   * those that have begun, so the delay makes them arrive as fast as the machine starts instances. If all arrived at once, each would need a
   * new instance, although the first ones soon give theirs back.
   */
  async crowd(job: InvocationJob, launching: Launching): Promise<void> {
    if ((this.#inProgress.get(job.tenant) ?? 0) <= CROWD) return;
    await within(LONGEST_WAIT_MS, launching.prepared());
  }

  #count(tenant: string, change: number): void {
    const count = (this.#inProgress.get(tenant) ?? 0) + change;
    if (count > 0) this.#inProgress.set(tenant, count);
    else this.#inProgress.delete(tenant);
  }
}

/** The launch of one attempt's instance. */
export class Launching {
  readonly #launcher: Launcher;
  readonly #job: InvocationJob;
  readonly #learn: (standing: Standing) => void;
  readonly #earlyLaunch: Promise<Launched | LaunchError> | null;
  /** When the last launch ended, milliseconds since the Unix epoch. */
  endedAt = Date.now();

  constructor(launcher: Launcher, job: InvocationJob, launchesEarly: boolean, learn: (standing: Standing) => void) {
    this.#launcher = launcher;
    this.#job = job;
    this.#learn = learn;
    this.#earlyLaunch = launchesEarly ? this.#launch(false) : null;
  }

  /** The instance for an attempt that has begun; throws nothing. */
  async launched(standing: Standing): Promise<Launched | LaunchError> {
    this.#learn(standing);
    if (standing === 'clear') return this.#earlyLaunch ?? this.#launch(false);
    void this.dispose();
    const { function: name, version } = this.#job;
    if (standing === 'quarantined') return new LaunchError('quarantined', quarantineText(name, version));
    return this.#launch(true);
  }

  /** Resolves when the early launch is over; at once without one. */
  async prepared(): Promise<void> {
    await this.#earlyLaunch;
  }

  /** Discards the early instance; resolves when it is disposed of. */
  async dispose(): Promise<void> {
    const unused = await this.#earlyLaunch;
    if (unused !== null && !(unused instanceof LaunchError)) unused.run.dispose();
  }

  async #launch(alone: boolean): Promise<Launched | LaunchError> {
    const { id, tenant, function: name, version, limits, parent } = this.#job;
    const beside = parent === undefined ? {} : { beside: parent };
    const request = { tenant, function: name, version, memoryMb: limits.memoryMb, invocation: id, alone, ...beside };
    try {
      return await this.#launcher.launch(request);
    } catch (error) {
      return asLaunchError(error);
    } finally {
      this.endedAt = Date.now();
    }
  }
}

function asLaunchError(error: unknown): LaunchError {
  if (error instanceof LaunchError) return error;
  return new LaunchError('internal', `The inferlet could not be started: ${unexpected(error)}`, { cause: error });
}
