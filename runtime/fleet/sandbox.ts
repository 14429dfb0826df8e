import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { within } from '#gpu-host/protocol/within.ts';
import type { Figures } from '#scheduler/invocations/endings.ts';
import type { LifecycleOpening } from '#wit/generated/channel.ts';
import type { RemoteGuest, RemoteGuestOptions } from '../channel/remote-guest.ts';
import { LaunchError, type Loss } from '../lifecycle/launch.ts';
import type { Plan } from '../lowering/plan.ts';
import type { Group } from '../sandboxes/cgroups.ts';
import { processTimes } from './core-watch.ts';
import type { FromSandbox, SentScript, SentVocabulary, ToSandbox } from './messages.ts';
import { type Inhabitant, judgeLaunch, LaunchClock, type LaunchTimes, movedAt, suspectsOf } from './policy.ts';
import { SandboxedRun } from './sandboxed-run.ts';

/** A program with its artifact in memory: the data that a sandbox needs to run it. */
export interface StoredProgram {
  /** Key of the program's instances: the component, or the script, and its memory. */
  readonly key: string;
  readonly plan: Plan;
  readonly modules: readonly StoredModule[];
  /** Absent for a component. */
  readonly script?: SentScript & {
    /** The heap, encoded. */
    readonly heap: Uint8Array;
    /** See `Launched.placed`. */
    readonly placed: (text: string) => string;
  };
  /** Bound to which the memory of one instance can grow. */
  readonly memoryLimitBytes: number;
  /** False when the memory of an instance has its largest size from the start. */
  readonly memoryCanGrow: boolean;
}

export interface StoredModule {
  readonly file: string;
  readonly hash: string;
  readonly bytes: Uint8Array;
}

/** The process of a sandbox and the channel to it. */
export interface SandboxProcess {
  /** Id of the process that runs the guests. With namespaces, the runtime started a different process. */
  readonly pid: number;
  /** Control group of the process and its descendants; null when there is none. */
  readonly group: Group | null;
  /** True after `retire`. */
  readonly retired: boolean;
  /** True while messages of the sandbox wait for the runtime's thread. */
  readonly behind: boolean;
  /** Time, by `performance.now`, since which the stream to the sandbox is full because the sandbox does not read; null while it has room. */
  readonly untakenSinceMs: number | null;
  /** True while the queue of messages for the sandbox has room for the modules of a program. */
  readonly hasRoom: boolean;
  /** Resolves with true when the sandbox has taken the next message; with false when the process is gone, or about to be. */
  sent(): Promise<boolean>;
  tell(message: ToSandbox, body?: Uint8Array): void;
  /** Begins an invocation. @throws ChannelFault when the process is gone */
  open(opening: LifecycleOpening, options: RemoteGuestOptions): RemoteGuest;
  /** Kills a misbehaving sandbox with SIGKILL. @param figures those that decided */
  kill(reason: string, figures?: Figures): void;
  /** Kills an unneeded sandbox with SIGKILL. */
  retire(reason: string): void;
}

/** The end of a sandbox's process. */
export interface ProcessEnd {
  /** Completes "the sandbox ended: …"; without paths of the machine. */
  readonly reason: string;
  /** Those that decided, and the process id. */
  readonly figures: Figures;
  /** The last lines of the process's standard error, which may name files of the machine; often empty. */
  readonly lastLines: string;
}

/** Events of a sandbox's process. */
export interface ProcessEvents {
  message(message: FromSandbox): void;
  /** Called once, when the process is gone and the channel has reported the loss to the runs of the sandbox. */
  ended(end: ProcessEnd): void;
}

/** An instance that is ready to run. */
export interface Prepared {
  readonly run: SandboxedRun;
  /** True when the launch took a ready instance. */
  readonly ready: boolean;
  readonly compileMs: number;
  readonly instantiateMs: number;
}

/** Time between two checks of the limits on a launch. */
const LAUNCH_CHECK_MS = 5000;

/** Bound on programs of one sandbox. Beyond it, the sandbox drops the least recently launched program without ready instances. */
const MAX_PROGRAMS = 64;

/** Longest wait for the end of a process whose channel has broken. */
const END_MS = 1000;

/** Events that a sandbox reports to its fleet. */
export interface SandboxEvents {
  /** Called when the sandbox gets a run and has no other. */
  busy(): void;
  /** Called when the sandbox has no more runs. */
  idle(): void;
  /**
   * Called when the sandbox is lost unexpectedly while invocations may have computed in it. The runs of the sandbox end when the returned promise
   * settles.
   *
   * @param invocations those that may have computed when the sandbox was lost
   * @param alone true when the sandbox served only one run
   */
  lost(invocations: readonly string[], alone: boolean): Promise<void>;
  /** Called when a launch fails because the sandbox was too slow; the sandbox and its other runs go on. */
  late?(invocation: string, times: LaunchTimes): void;
}

/** Token tables of a model that a sandbox has, or will get. */
interface Tables {
  readonly tokenizer: Tokenizer;
  /** Resolves when the sandbox has the tables, or is gone. */
  readonly received: Promise<void>;
}

/** A launch whose instance the sandbox makes. */
interface Preparing extends PromiseWithResolvers<Prepared>, Inhabitant {
  readonly invocation: string;
  readonly memoryLimitBytes: number;
}

/** One sandbox as the runtime sees it: the data that was sent to it, and its runs. */
export class Sandbox {
  readonly process: SandboxProcess;
  /** Tenant whose guests run here; null for a spare. Set once. */
  tenant: string | null = null;
  /** True when the sandbox serves exactly one run. Set once. */
  alone = false;
  /** True while the sandbox has no tenant and no launch waits for it: it yields the cores. */
  background = false;
  /** Time of the sandbox's last message, by `performance.now`. */
  heardAtMs = performance.now();
  /** Time from which the sandbox has had no runs, by `performance.now`. */
  idleSinceMs = performance.now();
  /** Number of ready instances, as the sandbox last reported it. */
  readyInstances = 0;
  /** Hashes of the modules that the sandbox has, or will get. */
  readonly #modules = new Set<string>();
  /** Module hashes by program; the most recently used program is last. */
  readonly #programs = new Map<string, readonly string[]>();
  /** Numbers of instances to keep ready, by program. */
  readonly #keptCounts = new Map<string, number>();
  /** The latest tables of each model, by its name. */
  readonly #tables = new Map<string, Tables>();
  /** For each model, by its name: resolved when the sandbox confirms the tables that were sent last. */
  readonly #tablesSent = new Map<string, PromiseWithResolvers<void>>();
  readonly #runs = new Map<number, SandboxedRun>();
  readonly #preparing = new Map<number, Preparing>();
  /** Runs that the runtime ended recently: their guests may still hold the sandbox's thread. */
  #ousted: SandboxedRun[] = [];
  readonly #launchClock = new LaunchClock(() => processTimes(this.process.pid)?.usedMs ?? null);
  readonly #ready = Promise.withResolvers<void>();
  readonly #ended = Promise.withResolvers<ProcessEnd>();
  readonly #events: SandboxEvents;
  /** Number of launches that wait for room for their modules: the sandbox does not know them yet. */
  #waitingLaunchCount = 0;
  #lastInstance = 0;
  #stoodStill = false;
  #lossReport: Promise<void> | null = null;
  #end: ProcessEnd | null = null;

  /**
   * @param start starts the process, which reports its messages and its end to the sandbox
   */
  constructor(start: (events: ProcessEvents) => SandboxProcess, events: SandboxEvents) {
    this.#events = events;
    // The fleet awaits `ready` and reports a sandbox that dies before it is ready.
    this.#ready.promise.catch(() => undefined);
    this.process = start({
      message: (message) => this.#take(message),
      ended: (end) => this.#lose(end),
    });
  }

  /** Resolves when the sandbox accepts programs. Rejects when it ends before. */
  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  /** Resolves when the sandbox is gone. */
  get ended(): Promise<ProcessEnd> {
    return this.#ended.promise;
  }

  get alive(): boolean {
    return this.#end === null;
  }

  /** True when the sandbox is dead or about to be. */
  get leaving(): boolean {
    return this.#end !== null || this.#lossReport !== null || this.process.retired;
  }

  /** True when the sandbox ended without a request of the runtime. */
  get crashed(): boolean {
    return this.#end !== null && !this.process.retired;
  }

  /** Number of runs, including those being prepared. */
  get runs(): number {
    return this.#runs.size + this.#preparing.size + this.#waitingLaunchCount;
  }

  /** True when the invocation runs in this sandbox. */
  holds(invocation: string): boolean {
    return [...this.#runs.values()].some((run) => run.invocation === invocation);
  }

  /** The run that began last. */
  get newest(): SandboxedRun | undefined {
    return [...this.#runs.values()].at(-1);
  }

  /** Sends modules before the programs that need them. The sandbox compiles up to `wholeBytes` of them as a whole, before any function is called. */
  preload(modules: Iterable<StoredModule>, wholeBytes = 0): void {
    let remainingBytes = wholeBytes;
    for (const { hash, bytes } of modules) {
      if (this.#modules.has(hash)) continue;
      this.#modules.add(hash);
      const isWhole = bytes.length <= remainingBytes;
      if (isWhole) remainingBytes -= bytes.length;
      this.process.tell({ kind: 'module', hash, whole: isWhole }, bytes);
    }
  }

  /**
   * Sends a program, unless the sandbox has it. If modules must be sent, waits until the queue to the sandbox has room for them. Resolves to false
   * when the sandbox is gone, or about to be.
   */
  async #load(program: StoredProgram, invocation?: string): Promise<boolean> {
    const { modules } = program;
    const mustWait = () => !this.#programs.has(program.key) || modules.some(({ hash }) => !this.#modules.has(hash));
    while (!this.process.hasRoom && mustWait()) {
      if (!(await this.#limited(this.process.sent(), 'took nothing of what waits for it', invocation))) return false;
      this.#launchClock.noteStep();
    }
    this.#send(program);
    return true;
  }

  #send({ key, plan, modules, script }: StoredProgram): void {
    const hashes = modules.map(({ hash }) => hash);
    const isKnown = this.#programs.delete(key);
    this.#programs.set(key, hashes);
    if (isKnown) return;
    if (this.#programs.size > MAX_PROGRAMS) {
      const oldest = [...this.#programs].find(([other]) => other !== key && !this.#keptCounts.has(other));
      if (oldest) this.#forget(...oldest);
    }
    this.preload(modules);
    const sent = { kind: 'program', key, plan, modules: modules.map(({ file, hash }) => ({ file, hash })) } as const;
    if (!script) this.process.tell(sent);
    else this.process.tell({ ...sent, script: { engine: script.engine, memory: script.memory } }, script.heap);
  }

  /** Keeps at least `min` instances of a program ready. */
  async keep(program: StoredProgram, min: number): Promise<void> {
    const { key } = program;
    if (min > 0) this.#keptCounts.set(key, min);
    else this.#keptCounts.delete(key);
    if (!this.alive || !(await this.#load(program))) return;
    // A later call may have changed the number during the wait.
    this.process.tell({ kind: 'keep', key, min: this.#keptCounts.get(key) ?? 0 });
  }

  /**
   * Resolves when the sandbox has the token tables of a model, or is gone. A GPU host that starts again may have another model of the same
   * name: its tables replace the earlier ones.
   */
  vocabulary(model: string, tokenizer: Tokenizer): Promise<void> {
    const knownTables = this.#tables.get(model);
    if (knownTables?.tokenizer === tokenizer) return knownTables.received;
    const send = () => this.#sendTables(model, tokenizer);
    // An answer names only the model, so new tables wait for the answer to the earlier ones.
    const received = knownTables ? knownTables.received.then(send) : send();
    this.#tables.set(model, { tokenizer, received });
    return received;
  }

  #sendTables(model: string, tokenizer: Tokenizer): Promise<void> {
    if (!this.alive) return Promise.resolve();
    const answer = Promise.withResolvers<void>();
    this.#tablesSent.set(model, answer);
    const { table, body } = packVocabulary(tokenizer);
    this.process.tell({ kind: 'vocabulary', model, ...table }, body);
    return answer.promise;
  }

  /** Makes an instance of a program for an invocation. @throws LaunchError */
  async prepare(program: StoredProgram, invocation: string): Promise<Prepared> {
    if (this.#end !== null) throw lossError(this.#end);
    if (this.runs === 0) this.#events.busy();
    this.#waitingLaunchCount++;
    try {
      if (!(await this.#load(program, invocation))) {
        const end = await this.#ended.promise;
        await this.lost();
        throw lossError(end);
      }
      this.#waitingLaunchCount--;
    } catch (error) {
      this.#waitingLaunchCount--;
      this.#idle();
      throw error;
    }
    const instance = ++this.#lastInstance;
    const preparing: Preparing = {
      ...Promise.withResolvers<Prepared>(),
      invocation,
      memoryLimitBytes: program.memoryLimitBytes,
      movedAtMs: movedAt(this.heardAtMs, performance.now()) ?? Number.NEGATIVE_INFINITY,
    };
    this.#preparing.set(instance, preparing);
    this.process.tell({ kind: 'prepare', instance, key: program.key });
    try {
      return await this.#limited(preparing.promise, 'made no instance', invocation);
    } catch (error) {
      // A late launch is still there; the instance that the sandbox makes for it is released.
      if (this.#preparing.delete(instance)) this.#idle();
      throw error;
    }
  }

  /**
   * Waits for a step of a launch (`judgeLaunch`). Kills a faulty sandbox.
   *
   * @param fault completes the reason "it … within 20 s"
   * @throws LaunchError when the launch is late
   */
  async #limited<T>(step: Promise<T>, fault: string, invocation?: string): Promise<T> {
    const times = this.#launchClock.begin();
    const late = Promise.withResolvers<never>();
    const timer = setInterval(() => {
      const now = times();
      const verdict = judgeLaunch(now);
      if (verdict === 'wait') return;
      clearInterval(timer);
      if (verdict === 'faulty') {
        const figures = `within ${inSeconds(now.idleMs)}, for which it computed ${inSeconds(now.computedMs)}`;
        this.process.kill(`it ${fault} ${figures}`);
        return;
      }
      if (invocation !== undefined) this.#events.late?.(invocation, now);
      late.reject(lateError(now));
    }, LAUNCH_CHECK_MS);
    try {
      return await Promise.race([step, late.promise]);
    } finally {
      clearInterval(timer);
    }
  }

  /** Makes each run note whether its guest got an answer. */
  look(): void {
    for (const run of this.#runs.values()) run.look();
  }

  /** Kills a sandbox whose thread is stopped or waits for something other than a core. */
  killForStandingStill(figures: Figures): void {
    this.#stoodStill = true;
    this.process.kill('it stood still for 3 s', figures);
  }

  /** Ids of the invocations that run here, the newest last. */
  get invocations(): readonly string[] {
    return [...this.#runs.values(), ...this.#preparing.values()].map(({ invocation }) => invocation);
  }

  /**
   * Why the sandbox is lost. Waits for the end of the process, which tells more than the fault of the channel.
   *
   * @param fault the channel's, which stands for the reason when the process does not end soon
   */
  async loss(fault: string): Promise<Loss> {
    await within(END_MS, this.#ended.promise);
    return lossOf('The sandbox that ran this invocation was lost', this.#end ?? { reason: fault, figures: {} });
  }

  /** Reports the loss of the sandbox once, with the invocations that may have caused it. */
  lost(): Promise<void> {
    this.#lossReport ??= this.#tellLoss();
    return this.#lossReport;
  }

  async #tellLoss(): Promise<void> {
    if (this.process.retired || this.tenant === null) return;
    const inhabitants = [...this.#runs.values(), ...this.#preparing.values(), ...this.#ousted];
    const suspects = suspectsOf(inhabitants, this.heardAtMs, this.#stoodStill).map(({ invocation }) => invocation);
    if (suspects.length > 0) await this.#events.lost(suspects, this.alone);
  }

  #forget(key: string, modules: readonly string[]): void {
    this.#programs.delete(key);
    const usedModules = new Set([...this.#programs.values()].flat());
    const unused = modules.filter((hash) => !usedModules.has(hash));
    for (const hash of unused) this.#modules.delete(hash);
    this.process.tell({ kind: 'forget', key, modules: unused });
  }

  #take(message: FromSandbox): void {
    this.heardAtMs = performance.now();
    switch (message.kind) {
      case 'ready':
        this.#ready.resolve();
        return;
      case 'beat':
        for (const usage of message.used) this.#runs.get(usage.instance)?.usedNow(usage);
        this.look();
        // Forgets ended runs whose guests have not moved recently (see `suspectsOf`): such a guest does not hold the thread. `true` makes this
        // apply even when no guest has moved.
        this.#ousted = [...suspectsOf(this.#ousted, this.heardAtMs, true)];
        this.readyInstances = message.ready;
        return;
      case 'vocabulary':
        this.#tablesSent.get(message.model)?.resolve();
        return;
      case 'prepared': {
        const { instance, ready, compileMs, instantiateMs } = message;
        const preparing = this.#preparing.get(instance);
        this.#launchClock.noteStep();
        if (!preparing) {
          this.release(instance);
          return;
        }
        this.#preparing.delete(instance);
        const { invocation, memoryLimitBytes } = preparing;
        const onGone = (run: SandboxedRun, stillThere: boolean) => this.#leave(run, stillThere);
        const run = new SandboxedRun({ instance, invocation }, memoryLimitBytes, this, onGone);
        this.#runs.set(instance, run);
        preparing.resolve({ run, ready, compileMs, instantiateMs });
        return;
      }
      case 'unprepared': {
        const preparing = this.#preparing.get(message.instance);
        this.#launchClock.noteStep();
        if (!preparing) return;
        this.#preparing.delete(message.instance);
        preparing.reject(new LaunchError('trap', `The inferlet trapped while it was started: ${message.message}`));
        this.#idle();
        return;
      }
    }
  }

  open(opening: LifecycleOpening, options: RemoteGuestOptions): RemoteGuest {
    return this.process.open(opening, options);
  }

  /** Notes processor time that a guest has used, as the sandbox reports it. */
  guestComputed(cpuMs: number): void {
    this.#launchClock.noteGuests(cpuMs);
  }

  release(instance: number): void {
    if (this.alive) this.process.tell({ kind: 'release', instance });
  }

  /** Forgets a run. With `stillThere`, the sandbox has not reported the end of the run's guest, so the guest may still compute. */
  #leave(run: SandboxedRun, stillThere: boolean): void {
    this.#runs.delete(run.instance);
    if (stillThere) this.#ousted.push(run);
    this.#idle();
  }

  #idle(): void {
    if (this.runs > 0) return;
    this.idleSinceMs = performance.now();
    this.#events.idle();
  }

  /** Handles the end of the process. */
  #lose(end: ProcessEnd): void {
    if (this.#end !== null) return;
    this.#end = end;
    this.#ready.reject(new Error(`The sandbox ended before it was ready: ${withLastLines(end)}.`));
    const preparing = [...this.#preparing.values()];
    // A launch fails only after its possible part in the loss is recorded: the next attempt must find that record.
    void this.lost().then(() => {
      for (const each of preparing) each.reject(lossError(end));
    });
    this.#preparing.clear();
    for (const answer of this.#tablesSent.values()) answer.resolve();
    this.#ended.resolve(end);
  }
}

/** The reason of an end with the process's last lines, for the log alone. */
export const withLastLines = ({ reason, lastLines }: ProcessEnd): string =>
  lastLines === '' ? reason : `${reason}: ${lastLines}`;

const lossOf = (what: string, { reason, figures }: Pick<ProcessEnd, 'reason' | 'figures'>): Loss => ({
  cause: `${what}: ${reason}.`,
  figures,
});

function lossError(end: ProcessEnd): LaunchError {
  const { cause, figures } = lossOf('The sandbox that was to run this invocation was lost', end);
  return new LaunchError('runtime-lost', cause, { figures });
}

const inSeconds = (ms: number): string => `${Math.round(ms / 1000)} s`;

const lateError = ({ waitedMs, computedMs }: LaunchTimes): LaunchError =>
  new LaunchError(
    'unavailable',
    `The machine is too busy: the sandbox that was to run this invocation got ${inSeconds(computedMs)} of processor time for launches, and made no instance in ${inSeconds(waitedMs)}. Try again.`,
    { figures: { waitedMs: Math.round(waitedMs), computedMs: Math.round(computedMs) } },
  );

/** Maximum bytes of a token, whose length must fit into two bytes. Longer tokens are cut. */
const MAX_TOKEN_BYTES = 0xffff;

/** Packed tables, kept while the tokenizer lives, because every sandbox gets them. */
const packed = new WeakMap<Tokenizer, { readonly table: Omit<SentVocabulary, 'model'>; readonly body: Uint8Array }>();

/** Packs a tokenizer's tables for sandboxes: the length of each token in two bytes (little-endian), then the bytes of all tokens. */
export function packVocabulary(tokenizer: Tokenizer): { table: Omit<SentVocabulary, 'model'>; body: Uint8Array } {
  const known = packed.get(tokenizer);
  if (known) return known;
  const { vocabularySize: size, special, decoding } = tokenizer;
  const tokens = Array.from({ length: size }, (_, id) => tokenizer.tokenBytes(id).subarray(0, MAX_TOKEN_BYTES));
  const body = new Uint8Array(size * 2 + tokens.reduce((sum, { length }) => sum + length, 0));
  const lengths = new DataView(body.buffer);
  let at = size * 2;
  tokens.forEach((bytes, id) => {
    lengths.setUint16(id * 2, bytes.length, true);
    body.set(bytes, at);
    at += bytes.length;
  });
  const { stripsLeadingSpace } = decoding;
  const made = { table: { size, special, specialIds: [...decoding.specialIds], stripsLeadingSpace }, body };
  packed.set(tokenizer, made);
  return made;
}
