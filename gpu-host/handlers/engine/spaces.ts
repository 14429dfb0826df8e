import type { Batcher } from '../../batcher/batcher.ts';
import type { DeviceMemory } from '../../memory/device-memory.ts';
import type { HostBytes } from '../../memory/host-bytes.ts';
import type { PageSnapshot } from '../../memory/pool.ts';
import type { PageRegistry } from '../../memory/registry/registry.ts';
import type { PageSpace } from '../../memory/space.ts';
import type { HandlerError } from '../../protocol/errors.ts';
import { type HostCall, type InferletOwner, ModelSpace, type ReplyPort } from '../calls/call.ts';
import type { Adapters } from '../sharing/adapters.ts';
import type { StepGaps } from '../sharing/thread-share.ts';

/** The parts of a model that its spaces use. */
export interface SpaceParts {
  readonly memory: DeviceMemory;
  readonly registry: PageRegistry<PageSnapshot>;
  readonly batcher: Batcher;
  readonly adapters: Adapters;
  /** Memory besides pages that the tenants share. */
  readonly bytes: HostBytes;
}

/** The spaces of one model, one for each inferlet. A closed space sends no call to the device; its memory is freed once the device is idle. */
export class ModelSpaces {
  readonly open = new Set<ModelSpace>();
  readonly #byPages = new Map<PageSpace, ModelSpace>();
  /** Closed spaces whose pages the device may still use, with the callbacks for their release. */
  readonly #closing: { readonly space: ModelSpace; readonly released: () => void }[] = [];
  readonly #parts: SpaceParts;

  constructor(parts: SpaceParts) {
    this.#parts = parts;
  }

  /** True when closed spaces wait for the device. */
  get isClosing(): boolean {
    return this.#closing.length > 0;
  }

  add(port: ReplyPort, owner: InferletOwner): ModelSpace {
    const pages = this.#parts.memory.openSpace(owner, (change) => port.meter.hold(change));
    const space = new ModelSpace(port, owner, pages, this.#parts.bytes);
    this.#byPages.set(pages, space);
    this.open.add(space);
    return space;
  }

  of(pages: PageSpace): ModelSpace | undefined {
    return this.#byPages.get(pages);
  }

  /**
   * Drops the calls of an open space. `releaseClosed` later frees the space's memory and calls `released`.
   * @param why the error that answers the space's pending calls; without it, they get no answer
   */
  close(space: ModelSpace, released: () => void, why?: HandlerError): void {
    // Inferlets that share a limit with this one may use its part now, although a device step may still use its pages.
    space.pages.leaveLimits();
    this.#dropCalls(space, why);
    this.#closing.push({ space, released });
  }

  /** Frees the memory of the closed spaces. Call it while the device is idle. */
  releaseClosed(): void {
    for (const { space, released } of this.#closing.splice(0)) {
      if (this.open.has(space)) {
        this.#parts.memory.closeSpace(space.pages);
        this.#forget(space);
      }
      released();
    }
  }

  /** Drops the calls and pages of a space at once. The caller must close the space's pages in memory once no claim is under way. */
  empty(space: ModelSpace): void {
    this.#dropCalls(space);
    space.pages.releaseAll();
    this.#forget(space);
  }

  #dropCalls(space: ModelSpace, why?: HandlerError): void {
    space.closed = true;
    space.dropPending();
    space.closeAnswer = why;
    const queued = [...space.queues].flatMap(
      ({ batchQueue: order }) => this.#parts.batcher.closeQueue(order) as HostCall[],
    );
    for (const call of [...queued, ...space.arrivingCalls.splice(0)]) {
      call.release();
      call.answerEnded();
    }
    for (const call of [...space.parkedCalls]) space.unpark(call);
    this.#parts.adapters.forget(space);
    for (const tell of space.whenClosed) tell();
    space.whenClosed.clear();
  }

  #forget(space: ModelSpace): void {
    this.#parts.registry.releaseInferlet(space.holder);
    space.embeds.releaseAll();
    this.#byPages.delete(space.pages);
    this.open.delete(space);
  }
}

/**
 * Pushes arriving calls to the batcher, which orders them by their addresses. Ordering takes long for a call with many addresses, so such a
 * call waits for a gap between steps. The inferlet's later calls wait behind it; other inferlets' calls on the same socket do not.
 */
export class Arrivals {
  readonly #batcher: Batcher;
  readonly #gaps: StepGaps;

  constructor(batcher: Batcher, gaps: StepGaps) {
    this.#batcher = batcher;
    this.#gaps = gaps;
  }

  /** Pushes the call now; or later, in a gap, when it has many addresses or an earlier call of its inferlet waits for a gap. */
  take(call: HostCall, nowMs: number): void {
    const { space } = call.hostQueue;
    const { arrivingCalls, owner, port, scoreboard } = space;
    if (arrivingCalls.length > 0) arrivingCalls.push(call);
    // The batcher does not look at the addresses of a call while the inferlet has no other unfinished call.
    else if (!call.hasManyAddresses || scoreboard.size === 0) this.#batcher.push(call, nowMs);
    else {
      arrivingCalls.push(call);
      void this.#gaps.work(() => this.#takeNext(space), owner.tenant, port.meter);
    }
  }

  /** Pushes the next waiting call of a space. Returns true when more wait, false after the last, undefined when the space has ended. */
  #takeNext({ arrivingCalls }: ModelSpace): boolean | undefined {
    const call = arrivingCalls.shift();
    if (!call) return undefined;
    this.#batcher.push(call, performance.now());
    return arrivingCalls.length > 0;
  }
}
