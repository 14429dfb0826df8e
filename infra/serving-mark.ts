import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Config } from './config.ts';
import type { Logger } from './log.ts';
import type { SupervisorEvent } from './supervisor/supervisor.ts';

/**
 * The file `serving` in the run directory. It exists while all processes of this machine are ready, so that a probe can test for it on a machine
 * of any role: `test -e $PIE_HOME/run/serving`. For a long PIE_HOME, the run directory is elsewhere (`shortDirectory` in config.ts).
 */
export class ServingMark {
  readonly #file: string;
  readonly #log: Logger;
  readonly #deadProcesses = new Set<string>();
  #isServing = false;

  /** Removes the file that a killed supervisor left. */
  constructor({ runDirectory }: Pick<Config, 'runDirectory'>, log: Logger) {
    this.#log = log;
    this.#file = path.join(runDirectory, 'serving');
    rmSync(this.#file, { force: true });
  }

  note({ kind, name }: SupervisorEvent): void {
    if (kind === 'died') this.#deadProcesses.add(name);
    else this.#deadProcesses.delete(name);
    this.#show();
  }

  /** Called when the start is over. */
  begin(): void {
    this.#isServing = true;
    this.#show();
  }

  /** Called when the drain begins. */
  end(): void {
    this.#isServing = false;
    this.#show();
  }

  #show(): void {
    try {
      if (this.#isServing && this.#deadProcesses.size === 0) writeFileSync(this.#file, '');
      else rmSync(this.#file, { force: true });
    } catch (error) {
      // A full disk must not end the supervisor.
      this.#log.error({ error }, 'the mark of a serving machine cannot be changed');
    }
  }
}
