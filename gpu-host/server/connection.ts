import type { Socket } from 'node:net';
import { Heartbeat } from '#scheduler/links/heartbeat.ts';
import { commonVersion, statedVersions, type Versions, versionRefusal } from '#scheduler/links/versions.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import type { EncoderEngine } from '../encoders/engine.ts';
import type { ModelEngine } from '../handlers/engine/engine.ts';
import type { TenantLimit } from '../protocol/calls.ts';
import { ProtocolFault, type ProtocolFaultCode } from '../protocol/errors.ts';
import { PageLists } from '../protocol/fields.ts';
import { FrameReader, FrameWriter, type WordReader } from '../protocol/frames.ts';
import type { GpuHostStats, HostHello, StatsOptions } from '../protocol/host.ts';
import { answerOf, type DecodedCall, decodeCalls, type QueuedCall } from '../protocol/operations.ts';
import { decodeAlive, encodeAlive } from '../protocol/results.ts';
import { FRAME, type FrameKind, MAX_JSON_BYTES, STATS } from '../protocol/wire.ts';
import type { Attempts } from './attempts.ts';
import type { ConnectionLimits } from './connection-limits.ts';
import { HostedInferlet, type ResultSink } from './hosted-inferlet.ts';

export interface ConnectionEnvironment {
  readonly engines: readonly ModelEngine[];
  readonly encoders: readonly EncoderEngine[];
  readonly log: Logger;
  hello(): Omit<HostHello, 'version'>;
  /** Versions of the protocol that this host speaks. */
  readonly versions: Versions;
  /** Shared by the whole host: attempts supersede one another across connections. */
  readonly attempts: Attempts;
  limitTenant(tenant: string, limit: TenantLimit): void;
  stats(options: StatsOptions): GpuHostStats;
  /** For how many milliseconds the step on the device may keep this process from answering; 0 for no longer than usual. */
  silentMs(): number;
  /** Announces written results, to be sent with the next flush. */
  touched(connection: Connection): void;
  ended(connection: Connection): void;
}

/** Idle time after which the kernel asks the peer's kernel for a sign of life. Ten unanswered requests, one a second, end the connection. */
const KEEPALIVE_IDLE_MS = 1000;
/** Number of intervals into which `silentMs` is divided; the heartbeat counts the silent ones. */
const SILENT_INTERVALS = 5;

/**
 * One runtime's connection: frames in, calls to the engines, results out. An unreadable frame ends this connection with a code. The end of
 * the connection releases everything that its inferlets held.
 */
export class Connection implements ResultSink {
  readonly writer = new FrameWriter();
  #socket: Socket;
  #environment: ConnectionEnvironment;
  #limits: ConnectionLimits;
  #reader = new FrameReader();
  readonly #pageLists = new PageLists();
  #hasHello = false;
  #ended = false;
  #inferlets = new Map<number, HostedInferlet>();
  /** Calls that were read and wait for the next turn of the event loop, and their bytes. */
  #waitingCalls: { readonly call: DecodedCall; readonly bytes: number }[] = [];
  /** End of this turn's slice, by `performance.now`. */
  #sliceEndsMs = 0;
  /** Bytes of results written since the last flush, by inferlet. */
  #written = new Map<HostedInferlet, number>();
  /** Time since which more than `maxUnreadBytes` has been unread. */
  #unreadSinceMs: number | undefined;
  #helloTimer: NodeJS.Timeout;
  /** Inferlets with unreported usage. */
  #unreportedUsage = new Set<HostedInferlet>();
  #usageTimer: NodeJS.Timeout | undefined;
  /** Present once the runtime has asked for a sign of life. */
  #heartbeat: Heartbeat | undefined;
  /** True when the last sign of life told the runtime that the step on the device may take long. */
  #isForewarned = false;
  #owner: string | undefined;
  #holdingTimer: NodeJS.Timeout;

  constructor(socket: Socket, environment: ConnectionEnvironment, limits: ConnectionLimits) {
    this.#socket = socket;
    this.#environment = environment;
    this.#limits = limits;
    // After a pause of this process the timer fires before the socket is read. `setImmediate` lets a hello that has arrived be read first.
    this.#helloTimer = setTimeout(() => setImmediate(() => this.#endWithoutHello()), limits.helloMs);
    this.#holdingTimer = setInterval(() => this.#writeHoldings(), limits.holdingMs).unref();
    socket.setNoDelay(true);
    // Without effect on a unix socket.
    socket.setKeepAlive(true, KEEPALIVE_IDLE_MS);
    socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    socket.on('error', () => this.#close());
    socket.on('close', () => this.#close());
  }

  get inferlets(): number {
    return this.#inferlets.size;
  }

  /** Name that all connections of the same runtime have, and no others; undefined from a runtime that gives none. */
  get owner(): string | undefined {
    return this.#owner;
  }

  /** True when the runtime gives signs of life on this connection; they count for all connections of the same owner. */
  get isWatched(): boolean {
    return this.#heartbeat !== undefined;
  }

  /**
   * Call when a step begins that may keep this process from answering. Warns a runtime that has asked for signs of life, once for each of its
   * requests.
   */
  forewarn(): void {
    if (!this.#heartbeat || this.#isForewarned) return;
    this.#answerAlive();
  }

  touched(): void {
    this.#environment.touched(this);
  }

  wrote(inferlet: HostedInferlet, bytes: number): void {
    this.#written.set(inferlet, (this.#written.get(inferlet) ?? 0) + bytes);
    this.touched();
  }

  used(inferlet: HostedInferlet): void {
    if (this.#ended) return;
    this.#unreportedUsage.add(inferlet);
    this.#usageTimer ??= setTimeout(() => this.#writeUsage(), this.#limits.usageMs).unref();
  }

  /** Sends everything written, in one write. */
  flush(): void {
    if (this.#ended || this.writer.length === 0) return;
    if (this.#stalled()) {
      this.end('overrun', `${this.#socket.writableLength} bytes of results were not read`);
      return;
    }
    const written = this.#written;
    this.#written = new Map();
    this.#socket.write(this.writer.take(), () => {
      for (const [inferlet, bytes] of written) inferlet.noteTaken(bytes);
    });
  }

  /** Ends the connection with a code that the peer can read. */
  end(code: ProtocolFaultCode, message: string): void {
    if (this.#ended) return;
    this.writer.begin(FRAME.error);
    this.writer.putText(code);
    this.writer.putText(message);
    this.writer.end();
    this.#socket.end(this.writer.take());
    // Do not wait for a peer that keeps its side open.
    this.#socket.setTimeout(1000, () => this.#socket.destroy());
    this.#close();
  }

  /**
   * True when the peer has left too much unread for too long. The results of this flush do not count yet: many results of one inferlet at once
   * must not end its neighbours.
   */
  #stalled(): boolean {
    if (this.#socket.writableLength <= this.#limits.maxUnreadBytes) {
      this.#unreadSinceMs = undefined;
      return false;
    }
    const nowMs = performance.now();
    this.#unreadSinceMs ??= nowMs;
    return nowMs - this.#unreadSinceMs > this.#limits.maxUnreadMs;
  }

  #writeUsage(): void {
    this.#usageTimer = undefined;
    for (const inferlet of this.#unreportedUsage) inferlet.writeUsage();
    this.#unreportedUsage.clear();
  }

  /** Reports usage, so that held pages are billed even while their inferlet is idle. */
  #writeHoldings(): void {
    for (const inferlet of this.#inferlets.values()) inferlet.writeUsage();
  }

  #receive(chunk: Buffer): void {
    this.#heartbeat?.heard();
    this.#guarded(() => {
      this.#sliceEndsMs = performance.now() + this.#limits.sliceMs;
      this.#reader.push(chunk, (kind, reader, end) => this.#frame(kind, reader, end));
      if (this.#waitingCalls.length > 0) this.#goOnLater();
    });
  }

  /** Handles a call, or keeps it for a later turn: the calls of one frame must not hold up steps and other connections. */
  #handleOrKeep(call: DecodedCall, bytes: number): void {
    if (this.#waitingCalls.length > 0 || performance.now() > this.#sliceEndsMs)
      this.#waitingCalls.push({ call, bytes });
    else this.#call(call, bytes);
  }

  /** Reads nothing more until the calls that were read are handled. */
  #goOnLater(): void {
    this.#socket.pause();
    setImmediate(() => this.#guarded(() => this.#goOn()));
  }

  #goOn(): void {
    this.#sliceEndsMs = performance.now() + this.#limits.sliceMs;
    let handled = 0;
    for (const { call, bytes } of this.#waitingCalls) {
      this.#call(call, bytes);
      handled++;
      if (performance.now() > this.#sliceEndsMs) break;
    }
    this.#waitingCalls.splice(0, handled);
    if (this.#waitingCalls.length > 0) this.#goOnLater();
    else this.#socket.resume();
  }

  #guarded(work: () => void): void {
    if (this.#ended) return;
    try {
      work();
    } catch (error) {
      if (error instanceof ProtocolFault) {
        this.end(error.code, error.message);
        return;
      }
      // The error concerns this connection only: its inferlets' memory goes back, and all other connections go on.
      this.#environment.log.error({ error }, 'a frame could not be handled');
      this.end('internal', 'the GPU host could not handle a frame; its log says why');
    }
  }

  #frame(kind: FrameKind, reader: WordReader, end: number): void {
    if (this.#ended) return;
    if (kind === FRAME.hello) this.#hello(reader, end);
    else if (!this.#hasHello) throw new ProtocolFault('unexpected', 'the first frame must be a hello');
    else if (kind === FRAME.calls)
      decodeCalls(reader, end, this.#pageLists, (call, bytes) => this.#handleOrKeep(call, bytes));
    else if (kind === FRAME.statsRequest) this.#stats(reader, end);
    else if (kind === FRAME.alive) this.#alive(reader, end);
    else throw new ProtocolFault('unexpected', `frame kind ${kind} from a runtime`);
  }

  #alive(reader: WordReader, end: number): void {
    decodeAlive(reader, end);
    this.#heartbeat ??= new Heartbeat(
      () => undefined,
      (why) => this.end('timeout', `no sign of life: ${why}`),
      { everyMs: this.#limits.silentMs / SILENT_INTERVALS, silentIntervals: SILENT_INTERVALS },
    );
    this.#answerAlive();
  }

  #answerAlive(): void {
    const silentMs = this.#environment.silentMs();
    this.#isForewarned = silentMs > 0;
    encodeAlive(this.writer, silentMs);
    this.flush();
  }

  #endWithoutHello(): void {
    if (!this.#hasHello) this.end('timeout', `no hello within ${this.#limits.helloMs} ms`);
  }

  #hello(reader: WordReader, end: number): void {
    if (this.#hasHello) throw new ProtocolFault('unexpected', 'a second hello');
    reader.enter(end);
    const hello = readHello(reader.text(MAX_JSON_BYTES));
    const version = this.#agree(hello);
    this.#owner = hello.owner;
    reader.leave(end);
    if (!reader.done) throw new ProtocolFault('malformed', 'a hello with more than one entry');
    this.#hasHello = true;
    clearTimeout(this.#helloTimer);
    this.writer.begin(FRAME.hello);
    this.writer.putText(JSON.stringify({ ...this.#environment.hello(), version }), MAX_JSON_BYTES);
    this.writer.end();
    this.flush();
    this.#reader.version = version;
    this.writer.version = version;
  }

  /** Chooses the version of all later frames among those in the runtime's hello. */
  #agree({ versions }: RuntimeHello): number {
    const { versions: ownVersions } = this.#environment;
    const version = commonVersion(ownVersions, versions);
    if (version !== null) return version;
    const why = versionRefusal(
      'GPU protocol',
      { name: 'GPU host', versions: ownVersions },
      { name: 'runtime', versions },
    );
    this.#environment.log.warn({ why }, 'refused a connection');
    throw new ProtocolFault('version', why);
  }

  #stats(reader: WordReader, end: number): void {
    while (!reader.done) {
      reader.enter(end);
      const id = reader.u32();
      const flags = reader.u32();
      const options = { reset: (flags & STATS.reset) !== 0, modelsOnly: (flags & STATS.modelsOnly) !== 0 };
      reader.leave(end);
      this.writer.begin(FRAME.stats);
      this.writer.put(id);
      this.writer.putText(JSON.stringify(this.#environment.stats(options)), MAX_JSON_BYTES);
      this.writer.end();
    }
    this.flush();
  }

  #call(call: DecodedCall, bytes: number): void {
    if (this.#ended) return;
    if (call.op === 'open-inferlet') {
      this.#open(call);
      return;
    }
    const inferlet = this.#inferlets.get(call.inferlet);
    if (!inferlet) throw new ProtocolFault('malformed', `inferlet ${call.inferlet} is not open`);
    if (call.op === 'close-inferlet') this.#closeInferlet(inferlet, call.id);
    // These messages name an earlier call, which may have ended; its queue may be closed.
    else if (call.op === 'run-consumed') inferlet.run(call.id)?.consumed(call.tokens);
    else if (call.op === 'run-stop') inferlet.run(call.id)?.stop();
    else if (call.op === 'run-piped') inferlet.run(call.id)?.piped();
    else if (call.op === 'encode-stop') inferlet.stopEncoding(call.id);
    else if (call.op === 'image-pixels') inferlet.image(call.id)?.pixels(call.pixels);
    else if (call.op === 'image-failed') inferlet.image(call.id)?.refuse(call.why);
    else if (inferlet.dead) inferlet.refuse(call.id, inferlet.dead);
    else if (call.op === 'set-span') inferlet.setSpan(call.high, call.low);
    else if (call.op === 'set-tenant-limit') this.#limitTenant(inferlet, call.tenantPages);
    else if (call.op === 'encode') this.#encode(inferlet, call, bytes);
    else if (call.op === 'create-queue') this.#createQueue(inferlet, call.queue, call.model);
    else if (call.op === 'set-waiting') inferlet.setWaiting(call.waiting);
    else this.#queued(inferlet, call, bytes);
  }

  #queued(inferlet: HostedInferlet, call: QueuedCall, bytes: number): void {
    const openQueue = inferlet.queues.get(call.queue);
    if (!openQueue)
      throw new ProtocolFault('malformed', `queue ${call.queue} of inferlet ${call.inferlet} is not open`);
    const { engine, queue } = openQueue;
    switch (call.op) {
      case 'close-queue':
        inferlet.queues.delete(call.queue);
        engine.closeQueue(queue);
        break;
      case 'set-priority':
        engine.batcher.setPriority(queue.batchQueue, call.priority);
        break;
      case 'set-depth':
        engine.batcher.setDepth(queue.batchQueue, call.depth);
        inferlet.marksCalls = true;
        break;
      case 'stop-queue':
        queue.stop();
        break;
      default:
        engine.submit(queue, call.id, call, bytes);
    }
  }

  #open(call: DecodedCall & { op: 'open-inferlet' }): void {
    if (this.#inferlets.has(call.inferlet))
      throw new ProtocolFault('malformed', `inferlet ${call.inferlet} is open already`);
    if (this.#inferlets.size >= this.#limits.maxInferlets) {
      throw new ProtocolFault('overrun', `more than ${this.#limits.maxInferlets} inferlets are open`);
    }
    const { name: id, epoch, tenant, functionName, arrival, maxPages, maxPriority, tenantPages } = call;
    const { firstTokenMs, perTokenMs } = call;
    const targets = firstTokenMs > 0 && perTokenMs > 0 ? { firstTokenMs, perTokenMs } : undefined;
    const { family: name, familyEpoch, familyPages } = call;
    const family = name === '' ? undefined : { name, epoch: familyEpoch, maxPages: familyPages };
    const traceparent = call.traceparent === '' ? undefined : call.traceparent;
    const inferlet = new HostedInferlet(
      call.inferlet,
      { id, epoch, tenant, functionName, arrival, maxPages, maxPriority, targets, family, tenantPages, traceparent },
      this,
      this.#limits.maxInferletUnreadBytes,
    );
    this.#inferlets.set(call.inferlet, inferlet);
    const { root, rootEpoch } = rootOf(inferlet);
    this.#environment.attempts.enter(root, rootEpoch, inferlet);
  }

  #limitTenant(inferlet: HostedInferlet, limit: TenantLimit): void {
    inferlet.setTenantLimit(limit);
    this.#environment.limitTenant(inferlet.owner.tenant, limit);
  }

  #encode(inferlet: HostedInferlet, call: DecodedCall & { op: 'encode' }, bytes: number): void {
    const engine = this.#environment.encoders[call.encoder];
    if (!engine) throw new ProtocolFault('malformed', `no encoder number ${call.encoder}`);
    inferlet.encode(engine, call.id, call, bytes);
  }

  #createQueue(inferlet: HostedInferlet, queue: number, model: number): void {
    if (inferlet.queues.has(queue)) throw new ProtocolFault('malformed', `queue ${queue} is open already`);
    const engine = this.#environment.engines[model];
    if (!engine) throw new ProtocolFault('malformed', `no model number ${model}`);
    inferlet.openQueue(queue, engine);
  }

  #closeInferlet(inferlet: HostedInferlet, id: number): void {
    this.#inferlets.delete(inferlet.handle);
    this.#leaveAttempt(inferlet);
    inferlet.release(() => {
      this.#unreportedUsage.delete(inferlet);
      if (this.#ended) return;
      inferlet.writeUsage();
      if (id === 0) return;
      answerOf('close-inferlet').write(this.writer, id, undefined);
      this.touched();
    });
  }

  #leaveAttempt(inferlet: HostedInferlet): void {
    this.#environment.attempts.leave(rootOf(inferlet).root, inferlet);
  }

  #close(): void {
    if (this.#ended) return;
    this.#ended = true;
    clearTimeout(this.#helloTimer);
    clearTimeout(this.#usageTimer);
    clearInterval(this.#holdingTimer);
    this.#heartbeat?.stop();
    this.#unreportedUsage.clear();
    this.#waitingCalls = [];
    for (const inferlet of this.#inferlets.values()) {
      this.#leaveAttempt(inferlet);
      inferlet.release(() => {});
    }
    this.#inferlets.clear();
    this.#socket.destroySoon();
    this.#environment.ended(this);
  }
}

/** The root invocation of an inferlet's family, or without a family its own invocation, and the epoch of its attempt. */
function rootOf({ owner: { id, epoch, tenant, family } }: HostedInferlet): { root: string; rootEpoch: number } {
  const { name, epoch: rootEpoch } = family ?? { name: id, epoch };
  return { root: JSON.stringify([tenant, name]), rootEpoch };
}

/** The first frame of a connection: the runtime's versions and name. */
export interface RuntimeHello {
  readonly versions: Versions;
  /** Name that all connections of the same runtime have, and no others; undefined when the hello gives none. */
  readonly owner: string | undefined;
}

/** @throws ProtocolFault when the hello cannot be read */
export function readHello(text: string): RuntimeHello {
  const { versions: stated, owner } = fieldsOf(text);
  const versions = statedVersions(stated);
  if (versions === null) throw new ProtocolFault('malformed', 'a hello without readable versions');
  return { versions, owner: typeof owner === 'string' && owner !== '' ? owner : undefined };
}

function fieldsOf(text: string): { readonly versions?: unknown; readonly owner?: unknown } {
  try {
    return (JSON.parse(text) as object | null) ?? {};
  } catch {
    throw new ProtocolFault('malformed', 'a hello that is not JSON');
  }
}
