import type { Duplex } from 'node:stream';
import { readLifecycleOpening } from '#wit/generated/channel.ts';
import { FINGERPRINT } from './calls.ts';
import { Channel, type Lane } from './channel.ts';
import { decodeControl, encodeControl } from './control.ts';
import { ChannelFault } from './fault.ts';
import { KIND } from './frames.ts';
import { SandboxInvocation } from './sandbox-invocation.ts';
import { SharedThread } from './shared-thread.ts';
import { MessageReader } from './value-reader.ts';

export interface SandboxEndOptions {
  /** Called when the runtime begins an invocation; attaches an owner to it. */
  readonly opened: (invocation: SandboxInvocation) => void;
  /** Called with the runtime's control messages. */
  readonly control: (description: unknown, body: Buffer) => void;
  /** Called once, when the channel has ended and each invocation has been closed. */
  readonly lost: (fault: ChannelFault) => void;
}

/** The sandbox's end of its channel to the runtime. */
export class SandboxEnd {
  readonly #channel: Channel;
  readonly #options: SandboxEndOptions;
  readonly #invocations = new Set<SandboxInvocation>();
  readonly #control: Lane;

  constructor(stream: Duplex, options: SandboxEndOptions) {
    this.#options = options;
    this.#channel = new Channel(stream, {
      fingerprint: FINGERPRINT,
      // The sandbox's thread has only this channel. Turns still let timers and answers run between messages, each of which may run a guest.
      thread: new SharedThread(),
      unknown: (number, kind) => (kind === KIND.open ? this.#begin(number) : null),
      lost: (fault) => {
        for (const invocation of [...this.#invocations]) invocation.lost(fault);
        options.lost(fault);
      },
    });
    this.#control = this.#channel.open(0, {
      message: (_kind, payload) => {
        const { description, body } = decodeControl(payload);
        options.control(description, body);
      },
      signal: () => undefined,
    });
  }

  /** Sends a control message. */
  tell(description: unknown): void {
    if (!this.#channel.fault) this.#control.send(KIND.control, encodeControl(description));
  }

  /** Number of invocations that the runtime has not closed. */
  get invocations(): number {
    return this.#invocations.size;
  }

  /** True while frames of the runtime wait for the thread. */
  get isBehind(): boolean {
    return this.#channel.behind;
  }

  close(): void {
    this.#channel.close();
  }

  /** Makes a lane whose first message is the opening. */
  #begin(number: number): Lane {
    let invocation: SandboxInvocation | null = null;
    // Signals that arrived while the opening was incomplete.
    const earlySignals: { readonly kind: number; readonly payload: Buffer }[] = [];
    const lane = this.#channel.open(number, {
      message: (kind, payload) => {
        if (invocation) {
          invocation.message(kind, payload);
          return;
        }
        if (kind !== KIND.open)
          throw new ChannelFault('bad-frame', 'the runtime opened an invocation without an opening');
        const reader = new MessageReader(payload);
        const opening = readLifecycleOpening(reader);
        reader.end();
        invocation = new SandboxInvocation(lane, opening, (closed) => this.#invocations.delete(closed));
        this.#invocations.add(invocation);
        this.#options.opened(invocation);
        for (const signal of earlySignals) invocation.signal(signal.kind, signal.payload);
      },
      signal: (kind, payload) => {
        if (invocation) invocation.signal(kind, payload);
        else if (kind === KIND.close) lane.closed();
        else earlySignals.push({ kind, payload: Buffer.from(payload) });
      },
    });
    return lane;
  }
}
