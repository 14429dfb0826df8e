import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import type { GpuHostConnection, GpuInferlet, ModelSummary } from '#gpu-host/protocol/client.ts';
import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import { GrammarAccount, type GrammarService } from '../grammar/service.ts';
import { type InferletHooks, NO_HOOKS } from '../lifecycle/waiting.ts';
import { Holdings } from './holdings.ts';
import type { Session } from './session-state.ts';
import { Sleepers } from './sleepers.ts';

/** A model that an inferlet may use, and where it runs. */
export interface GrantedModel {
  readonly summary: ModelSummary;
  readonly connection: GpuHostConnection;
  /** Null when the model's directory has no tokenizer. */
  readonly tokenizer: Tokenizer | null;
  /** Compiles and matches grammars over the tokenizer's vocabulary. */
  readonly grammars: Pick<GrammarService, 'compile'>;
}

/** Who runs, and within which limits. */
export interface InferletDescription {
  /** The invocation's id. */
  readonly id: string;
  readonly tenant: string;
  readonly functionName: string;
  readonly functionVersion: string;
  /** The request body, JSON text. */
  readonly input: string;
  readonly grants: Grants;
  /** Milliseconds since the Unix epoch at which it is stopped. */
  readonly deadlineAt: number;
  /** Place in line of its invocation: whoever came last loses its memory first. */
  readonly arrival: number;
  readonly limits: {
    readonly pages: number;
    readonly tokens: number;
    /** Its queues' priorities are held within ±this; the GPU host's default without it. */
    readonly maxPriority?: number;
  };
  /** By name; the first is the default. */
  readonly models: ReadonlyMap<string, GrantedModel>;
}

/** Most resources of a kind that one inferlet may hold at once. */
const MAX_GRAMMARS = 64;
const MAX_MATCHERS = 512;
const MAX_FILES = 1024;

/**
 * What one inferlet has from the platform while it runs: the context of every host function. `release` gives everything back.
 */
export class Inferlet {
  readonly description: InferletDescription;
  readonly session: Session;
  readonly sleepers = new Sleepers();
  readonly hooks: InferletHooks;
  readonly grammars = new Holdings(MAX_GRAMMARS, 'grammars');
  /** Bounds its grammars' calls, and charges it for the time of their workers. */
  readonly grammarAccount: GrammarAccount;
  readonly matchers = new Holdings(MAX_MATCHERS, 'matchers');
  readonly files = new Holdings(MAX_FILES, 'files');
  readonly #devices = new Map<GpuHostConnection, GpuInferlet>();
  readonly #pagesPeak = new Map<string, number>();
  #inputTokens = 0;
  #outputTokens = 0;
  #stopped: HandlerError | null = null;
  #released: Promise<void> | null = null;

  constructor(description: InferletDescription, session: Session, hooks: InferletHooks = NO_HOOKS) {
    this.description = description;
    this.session = session;
    this.hooks = hooks;
    this.grammarAccount = new GrammarAccount(hooks.cpu);
  }

  /** Why it was asked to stop, or null. */
  get stopped(): HandlerError | null {
    return this.#stopped;
  }

  get inputTokens(): number {
    return this.#inputTokens;
  }

  get outputTokens(): number {
    return this.#outputTokens;
  }

  /** Most KV pages held at once, by model. */
  get pagesPeak(): ReadonlyMap<string, number> {
    return this.#pagesPeak;
  }

  /** Its calls on one GPU host; opened with the first queue. */
  device(connection: GpuHostConnection): GpuInferlet {
    const known = this.#devices.get(connection);
    if (known) return known;
    const { id, tenant, arrival, limits } = this.description;
    const opened = connection.openInferlet({
      id,
      tenant,
      arrival,
      maxPages: limits.pages,
      ...(limits.maxPriority !== undefined && { maxPriority: limits.maxPriority }),
      onTerminated: (cause) => this.hooks.terminated(cause),
    });
    this.#devices.set(connection, opened);
    this.hooks.waits.addDevice(opened);
    return opened;
  }

  /** Why a GPU host that held something of it is gone; undefined when none is. Known until `release`. */
  get lostDevice(): string | undefined {
    for (const { lost } of this.#devices.values()) if (lost !== undefined) return lost;
    return undefined;
  }

  /** Counts tokens that go in and come out of the model. */
  count(inputTokens: number, outputTokens: number): void {
    this.#inputTokens += inputTokens;
    this.#outputTokens += outputTokens;
  }

  /** Why no more tokens may be asked for, or null. */
  refuseTokens(): HandlerError | null {
    const { tokens } = this.description.limits;
    if (this.#inputTokens + this.#outputTokens <= tokens) return null;
    return handlerError('limit-exceeded', `the invocation's ${tokens} tokens are used up (manifest: limits.tokens)`);
  }

  observePages(model: string, held: number): void {
    if (held > (this.#pagesPeak.get(model) ?? 0)) this.#pagesPeak.set(model, held);
  }

  /** Asks it to stop: what it waits for here (`sleep`, `receive`) completes with the reason; it is killed elsewhere if it does not end. */
  stop(reason: HandlerError): void {
    if (this.#stopped) return;
    this.#stopped = reason;
    this.sleepers.stop(reason);
    this.session.stop(reason);
  }

  /** Gives back all that it holds. Resolves when the GPU hosts have released its memory. */
  release(): Promise<void> {
    this.#released ??= this.#release();
    return this.#released;
  }

  async #release(): Promise<void> {
    this.stop(handlerError('terminated', 'the invocation has ended'));
    // Files and their locks go with the devices' side of the inferlet.
    this.matchers.dropAll();
    this.grammars.dropAll();
    await Promise.all([...this.#devices.values()].map((device) => device.close()));
  }
}
