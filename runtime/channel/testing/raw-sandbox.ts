import type { Duplex } from 'node:stream';
import { callNumber, FINGERPRINT } from '../calls.ts';
import { Channel, type Lane } from '../channel.ts';
import { MessageWriter } from '../codec.ts';
import { KIND } from '../frames.ts';

const NO_CALL = 0xffff;

/** A sandbox under the control of an attacker: it sends the frames that a test asks for. */
export class RawSandbox {
  readonly lanes: Lane[] = [];
  /** Payloads of the messages `open`. */
  readonly openings: Buffer[] = [];
  /** Payloads of the signals `close`. */
  readonly closes: Buffer[] = [];
  readonly #openWaiters: (() => void)[] = [];

  constructor(stream: Duplex) {
    const channel = new Channel(stream, {
      fingerprint: FINGERPRINT,
      unknown: (number, kind) => {
        if (kind !== KIND.open) return null;
        const lane: Lane = channel.open(number, {
          message: (_kind, payload) => {
            if (this.lanes.includes(lane)) return;
            this.openings.push(payload);
            this.lanes.push(lane);
            for (const wake of this.#openWaiters.splice(0)) wake();
          },
          signal: (signal, payload) => {
            if (signal !== KIND.close) return;
            this.closes.push(Buffer.from(payload));
            lane.closed();
          },
        });
        return lane;
      },
      lost: () => undefined,
    });
  }

  /** Resolves when `count` invocations were opened. */
  async opened(count: number): Promise<void> {
    while (this.lanes.length < count) await new Promise<void>((resolve) => this.#openWaiters.push(resolve));
  }

  /**
   * Sends a call with the arguments that `write` writes.
   *
   * @param fn `<interface> <core name>`, or the number of the function
   * @param number number of the call's future or new resource
   */
  call(lane: number, fn: string | number, number: number, write: (w: MessageWriter) => void = () => undefined): void {
    const w = new MessageWriter((_, value) => value as number);
    w.u16(typeof fn === 'number' ? fn : functionNumber(fn));
    w.u32(number);
    write(w);
    this.lanes[lane]!.send(KIND.call, w.take());
  }

  release(lane: number, number: number, isRead = false): void {
    const w = new MessageWriter();
    w.u32(number);
    w.u8(isRead ? 1 : 0);
    this.lanes[lane]!.send(KIND.release, w.take());
  }
}

function functionNumber(name: string): number {
  const [interfaceName = '', coreName = ''] = name.split(' ');
  return callNumber(interfaceName, coreName) ?? NO_CALL;
}
