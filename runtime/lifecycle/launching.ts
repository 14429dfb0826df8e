import type { InvocationJob } from '#scheduler/admission/job.ts';
import { quarantineText, type Standing } from '#scheduler/quarantine/policy.ts';
import { LaunchError, type Launched, type Launcher } from './launch.ts';

/** Most versions whose bad standing is remembered; the oldest is evicted first. */
const MAX_REMEMBERED = 1024;

const nameOf = ({ tenant, function: name, version }: InvocationJob): string => `${tenant}/${name}@${version}`;

/**
 * Launches instances for attempts. The instance is prepared while the store begins the attempt. It is discarded if the store refuses the
 * attempt or requires a sandbox of its own. A version last known to stand badly is not prepared before the store answers.
 */
export class Launches {
  readonly #launcher: Launcher;
  readonly #suspects = new Set<string>();

  constructor(launcher: Launcher) {
    this.#launcher = launcher;
  }

  begin(job: InvocationJob): Launching {
    const name = nameOf(job);
    return new Launching(this.#launcher, job, !this.#suspects.has(name), (standing) => {
      this.#suspects.delete(name);
      if (standing === 'clear') return;
      this.#suspects.add(name);
      const [oldest] = this.#suspects;
      if (this.#suspects.size > MAX_REMEMBERED && oldest !== undefined) this.#suspects.delete(oldest);
    });
  }
}

/** The launch of one attempt's instance. */
export class Launching {
  readonly #launcher: Launcher;
  readonly #job: InvocationJob;
  readonly #learn: (standing: Standing) => void;
  readonly #early: Promise<Launched | LaunchError> | null;
  /** When the last launch ended, milliseconds since the Unix epoch. */
  at = Date.now();

  constructor(launcher: Launcher, job: InvocationJob, early: boolean, learn: (standing: Standing) => void) {
    this.#launcher = launcher;
    this.#job = job;
    this.#learn = learn;
    this.#early = early ? this.#launch(false) : null;
  }

  /** The instance for an attempt that has begun; throws nothing. */
  async launched(standing: Standing): Promise<Launched | LaunchError> {
    this.#learn(standing);
    if (standing === 'clear') return this.#early ?? this.#launch(false);
    void this.dispose();
    const { function: name, version } = this.#job;
    if (standing === 'quarantined') return new LaunchError('quarantined', quarantineText(name, version));
    return this.#launch(true);
  }

  /** Discards the early instance; resolves when it is disposed of. */
  async dispose(): Promise<void> {
    const unused = await this.#early;
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
      this.at = Date.now();
    }
  }
}

function asLaunchError(error: unknown): LaunchError {
  if (error instanceof LaunchError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new LaunchError('internal', `The inferlet could not be started: ${message}`, { cause: error });
}
