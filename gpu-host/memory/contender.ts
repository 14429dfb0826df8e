import { PROTECTED_DEVICE_STEPS, PROTECTED_TOKENS, type Preemptible } from '#scheduler/policies/preemption.ts';
import type { Place } from '#scheduler/policies/victims.ts';
import type { FamilyName } from './family.ts';
import type { PageSpace } from './space.ts';

/** Counts the steps of the device. */
export interface DeviceSteps {
  readonly count: number;
}

/**
 * An invocation and its children on one model, as preemption sees them: all leave the device and return together. While they are away,
 * their calls are held and their pages may go to swap.
 */
export class Contender implements Preemptible {
  readonly arrival: number;
  readonly order: number;
  readonly spaces = new Set<PageSpace>();
  /** Number of held calls. A family that is away and has none needs no memory. */
  heldCalls = 0;
  /** Frames of the largest claim that was held since the family's last step. */
  wanted = 0;
  readonly #device: DeviceSteps;
  #isAway = false;
  #protectedSteps = 0;
  #overtook: Place | undefined;
  /** Number of the device's step at which the protection ends at the latest. */
  #protectedUntil = 0;

  constructor(arrival: number, order: number, device: DeviceSteps) {
    this.arrival = arrival;
    this.order = order;
    this.#device = device;
  }

  /** True from when the family is preempted until it returns. */
  get isAway(): boolean {
    return this.#isAway;
  }

  get protectedSteps(): number {
    return this.#device.count < this.#protectedUntil ? this.#protectedSteps : 0;
  }

  get overtook(): Place | undefined {
    return this.#overtook;
  }

  /** True when the family is not preempted, and a member that holds pages is not idle. */
  get runs(): boolean {
    if (this.#isAway) return false;
    for (const space of this.spaces) if (space.heldPages > 0 && !space.idle) return true;
    return false;
  }

  /** True while frames of the family's pages are in use. */
  get isPinned(): boolean {
    for (const { pins } of this.spaces) if (pins > 0) return true;
    return false;
  }

  leave(): void {
    this.#isAway = true;
  }

  /** @param overtook the newest of the older families that are away */
  return(overtook?: Contender): void {
    this.#isAway = false;
    // Do not keep the contender itself: it may have overtaken others in turn, and chains of contenders would never be freed.
    this.#overtook = overtook && { arrival: overtook.arrival, order: overtook.order };
    this.#protectedSteps = PROTECTED_TOKENS;
    this.#protectedUntil = this.#device.count + PROTECTED_DEVICE_STEPS;
  }

  /** Counts a step of one of the family's calls. */
  stepped(): void {
    this.wanted = 0;
    if (this.#protectedSteps > 0) this.#protectedSteps--;
  }

  /** Frames that the family needs to go on: the wanted ones, and one for each page of its members off the device. Idle members need none. */
  get needed(): number {
    let frames = this.wanted;
    for (const space of this.spaces) {
      if (space.idle) continue;
      for (const page of space.held.keys()) if (page.frame < 0) frames++;
    }
    return frames;
  }

  /** Pages of the family that have a frame. */
  get resident(): number {
    let frames = 0;
    for (const space of this.spaces) for (const page of space.held.keys()) if (page.frame >= 0) frames++;
    return frames;
  }

  /** Frames promised to the family at its recent return that it has not taken yet: its pages come back as calls need them. */
  get promised(): number {
    return this.protectedSteps > 0 && !this.#isAway ? this.needed : 0;
  }
}

/** The contenders of one model. */
export class Contenders implements Iterable<Contender> {
  readonly #contenders = new Set<Contender>();
  readonly #families = new Map<string, Contender>();
  readonly #device = { count: 0 };

  [Symbol.iterator](): Iterator<Contender> {
    return this.#contenders.values();
  }

  /** The contender of a space that is being opened: that of its family, or a new one. */
  of(arrival: number, order: number, family: FamilyName | undefined): Contender {
    const existing = family && this.#families.get(keyOf(family));
    if (existing) return existing;
    const contender = new Contender(arrival, order, this.#device);
    this.#contenders.add(contender);
    if (family) this.#families.set(keyOf(family), contender);
    return contender;
  }

  /** Counts a step of the device. */
  stepped(): void {
    this.#device.count++;
  }

  add(space: PageSpace): void {
    space.contender.spaces.add(space);
  }

  remove(space: PageSpace): void {
    const { contender, owner } = space;
    contender.spaces.delete(space);
    if (contender.spaces.size > 0) return;
    this.#contenders.delete(contender);
    if (owner.family) this.#families.delete(keyOf(owner.family));
  }
}

const keyOf = ({ name, epoch }: FamilyName): string => `${epoch} ${name}`;
