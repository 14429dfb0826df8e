import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import type { HandlerError } from '#gpu-host/protocol/errors.ts';
import { unexpected } from '#runtime/unexpected.ts';
import { textForTenant } from '#scheduler/policies/text-for-tenant.ts';
import type { LifecycleEnding, LifecycleOpening, LifecycleTrap } from '#wit/generated/channel.ts';
import type { RemoteEnding, RemoteGuest, RemoteGuestOptions } from '../channel/remote-guest.ts';
import { traitsOf } from '../host/device/granted.ts';
import type { Inferlet } from '../host/session/inferlet.ts';
import type { GuestEnd, GuestRun, GuestStart, Loss } from '../lifecycle/launch.ts';
import { GuestTrap, type TrapCode } from '../lowering/trap.ts';
import type { InstanceUsed } from './messages.ts';
import { movedAt } from './policy.ts';

/** The part of a sandbox that a run uses. */
export interface RunSandbox {
  /** Time of the sandbox's last message, by `performance.now`. */
  readonly heardAtMs: number;
  /** Resolves when the sandbox has the token tables of a model, or is gone. */
  vocabulary(model: string, tokenizer: Tokenizer): Promise<void>;
  /** Begins an invocation. @throws ChannelFault when the sandbox is gone */
  open(opening: LifecycleOpening, options: RemoteGuestOptions): RemoteGuest;
  /** Releases an instance that no invocation took. */
  release(instance: number): void;
  /** Why the sandbox is lost, once its process has ended; see `Sandbox.loss`. */
  loss(fault: string): Promise<Loss>;
  /** Reports that the sandbox is lost. Resolves when the invocations that may have caused the loss are recorded. */
  lost(): Promise<void>;
  /** Takes processor time that the guest has used since the last call. */
  guestComputed(cpuMs: number): void;
}

/** Maximum CPU time that an instance can have used to start, before its `SandboxedRun` was made. */
const MAX_START_CPU_MS = 5000;
/** Bound on the reported time of a guest's first call: longer than any invocation runs. */
const MAX_WAIT_MS = 30 * 86_400_000;
/** Bound on the reported number of a guest's calls. */
const MAX_CALLS = 1e12;

/** A guest's run in a sandbox, driven by the runtime. */
export class SandboxedRun implements GuestRun {
  readonly instance: number;
  /** Id of the run's invocation. */
  readonly invocation: string;
  /** Bound of the guest's memory; caps the usage that a sandbox reports. */
  readonly #memoryLimitBytes: number;
  readonly #sandbox: RunSandbox;
  readonly #onGone: (run: SandboxedRun, stillThere: boolean) => void;
  #usage: Omit<InstanceUsed, 'instance'> = { cpuMs: 0, memoryBytes: 0, calls: 0 };
  #chargedMs = 0;
  #guest: RemoteGuest | null = null;
  #finish: ((end: GuestEnd) => void) | null = null;
  #stopReason: HandlerError | null = null;
  #killTrap: GuestTrap | null = null;
  #cpuLimitMs = Number.POSITIVE_INFINITY;
  #isGone = false;
  readonly #madeAtMs = performance.now();
  /** Time at which the guest last computed, began or was answered, as far as the runtime knows. `suspectsOf` uses it. */
  #movedAtMs = this.#madeAtMs;
  /** Number of futures and resources that the guest held at the last look; an answer lowers it. */
  #heldCount = 0;

  /** @param onGone called once, when the runtime no longer needs the run; `stillThere` when the sandbox has not reported the guest's end */
  constructor(
    { instance, invocation }: { readonly instance: number; readonly invocation: string },
    memoryLimitBytes: number,
    sandbox: RunSandbox,
    onGone: (run: SandboxedRun, stillThere: boolean) => void,
  ) {
    this.instance = instance;
    this.invocation = invocation;
    this.#memoryLimitBytes = memoryLimitBytes;
    this.#sandbox = sandbox;
    this.#onGone = onGone;
  }

  get cpuMs(): number {
    return this.#usage.cpuMs + this.#chargedMs;
  }

  get calls(): number {
    return this.#usage.calls;
  }

  get memoryBytes(): number {
    return this.#usage.memoryBytes;
  }

  get movedAtMs(): number {
    return this.#movedAtMs;
  }

  start(inferlet: Inferlet, start: GuestStart): Promise<GuestEnd> {
    const { models } = inferlet.description;
    const sendTables = async () => {
      const sending = [...models].map(
        ([model, { tokenizer }]) => tokenizer && this.#sandbox.vocabulary(model, tokenizer),
      );
      await Promise.all(sending);
    };
    return new Promise((resolve) => {
      this.#finish = resolve;
      this.#cpuLimitMs = start.cpuLimitMs;
      if (this.#killTrap) {
        this.#end({ ending: { kind: 'trapped', trap: this.#killTrap }, ...NO_REPORT });
        return;
      }
      sendTables().then(
        () => this.#open(inferlet, start),
        (error: unknown) => this.#fail(`The token tables of a model could not be sent: ${unexpected(error)}.`),
      );
    });
  }

  /** Ends a run that the sandbox has not begun. */
  #fail(message: string): void {
    if (this.#finish === null) return;
    this.#end({ ending: { kind: 'lost', cause: message, figures: {} }, ...NO_REPORT });
    this.#sandbox.release(this.instance);
  }

  #open(inferlet: Inferlet, start: GuestStart): void {
    // The run may have been killed while the sandbox took the tables.
    if (this.#finish === null) return;
    try {
      this.#noteMove();
      this.#guest = this.#sandbox.open(openingOf(this.instance, inferlet, start), {
        context: inferlet,
        charge: (cpuMs) => this.charge(cpuMs),
        flushed: async (atOnce) => (await inferlet.session.flush(atOnce)).tag === 'ok',
        ended: (ending) => this.#handleEnding(ending),
      });
      if (this.#chargedMs > 0) this.#guest.charge(this.#chargedMs);
      if (this.#stopReason) this.#guest.stop(this.#stopReason);
    } catch (error) {
      void this.#endLost(textForTenant(error));
    }
  }

  charge(cpuMs: number): void {
    this.#chargedMs += cpuMs;
    this.#guest?.charge(cpuMs);
    // The sandbox ends a guest at its limit, but a compromised sandbox may not.
    if (this.cpuMs > this.#cpuLimitMs) {
      const text = `used its CPU time of ${this.#cpuLimitMs} ms (manifest: limits.cpuMs)`;
      this.kill(new GuestTrap('cpu-limit', text));
    }
  }

  deadline(leftMs: number): void {
    this.#guest?.deadline(leftMs);
  }

  stopping(reason: HandlerError): void {
    this.#noteMove();
    this.#stopReason = reason;
    this.#guest?.stop(reason);
  }

  kill(trap: GuestTrap): void {
    if (this.#isGone) return;
    this.#killTrap ??= trap;
    // Ends the run without waiting for the sandbox. Later messages of the sandbox change nothing.
    this.#end({ ending: { kind: 'trapped', trap }, ...NO_REPORT }, this.#guest !== null);
    this.#guest?.close({ code: trap.code, message: trap.message });
    // If the sandbox has not heard of the invocation yet, no invocation took the instance, so it is released here.
    this.#sandbox.release(this.instance);
  }

  dispose(): void {
    if (this.#isGone) return;
    this.kill(new GuestTrap('terminated', 'has ended'));
    this.#leave();
  }

  /** Takes the usage that the sandbox reports. Usage never decreases, and one thread uses no more CPU time than has passed. */
  usedNow({ cpuMs, memoryBytes, calls }: Omit<InstanceUsed, 'instance'>): void {
    const usageBefore = this.#usage;
    const maxCpuMs = performance.now() - this.#madeAtMs + MAX_START_CPU_MS;
    if (cpuMs > usageBefore.cpuMs || calls > usageBefore.calls) this.#noteMove();
    const grownMs = Math.min(cpuMs, maxCpuMs) - usageBefore.cpuMs;
    if (grownMs > 0) this.#sandbox.guestComputed(grownMs);
    this.#usage = {
      cpuMs: cpuMs > usageBefore.cpuMs ? Math.min(cpuMs, maxCpuMs) : usageBefore.cpuMs,
      memoryBytes: Math.min(Math.max(usageBefore.memoryBytes, memoryBytes), this.#memoryLimitBytes),
      calls: Math.max(usageBefore.calls, Math.min(calls, MAX_CALLS)),
    };
  }

  answered(): void {
    this.#noteMove();
  }

  /** Notes whether the guest got an answer since the last look. */
  look(): void {
    const heldCount = this.#guest?.held ?? 0;
    if (heldCount !== this.#heldCount) this.#noteMove();
    this.#heldCount = heldCount;
  }

  /** Records that the guest moves now, in the sense of `suspectsOf`. */
  #noteMove(): void {
    this.#movedAtMs = movedAt(this.#sandbox.heardAtMs, performance.now()) ?? this.#movedAtMs;
  }

  /** Ends the run after its possible part in the loss is recorded: a restart must find that record. */
  async #endLost(reason: string): Promise<void> {
    await this.#sandbox.lost();
    const loss = await this.#sandbox.loss(reason);
    this.#end({ ending: { kind: 'lost', ...loss }, ...NO_REPORT });
  }

  #handleEnding(ending: RemoteEnding): void {
    switch (ending.tag) {
      case 'ended':
        this.#endAsReported(ending.ended);
        return;
      case 'trapped':
        this.#end({ ending: trapped(ending.val), ...NO_REPORT });
        return;
      case 'sandbox-lost':
        void this.#endLost(ending.fault.message);
    }
  }

  #endAsReported({
    ending,
    used,
    handlerErrors,
    stderr,
    firstCallMs,
  }: Extract<RemoteEnding, { tag: 'ended' }>['ended']): void {
    const { cpuMs, memoryBytes, calls } = used;
    this.usedNow({ cpuMs, memoryBytes: Number(memoryBytes), calls: Number(calls) });
    const isPlausible = firstCallMs !== undefined && firstCallMs >= 0 && firstCallMs < MAX_WAIT_MS;
    this.#end({
      ending: reportedEnding(ending),
      handlerErrors: new Map(handlerErrors.slice(0, MAX_HANDLER_ERRORS).map(({ tag, text }) => [tag, shortened(text)])),
      stderr: shortened(stderr),
      firstCallMs: isPlausible ? firstCallMs : null,
    });
  }

  #end(end: GuestEnd, stillThere = false): void {
    const finish = this.#finish;
    this.#finish = null;
    finish?.(end);
    if (finish) this.#leave(stillThere);
  }

  #leave(stillThere = false): void {
    if (this.#isGone) return;
    this.#isGone = true;
    this.#onGone(this, stillThere);
  }
}

/** Bound on texts from a sandbox: a compromised sandbox may send texts of any length. */
const MAX_TEXT_CHARACTERS = 16 << 10;
const MAX_HANDLER_ERRORS = 32;

const shortened = (text: string): string => text.slice(0, MAX_TEXT_CHARACTERS);

/** Stands for the sandbox's report when a run ends without one. */
const NO_REPORT = { handlerErrors: new Map<string, string>(), stderr: '', firstCallMs: null } as const;

/** Trap codes that a sandbox or a host function may report. The runtime determines the other codes itself. */
const REPORTABLE_CODES: ReadonlySet<string> = new Set<TrapCode>(['trap', 'cpu-limit', 'memory-limit', 'output-limit']);

function reportedEnding(ending: LifecycleEnding): GuestEnd['ending'] {
  if (ending.tag === 'trapped') return trapped(ending.val);
  if (ending.tag === 'success') return { kind: 'returned', ok: true, text: ending.val };
  return { kind: 'returned', ok: false, text: shortened(ending.val) };
}

function trapped({ code, message }: LifecycleTrap): GuestEnd['ending'] {
  return {
    kind: 'trapped',
    trap: new GuestTrap(REPORTABLE_CODES.has(code) ? (code as TrapCode) : 'trap', shortened(message)),
  };
}

function openingOf(instance: number, { description }: Inferlet, { input, cpuLimitMs }: GuestStart): LifecycleOpening {
  const { id, tenant, functionName, functionVersion, deadline, models } = description;
  return {
    instance,
    cpuLimitMs,
    id,
    tenant,
    functionName,
    functionVersion,
    input,
    leftMs: BigInt(Math.floor(deadline.leftMs)),
    models: [...models.values()].map((model) => {
      const { name, contextLength, vocabularySize, pageSize } = model.summary;
      return {
        info: { name, contextLength, vocabularySize, pageSize, traits: traitsOf(model) },
        metadata: model.metadata ?? undefined,
      };
    }),
  };
}
