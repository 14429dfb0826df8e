import type { Duplex } from 'node:stream';
import { type LifecycleOpening, writeLifecycleOpening } from '#wit/generated/channel.ts';
import type { HostTable } from '../lowering/compile.ts';
import { decodeControl, encodeControl, FINGERPRINT, hostCalls, MAX_CONTROL_BYTES } from './calls.ts';
import { Channel, type Lane } from './channel.ts';
import { MessageWriter } from './codec.ts';
import { KIND } from './frames.ts';
import { ChannelFault, MAX_MESSAGE_BYTES } from './limits.ts';
import { RemoteGuest, type RemoteGuestOptions } from './remote-guest.ts';
import type { SharedThread } from './shared-thread.ts';

/** Maximum number of invocations whose close the sandbox has not confirmed. An honest sandbox confirms a close in the turn in which it arrives. */
const MAX_CLOSING = 4096;

export interface RuntimeEndOptions {
  /** Functions with which the runtime answers calls: `runtime/host/table.ts`. */
  readonly host: HostTable;
  /** Serves the channels of all sandboxes. */
  readonly thread: SharedThread;
  /** Called with the sandbox's control messages, which are untrusted data. An exception ends the channel. */
  readonly control: (description: unknown, body: Buffer) => void;
  /** Called once, when the channel has ended and each running invocation has been ended with `sandbox-lost`. */
  readonly lost: (fault: ChannelFault) => void;
}

/** The runtime's end of a sandbox's channel. The peer is not trusted and can name only invocations whose number it got from the runtime. */
export class RuntimeEnd {
  readonly #channel: Channel;
  readonly #calls: ReturnType<typeof hostCalls>;
  readonly #guests = new Set<RemoteGuest>();
  readonly #writer = new MessageWriter();
  readonly #control: Lane;
  #lastNumber = 0;

  constructor(stream: Duplex, { host, thread, lost, control }: RuntimeEndOptions) {
    this.#calls = hostCalls(host);
    this.#channel = new Channel(stream, {
      fingerprint: FINGERPRINT,
      unknown: () => null,
      thread,
      lost: (fault) => {
        for (const guest of [...this.#guests]) guest.lost(fault);
        lost(fault);
      },
    });
    this.#control = this.#channel.open(0, {
      message: (kind, payload) => {
        if (kind !== KIND.control) throw new ChannelFault('bad-frame', `the sandbox sent a message of kind ${kind}`);
        const { description, body } = decodeControl(payload, MAX_CONTROL_BYTES);
        control(description, body);
      },
      signal: (kind) => {
        throw new ChannelFault('bad-frame', `the sandbox sent a signal of kind ${kind}`);
      },
    });
  }

  /** Sends a control message. Does nothing when the channel has ended. */
  tell(description: unknown, body?: Uint8Array): void {
    if (!this.#channel.fault) this.#control.send(KIND.control, encodeControl(description, body));
  }

  /** True while the waiting control messages have fewer bytes than the largest message: then the queue still has room for a program's modules. */
  get hasRoom(): boolean {
    return this.#control.outbound.queuedBytes < MAX_MESSAGE_BYTES;
  }

  /** Resolves with true when the next control message has been sent whole; with false when the channel has ended. */
  sent(): Promise<boolean> {
    return this.#control.outbound.sent();
  }

  /** True while messages of the sandbox wait for this thread: then silence does not mean that the sandbox is stuck. */
  get behind(): boolean {
    return this.#channel.behind;
  }

  /** Time, by `performance.now`, since which the stream to the sandbox is full because the sandbox does not read; null while it has room. */
  get untakenSinceMs(): number | null {
    return this.#channel.untakenSinceMs;
  }

  /** Number of running invocations. */
  get guests(): number {
    return this.#guests.size;
  }

  /** Number of running invocations and of those whose close the sandbox has not confirmed. */
  get lanes(): number {
    // Lane 0 belongs to no invocation.
    return Math.max(0, this.#channel.lanes - 1);
  }

  /** Begins an invocation in the sandbox. @throws ChannelFault when the channel has ended, or the opening is too large */
  open(opening: LifecycleOpening, options: RemoteGuestOptions): RemoteGuest {
    const { fault } = this.#channel;
    if (fault) throw fault;
    if (this.lanes - this.#guests.size > MAX_CLOSING) {
      const text = `the sandbox has not let go of ${MAX_CLOSING} invocations that are over`;
      this.#channel.fail(new ChannelFault('too-much-in-flight', text));
      throw new ChannelFault('lost', text);
    }
    // An earlier opening that was too large may have left its first bytes in the writer.
    this.#writer.reset();
    writeLifecycleOpening(this.#writer, opening);
    const payload = this.#writer.take();
    if (this.#lastNumber === 0xffff_ffff) throw new ChannelFault('closed', 'the channel has no more numbers');
    const guest: RemoteGuest = new RemoteGuest({
      ...options,
      calls: this.#calls,
      spent: (ms) => this.#channel.spent(ms),
      ended: (ending) => options.ended(ending),
      closed: () => this.#guests.delete(guest),
    });
    this.#guests.add(guest);
    guest.attach(this.#channel.open(++this.#lastNumber, guest));
    guest.begin(KIND.open, payload);
    return guest;
  }

  close(reason?: string): void {
    this.#channel.close(reason);
  }
}
