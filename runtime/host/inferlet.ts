import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import type { VisionConfig } from '#gpu-host/models/vision/config.ts';
import type {
  DeviceUsage,
  GpuHostConnection,
  GpuInferlet,
  ModelSummary,
  TenantLimit,
} from '#gpu-host/protocol/client.ts';
import { type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { Message, ModelMetadata } from '#wit/generated/host.ts';
import { GrammarAccount, type GrammarService } from '../grammar/service.ts';
import { imageAccount } from '../images/service.ts';
import { type InferletHooks, NO_HOOKS } from '../lifecycle/waiting.ts';
import type { TextUser } from '../texts/service.ts';
import { Account, type CallAccount } from '../workers/account.ts';
import { FileTransfers } from './file-exchange.ts';
import { Holdings } from './holdings.ts';
import { Interruptions } from './interruptions.ts';
import { messageBytes } from './message-bytes.ts';
import { Outgoing } from './outgoing.ts';
import type { OwnServices } from './own.ts';
import type { Services } from './services.ts';
import type { Session } from './session-state.ts';
import { Sleepers } from './sleepers.ts';
import { Takes } from './takes.ts';
import { type CallTokens, Tokens } from './tokens.ts';
import { Unread } from './unread.ts';

/** A model that an inferlet may use, and where it runs. */
export interface GrantedModel {
  readonly summary: ModelSummary;
  readonly connection: GpuHostConnection;
  /** Null when the model's directory has no tokenizer. */
  readonly tokenizer: Tokenizer | null;
  /** Null when the model's directory cannot be read from here. */
  readonly metadata: ModelMetadata | null;
  /** How it takes pictures; null when it takes none, or its directory cannot be read from here. */
  readonly vision: VisionConfig | null;
  /** Compiles and matches grammars over the tokenizer's vocabulary. */
  readonly grammars: Pick<GrammarService, 'compile'>;
}

/** Who runs, and within which limits. */
export interface InferletDescription {
  /** The invocation's id. */
  readonly id: string;
  /** Of its attempt; 0 without it. */
  readonly epoch?: number;
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
  readonly limits: Partial<InvocationLimits> & {
    readonly pages: number;
    readonly tokens: number;
    /** Its queues' priorities are held within ±this; the GPU host's default without it. */
    readonly maxPriority?: number;
  };
  /** By name; the first is the default. */
  readonly models: ReadonlyMap<string, GrantedModel>;
  /** W3C trace context of the request that began it, sent along with its own requests. */
  readonly traceparent?: string;
  /** KV pages that its tenant may hold on a GPU host, a quota, as its attempt's beginning read it. */
  readonly tenantPages?: TenantLimit;
  /** Secrets and plain variables of its version, by name, in order. */
  readonly variables?: ReadonlyMap<string, string>;
}

/** Most resources of a kind that one inferlet may hold at once. */
const MAX_GRAMMARS = 64;
const MAX_MATCHERS = 512;
const MAX_FILES = 1024;
const MAX_EXCHANGES = 64;
const MAX_SUBSCRIPTIONS = 64;
const MAX_CHILD_HANDLES = 1024;
const MAX_PULLS = 64;
const MAX_PIPES = 256;
/** A limit of its tenant is told again, unchanged, after so long. */
const LIMIT_TOLD_MS = 10_000;

/**
 * What one inferlet has from the platform while it runs: the context of every host function. `release` gives everything back.
 */
export class Inferlet {
  readonly description: InferletDescription;
  readonly session: Session;
  readonly sleepers = new Sleepers();
  readonly services: Services;
  readonly hooks: InferletHooks;
  readonly own: OwnServices | null;
  readonly interruptions = new Interruptions();
  /** Its calls under way, and what they carry. */
  readonly outgoing = new Outgoing();
  /** What its calls came back with and it has not read. */
  readonly unread = new Unread();
  /** Its client's messages. */
  readonly received = new Takes<Message>(this, () => this.session.receive(), messageBytes);
  readonly childHandles = new Holdings(MAX_CHILD_HANDLES, 'children');
  readonly transfers = new FileTransfers(this);
  readonly grammars = new Holdings(MAX_GRAMMARS, 'grammars');
  /** Bounds its grammars' calls, and charges it for the time of their workers. */
  readonly grammarAccount: GrammarAccount;
  /** The same of its pictures. */
  readonly imageAccount: CallAccount;
  /** Answers for the texts that it has tokenized or rendered. */
  readonly textUser: TextUser;
  readonly matchers = new Holdings(MAX_MATCHERS, 'matchers');
  readonly files = new Holdings(MAX_FILES, 'files');
  readonly exchanges = new Holdings(MAX_EXCHANGES, 'requests');
  readonly subscriptions = new Holdings(MAX_SUBSCRIPTIONS, 'subscriptions');
  /** Its runs whose text goes to the client. */
  readonly pipes = new Holdings(MAX_PIPES, 'runs that are piped');
  /** Its waits for messages of lines. */
  readonly pulls = new Holdings(MAX_PULLS, 'pulls that wait');
  readonly #stopping = new AbortController();
  readonly #devices = new Map<GpuHostConnection, GpuInferlet>();
  /** Those of them that were opened for a place in line and not used yet. */
  readonly #placesOnly = new Set<GpuHostConnection>();
  #hasPlaces = false;
  /** The limit of its tenant that its GPU hosts were told last. */
  #tenantPages: TenantLimit | undefined;
  readonly #pagesPeak = new Map<string, number>();
  /** What it may still use of them, and what it has. */
  readonly tokens: Tokens;
  #firstTokenAt = 0;
  #lastTokenAt = 0;
  /** Name of the model that it used first; empty when it used none. */
  model = '';
  #stopped: HandlerError | null = null;
  #released: Promise<void> | null = null;

  constructor(
    description: InferletDescription,
    session: Session,
    services: Services,
    hooks: InferletHooks = NO_HOOKS,
    own: OwnServices | null = null,
  ) {
    this.description = description;
    this.#tenantPages = description.tenantPages;
    this.session = session;
    this.services = services;
    this.hooks = hooks;
    this.own = own;
    const quotaReached = () => this.hooks.quotaReached();
    this.tokens = new Tokens({
      limit: description.limits.tokens,
      shared: () => own?.shared ?? null,
      quotaReached,
      quotaUnknown: () => this.hooks.quotaUnknown(),
    });
    this.grammarAccount = new GrammarAccount(hooks.cpu);
    this.imageAccount = imageAccount(hooks.cpu);
    this.textUser = { tenant: description.tenant, account: new Account(hooks.cpu), signal: this.stopping };
  }

  /** Why it was asked to stop, or null. */
  get stopped(): HandlerError | null {
    return this.#stopped;
  }

  /** Aborts when it is asked to stop. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  get inputTokens(): number {
    return this.tokens.input;
  }

  get outputTokens(): number {
    return this.tokens.output;
  }

  /** Of the tokens that went in, those that a prefix cache had: they were not computed again. */
  get cachedTokens(): number {
    return this.tokens.cached;
  }

  /** When the first token that came out was asked for, milliseconds of `performance.now`; 0 for never. */
  get firstTokenAt(): number {
    return this.#firstTokenAt;
  }

  /** The same of the last one. */
  get lastTokenAt(): number {
    return this.#lastTokenAt;
  }

  /** Most KV pages held at once, by model. */
  get pagesPeak(): ReadonlyMap<string, number> {
    return this.#pagesPeak;
  }

  /** Its calls on one GPU host; opened with the first queue. */
  device(connection: GpuHostConnection): GpuInferlet {
    const known = this.#devices.get(connection);
    // One that was opened for its place in line only has lost nothing with its host.
    if (known && !(this.#placesOnly.delete(connection) && known.lost !== undefined)) return known;
    const { id, epoch = 0, tenant, functionName, arrival, limits, traceparent } = this.description;
    const tenantPages = this.#tenantPages;
    const opened = connection.openInferlet({
      id,
      epoch,
      tenant,
      functionName,
      arrival,
      maxPages: limits.pages,
      ...(tenantPages && { tenantPages }),
      ...(this.own && { sharedPages: this.own.shared.pages }),
      ...(limits.maxPriority !== undefined && { maxPriority: limits.maxPriority }),
      ...(this.hooks.steps && traceparent !== undefined && { traceparent }),
      onTerminated: (termination) => this.hooks.terminated(termination),
    });
    this.#devices.set(connection, opened);
    this.hooks.waits.addDevice(opened);
    return opened;
  }

  /** Tells its GPU hosts of its tenant's limit when it has changed, and now and then: others may have told them what they read before. */
  limitTenant(limit: TenantLimit): void {
    const known = this.#tenantPages;
    if (known && known.pages === limit.pages && limit.readAt - known.readAt < LIMIT_TOLD_MS) return;
    this.#tenantPages = limit;
    for (const device of this.#devices.values()) device.setTenantLimit(limit);
  }

  /**
   * Takes its place in line for the memory of every model that it may use: whoever comes after it in the same line is newer there. A place
   * is had with the first queue.
   */
  takePlaces(): void {
    if (this.#hasPlaces) return;
    this.#hasPlaces = true;
    const known = new Set(this.#devices.keys());
    for (const [name, { connection }] of this.description.models) {
      if (!connection.connected) continue;
      const device = this.device(connection);
      device.closeQueue(device.createQueue(name));
      if (!known.has(connection)) this.#placesOnly.add(connection);
    }
  }

  /** Why a GPU host that held something of it is gone; undefined when none is. Known until `release`. */
  get lostDevice(): string | undefined {
    for (const [connection, { lost }] of this.#devices) {
      if (lost !== undefined && !this.#placesOnly.has(connection)) return lost;
    }
    return undefined;
  }

  /** GPU hosts that are gone with what they held of it. Known until `release`. */
  get lostConnections(): readonly GpuHostConnection[] {
    return [...this.#devices]
      .filter(([at, { lost }]) => lost !== undefined && !this.#placesOnly.has(at))
      .map(([at]) => at);
  }

  /** Counts tokens that go in and come out of the model. */
  count(inputTokens: number, outputTokens: number): void {
    if (outputTokens > 0) this.#tokensAsked();
    this.tokens.count(inputTokens, outputTokens);
  }

  /** Counts the tokens of a call, see `Tokens.during`. */
  countDuring<T>(
    tokens: CallTokens,
    result: Promise<Outcome<T>>,
    cachedOf?: (answer: T) => number,
  ): Promise<Outcome<T>> {
    if (tokens.outputs > 0) this.#tokensAsked();
    return this.tokens.during(tokens, result, cachedOf);
  }

  /** Why so many more tokens, which are charged at least, may not be asked for, or null. */
  refuseTokens(wanted: number): HandlerError | null {
    return this.tokens.refuse(wanted);
  }

  /** What it has used of all its devices, by their last word. */
  get deviceUsage(): DeviceUsage {
    let [gpuUs, pageMs] = [0, 0];
    for (const { usage } of this.#devices.values()) {
      gpuUs += usage.gpuUs;
      pageMs += usage.pageMs;
    }
    return { gpuUs, pageMs };
  }

  /** KV pages that it holds now, by model. */
  heldPages(): Record<string, number> {
    const held = [...this.description.models].map(([name, { connection }]) => [
      name,
      this.#devices.get(connection)?.heldPagesOf(name) ?? 0,
    ]);
    return Object.fromEntries(held);
  }

  #tokensAsked(): void {
    this.#lastTokenAt = performance.now();
    if (this.#firstTokenAt === 0) this.#firstTokenAt = this.#lastTokenAt;
  }

  observePages(model: string, held: number): void {
    if (held > (this.#pagesPeak.get(model) ?? 0)) this.#pagesPeak.set(model, held);
  }

  /** Asks it to stop: what it waits for here (`sleep`, `receive`, a response, a message) completes with the reason; it is killed elsewhere if it does not end. */
  stop(reason: HandlerError): void {
    if (this.#stopped) return;
    this.#stopped = reason;
    this.sleepers.stop(reason);
    this.session.stop(reason);
    this.interruptions.stop(reason);
    this.pulls.dropAll();
    this.transfers.stop();
    this.own?.children.stop(reason);
    this.#stopping.abort();
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
    this.exchanges.dropAll();
    this.subscriptions.dropAll();
    this.childHandles.dropAll();
    await Promise.all([...this.#devices.values()].map((device) => device.close()));
  }
}
