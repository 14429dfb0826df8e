import type { Socket } from 'node:net';
import type { ModelEngine } from '../handlers/engine.ts';
import type { HostQueue, InferletOwner, ModelSpace, ReplyPort } from '../handlers/space.ts';
import { type DecodedCall, decodeCalls } from '../protocol/decode-calls.ts';
import { type HandlerError, handlerError, ProtocolFault, type ProtocolFaultCode } from '../protocol/errors.ts';
import { FrameReader } from '../protocol/frames.ts';
import type { GpuHostStats, HostHello } from '../protocol/host.ts';
import { encodeDone, encodeError, encodeTerminated } from '../protocol/results.ts';
import { FRAME, type FrameKind, MAX_JSON_BYTES } from '../protocol/wire.ts';
import { FrameWriter, type WordReader } from '../protocol/words.ts';

export interface ConnectionEnvironment {
  readonly engines: readonly ModelEngine[];
  hello(): HostHello;
  stats(reset: boolean): GpuHostStats;
  /** Results were written; they are to leave with the next flush. */
  touched(connection: Connection): void;
  ended(connection: Connection): void;
}

export interface ConnectionLimits {
  /** Longest wait for the peer's hello, milliseconds. */
  readonly helloMs: number;
  /** Bytes of results that the peer may leave unread. */
  readonly maxUnreadBytes: number;
  /** Inferlets open at once. */
  readonly maxInferlets: number;
}

export const DEFAULT_CONNECTION_LIMITS: ConnectionLimits = {
  helloMs: 5000,
  maxUnreadBytes: 64 * 1024 * 1024,
  maxInferlets: 65_536,
};

interface HostInferlet {
  readonly handle: number;
  readonly owner: InferletOwner;
  readonly spaces: Map<ModelEngine, ModelSpace>;
  readonly queues: Map<number, { readonly engine: ModelEngine; readonly queue: HostQueue }>;
  /** It waits for something other than the device. */
  waiting: boolean;
  /** Why its calls are refused: it broke a limit of the host, or its memory was taken. */
  dead: HandlerError | undefined;
}

type QueueCall = Exclude<DecodedCall, { op: 'open-inferlet' | 'close-inferlet' | 'create-queue' | 'set-waiting' }>;

/**
 * One runtime's connection: frames in, calls to the engines, results out. A frame that cannot be read ends this connection with a code;
 * when it ends, everything that its inferlets held is released.
 */
export class Connection implements ReplyPort {
  readonly writer = new FrameWriter();
  #socket: Socket;
  #environment: ConnectionEnvironment;
  #limits: ConnectionLimits;
  #reader = new FrameReader();
  #greeted = false;
  #ended = false;
  #inferlets = new Map<number, HostInferlet>();
  #spaceOwners = new Map<ModelSpace, HostInferlet>();
  #helloTimer: NodeJS.Timeout;

  constructor(socket: Socket, environment: ConnectionEnvironment, limits: ConnectionLimits) {
    this.#socket = socket;
    this.#environment = environment;
    this.#limits = limits;
    this.#helloTimer = setTimeout(() => this.end('timeout', `no hello within ${limits.helloMs} ms`), limits.helloMs);
    socket.setNoDelay(true);
    socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    socket.on('error', () => this.#close());
    socket.on('close', () => this.#close());
  }

  get inferlets(): number {
    return this.#inferlets.size;
  }

  touched(): void {
    this.#environment.touched(this);
  }

  /** Sends everything written, in one write. */
  flush(): void {
    if (this.#ended || this.writer.length === 0) return;
    this.#socket.write(this.writer.take());
    if (this.#socket.writableLength > this.#limits.maxUnreadBytes) {
      this.end('overrun', `${this.#socket.writableLength} bytes of results were not read`);
    }
  }

  /** Ends the connection with a code that the peer can read. */
  end(code: ProtocolFaultCode, message: string): void {
    if (this.#ended) return;
    this.writer.begin(FRAME.error);
    this.writer.putText(code);
    this.writer.putText(message);
    this.writer.end();
    this.#socket.end(this.writer.take());
    // A peer that keeps its side open does not keep ours.
    this.#socket.setTimeout(1000, () => this.#socket.destroy());
    this.#close();
  }

  /** An inferlet left more calls pending than the host holds: it ends, its neighbours do not. */
  overrun(space: ModelSpace): void {
    const inferlet = this.#spaceOwners.get(space);
    if (!inferlet || inferlet.dead) return;
    inferlet.dead = handlerError('limit-exceeded', 'too many calls are pending; await some before issuing more');
    this.#release(inferlet, () => {});
  }

  /** An engine took the memory of an inferlet: the runtime is told, and what it holds on other models goes back as well. */
  terminated(space: ModelSpace, cause: string): void {
    const inferlet = this.#spaceOwners.get(space);
    if (!inferlet || inferlet.dead) return;
    inferlet.dead = handlerError('terminated', cause);
    this.#spaceOwners.delete(space);
    for (const [engine, taken] of inferlet.spaces) if (taken === space) inferlet.spaces.delete(engine);
    this.#release(inferlet, () => {});
    encodeTerminated(this.writer, inferlet.handle, cause);
    this.touched();
  }

  #receive(chunk: Buffer): void {
    if (this.#ended) return;
    try {
      this.#reader.push(chunk, (kind, reader, end) => this.#frame(kind, reader, end));
    } catch (error) {
      if (error instanceof ProtocolFault) {
        this.end(error.code, error.message);
        return;
      }
      // Whatever it was, it concerns this connection; its inferlets' memory goes back, and everybody else goes on.
      console.error('gpu-host: a frame could not be handled:', error);
      this.end('internal', 'the GPU host could not handle a frame; its log says why');
    }
  }

  #frame(kind: FrameKind, reader: WordReader, end: number): void {
    if (this.#ended) return;
    if (kind === FRAME.hello) this.#hello(reader, end);
    else if (!this.#greeted) throw new ProtocolFault('unexpected', 'the first frame must be a hello');
    else if (kind === FRAME.calls) decodeCalls(reader, end, (call, bytes) => this.#call(call, bytes));
    else if (kind === FRAME.statsRequest) this.#stats(reader, end);
    else throw new ProtocolFault('unexpected', `frame kind ${kind} from a runtime`);
  }

  #hello(reader: WordReader, end: number): void {
    if (this.#greeted) throw new ProtocolFault('unexpected', 'a second hello');
    reader.enter(end);
    reader.text(MAX_JSON_BYTES);
    reader.leave(end);
    if (!reader.done) throw new ProtocolFault('malformed', 'a hello with more than one entry');
    this.#greeted = true;
    clearTimeout(this.#helloTimer);
    this.writer.begin(FRAME.hello);
    this.writer.putText(JSON.stringify(this.#environment.hello()), MAX_JSON_BYTES);
    this.writer.end();
    this.flush();
  }

  #stats(reader: WordReader, end: number): void {
    reader.enter(end);
    const id = reader.u32();
    const reset = reader.u32() !== 0;
    reader.leave(end);
    this.writer.begin(FRAME.stats);
    this.writer.put(id);
    this.writer.putText(JSON.stringify(this.#environment.stats(reset)), MAX_JSON_BYTES);
    this.writer.end();
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
    else if (inferlet.dead) this.#refuse(call, inferlet.dead);
    else if (call.op === 'create-queue') this.#createQueue(inferlet, call.queue, call.model);
    else if (call.op === 'set-waiting') setWaiting(inferlet, call.waiting);
    else this.#queued(inferlet, call, bytes);
  }

  /** A call of an open queue. */
  #queued(inferlet: HostInferlet, call: QueueCall, bytes: number): void {
    const open = inferlet.queues.get(call.queue);
    if (!open) throw new ProtocolFault('malformed', `queue ${call.queue} of inferlet ${call.inferlet} is not open`);
    const { engine, queue } = open;
    switch (call.op) {
      case 'close-queue':
        inferlet.queues.delete(call.queue);
        engine.closeQueue(queue);
        break;
      case 'set-priority':
        engine.batcher.setPriority(queue.order, call.priority);
        break;
      case 'run-consumed':
        queue.space.runs.get(call.id)?.consumed(call.tokens);
        break;
      case 'run-stop':
        queue.space.runs.get(call.id)?.stop();
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
    const { name: id, tenant, arrival, maxPages, maxPriority } = call;
    this.#inferlets.set(call.inferlet, {
      handle: call.inferlet,
      owner: { id, tenant, arrival, maxPages, maxPriority },
      spaces: new Map(),
      queues: new Map(),
      waiting: false,
      dead: undefined,
    });
  }

  #createQueue(inferlet: HostInferlet, queue: number, model: number): void {
    if (inferlet.queues.has(queue)) throw new ProtocolFault('malformed', `queue ${queue} is open already`);
    const engine = this.#environment.engines[model];
    if (!engine) throw new ProtocolFault('malformed', `no model number ${model}`);
    let space = inferlet.spaces.get(engine);
    if (!space) {
      space = engine.openSpace(this, inferlet.owner);
      inferlet.spaces.set(engine, space);
      this.#spaceOwners.set(space, inferlet);
      if (inferlet.waiting) engine.setWaiting(space, true);
    }
    inferlet.queues.set(queue, { engine, queue: engine.openQueue(space) });
  }

  #closeInferlet(inferlet: HostInferlet, id: number): void {
    this.#inferlets.delete(inferlet.handle);
    this.#release(inferlet, () => {
      if (this.#ended || id === 0) return;
      encodeDone(this.writer, id);
      this.touched();
    });
  }

  /** Gives back what the inferlet holds on every model, then tells. */
  #release(inferlet: HostInferlet, released: () => void): void {
    let left = inferlet.spaces.size;
    if (left === 0) released();
    for (const [engine, space] of inferlet.spaces) {
      this.#spaceOwners.delete(space);
      engine.closeSpace(space, () => {
        left--;
        if (left === 0) released();
      });
    }
    inferlet.spaces.clear();
    inferlet.queues.clear();
  }

  /** Answers a call of an inferlet that was ended; what concerns an earlier call needs no answer. */
  #refuse(call: DecodedCall, why: HandlerError): void {
    if (call.id === 0 || call.op === 'run-stop' || call.op === 'run-consumed') return;
    encodeError(this.writer, call.id, why);
    this.touched();
  }

  #close(): void {
    if (this.#ended) return;
    this.#ended = true;
    clearTimeout(this.#helloTimer);
    for (const inferlet of this.#inferlets.values()) this.#release(inferlet, () => {});
    this.#inferlets.clear();
    this.#socket.destroySoon();
    this.#environment.ended(this);
  }
}

function setWaiting(inferlet: HostInferlet, waiting: boolean): void {
  inferlet.waiting = waiting;
  for (const [engine, space] of inferlet.spaces) engine.setWaiting(space, waiting);
}
