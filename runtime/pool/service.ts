import { type DeployedFunction, fromMember, memberOf, servedVersions } from '#scheduler/functions/functions.ts';
import { resolveLimits } from '#scheduler/functions/manifest.ts';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { type FunctionLauncher, programKey } from './launcher.ts';
import type { InstancePool } from './pool.ts';

export interface ServiceOptions {
  readonly scheduler: Pick<Scheduler, 'functions' | 'releases'>;
  readonly launcher: Pick<FunctionLauncher, 'prepare'>;
  readonly pool: Pick<InstancePool, 'keep' | 'release'>;
  /** Of a function whose manifest asks for nothing. */
  readonly limits: InvocationLimits;
  readonly onError: (error: unknown) => void;
}

/** Programs that are made ready before anybody asks, besides those whose manifests ask for ready instances. */
const MAX_PREPARED = 64;

/** What a served version asks of the pool. */
interface Wish {
  readonly version: FunctionVersion;
  readonly key: string;
  readonly memoryMb: number;
  readonly min: number;
}

/**
 * Keeps instances ready of every version that an alias of any tenant serves, as its manifest asks, and lets go of those that left service. It is
 * told of changes, and reads everything once at its start and whenever it may have missed one.
 */
export class Service {
  readonly #options: ServiceOptions;
  /** By function, `<tenant>/<name>`. */
  readonly #wishes = new Map<string, readonly Wish[]>();
  readonly #prepared = new Set<string>();
  /** Functions to look at again; `all` for every one. */
  readonly #changed = new Set<string>();
  #all = false;
  #working: Promise<void> | null = null;
  #stop: (() => void) | null = null;
  #closed = false;

  constructor(options: ServiceOptions) {
    this.#options = options;
  }

  /** Begins; resolves when it hears of changes, with the work still under way. */
  async start(): Promise<void> {
    this.#stop = await this.#options.scheduler.releases.onChange((changed) => this.#note(changed));
    this.#note(null);
  }

  /** Resolves when everything that it was told of is done. */
  async settled(): Promise<void> {
    while (this.#working !== null) await this.#working;
  }

  /** Hears of nothing more; a program that is being prepared is not waited for. */
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
        await this.#takeAll(await functions.deployed());
      } else {
        const [member = ''] = this.#changed;
        this.#changed.delete(member);
        const { tenant, name } = fromMember(member);
        await this.#take(member, this.#wishesOf(await functions.read(tenant, name)));
      }
    }
  }

  async #takeAll(deployed: readonly DeployedFunction[]): Promise<void> {
    const wishes = new Map(deployed.map((found) => [memberOf(found.tenant, found.name), this.#wishesOf(found)]));
    for (const member of this.#wishes.keys()) if (!wishes.has(member)) await this.#take(member, []);
    // Those first that ask to be ready.
    const asks = (list: readonly Wish[]) => (list.some(({ min }) => min > 0) ? 0 : 1);
    for (const [member, list] of [...wishes].sort(([, a], [, b]) => asks(a) - asks(b))) await this.#take(member, list);
  }

  async #take(member: string, wishes: readonly Wish[]): Promise<void> {
    const { pool } = this.#options;
    const before = this.#wishes.get(member) ?? [];
    if (wishes.length === 0) this.#wishes.delete(member);
    else this.#wishes.set(member, wishes);
    for (const key of new Set([...before, ...wishes].map((wish) => wish.key))) {
      const served = [...this.#wishes.values()].flat().filter((wish) => wish.key === key);
      if (served.length > 0) {
        pool.keep(
          key,
          served.reduce((sum, { min }) => sum + min, 0),
        );
      } else {
        this.#prepared.delete(key);
        pool.release(key);
      }
    }
    for (const wish of wishes) await this.#prepare(wish);
  }

  async #prepare({ version, key, memoryMb, min }: Wish): Promise<void> {
    const { launcher } = this.#options;
    if (this.#closed || this.#prepared.has(key) || (min === 0 && this.#prepared.size >= MAX_PREPARED)) return;
    this.#prepared.add(key);
    // One that cannot be prepared says why at its first invocation; the others go on.
    await launcher.prepare(version, memoryMb).catch((error) => {
      this.#prepared.delete(key);
      this.#failed(error);
    });
  }

  /** Once it is closed, the store and the children that build are being taken away. */
  #failed(error: unknown): void {
    if (!this.#closed) this.#options.onError(error);
  }

  #wishesOf(found: DeployedFunction | null): readonly Wish[] {
    if (found === null) return [];
    return servedVersions(found).map((version) => {
      const { memoryMb } = resolveLimits(version.manifest, this.#options.limits);
      const key = programKey(version.componentHash, memoryMb);
      return { version, key, memoryMb, min: version.manifest.pool?.min ?? 0 };
    });
  }
}
