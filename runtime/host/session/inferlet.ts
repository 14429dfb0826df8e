import type {
  DeviceClient,
  DeviceUsage,
  GpuHostConnection,
  InferletOptions,
  TenantLimit,
} from '#gpu-host/protocol/client.ts';
import { type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { within } from '#gpu-host/protocol/within.ts';
import type { Resumption } from '#scheduler/admission/job.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import type { AskedQuestion } from '#scheduler/invocations/questions.ts';
import type { InvocationLimits, LatencyTargets } from '#scheduler/invocations/types.ts';
import type { Message } from '#wit/generated/host.ts';
import { GrammarAccount } from '../../grammar/service.ts';
import { imageAccount } from '../../images/service.ts';
import { type InferletHooks, NO_HOOKS } from '../../lifecycle/waiting.ts';
import type { TextUser } from '../../texts/service.ts';
import { Account, type CallAccount } from '../../workers/account.ts';
import type { GrantedEncoder, GrantedModel } from '../device/granted.ts';
import { OtherHosts } from '../memory/other-hosts.ts';
import { Interruptions, Outgoing } from '../services/ask.ts';
import type { InvocationServices, Services } from '../services/services.ts';
import { type CallTokens, type RunTokens, Tokens } from '../text/tokens.ts';
import { FileTransfers } from './file-exchange.ts';
import { type Droppable, Holdings, Sleepers, SourceReader, takenBytes, UnreadResults } from './holdings.ts';
import { messageBytes, type Session, Spans } from './session-state.ts';

/** The time at which an inferlet is stopped. */
export interface Deadline {
  /** Milliseconds since the Unix epoch. Each preemption of the inferlet's family moves it later. */
  readonly at: number;
  /** Milliseconds until the deadline, at least 0. Counted by the platform's clock, which does not step when this machine's clock does. */
  readonly leftMs: number;
}

/** The identity and limits of an inferlet. */
export interface InferletDescription {
  /** The invocation's id. */
  readonly id: string;
  /** Epoch of the attempt; 0 by default. */
  readonly epoch?: number;
  readonly tenant: string;
  readonly functionName: string;
  readonly functionVersion: string;
  /** The request body, JSON text. */
  readonly input: string;
  readonly grants: Grants;
  readonly deadline: Deadline;
  /** The platform's clock, milliseconds since the Unix epoch; `Date.now` by default. */
  readonly clock?: () => number;
  /** Age of the invocation: a newer one has a larger number. When a GPU host must take memory back, the newest inferlet loses it first. */
  readonly arrival: number;
  readonly limits: Partial<InvocationLimits> & {
    readonly pages: number;
    readonly tokens: number;
    /** Queue priorities are clamped to ± this value; by default, to the GPU host's bound. */
    readonly maxPriority?: number;
  };
  /** Latency targets granted to the invocation's family. */
  readonly latency?: LatencyTargets;
  /** Models by name; the first one is the default. */
  readonly models: ReadonlyMap<string, GrantedModel>;
  /** Encoders by name; the first one of a kind is the default. */
  readonly encoders?: ReadonlyMap<string, GrantedEncoder>;
  /** W3C trace context of the request that began the invocation; the inferlet's own requests carry it. */
  readonly traceparent?: string;
  /** The tenant's quota of KV pages on a GPU host, read when the attempt began. */
  readonly tenantPages?: TenantLimit;
  /** True for an invocation of a client, which may wait for a person. */
  readonly mayAsk?: boolean;
  /** For the attempt after a question to a person: the state that the asking attempt left, and the answer. */
  readonly resumption?: Resumption;
  /** Secrets and plain variables of the function's version, sorted by name. */
  readonly variables?: ReadonlyMap<string, string>;
}

/** Maximum resources of each kind that one inferlet may hold at once. */
const MAX_GRAMMARS = 64;
const MAX_MATCHERS = 512;
const MAX_FILES = 1024;
const MAX_EXCHANGES = 64;
const MAX_SUBSCRIPTIONS = 64;
const MAX_CHILD_HANDLES = 1024;
const MAX_PULLS = 64;
const MAX_PIPES = 256;
/** An unchanged tenant limit is sent to the GPU hosts again after this time. */
const LIMIT_RESEND_MS = 10_000;
/** Longest wait at the inferlet's end for the saves in `noting`. */
const NOTING_MS = 5000;

/**
 * One running inferlet's resources on the platform: the context of every host function. `release` gives everything back.
 */
export class Inferlet {
  readonly description: InferletDescription;
  readonly session: Session;
  readonly sleepers = new Sleepers();
  readonly services: Services;
  readonly hooks: InferletHooks;
  readonly invocation: InvocationServices | null;
  readonly interruptions = new Interruptions();
  /** Calls under way, and the bytes that they carry. */
  readonly outgoing: Outgoing;
  /** Results of calls that the inferlet has not read yet. */
  readonly unread: UnreadResults;
  /** The client's messages. */
  readonly received = new SourceReader<Message>(
    this,
    () => this.session.receive(),
    messageBytes,
    () => this.session.read(),
  );
  readonly childHandles = new Holdings(MAX_CHILD_HANDLES, 'children');
  readonly transfers = new FileTransfers(this);
  readonly grammars = new Holdings(MAX_GRAMMARS, 'grammars');
  /** Bounds the inferlet's grammar calls, and charges it for the workers' time. */
  readonly grammarAccount: GrammarAccount;
  /** Bounds and charges the preparation of images. */
  readonly imageAccount: CallAccount;
  /** The account that pays for tokenizing and rendering texts. */
  readonly textUser: TextUser;
  readonly matchers = new Holdings(MAX_MATCHERS, 'matchers');
  readonly files = new Holdings(MAX_FILES, 'files');
  readonly exchanges = new Holdings(MAX_EXCHANGES, 'requests');
  readonly subscriptions = new Holdings(MAX_SUBSCRIPTIONS, 'subscriptions');
  /** Runs that the inferlet has not dropped. */
  readonly runs = new Set<Droppable>();
  /** Runs whose text is piped to the client. */
  readonly pipes = new Holdings(MAX_PIPES, 'runs that are piped');
  /** Waits for messages of queues. */
  readonly pulls = new Holdings(MAX_PULLS, 'pulls that wait');
  /** GPU hosts that own names which the inferlet uses. */
  readonly otherHosts = new OtherHosts(() => this.#hostOptions());
  /** Saves whose owner is being recorded in the store. `release` waits for them: a save that the store refuses must still be undone. */
  readonly noting = new Set<Promise<unknown>>();
  readonly #stopping = new AbortController();
  readonly #devices = new Map<GpuHostConnection, DeviceClient>();
  /** Hosts whose device only `takePlaces` has used so far. */
  readonly #placesOnly = new Set<GpuHostConnection>();
  #hasPlaces = false;
  /** The tenant limit that was last sent to the GPU hosts. */
  #tenantPages: TenantLimit | undefined;
  readonly #pagesPeak = new Map<string, number>();
  /** The question to a person, asked once `run` has returned a result. */
  askedQuestion: AskedQuestion | null = null;
  /** Number of questions that `ask` has refused for their content. */
  refusedQuestionCount = 0;
  /** Counts the inferlet's tokens, and holds its limits. */
  readonly tokens: Tokens;
  #firstTokenAt = 0;
  #lastTokenAt = 0;
  /** Parts of its work that the inferlet has recorded. */
  readonly spans = new Spans();
  /** Name of the first model that the inferlet used; empty when it used none. */
  model = '';
  #stopReason: HandlerError | null = null;
  #released: Promise<void> | null = null;

  constructor(
    description: InferletDescription,
    session: Session,
    services: Services,
    hooks: InferletHooks = NO_HOOKS,
    invocation: InvocationServices | null = null,
  ) {
    this.description = description;
    this.#tenantPages = description.tenantPages;
    this.session = session;
    this.services = services;
    const openTenantBytes = () => takenBytes(services.bytes, description.tenant);
    this.outgoing = new Outgoing(openTenantBytes());
    this.unread = new UnreadResults(openTenantBytes());
    this.hooks = hooks;
    this.invocation = invocation;
    this.tokens = new Tokens({
      limit: description.limits.tokens,
      shared: () => invocation?.shared ?? null,
      hold: (held) => {
        for (const device of this.#devices.values()) {
          if (held === true) device.hold();
          else if (held === false) device.release();
          else device.refuseHeld(held);
        }
      },
      askForTokens: () => this.hooks.askForTokens(),
    });
    this.grammarAccount = new GrammarAccount(hooks.cpu, openTenantBytes());
    this.imageAccount = imageAccount(hooks.cpu);
    this.textUser = { tenant: description.tenant, account: new Account(hooks.cpu), signal: this.stopping };
  }

  /** The reason to stop, or null. */
  get stopped(): HandlerError | null {
    return this.#stopReason;
  }

  /** Aborts when the inferlet is asked to stop. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  get inputTokens(): number {
    return this.tokens.input;
  }

  get outputTokens(): number {
    return this.tokens.output;
  }

  /** Input tokens that a prefix cache had: the model did not compute them again. */
  get cachedTokens(): number {
    return this.tokens.cached;
  }

  /**
   * Time of the first output token, milliseconds of `performance.now`; 0 for never. The token of a step counts when the step is requested. The
   * token of a run on the device counts when `next` or a pipe takes it.
   */
  get firstTokenAt(): number {
    return this.#firstTokenAt;
  }

  /** Time of the last output token, counted in the same way; 0 for never. */
  get lastTokenAt(): number {
    return this.#lastTokenAt;
  }

  /** Maximum KV pages held at once so far, by model. */
  get pagesPeak(): ReadonlyMap<string, number> {
    return this.#pagesPeak;
  }

  /** The inferlet's side of one GPU host, opened with the first queue. */
  device(connection: GpuHostConnection): DeviceClient {
    const openDevice = this.#devices.get(connection);
    // Reopen a lost device that only `takePlaces` has used: the inferlet lost nothing with it.
    if (openDevice && !(this.#placesOnly.delete(connection) && openDevice.lost !== undefined)) return openDevice;
    const { limits, latency, traceparent } = this.description;
    const opened = connection.openInferlet({
      ...this.#hostOptions(),
      ...(latency && { latency }),
      ...(this.invocation && { sharedPages: this.invocation.shared.pages }),
      ...(limits.maxPriority !== undefined && { maxPriority: limits.maxPriority }),
      ...(this.hooks.steps && traceparent !== undefined && { traceparent }),
      onEncoded: (tokens) => this.tokens.encoded(tokens),
      onTerminated: (termination) => this.hooks.terminated(termination),
      onHeld: (isHeld) => this.hooks.held(isHeld),
    });
    if (this.tokens.isHeld) opened.hold();
    this.#devices.set(connection, opened);
    this.hooks.waits.addDevice(opened);
    return opened;
  }

  /** The inferlet's identity and limits on any GPU host. */
  #hostOptions(): InferletOptions {
    const { id, epoch = 0, tenant, functionName, arrival, limits } = this.description;
    const tenantPages = this.#tenantPages;
    return { id, epoch, tenant, functionName, arrival, maxPages: limits.pages, ...(tenantPages && { tenantPages }) };
  }

  /** The tenant's quota of KV pages on a GPU host, as last read; null without a quota. */
  get tenantPages(): number | null {
    return this.#tenantPages?.pages ?? null;
  }

  /** Sends the tenant's limit to the GPU hosts: a changed one at once, the same one every 10 s, since another runtime may have sent an older one. */
  limitTenant(limit: TenantLimit): void {
    const previous = this.#tenantPages;
    if (previous && previous.pages === limit.pages && limit.readAt - previous.readAt < LIMIT_RESEND_MS) return;
    this.#tenantPages = limit;
    for (const device of this.#devices.values()) device.setTenantLimit(limit);
  }

  /**
   * Takes a place in the age order at the GPU host of every granted model, by opening a queue there. The inferlet must do so before its
   * children, which have the same `arrival`: among equals, a host considers the later one newer, and the newest loses its memory first.
   */
  takePlaces(): void {
    if (this.#hasPlaces) return;
    this.#hasPlaces = true;
    const knownConnections = new Set(this.#devices.keys());
    for (const [name, { connection }] of this.description.models) {
      if (!connection.connected) continue;
      const device = this.device(connection);
      device.closeQueue(device.createQueue(name));
      if (!knownConnections.has(connection)) this.#placesOnly.add(connection);
    }
  }

  /** The reason that a GPU host with memory of this inferlet was lost; undefined when none was. Known until `release`. */
  get lostDevice(): string | undefined {
    for (const [connection, { lost }] of this.#devices) {
      if (lost !== undefined && !this.#placesOnly.has(connection)) return lost;
    }
    return undefined;
  }

  /** Lost GPU hosts that held memory of this inferlet. Known until `release`. */
  get lostConnections(): readonly GpuHostConnection[] {
    return [...this.#devices]
      .filter(([connection, { lost }]) => lost !== undefined && !this.#placesOnly.has(connection))
      .map(([connection]) => connection);
  }

  /** Counts input and output tokens of a model or an encoder. */
  count(inputTokens: number, outputTokens: number): void {
    if (outputTokens > 0) this.#noteOutputTime();
    this.tokens.count(inputTokens, outputTokens);
  }

  /** Makes a call and counts its tokens, see `Tokens.during`. */
  countDuring<T>(
    tokens: CallTokens,
    call: () => Promise<Outcome<T>>,
    cachedOf?: (answer: T) => number,
  ): Promise<Outcome<T>> {
    if (tokens.outputs > 0) this.#noteOutputTime();
    return this.tokens.during(tokens, call, cachedOf);
  }

  /** Counts tokens that the inferlet has taken from a run. */
  countRun(run: RunTokens, tokens: number): void {
    if (tokens > 0) this.#noteOutputTime();
    run.count(tokens);
  }

  /** The error when the inferlet may not request tokens, or null; see `Tokens.refuse`. */
  refuseTokens(): HandlerError | null {
    return this.tokens.refuse();
  }

  /** Time and pages of all devices, by their last reports. */
  get deviceUsage(): Omit<DeviceUsage, 'encodedTokens'> {
    let { gpuUs, pageMs } = this.otherHosts.usage;
    for (const { usage } of this.#devices.values()) {
      gpuUs += usage.gpuUs;
      pageMs += usage.pageMs;
    }
    return { gpuUs, pageMs };
  }

  /** KV pages held now, by model. */
  heldPages(): Record<string, number> {
    const pageCounts = [...this.description.models].map(([name, { connection }]) => [
      name,
      this.#devices.get(connection)?.heldPagesOf(name) ?? 0,
    ]);
    return Object.fromEntries(pageCounts);
  }

  #noteOutputTime(): void {
    this.#lastTokenAt = performance.now();
    if (this.#firstTokenAt === 0) this.#firstTokenAt = this.#lastTokenAt;
  }

  /** Notes the pages that the inferlet holds on the queue's model, for `pagesPeak`. */
  observePages({ name, device }: { readonly name: string; readonly device: DeviceClient | null }): void {
    const heldPages = device?.heldPagesOf(name) ?? 0;
    if (heldPages > (this.#pagesPeak.get(name) ?? 0)) this.#pagesPeak.set(name, heldPages);
  }

  /** Asks the inferlet to stop: its waits (`sleep`, `receive`, a response, a message) complete with the reason. `Stopping` kills it if it goes on. */
  stop(reason: HandlerError): void {
    if (this.#stopReason) return;
    this.#stopReason = reason;
    this.sleepers.stop(reason);
    this.session.stop(reason);
    this.interruptions.stop(reason);
    this.pulls.dropAll();
    this.transfers.stop();
    this.invocation?.children.stop(reason);
    this.#stopping.abort();
  }

  /** Gives back everything that the inferlet holds. Resolves when the GPU hosts have released its memory. */
  release(): Promise<void> {
    this.#released ??= this.#release();
    return this.#released;
  }

  async #release(): Promise<void> {
    this.stop(handlerError('terminated', 'the invocation has ended'));
    for (const run of [...this.runs]) run.drop();
    // Do not drop `files`: closing the devices frees files and their locks.
    this.matchers.dropAll();
    this.grammars.dropAll();
    this.exchanges.dropAll();
    this.subscriptions.dropAll();
    this.childHandles.dropAll();
    this.grammarAccount.close();
    this.unread.close();
    if (this.noting.size > 0) await within(NOTING_MS, Promise.allSettled(this.noting));
    await Promise.all([this.otherHosts.close(), ...[...this.#devices.values()].map((device) => device.close())]);
  }
}
