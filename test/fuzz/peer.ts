import { connect, type Socket } from 'node:net';
import { FrameReader, FrameWriter } from '#gpu-host/protocol/frames.ts';
import type { DecodedCall } from '#gpu-host/protocol/operations.ts';
import { decodeHeld, decodeResults, decodeTerminated, decodeUsage } from '#gpu-host/protocol/results.ts';
import { FRAME, MAX_JSON_BYTES } from '#gpu-host/protocol/wire.ts';
import type { Random } from '../harness/random.ts';
import { Mirror, type Served } from './mirror.ts';

/** Longest time for a host to read frames and answer. */
export const ANSWER_DEADLINE_MS = 120_000;

/** A host's behaviour as its peers observed it. */
export class Observations {
  /** Number of ended connections by code; `none` for a connection closed without a code. */
  readonly endings = new Map<string, number>();
  /** Number of answers to calls by error, and `ok` for successes. */
  readonly answers = new Map<string, number>();
  /** Texts of answers and endings that blame the host itself. */
  readonly internal = new Set<string>();
  /** Tenants and functions that the calls named, including names that a mutation produced. */
  readonly tenants = new Set<string>();
  readonly functions = new Set<string>();
  terminated = 0;

  called(call: DecodedCall): void {
    if (call.op === 'open-inferlet') this.tenants.add(call.tenant);
    else if (call.op === 'file-save') this.functions.add(call.functionName);
  }

  ended(code: string, message: string): void {
    count(this.endings, code);
    if (code === 'internal') this.internal.add(message);
  }

  answered(tag: string, text: string): void {
    count(this.answers, tag);
    if (tag === 'internal') this.internal.add(text);
  }
}

function count(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

/**
 * A connection that sends raw bytes. It decodes its own bytes as the host does, to know whether to expect an answer, and checks that
 * everything from the host is readable.
 */
export class HostilePeer {
  readonly #socket: Socket;
  readonly #observations: Observations;
  readonly #mirror: Mirror;
  readonly #reader = new FrameReader();
  readonly #closed = Promise.withResolvers<void>();
  #fault: unknown;
  #error: { code: string; message: string } | undefined;
  #lastPing = 0;
  #lastAnsweredPing = 0;
  #wake: (() => void) | undefined;

  constructor(address: string, serves: Served, observations: Observations) {
    this.#observations = observations;
    this.#mirror = new Mirror(serves, (call) => observations.called(call));
    this.#socket = connect(address);
    this.#socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    this.#socket.on('error', () => this.#socket.destroy());
    this.#socket.on('close', () => {
      observations.ended(this.#error?.code ?? 'none', this.#error?.message ?? '');
      this.#closed.resolve();
      this.#wake?.();
    });
  }

  get closed(): boolean {
    return this.#socket.destroyed;
  }

  /**
   * Sends frames and then a ping, in one piece or several, and waits until the host has read all or has ended the connection. An incomplete last
   * frame leaves both open; the peer then cuts the connection. Returns the number of frames that the host reads at least.
   * @throws Error when the host neither reads the frames nor ends the connection, or when it sends unreadable bytes
   */
  async send(frames: readonly Uint8Array[], random: Random): Promise<number> {
    const readCount = this.#foresee(frames);
    const bytes = Buffer.concat([...frames, this.#ping()]);
    await this.#write(bytes, random.once(4) ? 1 + random.below(6) : 1, random);
    const { end, lastPing } = this.#mirror;
    const isReadOrEnded = end === 'unreadable' || (end === undefined && lastPing === this.#lastPing);
    if (isReadOrEnded) await this.#waitForAnswer();
    if (end === 'unreadable' && !this.closed) throw new Error('the host kept reading after an unreadable frame');
    if (end || !isReadOrEnded || this.#fault) await this.cut();
    return readCount;
  }

  /**
   * Closes the socket without a closing frame.
   * @throws Error when the host does not read what was sent, or has sent unreadable bytes
   */
  async cut(): Promise<void> {
    const deadline = setTimeout(() => {
      this.#fault ??= new Error(`the host did not read a connection within ${ANSWER_DEADLINE_MS} ms`);
      this.#socket.destroy();
    }, ANSWER_DEADLINE_MS);
    if (this.#fault) this.#socket.destroy();
    else this.#socket.destroySoon();
    await this.#closed.promise;
    clearTimeout(deadline);
    if (this.#fault) throw this.#fault;
  }

  /** Number of frames that the host will read, including a frame that ends the connection. */
  #foresee(frames: readonly Uint8Array[]): number {
    let read = 0;
    for (const frame of frames) {
      if (this.#mirror.end) break;
      this.#mirror.push(frame);
      read++;
    }
    return read;
  }

  #ping(): Buffer {
    const writer = new FrameWriter();
    writer.begin(FRAME.statsRequest);
    writer.put(++this.#lastPing);
    writer.put(0);
    writer.end();
    const ping = writer.take();
    this.#mirror.push(ping);
    return ping;
  }

  async #write(bytes: Buffer, pieces: number, random: Random): Promise<void> {
    for (let piece = 1, at = 0; piece <= pieces && !this.closed; piece++) {
      const end = piece === pieces ? bytes.length : at + random.below(bytes.length - at + 1);
      this.#socket.write(bytes.subarray(at, end));
      at = end;
      if (piece < pieces) await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async #waitForAnswer(): Promise<void> {
    const deadline = setTimeout(() => {
      this.#fault ??= new Error(`the host neither answered nor ended a connection within ${ANSWER_DEADLINE_MS} ms`);
      this.#wake?.();
    }, ANSWER_DEADLINE_MS);
    while (!this.closed && !this.#fault && this.#lastAnsweredPing !== this.#lastPing) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    clearTimeout(deadline);
    if (this.closed) await this.#closed.promise;
  }

  #receive(chunk: Buffer): void {
    try {
      this.#reader.push(chunk, (kind, reader, end) => {
        if (kind === FRAME.results) {
          decodeResults(reader, end, (_, result) => {
            if (result.kind === 'error') this.#observations.answered(result.error.tag, result.error.val);
            else this.#observations.answered('ok', '');
          });
        } else if (kind === FRAME.terminated) decodeTerminated(reader, end, () => this.#observations.terminated++);
        else if (kind === FRAME.usage) decodeUsage(reader, end, () => undefined);
        else if (kind === FRAME.held) decodeHeld(reader, end, () => undefined);
        else if (kind === FRAME.stats) {
          reader.enter(end);
          this.#lastAnsweredPing = reader.u32();
          JSON.parse(reader.text(MAX_JSON_BYTES));
        } else if (kind === FRAME.error) {
          reader.enter(end);
          this.#error = { code: reader.text(), message: reader.text() };
        } else if (kind !== FRAME.hello) throw new Error(`a frame of kind ${kind} from the host`);
      });
    } catch (error) {
      this.#fault ??= error;
      this.#socket.destroy();
    }
    this.#wake?.();
  }
}
