import { type DeployedFunction, fromMember, memberOf, servedVersions } from '#scheduler/functions/functions.ts';
import { resolveLimits } from '#scheduler/functions/manifest.ts';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { StoredProgram } from '../fleet/sandbox.ts';
import { type FunctionLauncher, programKey } from './launcher.ts';

export interface ServiceOptions {
  readonly scheduler: Pick<Scheduler, 'functions' | 'releases'>;
  readonly launcher: Pick<FunctionLauncher, 'read'>;
  readonly fleet: Pick<Fleet, 'keep'>;
  /** Limits of a function whose manifest sets none. */
  readonly limits: InvocationLimits;
  readonly onError: (error: unknown) => void;
}

/** Bound on programs read before their first launch, besides those whose manifests ask for ready instances. */
const MAX_PREPARED = 64;

/** Needs of a served version. */
interface Wish {
  readonly tenant: string;
  readonly version: FunctionVersion;
  readonly key: string;
  readonly memoryMb: number;
  readonly min: number;
}

/**
 * Keeps instances ready in the sandboxes of their tenants, for versions that an alias serves and whose manifests ask for them. Drops them
 * when the version leaves service. Listens to changes, and reads everything at its start and whenever it may have missed a change.
 */
export class Service {
  readonly #options: ServiceOptions;
  /** Wishes by function: `<tenant>/<name>`. */
  readonly #wishes = new Map<string, readonly Wish[]>();
  /** Programs that were read, by tenant and key. */
  readonly #read = new Map<string, StoredProgram>();
  /** Functions to read again; `#all` stands for every function. */
  readonly #changed = new Set<string>();
  #all = false;
  #working: Promise<void> | null = null;
  #stop: (() => void) | null = null;
  #closed = false;

  constructor(options: ServiceOptions) {
    this.#options = options;
  }

  /** Starts; resolves when it listens to changes, while the first reading still runs. */
  async start(): Promise<void> {
    this.#stop = await this.#options.scheduler.releases.onChange((changed) => this.#note(changed));
    this.#note(null);
  }

  /** Resolves when all known changes are handled. */
  async settled(): Promise<void> {
    while (this.#working !== null) await this.#working;
  }

  /** Stops listening; does not wait for a program that is being read. */
  close(): void {
    this.#closed = true;
    this.#stop?.();
  }

  #note(changed: { tenant: string; name: string } | null): void {
    if (changed === null) this.#all = true;
    else this.#changed.add(memberOf(changed.tenant, changed.name));
    this.#working ??= this.#work()
      .catch((error) => this.#failed(error))
      .finally(() => {
        this.#working = null;
      });
  }

  async #work(): Promise<void> {
    const { functions } = this.#options.scheduler;
    while (!this.#closed && (this.#all || this.#changed.size > 0)) {
      if (this.#all) {
        this.#all = false;
        this.#changed.clear();
        await this.#takeAll(functions.deployed());
      } else {
        const [member = ''] = this.#changed;
        this.#changed.delete(member);
        const { tenant, name } = fromMember(member);
        await this.#take(member, this.#wishesOf(await functions.read(tenant, name)));
      }
    }
  }

  async #takeAll(deployed: AsyncIterable<DeployedFunction>): Promise<void> {
    const wishes = new Map<string, readonly Wish[]>();
    for await (const found of deployed) wishes.set(memberOf(found.tenant, found.name), this.#wishesOf(found));
    for (const member of this.#wishes.keys()) if (!wishes.has(member)) await this.#take(member, []);
    // Functions that ask for ready instances go first.
    const asks = (list: readonly Wish[]) => (list.some(({ min }) => min > 0) ? 0 : 1);
    for (const [member, list] of [...wishes].sort(([, a], [, b]) => asks(a) - asks(b))) await this.#take(member, list);
  }

  async #take(member: string, wishes: readonly Wish[]): Promise<void> {
    const before = this.#wishes.get(member) ?? [];
    if (wishes.length === 0) this.#wishes.delete(member);
    else this.#wishes.set(member, wishes);
    for (const wish of wishes) await this.#readAhead(wish);
    for (const { tenant, key } of [...before, ...wishes]) {
      const program = this.#read.get(`${tenant}/${key}`);
      if (!program || this.#closed) continue;
      const served = [...this.#wishes.values()].flat().filter((wish) => wish.tenant === tenant && wish.key === key);
      this.#options.fleet.keep(
        tenant,
        program,
        served.reduce((sum, { min }) => sum + min, 0),
      );
      if (served.length === 0) this.#read.delete(`${tenant}/${key}`);
    }
  }

  async #readAhead({ tenant, version, key, memoryMb, min }: Wish): Promise<void> {
    const name = `${tenant}/${key}`;
    if (this.#closed || this.#read.has(name) || (min === 0 && this.#read.size >= MAX_PREPARED)) return;
    // A program that cannot be read fails at its first invocation with the reason; the other programs continue.
    await this.#options.launcher.read(version, memoryMb).then(
      (program) => this.#read.set(name, program),
      (error) => this.#failed(error),
    );
  }

  /** Ignores errors after `close`, when the store and the build processes are shutting down. */
  #failed(error: unknown): void {
    if (!this.#closed) this.#options.onError(error);
  }

  #wishesOf(found: DeployedFunction | null): readonly Wish[] {
    if (found === null) return [];
    return servedVersions(found).map((version) => {
      const { memoryMb } = resolveLimits(version.manifest, this.#options.limits);
      const key = programKey(version.componentHash, memoryMb);
      return { tenant: version.tenant, version, key, memoryMb, min: version.manifest.pool?.min ?? 0 };
    });
  }
}
