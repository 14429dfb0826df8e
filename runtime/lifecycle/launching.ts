import { within } from '#gpu-host/protocol/within.ts';
import { unexpected } from '#runtime/unexpected.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import { quarantineText, type Standing } from '#scheduler/quarantine/policy.ts';
import { LaunchError, type Launched, type Launcher } from './launch.ts';

/** More launches of one tenant in progress than this are a crowd; the tenant's attempts then wait for their instances before they begin. */
const MAX_WITHOUT_CROWD = 4;
/** Longest wait in a crowd: a launch that takes longer waits for something other than the processor, such as a compilation. */
const LONGEST_WAIT_MS = 50;
/** Maximum versions remembered as suspects; the oldest is evicted first. */
const MAX_SUSPECTS = 1024;

const versionName = ({ tenant, function: name, version }: InvocationJob): string => `${tenant}/${name}@${version}`;

/**
 * Launches instances for attempts. An early launch runs while the store begins its attempt, before the version's standing (`clear`, `suspect` or
 * `quarantined`) is known. Its instance is discarded if the store refuses the attempt, or if the standing turns out not to be `clear`. A version
 * whose last known standing was not `clear` gets no early launch.
 */
export class Launches {
  readonly #launcher: Launcher;
  /** Early launches in progress, by tenant. */
  readonly #inProgress = new Map<string, number>();
  /** Names of the versions whose last known standing was not `clear`. */
  readonly #suspects = new Set<string>();

  constructor(launcher: Launcher) {
    this.#launcher = launcher;
  }

  /** Number of launches that may begin now without a crowd, even if all launches are of one tenant. */
  get room(): number {
    return Math.max(0, MAX_WITHOUT_CROWD - [...this.#inProgress.values()].reduce((sum, count) => sum + count, 0));
  }

  /** Begins the launch for an attempt, early if the version's last known standing allows. */
  begin(job: InvocationJob): Launching {
    const name = versionName(job);
    const launching = new Launching(this.#launcher, job, !this.#suspects.has(name), (standing) => {
      this.#suspects.delete(name);
      if (standing === 'clear') return;
      this.#suspects.add(name);
      const [oldest] = this.#suspects;
      if (this.#suspects.size > MAX_SUSPECTS && oldest !== undefined) this.#suspects.delete(oldest);
    });
    this.#count(job.tenant, 1);
    void launching.prepared().then(() => this.#count(job.tenant, -1));
    return launching;
  }

  /**
   * Waits, in a crowd of the tenant's launches, until this attempt's instance is ready, for at most 50 ms; the caller then begins the attempt.
   * Admission sends a runtime only few invocations beyond those that have begun, so these waits make invocations arrive as fast as the machine
   * starts instances. If all arrived at once, each would need a new instance, although earlier invocations soon give their instances back.
   */
  async crowd(job: InvocationJob, launching: Launching): Promise<void> {
    if ((this.#inProgress.get(job.tenant) ?? 0) <= MAX_WITHOUT_CROWD) return;
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
  /**
   * When the last launch ended (before that, when it began), milliseconds since the Unix epoch by this machine's clock.
   */
  endedAt = Date.now();

  /** @param learn called with the standing of the job's version once the store has told it */
  constructor(launcher: Launcher, job: InvocationJob, launchesEarly: boolean, learn: (standing: Standing) => void) {
    this.#launcher = launcher;
    this.#job = job;
    this.#learn = learn;
    this.#earlyLaunch = launchesEarly ? this.#launch(false) : null;
  }

  /** Resolves to the instance for an attempt that has begun, or to the error; never rejects. */
  async launched(standing: Standing): Promise<Launched | LaunchError> {
    this.#learn(standing);
    if (standing === 'clear') return this.#earlyLaunch ?? this.#launch(false);
    void this.dispose();
    const { function: name, version } = this.#job;
    if (standing === 'quarantined') return new LaunchError('quarantined', quarantineText(name, version));
    return this.#launch(true);
  }

  /** Resolves when the early launch is over, successful or not; at once without one. */
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
