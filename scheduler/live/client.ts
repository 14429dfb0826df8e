import { connect, type Socket } from 'node:net';
import type { EventName, InvocationEvent } from '../invocations/types.ts';
import { encodeFrame, FrameReader } from './frames.ts';
import type { LiveFollower, LiveSource } from './live.ts';
import type { LiveServer } from './server.ts';

/** Before a runtime that could not be reached is tried again. */
const RETRY_MS = 250;

/**
 * Follows invocations at the runtimes that run them, over one connection to each, which is there while something is followed there. Those of
 * this process are followed without one.
 */
export class LiveClient implements LiveSource {
  readonly #addressOf: (runtimeId: string) => Promise<string | null>;
  readonly #links = new Map<string, Link>();
  readonly #local = new Map<string, LiveServer>();

  /** @param addressOf path of a runtime's socket; null when it has none */
  constructor(addressOf: (runtimeId: string) => Promise<string | null>) {
    this.#addressOf = addressOf;
  }

  /** A runtime is this process. */
  serve(runtimeId: string, server: LiveServer): void {
    this.#local.set(runtimeId, server);
  }

  follow(runtimeId: string, id: string, follower: LiveFollower): () => void {
    const local = this.#local.get(runtimeId);
    if (local) return local.follow(id, follower);
    let link = this.#links.get(runtimeId);
    if (!link) {
      link = new Link(() => this.#addressOf(runtimeId));
      this.#links.set(runtimeId, link);
    }
    const { follow } = link;
    const stop = follow(id, follower);
    return () => {
      stop();
      if (link.size > 0) return;
      // Runtimes come and go; who is followed again is connected to again.
      link.closeWhenIdle(() => this.#links.get(runtimeId) === link && this.#links.delete(runtimeId));
    };
  }

  close(): void {
    for (const link of this.#links.values()) link.close();
    this.#links.clear();
  }
}

/** For so long a connection stays on which nothing is followed. */
const IDLE_MS = 5000;

/** The connection to one runtime, made again while it is needed. */
class Link {
  readonly #addressOf: () => Promise<string | null>;
  readonly #followers = new Map<string, Set<LiveFollower>>();
  /** Those of them that have not been told where they stand. */
  readonly #fresh = new Set<LiveFollower>();
  #socket: Socket | null = null;
  #connected = false;
  #connecting = false;
  #closed = false;
  #asks: string[] = [];
  #idle: NodeJS.Timeout | undefined;
  #retry: NodeJS.Timeout | undefined;

  constructor(addressOf: () => Promise<string | null>) {
    this.#addressOf = addressOf;
  }

  get size(): number {
    return this.#followers.size;
  }

  readonly follow = (id: string, follower: LiveFollower): (() => void) => {
    clearTimeout(this.#idle);
    const followers = this.#followers.get(id);
    this.#fresh.add(follower);
    if (followers) {
      followers.add(follower);
      // The other end tells again where it stands; those who know it already are told twice.
      this.#ask('leave', id);
    } else this.#followers.set(id, new Set([follower]));
    this.#ask('follow', id);
    if (!this.#socket && !this.#connecting) void this.#connect();
    return () => {
      const left = this.#followers.get(id);
      this.#fresh.delete(follower);
      if (!left?.delete(follower) || left.size > 0) return;
      this.#followers.delete(id);
      this.#ask('leave', id);
    };
  };

  closeWhenIdle(closed: () => void): void {
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => {
      if (this.size > 0) return;
      closed();
      this.close();
    }, IDLE_MS).unref();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#idle);
    clearTimeout(this.#retry);
    this.#socket?.destroy();
  }

  /** Asks of one turn go in one write. */
  #ask(what: 'follow' | 'leave', id: string): void {
    if (!this.#connected) return;
    this.#asks.push(what, id);
    if (this.#asks.length === 2) setImmediate(() => this.#flush());
  }

  #flush(): void {
    if (this.#asks.length > 0 && this.#connected) this.#socket?.write(encodeFrame(this.#asks));
    this.#asks = [];
  }

  async #connect(): Promise<void> {
    this.#connecting = true;
    const path = await this.#addressOf().catch(() => null);
    this.#connecting = false;
    if (this.#closed) return;
    if (path === null) return this.#again();
    const reader = new FrameReader();
    const socket = connect(path);
    this.#socket = socket;
    socket.on('connect', () => {
      this.#connected = true;
      for (const id of this.#followers.keys()) this.#ask('follow', id);
    });
    socket.on('data', (chunk: Buffer) => {
      try {
        reader.push(chunk, (fields) => this.#received(fields));
      } catch {
        socket.destroy();
      }
    });
    socket.on('error', () => socket.destroy());
    socket.on('close', () => {
      if (this.#socket !== socket) return;
      this.#socket = null;
      this.#connected = false;
      this.#asks = [];
      for (const followers of this.#followers.values()) {
        for (const follower of [...followers]) {
          this.#fresh.add(follower);
          follower.lost();
        }
      }
      if (!this.#closed) this.#again();
    });
  }

  #again(): void {
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => {
      if (!this.#closed && !this.#socket && !this.#connecting && this.size > 0) void this.#connect();
    }, RETRY_MS).unref();
  }

  #received(fields: readonly string[]): void {
    let of = '';
    let events: InvocationEvent[] = [];
    const tell = () => {
      if (events.length === 0) return;
      for (const follower of [...(this.#followers.get(of) ?? [])]) {
        if (!this.#fresh.has(follower)) follower.events(events);
      }
      events = [];
    };
    for (let i = 0; i + 3 < fields.length; i += 4) {
      const [id = '', seq = '', event = '', data = ''] = fields.slice(i, i + 4);
      if (id !== of || event === 'attached') {
        tell();
        of = id;
      }
      if (event === 'attached') {
        for (const follower of [...(this.#followers.get(id) ?? [])]) {
          this.#fresh.delete(follower);
          follower.attached(Number(seq));
        }
      } else events.push({ seq: Number(seq), event: event as EventName, data });
    }
    tell();
  }
}
