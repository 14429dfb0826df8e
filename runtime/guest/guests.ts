import { createTokenStream } from '#gpu-host/models/token-stream.ts';
import type { LifecycleEnded } from '#wit/generated/channel.ts';
import type { SandboxInvocation } from '../channel/sandbox-invocation.ts';
import type { FromSandbox, InstanceUsed, SentProgram, SentVocabulary, ToSandbox } from '../fleet/messages.ts';
import type { Decoding } from '../host/text/detokenize.ts';
import type { CompiledWorld } from '../lowering/compile.ts';
import type { Ending, Execution } from '../lowering/execution.ts';
import { decodeHeap } from '../lowering/heap.ts';
import type { Program } from '../lowering/instance.ts';
import { SliceRunner } from '../lowering/slices.ts';
import { InstancePool } from '../pool/pool.ts';

export interface GuestsOptions {
  readonly world: CompiledWorld;
  /** Memory that all ready instances together may take. */
  readonly poolBytes: number;
  readonly tell: (message: FromSandbox) => void;
  /** True while frames that the runtime sent wait for this thread: answers that guests wait for, and launches. */
  readonly isBehind: () => boolean;
  /** Compiles all functions of a module before they are called. */
  readonly compileWhole: (bytes: Uint8Array<ArrayBuffer>) => Promise<WebAssembly.Module>;
}

interface Instance {
  readonly key: string;
  readonly program: Program;
  readonly execution: Execution;
  /** True while an invocation uses the instance; the instance is released when the invocation ends. */
  running: boolean;
  /** CPU time that the runtime has charged to the instance. The runtime counts this time itself, so reports leave it out. */
  chargedMs: number;
  /** CPU time in the last report to the runtime. */
  reportedCpuMs: number;
}

/** Maximum characters of a text in a report to the runtime; a longer text is cut. */
const MAX_TEXT_CHARACTERS = 16 << 10;
/** Maximum handler errors in the report of a guest's ending; further ones are left out. */
const MAX_HANDLER_ERRORS = 32;
/** Longest time that running guests hold up the next launch, ms. */
const MAX_HELD_MS = 20;

/** The guests of one sandbox: programs, ready instances, and running invocations. */
export class Guests {
  readonly #tell: GuestsOptions['tell'];
  readonly #compileWhole: GuestsOptions['compileWhole'];
  readonly #isBehind: GuestsOptions['isBehind'];
  readonly #pool: InstancePool;
  readonly #slices: SliceRunner;
  readonly #modules = new Map<string, Promise<WebAssembly.Module>>();
  readonly #programs = new Map<string, Promise<Program>>();
  readonly #vocabularies = new Map<string, Decoding>();
  /** Instances taken from the pool that run or are about to run. The key is the number that the runtime gave the instance. */
  readonly #instances = new Map<number, Instance>();
  /** Invocations whose instances are being made. */
  #preparingCount = 0;
  /** Launches that wait for their turn, oldest first. */
  readonly #launches: (() => void)[] = [];
  #deviceBusy = false;

  constructor({ world, poolBytes, tell, isBehind, compileWhole }: GuestsOptions) {
    this.#tell = tell;
    this.#compileWhole = compileWhole;
    this.#isBehind = isBehind;
    this.#slices = new SliceRunner(() => this.#deviceBusy);
    this.#pool = new InstancePool({
      world,
      slices: this.#slices,
      budgetBytes: poolBytes,
      running: () => this.#instances.size,
    });
  }

  /** True while an invocation holds an instance or waits for one. */
  get busy(): boolean {
    return this.#instances.size + this.#preparingCount > 0;
  }

  /** Number of ready instances. */
  get ready(): number {
    return this.#pool.ready();
  }

  /** Token tables of a model; undefined for a model without a tokenizer. */
  vocabulary(model: string): Decoding | undefined {
    return this.#vocabularies.get(model);
  }

  /** Handles one message of the runtime. */
  take(message: ToSandbox, body: Uint8Array<ArrayBuffer>): void {
    switch (message.kind) {
      case 'module':
        this.#takeModule(message, body);
        return;
      case 'program':
        this.#takeProgram(message, body);
        return;
      case 'forget':
        this.#programs.delete(message.key);
        this.#pool.forget(message.key);
        for (const hash of message.modules) this.#modules.delete(hash);
        return;
      case 'keep':
        this.#pool.keep(message.key, message.min);
        return;
      case 'vocabulary':
        this.#vocabularies.set(message.model, decodingOf(message, body));
        this.#tell({ kind: 'vocabulary', model: message.model });
        return;
      case 'prepare':
        void this.#prepare(message.instance, message.key);
        return;
      case 'release':
        if (!this.#instances.get(message.instance)?.running) this.#release(message.instance);
        return;
      case 'device':
        this.#deviceBusy = message.busy;
        return;
    }
  }

  /** Runs the guest of an invocation in the instance that was prepared for it. */
  run(invocation: SandboxInvocation): void {
    const { instance: number, input, cpuLimitMs } = invocation.opening;
    const instance = this.#instances.get(number);
    if (!instance) {
      // The runtime killed the run: the message `release` came first, and the message `close` is yet to come.
      const trapped = { tag: 'trapped', val: { code: 'terminated', message: 'its instance was released' } } as const;
      const usage = { cpuMs: 0, memoryBytes: 0n, calls: 0n };
      invocation.end({ ending: trapped, used: usage, handlerErrors: [], stderr: '', firstCallMs: undefined });
      return;
    }
    instance.running = true;
    const { execution } = instance;
    const startedAt = performance.now();
    execution.guest.context = invocation;
    execution.options = { slices: this.#slices, cpuLimitMs };
    invocation.attach({
      task: execution,
      charge: (cpuMs) => {
        // After its release, the instance may belong to another invocation.
        if (this.#instances.get(number) !== instance) return;
        instance.chargedMs += cpuMs;
        execution.charge(cpuMs);
      },
      closed: (trap) => {
        if (this.#instances.get(number) !== instance) return;
        execution.kill(trap);
        this.#release(number);
      },
    });
    void execution.start(input).then((ending) => {
      invocation.end(endedOf(instance, ending, startedAt));
      if (this.#instances.get(number) !== instance) return;
      if (ending.kind === 'trapped') this.#release(number);
      else {
        this.#instances.delete(number);
        this.#pool.giveBack(instance.key, instance.program, execution);
      }
    });
  }

  /** Returns the instances whose CPU time has grown since the last call. */
  takeUsage(): InstanceUsed[] {
    const changedUsage: InstanceUsed[] = [];
    for (const [number, instance] of this.#instances) {
      const usage = usedOf(instance);
      if (usage.cpuMs === instance.reportedCpuMs) continue;
      instance.reportedCpuMs = usage.cpuMs;
      changedUsage.push({ instance: number, ...usage });
    }
    return changedUsage;
  }

  #takeModule({ hash, whole }: { hash: string; whole: boolean }, bytes: Uint8Array<ArrayBuffer>): void {
    const compiling = whole ? this.#compileWhole(bytes) : WebAssembly.compile(bytes);
    // A program that needs the module reports the compile error.
    compiling.catch(() => undefined);
    this.#modules.set(hash, compiling);
  }

  #takeProgram({ key, plan, modules, script }: SentProgram, body: Uint8Array): void {
    const compiling = Promise.all(
      modules.map(async ({ file, hash }) => {
        const module = await this.#modules.get(hash);
        if (!module) throw new TypeError(`the module ${hash} was not sent`);
        return [file, module] as const;
      }),
    ).then((compiled): Program => {
      const program = { plan, modules: new Map(compiled) };
      return script ? { ...program, memory: script.memory, heap: decodeHeap(body, script.engine) } : program;
    });
    this.#programs.set(key, compiling);
    compiling.then(
      (program) => this.#programs.get(key) === compiling && this.#pool.admit(key, program),
      // `prepare` reports the error.
      () => undefined,
    );
  }

  async #prepare(instance: number, key: string): Promise<void> {
    const startMs = performance.now();
    this.#preparingCount += 1;
    try {
      const isKnown = this.#pool.has(key);
      const compiling = this.#programs.get(key);
      const program = await compiling;
      if (!program) throw new TypeError(`the program ${key} was not sent`);
      const compileMs = isKnown ? 0 : performance.now() - startMs;
      await this.#waitForTurn();
      this.#pool.admit(key, program);
      const { execution, instantiateMs, ready } = this.#pool.take(key);
      // The program may have been forgotten in the meantime.
      if (!this.#programs.has(key)) this.#pool.forget(key);
      this.#instances.set(instance, { key, program, execution, running: false, chargedMs: 0, reportedCpuMs: 0 });
      this.#tell({ kind: 'prepared', instance, ready, compileMs, instantiateMs });
    } catch (error) {
      const message = shortened(error instanceof Error ? error.message : String(error));
      this.#tell({ kind: 'unprepared', instance, message });
    } finally {
      this.#preparingCount -= 1;
    }
  }

  /**
   * Waits for a turn of the event loop in which no other launch runs: making an instance may take milliseconds, and the sandbox must answer
   * between two launches. For up to `MAX_HELD_MS`, the launch also waits for running guests: those that were suspended after a slice of
   * computing and have computing time left, and those whose answers have come. Without this wait, the instances of many simultaneous launches
   * would all exist at once, V8 would collect garbage among all of them, and all would end late.
   */
  #waitForTurn(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#launches.push(resolve) === 1) this.#launchLater(performance.now());
    });
  }

  #launchLater(sinceMs: number): void {
    setImmediate(() => {
      const isHeld = (this.#isBehind() || this.#slices.bursting > 0) && performance.now() - sinceMs < MAX_HELD_MS;
      if (!isHeld) this.#launches.shift()?.();
      if (this.#launches.length > 0) this.#launchLater(isHeld ? sinceMs : performance.now());
    });
  }

  #release(number: number): void {
    const instance = this.#instances.get(number);
    this.#instances.delete(number);
    instance?.execution.dispose();
  }
}

function usedOf({ execution, chargedMs }: Instance): Omit<InstanceUsed, 'instance'> {
  const { guest, state } = execution;
  return { cpuMs: Math.max(0, execution.cpuMs - chargedMs), memoryBytes: state.memoryBytes, calls: guest.calls };
}

function endedOf(instance: Instance, ending: Ending, startedAt: number): LifecycleEnded {
  const { guest } = instance.execution;
  const { cpuMs, memoryBytes, calls } = usedOf(instance);
  return {
    ending:
      ending.kind === 'returned'
        ? { tag: ending.ok ? 'success' : 'failure', val: ending.text }
        : { tag: 'trapped', val: { code: ending.trap.code, message: shortened(ending.trap.message) } },
    used: { cpuMs, memoryBytes: BigInt(memoryBytes), calls: BigInt(calls) },
    handlerErrors: [...guest.handlerErrors]
      .slice(0, MAX_HANDLER_ERRORS)
      .map(([tag, text]) => ({ tag, text: shortened(text) })),
    stderr: shortened(guest.stderr),
    firstCallMs: guest.firstCallAt === 0 ? undefined : Math.max(0, guest.firstCallAt - startedAt),
  };
}

const shortened = (text: string): string =>
  text.length > MAX_TEXT_CHARACTERS ? `${text.slice(0, MAX_TEXT_CHARACTERS)}…` : text;

const NOTHING = new Uint8Array(0);

/**
 * Reads a model's token tables. `body` has the length of each token in bytes (u16), then the bytes of all tokens. The
 * tables share this buffer.
 */
export function decodingOf(
  { special, specialIds, stripsLeadingSpace, size }: SentVocabulary,
  body: Uint8Array,
): Decoding {
  const hidden = new Set(specialIds);
  const starts = new Uint32Array(size + 1);
  const lengths = new DataView(body.buffer, body.byteOffset, size * 2);
  let end = size * 2;
  for (let id = 0; id < size; id++) {
    starts[id] = end;
    end += lengths.getUint16(id * 2, true);
  }
  starts[size] = end;
  const tokenBytes = (id: number): Uint8Array => {
    if (!Number.isInteger(id) || id < 0 || id >= size) {
      throw new RangeError(`token id ${id} is outside the vocabulary of ${size}`);
    }
    return body.subarray(starts[id], starts[id + 1]);
  };
  const visibleBytes = (id: number): Uint8Array => (hidden.has(id) ? NOTHING : tokenBytes(id));
  const stream: Decoding['stream'] = ({ special: showsSpecial = false, continuation = false } = {}) =>
    createTokenStream(showsSpecial ? tokenBytes : visibleBytes, stripsLeadingSpace && !continuation);
  return {
    decode(tokens, options) {
      const tokenStream = stream(options);
      return tokenStream.push(tokens) + tokenStream.finish();
    },
    stream,
    special,
    vocabularySize: size,
    tokenBytes,
  };
}
