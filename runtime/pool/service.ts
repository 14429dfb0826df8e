import { setImmediate as nextTurn } from 'node:timers/promises';
import { type DeployedFunction, fromMember, memberOf, servedVersions } from '#scheduler/functions/functions.ts';
import { resolveLimits } from '#scheduler/functions/manifest.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { retrying } from '#scheduler/store/connection.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { StoredProgram } from '../fleet/sandbox.ts';
import { type FunctionLauncher, programKey } from './launcher.ts';

export interface ServiceOptions {
  readonly scheduler: Pick<Scheduler, 'functions' | 'releases'>;
  readonly launcher: Pick<FunctionLauncher, 'read'>;
  readonly fleet: Pick<Fleet, 'keep'>;
  /** Limits of a function whose manifest sets none. */
  readonly limits: InvocationLimits;
  readonly log: Logger;
}

/**
 * Bound on programs that are read before their first launch. A program with ready instances counts towards the bound, but is read even beyond the
 * bound.
 */
const MAX_PREPARED = 64;

/** Number of functions that the service handles before the event loop gets a turn. */
const TAKEN_AT_ONCE = 256;

/** The program that a served version needs. Small, because a runtime keeps the demands of all functions of the platform. */
interface Demand {
  readonly tenant: string;
  readonly componentHash: string;
  readonly engine?: string;
  /** Key of the program, see `programKey`. */
  readonly key: string;
  readonly memoryMb: number;
  /** Number of ready instances that the manifest asks for. */
  readonly min: number;
}

/**
 * Keeps instances ready for the versions that an alias serves, as many as their manifests ask for, in sandboxes of the version's tenant. Drops them
 * when the version leaves service. Also reads the programs of other served versions before their first launch. Listens to changes, and reads all
 * functions at its start and whenever it may have missed a change.
 */
export class Service {
  readonly #options: ServiceOptions;
  /** Demands by function: `<tenant>/<name>`. */
  readonly #demands = new Map<string, readonly Demand[]>();
  /** Number of served versions of each program, and the ready instances that they ask for together, by tenant and key. */
  readonly #served = new Map<string, { readonly versions: number; readonly min: number }>();
  /** Programs of served versions that have been read, by tenant and key. */
  readonly #programs = new Map<string, StoredProgram>();
  /** Functions to read again; `#isAllChanged` stands for every function. */
  readonly #changed = new Set<string>();
  #isAllChanged = false;
  readonly #reading = retrying(
    () => this.#work(),
    (error) => {
      // The failed work has taken its changes off the list: read every function again.
      if (StoreError.from(error).code === 'store-unavailable') this.#isAllChanged = true;
      this.#reportError(error);
    },
  );
  #stop: (() => void) | null = null;
  #closed = false;

  constructor(options: ServiceOptions) {
    this.#options = options;
  }

  /** Resolves when the service listens to changes, while the first reading still runs. */
  async start(): Promise<void> {
    this.#stop = await this.#options.scheduler.releases.onChange((changed) => this.#note(changed));
    this.#note(null);
  }

  /** Resolves when all known changes are handled, or have failed. */
  settled(): Promise<void> {
    return this.#reading.run();
  }

  /** Stops listening; does not wait for a program that is being read. */
  close(): void {
    this.#closed = true;
    this.#reading.stop();
    this.#stop?.();
  }

  /** @param change the function that has changed; null when any may have */
  #note(change: { tenant: string; name: string } | null): void {
    if (change === null) this.#isAllChanged = true;
    else this.#changed.add(memberOf(change.tenant, change.name));
    void this.#reading.run();
  }

  async #work(): Promise<void> {
    const { functions } = this.#options.scheduler;
    while (!this.#closed && (this.#isAllChanged || this.#changed.size > 0)) {
      if (this.#isAllChanged) {
        this.#isAllChanged = false;
        this.#changed.clear();
        await this.#takeAll(functions.deployedFunctions());
      } else {
        const [member = ''] = this.#changed;
        this.#changed.delete(member);
        const { tenant, name } = fromMember(member);
        await this.#take(member, this.#demandsOf(await functions.read(tenant, name)));
      }
    }
  }

  /** Replaces the demands of all functions. */
  async #takeAll(deployed: AsyncIterable<DeployedFunction>): Promise<void> {
    const demands = new Map<string, readonly Demand[]>();
    for await (const found of deployed) demands.set(memberOf(found.tenant, found.name), this.#demandsOf(found));
    for (const member of this.#demands.keys()) if (!demands.has(member)) await this.#take(member, []);
    // Functions that ask for ready instances go first.
    const rank = (list: readonly Demand[]) => (list.some(({ min }) => min > 0) ? 0 : 1);
    const ordered = [...demands].sort(([, a], [, b]) => rank(a) - rank(b));
    for (const [i, [member, list]] of ordered.entries()) {
      await this.#take(member, list);
      if (i % TAKEN_AT_ONCE === TAKEN_AT_ONCE - 1) await nextTurn();
    }
  }

  /** Replaces the demands of a function: reads its programs, and tells the fleet the new numbers of ready instances. */
  async #take(member: string, demands: readonly Demand[]): Promise<void> {
    const previousDemands = this.#demands.get(member) ?? [];
    if (demands.length === 0) this.#demands.delete(member);
    else this.#demands.set(member, demands);
    for (const demand of previousDemands) this.#count(demand, -1);
    for (const demand of demands) this.#count(demand, 1);
    for (const demand of demands) await this.#readAhead(demand);
    for (const { tenant, key } of [...previousDemands, ...demands]) {
      const program = this.#programs.get(`${tenant}/${key}`);
      if (!program || this.#closed) continue;
      const served = this.#served.get(`${tenant}/${key}`);
      this.#options.fleet.keep(tenant, program, served?.min ?? 0);
      if (!served) this.#programs.delete(`${tenant}/${key}`);
    }
  }

  /** Adds a served version (sign 1), or takes it away (-1). */
  #count({ tenant, key, min }: Demand, sign: 1 | -1): void {
    const name = `${tenant}/${key}`;
    const counts = this.#served.get(name) ?? { versions: 0, min: 0 };
    const versions = counts.versions + sign;
    if (versions === 0) this.#served.delete(name);
    else this.#served.set(name, { versions, min: counts.min + sign * min });
  }

  async #readAhead({ key, memoryMb, min, ...version }: Demand): Promise<void> {
    const name = `${version.tenant}/${key}`;
    if (this.#closed || this.#programs.has(name) || (min === 0 && this.#programs.size >= MAX_PREPARED)) return;
    // A program that cannot be read fails at its first invocation with the reason; the other programs continue.
    await this.#options.launcher.read(version, memoryMb).then(
      (program) => this.#programs.set(name, program),
      (error) => this.#reportError(error),
    );
  }

  /** Ignores errors after `close`, when the store and the build processes are shutting down. */
  #reportError(error: unknown): void {
    if (!this.#closed)
      this.#options.log.warn({ error }, 'the ready instances of a function could not be brought up to date');
  }

  #demandsOf(deployedFunction: DeployedFunction | null): readonly Demand[] {
    if (deployedFunction === null) return [];
    return servedVersions(deployedFunction).map(({ tenant, manifest, componentHash, engine }) => {
      const { memoryMb } = resolveLimits(manifest, this.#options.limits);
      const key = programKey(componentHash, memoryMb);
      return { tenant, componentHash, ...(engine && { engine }), key, memoryMb, min: manifest.pool?.min ?? 0 };
    });
  }
}
