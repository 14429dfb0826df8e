import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import type { Config } from './config.ts';
import type { Logger } from './log.ts';

/** A bundled function that this start of the platform has not deployed yet. */
const pendingSchema = z.object({
  name: z.string(),
  /** True for a function without which the platform is not ready. */
  isAwaited: z.boolean(),
  /** `waiting`: its first turn has not come. `building`: its turn. `failed`: the last try failed, and the next one comes at `nextTryAt`. */
  state: z.enum(['waiting', 'building', 'failed']),
  /** Failed tries. */
  tries: z.int().nonnegative(),
  /** Why the last try failed, in words. */
  why: z.string().optional(),
  /** Milliseconds since the Unix epoch. */
  nextTryAt: z.number().optional(),
});
export type PendingFunction = Readonly<z.output<typeof pendingSchema>>;

/**
 * The bundled functions that a start still has to deploy, in a file of the run directory: the supervisor writes it, and the gateway reads it for
 * `/readyz` and for requests that name such a function. The file of a start that was stopped stays, so that the gateway does not become ready while
 * it drains; the next start replaces it.
 */
export class PendingFunctions {
  readonly #file: string;
  readonly #log: Logger;
  readonly #functions: Map<string, PendingFunction>;

  /** @param awaited names of the functions that this start deploys before it serves; `later`: of those that it deploys while it serves */
  constructor(
    config: Pick<Config, 'runDirectory'>,
    { awaited, later, log }: { awaited: readonly string[]; later: readonly string[]; log: Logger },
  ) {
    this.#file = fileOf(config);
    this.#log = log;
    const all = [...awaited.map((name) => ({ name, isAwaited: true })), ...later.map((name) => ({ name }))];
    this.#functions = new Map(
      all.map(({ name, ...rest }) => [name, { name, isAwaited: false, state: 'waiting', tries: 0, ...rest }]),
    );
    this.#write();
  }

  get(name: string): PendingFunction | undefined {
    return this.#functions.get(name);
  }

  /** Changes the state of functions that are not deployed yet. */
  change(names: readonly string[], change: Partial<Omit<PendingFunction, 'name'>>): void {
    for (const name of names) {
      const pending = this.#functions.get(name);
      if (pending) this.#functions.set(name, { ...pending, ...change });
    }
    this.#write();
  }

  /** Removes functions that are deployed. A gateway that starts later must not wait for a function that an operator has removed since. */
  deployed(names: readonly string[]): void {
    for (const name of names) this.#functions.delete(name);
    this.#write();
  }

  #write(): void {
    try {
      if (this.#functions.size === 0) rmSync(this.#file, { force: true });
      else {
        // A reader gets the old file or the new one, and no part of a file.
        writeFileSync(`${this.#file}.new`, JSON.stringify([...this.#functions.values()]));
        renameSync(`${this.#file}.new`, this.#file);
      }
    } catch (error) {
      // A full disk must not end the supervisor.
      this.#log.error({ error }, 'the list of functions that are not deployed yet cannot be written');
    }
  }
}

/** The functions that the start under way has not deployed yet; none when there is no start, or its file cannot be read. */
export function pendingFunctions(config: Pick<Config, 'runDirectory'>): readonly PendingFunction[] {
  let text: string;
  try {
    text = readFileSync(fileOf(config), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
  return z.array(pendingSchema).parse(JSON.parse(text));
}

function fileOf({ runDirectory }: Pick<Config, 'runDirectory'>): string {
  return path.join(runDirectory, 'pending-functions.json');
}
