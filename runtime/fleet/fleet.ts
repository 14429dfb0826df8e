import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { beginWatch, look, type WatchLimits } from '#infra/supervisor/watch-policy.ts';
import { mainThreadTimes } from '#infra/supervisor/watchdog.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import { LaunchError } from '../lifecycle/launch.ts';
import { type CoreShares, CoreWatch } from './core-watch.ts';
import {
  alonePlaces,
  type FleetMember,
  type FleetPolicy,
  LAUNCH_LIMITS,
  type LaunchTimes,
  leastNeeded,
  outworn,
  pauseAfter,
  sparesToBegin,
  takesAnother,
} from './policy.ts';
import {
  type ProcessEnd,
  type ProcessEvents,
  Sandbox,
  type SandboxProcess,
  type StoredModule,
  type StoredProgram,
  withLastLines,
} from './sandbox.ts';
import { DevicePressure, MemoryWatch, SandboxWatch } from './watch.ts';

export interface FleetOptions {
  readonly policy: FleetPolicy;
  /** Starts the process of a sandbox. With `background`, the process yields the cores until its weight is changed. */
  readonly start: (events: ProcessEvents, background: boolean) => SandboxProcess;
  /** Memory that the guests of one sandbox may touch together. */
  readonly memoryMb: number;
  /** Tokenizers of the served models, by name; the fleet sends their tables to spares in advance. */
  readonly tokenizers?: () => Promise<ReadonlyMap<string, { readonly tokenizer: Tokenizer | null }>>;
  /** True while any GPU host has a pending call of this runtime. */
  readonly deviceBusy: () => boolean;
  /** Makes sandboxes that compute much yield the cores; without it, no sandbox yields. */
  readonly cores?: CoreShares | null;
  /** Called with the invocations that may have computed in a lost sandbox; `alone` when the sandbox held only one run. */
  readonly onLoss?: (invocations: readonly string[], alone: boolean) => Promise<void>;
  readonly log: Logger;
}

/**
 * The fleet kills a sandbox that is not ready although its main thread has computed or stood still for this long. Time in which it waits for a core
 * does not count: a start in the background gets only a sixth of its usual share of contended cores.
 */
const READY: WatchLimits = { everyMs: 1000, computingMs: 20_000, stillMs: 20_000 };
/** The fleet kills a sandbox that is not ready after this time, whatever it did. */
const MAX_START_MS = 120_000;
/** Longest time that a launch waits, while every sandbox has runs, for one of them to become idle. */
const PLACE_DEADLINE_MS = 30_000;
/**
 * A lone run has a sandbox to itself, so that a loss can be attributed to it. A run waits at most this long while its tenant has as many
 * sandboxes for lone runs as it may have. Then the run joins the tenant's other runs.
 */
const ALONE_PATIENCE_MS = 10_000;
/** Time between two reviews, which end idle sandboxes and begin missing spares. A spare is a sandbox without a tenant. */
const REVIEW_MS = 1000;
const LATE_SANDBOX = `No sandbox was ready within ${MAX_START_MS / 1000} s, because the machine is busy or sandboxes do not start. Try again; the runtime's log names failed starts.`;
const NO_SANDBOX = "No sandbox could be started; the runtime's log says why.";
/** Delay before the next spare begins after a spare was taken. */
const NEXT_SPARE_MS = 100;
/** A sandbox counts as used for this long after a tenant got it, because the tenant's launch may not have reached it yet. */
const CLAIM_MS = 1000;
/** Maximum invocations of a lost sandbox that its record names. Each has its own record, too. */
const MAX_NAMED = 16;
/** Maximum total bytes of the modules that spares get in advance. */
const MAX_PRELOADED_BYTES = 8 << 20;
/** Maximum total bytes of the preloaded modules that spares also compile. Machine code takes about ten times the memory of its module. */
const MAX_COMPILED_BYTES = 2 << 20;

/** A tenant's sandbox, or the search for one; `sandbox` is null until it is found. */
interface Place {
  readonly found: Promise<Sandbox>;
  sandbox: Sandbox | null;
}

interface KeptProgram {
  readonly program: StoredProgram;
  readonly min: number;
}

/** The sandboxes of a runtime: one for each tenant with runs, more for a busy tenant, and spares without a tenant. */
export class Fleet {
  readonly #options: FleetOptions;
  readonly #sandboxes = new Set<Sandbox>();
  /** Places by tenant; a tenant's first sandbox keeps the ready instances. */
  readonly #places = new Map<string, readonly Place[]>();
  /** Number of each tenant's sandboxes for lone runs, including those still being found. */
  readonly #loneCounts = new Map<string, number>();
  /** Programs that ask for ready instances, by tenant and key. */
  readonly #keptPrograms = new Map<string, Map<string, KeptProgram>>();
  readonly #shared = new SharedModules(MAX_PRELOADED_BYTES);
  /** Times at which tenants got their sandboxes. */
  readonly #claims = new WeakMap<Sandbox, number>();
  /** Launches that wait for a place. */
  readonly #wakers = new Set<() => void>();
  readonly #closing = new AbortController();
  readonly #review: NodeJS.Timeout;
  readonly #watch = new SandboxWatch(() => this.#sandboxes);
  readonly #pressure: DevicePressure;
  readonly #memory: MemoryWatch;
  readonly #cores: CoreWatch | null;
  /** The sandbox that is starting; one starts at a time. */
  #starting: Sandbox | null = null;
  /** True when a launch waits for the sandbox that is starting, or that starts after a pause. */
  #hurried = false;
  /** Number of sandboxes that are starting, or that start after a pause. */
  #beginningCount = 0;
  /** Number of failed starts since the last sandbox was ready. */
  #failures = 0;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#memory = new MemoryWatch(() => this.#sandboxes, options.memoryMb);
    this.#pressure = new DevicePressure(() => this.#sandboxes, options.deviceBusy);
    this.#cores = options.cores ? new CoreWatch(() => this.#living(), options.cores) : null;
    this.#review = setInterval(() => this.#look(), REVIEW_MS).unref();
    this.#look();
  }

  /** The live sandboxes, including spares. */
  get sandboxes(): ReadonlySet<Sandbox> {
    return this.#sandboxes;
  }

  /** Number of ready instances in all sandboxes. */
  get readyInstances(): number {
    return [...this.#sandboxes].reduce((sum, { readyInstances }) => sum + readyInstances, 0);
  }

  /**
   * Returns a sandbox of the tenant: the one that runs the invocation `beside`, or the one with the fewest runs. The first call gives the
   * tenant a sandbox. A busy tenant takes spares up to its bound and does not wait for them. @throws LaunchError
   */
  async of(tenant: string, beside?: string): Promise<Sandbox> {
    const places = this.#places.get(tenant) ?? [];
    const [first] = places;
    if (!first) return this.#settle(tenant, this.#find(tenant));
    const settledSandboxes = places.map(({ sandbox }) => sandbox).filter((sandbox) => sandbox !== null);
    const neighbour = beside === undefined ? undefined : settledSandboxes.find((sandbox) => sandbox.holds(beside));
    if (neighbour) return neighbour;
    const spare = this.#spare();
    const runs = settledSandboxes.map((sandbox) => sandbox.runs);
    if (spare && settledSandboxes.length === places.length && takesAnother(runs, this.#options.policy)) {
      return this.#settle(tenant, Promise.resolve(this.#bind(spare, tenant, false)));
    }
    return settledSandboxes.sort((a, b) => a.runs - b.runs)[0] ?? first.found;
  }

  /** Gives a tenant a place in the sandbox that `found` resolves to. */
  async #settle(tenant: string, found: Promise<Sandbox>): Promise<Sandbox> {
    const place: Place = { found, sandbox: null };
    this.#places.set(tenant, [...(this.#places.get(tenant) ?? []), place]);
    try {
      place.sandbox = await found;
      return place.sandbox;
    } catch (error) {
      this.#forget(tenant, place);
      throw error;
    }
  }

  #forget(tenant: string, place: Place): void {
    const remainingPlaces = (this.#places.get(tenant) ?? []).filter((other) => other !== place);
    if (remainingPlaces.length > 0) this.#places.set(tenant, remainingPlaces);
    else this.#places.delete(tenant);
  }

  /**
   * Returns a sandbox that serves one run of a tenant and then ends. If the tenant has as many sandboxes for lone runs as it may have, waits up to
   * 10 s for one of them to end. Then it returns a shared sandbox, although a loss of that sandbox cannot be attributed to one run.
   * @throws LaunchError
   */
  async alone(tenant: string): Promise<Sandbox> {
    const untilMs = performance.now() + ALONE_PATIENCE_MS;
    const countLone = () => this.#loneCounts.get(tenant) ?? 0;
    while (countLone() >= alonePlaces(this.#options.policy, availableParallelism())) {
      if (!(await this.#waitForChange(untilMs))) return this.of(tenant);
    }
    this.#loneCounts.set(tenant, countLone() + 1);
    const leave = () => {
      const remainingCount = countLone() - 1;
      if (remainingCount > 0) this.#loneCounts.set(tenant, remainingCount);
      else this.#loneCounts.delete(tenant);
      this.#wake();
    };
    try {
      const sandbox = await this.#find(tenant, true);
      void sandbox.ended.then(leave);
      return sandbox;
    } catch (error) {
      leave();
      throw error;
    }
  }

  /** Records which modules tenants share; spares get those modules in advance. */
  learn(tenant: string, program: StoredProgram): void {
    this.#shared.learn(tenant, program);
  }

  /** Keeps at least `min` instances of a tenant's program ready; 0 stops keeping them. */
  keep(tenant: string, program: StoredProgram, min: number): void {
    const tenantPrograms = this.#keptPrograms.get(tenant) ?? new Map<string, KeptProgram>();
    if (min > 0) tenantPrograms.set(program.key, { program, min });
    else if (!tenantPrograms.delete(program.key)) return;
    if (tenantPrograms.size > 0) this.#keptPrograms.set(tenant, tenantPrograms);
    else this.#keptPrograms.delete(tenant);
    const firstSandbox = this.#places.get(tenant)?.[0]?.found ?? (min > 0 ? this.of(tenant) : undefined);
    if (firstSandbox) void this.#keepIn(firstSandbox, tenant, { program, min });
  }

  /** Tells a sandbox to keep ready instances. Never rejects. */
  async #keepIn(found: Sandbox | Promise<Sandbox>, tenant: string, { program, min }: KeptProgram): Promise<void> {
    try {
      await (await found).keep(program, min);
    } catch (error) {
      this.#options.log.warn({ error, tenant }, 'no sandbox keeps ready instances');
    }
  }

  /** Ends every sandbox. */
  async close(): Promise<void> {
    this.#closing.abort();
    clearInterval(this.#review);
    this.#watch.close();
    this.#pressure.close();
    this.#memory.close();
    this.#cores?.close();
    this.#wake();
    const ending = this.#living();
    for (const sandbox of ending) this.#retire(sandbox, 'the runtime stops');
    await Promise.all(ending.map((sandbox) => sandbox.ended));
  }

  async #find(tenant: string, alone = false): Promise<Sandbox> {
    /** Waits for a start and for a place have a limit each: a long start takes no time from the wait for a place. */
    const waits = new Map<'start' | 'place', number>();
    const waitFor = async (what: 'start' | 'place', limitMs: number): Promise<boolean> => {
      const beganAtMs = performance.now();
      const waitedMs = waits.get(what) ?? 0;
      const changed = await this.#waitForChange(beganAtMs + limitMs - waitedMs);
      waits.set(what, waitedMs + performance.now() - beganAtMs);
      return changed;
    };
    for (;;) {
      const spare = this.#spare();
      if (spare) return this.#bind(spare, tenant, alone);
      if (this.#closing.signal.aborted) throw new LaunchError('runtime-lost', 'The runtime stops.');
      const { most } = this.#options.policy;
      // The start of a sandbox for a lone run or a heavy tenant must not take cores from other work.
      const background = alone || this.#cores?.isHeavy(tenant) === true;
      if (this.#beginningCount > 0) {
        if (!background) this.#hurry();
        if (!(await waitFor('start', MAX_START_MS))) throw new LaunchError('internal', LATE_SANDBOX);
      } else if (this.#sandboxes.size < most) await this.#begin(background);
      else {
        const leaving = leastNeeded(this.#view());
        if (leaving) this.#retire(leaving, 'another tenant needed its place');
        if (!(await waitFor('place', PLACE_DEADLINE_MS))) {
          const message = `All ${most} sandboxes of this runtime were busy for ${PLACE_DEADLINE_MS / 1000} s. Try again, or raise [runtime] max_sandboxes.`;
          throw new LaunchError('internal', message);
        }
      }
    }
  }

  /** Live sandboxes, including the one that is starting. */
  #living(): Sandbox[] {
    return [...this.#sandboxes, ...(this.#starting ? [this.#starting] : [])];
  }

  #spare(): Sandbox | undefined {
    return [...this.#sandboxes].find((sandbox) => sandbox.tenant === null && !sandbox.leaving);
  }

  #bind(sandbox: Sandbox, tenant: string, alone: boolean): Sandbox {
    sandbox.tenant = tenant;
    sandbox.alone = alone;
    sandbox.idleSinceMs = performance.now();
    this.#claims.set(sandbox, performance.now());
    sandbox.background = false;
    this.#cores?.changed(sandbox);
    // The tenant's first sandbox keeps the ready instances.
    if (!alone && !this.#firstOf(tenant))
      for (const kept of this.#keptPrograms.get(tenant)?.values() ?? []) void this.#keepIn(sandbox, tenant, kept);
    // An immediate start of the next spare would take cores from the launch that this sandbox is for.
    setTimeout(() => this.#look(), NEXT_SPARE_MS).unref();
    return sandbox;
  }

  /** Called when a launch waits for the sandbox that is starting: the start leaves the background. */
  #hurry(): void {
    this.#hurried = true;
    const sandbox = this.#starting;
    if (!sandbox?.background) return;
    sandbox.background = false;
    this.#cores?.changed(sandbox);
  }

  /** Kills a sandbox that is not ready in time. Returns the function that ends the limit. */
  #limit({ process }: Sandbox): () => void {
    const beganAtMs = performance.now();
    const takeLook = () => ({ atMs: performance.now(), hasBeaten: false, thread: mainThreadTimes(process.pid) });
    let silence = beginWatch(takeLook());
    const timer = setInterval(() => {
      const { silence: next, verdict } = look(silence, takeLook(), READY);
      silence = next;
      const tookMs = performance.now() - beganAtMs;
      if (verdict === 'alive' && tookMs < MAX_START_MS) return;
      clearInterval(timer);
      const [took, computed, still] = [tookMs, next.computingMs, next.stillMs].map(
        (ms) => `${Math.round(ms / 1000)} s`,
      );
      process.kill(`it was not ready within ${took}, of which it computed ${computed} and stood still ${still}`);
    }, READY.everyMs);
    return () => clearInterval(timer);
  }

  /** Starts one sandbox without a tenant. @throws LaunchError */
  async #begin(inBackground: boolean): Promise<void> {
    this.#beginningCount++;
    this.#hurried = !inBackground;
    try {
      await sleep(pauseAfter(this.#failures), undefined, { signal: this.#closing.signal });
      const background = !this.#hurried && this.#cores !== null;
      const sandbox: Sandbox = new Sandbox((events) => this.#options.start(events, background), {
        busy: () => this.#pressure.begin(),
        idle: () => this.#idle(sandbox),
        lost: (invocations, alone) => this.#reportLoss(invocations, alone),
        late: (invocation, times) =>
          this.#options.log.warn(
            { tenant: sandbox.tenant, invocation, ...rounded(times), limitMs: LAUNCH_LIMITS.mostMs },
            'a launch failed, because its sandbox got too little of the cores; the sandbox and its other invocations go on',
          ),
      });
      sandbox.background = background;
      this.#starting = sandbox;
      const endLimit = this.#limit(sandbox);
      await sandbox.ready.finally(endLimit);
      sandbox.background = false;
      sandbox.preload(this.#shared.modules(), MAX_COMPILED_BYTES);
      void this.#sendTables(sandbox);
      this.#failures = 0;
      this.#sandboxes.add(sandbox);
      void sandbox.ended.then((end) => this.#handleEnd(sandbox, end));
    } catch (cause) {
      this.#failures++;
      if (!this.#closing.signal.aborted) this.#options.log.error({ error: cause }, 'a sandbox could not be started');
      throw new LaunchError('internal', NO_SANDBOX, { cause });
    } finally {
      this.#beginningCount--;
      this.#starting = null;
      this.#wake();
    }
  }

  async #sendTables(sandbox: Sandbox): Promise<void> {
    try {
      const models = (await this.#options.tokenizers?.()) ?? new Map<string, never>();
      for (const [name, { tokenizer }] of models) if (tokenizer) void sandbox.vocabulary(name, tokenizer);
    } catch (error) {
      this.#options.log.warn({ error }, 'a sandbox got no tokenizers');
    }
  }

  async #reportLoss(invocations: readonly string[], alone: boolean): Promise<void> {
    try {
      await this.#options.onLoss?.(invocations, alone);
    } catch (error) {
      this.#options.log.error({ error }, 'the loss of a sandbox could not be noted');
    }
  }

  #idle(sandbox: Sandbox): void {
    if (sandbox.alone && !sandbox.leaving) this.#retire(sandbox, 'its one run has ended');
    this.#wake();
  }

  #handleEnd(sandbox: Sandbox, end: ProcessEnd): void {
    this.#sandboxes.delete(sandbox);
    this.#leave(sandbox);
    this.#wake();
    this.#look();
    const { tenant } = sandbox;
    // Finds the tenant another sandbox, which then keeps the tenant's ready instances.
    if (sandbox.crashed && tenant !== null && this.#keptPrograms.has(tenant)) this.of(tenant).catch(() => undefined);
    if (sandbox.crashed && !this.#closing.signal.aborted) {
      const { invocations, alone } = sandbox;
      const named = invocations.slice(0, MAX_NAMED);
      const fields = { tenant, cause: withLastLines(end), figures: end.figures, alone, runs: invocations.length };
      this.#options.log.warn({ ...fields, invocations: named }, 'a sandbox ended');
    }
  }

  /** Ends a sandbox; its tenant gets another sandbox on the next launch. */
  #retire(sandbox: Sandbox, reason: string): void {
    this.#leave(sandbox);
    sandbox.process.retire(reason);
  }

  /** Removes the sandbox from its tenant's places. If it kept the ready instances, the tenant's next sandbox now keeps them. */
  #leave(sandbox: Sandbox): void {
    const { tenant } = sandbox;
    if (tenant === null) return;
    const place = this.#places.get(tenant)?.find((candidate) => candidate.sandbox === sandbox);
    if (!place) return;
    const wasFirst = this.#firstOf(tenant) === sandbox;
    this.#forget(tenant, place);
    const newFirst = this.#firstOf(tenant);
    if (!wasFirst || !newFirst) return;
    for (const kept of this.#keptPrograms.get(tenant)?.values() ?? []) void this.#keepIn(newFirst, tenant, kept);
  }

  #firstOf(tenant: string): Sandbox | null {
    return this.#places.get(tenant)?.[0]?.sandbox ?? null;
  }

  /** Ends idle sandboxes, and begins a spare. */
  #look(): void {
    if (this.#closing.signal.aborted) return;
    const { policy } = this.#options;
    const members = this.#view();
    for (const sandbox of outworn(members, policy, performance.now())) this.#retire(sandbox, 'it was idle');
    if (sparesToBegin(members, policy, this.#beginningCount) > 0) {
      // `#begin` has reported the failure; the next look tries again after a pause.
      this.#begin(true).catch(() => undefined);
    }
  }

  #view(): FleetMember<Sandbox>[] {
    const now = performance.now();
    const members = [...this.#sandboxes].filter((sandbox) => !sandbox.leaving);
    return members.map((sandbox) => ({
      sandbox,
      tenant: sandbox.tenant,
      // A launch for which the sandbox was just bound counts as a run, because it may not have arrived yet.
      runs: sandbox.runs + (now - (this.#claims.get(sandbox) ?? Number.NEGATIVE_INFINITY) < CLAIM_MS ? 1 : 0),
      kept:
        sandbox.tenant !== null && this.#keptPrograms.has(sandbox.tenant) && this.#firstOf(sandbox.tenant) === sandbox,
      idleSinceMs: sandbox.idleSinceMs,
    }));
  }

  /** Resolves with true when a sandbox began, ended or became idle; with false at `untilMs`. */
  #waitForChange(untilMs: number): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (hasChanged: boolean) => {
        clearTimeout(timer);
        this.#wakers.delete(wake);
        resolve(hasChanged);
      };
      const wake = () => end(true);
      const timer = setTimeout(() => end(false), Math.max(0, untilMs - performance.now()));
      this.#wakers.add(wake);
    });
  }

  #wake(): void {
    for (const wake of [...this.#wakers]) wake();
  }
}

const rounded = ({ waitedMs, idleMs, computedMs }: LaunchTimes): LaunchTimes => ({
  waitedMs: Math.round(waitedMs),
  idleMs: Math.round(idleMs),
  computedMs: Math.round(computedMs),
});

/** Bound on programs whose modules are remembered. */
const MAX_PROGRAMS = 256;

/**
 * Modules that several tenants use, the most common first: every JavaScript function has the same JavaScript engine. A sandbox can get them
 * before it has a tenant, and compile them in advance. Modules of only one tenant are never sent to another.
 */
export class SharedModules {
  readonly #maxBytes: number;
  /** Each module with its users, by hash; a member of `programs` is the tenant, a slash and the program's key. */
  readonly #users = new Map<string, { readonly module: StoredModule; readonly programs: Set<string> }>();
  /** Hashes of each remembered program's modules; the program that was learned first is first. */
  readonly #programs = new Map<string, readonly string[]>();

  /** @param maxBytes bound on the total size that `modules` returns */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Remembers that a tenant uses the modules of a program. */
  learn(tenant: string, { key: program, modules }: StoredProgram): void {
    const key = `${tenant}/${program}`;
    if (this.#programs.has(key)) return;
    this.#programs.set(
      key,
      modules.map(({ hash }) => hash),
    );
    for (const module of modules) {
      const usage = this.#users.get(module.hash) ?? { module, programs: new Set<string>() };
      usage.programs.add(key);
      this.#users.set(module.hash, usage);
    }
    const [oldest = ''] = this.#programs.keys();
    if (this.#programs.size > MAX_PROGRAMS) this.#forget(oldest);
  }

  /** Returns the shared modules that fit into the bound. */
  modules(): StoredModule[] {
    let remainingBytes = this.#maxBytes;
    return (
      [...this.#users.values()]
        .map(({ module, programs }) => ({ module, programs: programs.size, tenants: tenantsOf(programs).size }))
        .filter(({ tenants }) => tenants > 1)
        // By tenants first: two tenants with many programs must not displace modules that most tenants use.
        .sort((a, b) => b.tenants - a.tenants || b.programs - a.programs)
        .map(({ module }) => module)
        .filter(({ bytes }) => {
          if (bytes.length > remainingBytes) return false;
          remainingBytes -= bytes.length;
          return true;
        })
    );
  }

  #forget(key: string): void {
    for (const hash of this.#programs.get(key) ?? []) {
      const usage = this.#users.get(hash);
      usage?.programs.delete(key);
      if (usage?.programs.size === 0) this.#users.delete(hash);
    }
    this.#programs.delete(key);
  }
}

/** A tenant's name contains no slash. */
const tenantsOf = (programs: ReadonlySet<string>): ReadonlySet<string> =>
  new Set([...programs].map((key) => key.slice(0, key.indexOf('/'))));
