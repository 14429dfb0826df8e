import {
  type Place,
  PROTECTED_DEVICE_STEPS,
  PROTECTED_TOKENS,
  type Preemptible,
} from '#scheduler/policies/preemption.ts';
import type { FamilyName } from './family.ts';
import type { PageAccount } from './page-accounts.ts';
import type { PageSpace } from './space.ts';

/** Counts the steps of the device. */
export interface DeviceSteps {
  readonly count: number;
}

/**
 * A family (an invocation and its children) on one model, as preemption sees it. Preemption takes the whole family off the device, and brings it
 * back as a whole. While the family is away, its calls are held and its pages may go to swap. After its return it is protected from preemption
 * for some of its steps.
 */
export class Contender implements Preemptible<PageAccount> {
  /** Account of the family's tenant. */
  readonly account: PageAccount;
  readonly arrival: number;
  readonly order: number;
  readonly spaces = new Set<PageSpace>();
  #heldCalls = 0;
  /** Frames of the largest claim of a held call since the family's last step. */
  wanted = 0;
  /**
   * True when no family fitted into its tenant's share and this one was the first of them: until it is preempted, its claims may take all pages of
   * tenants that wait as well.
   */
  isForced = false;
  /** Time before which the family does not return, ms. */
  heldUntilMs = Number.NEGATIVE_INFINITY;
  readonly #device: DeviceSteps;
  #isAway = false;
  #protectedSteps = 0;
  #overtook: Place | undefined;
  /** Count of device steps at which the protection ends, even if the family has made few steps. */
  #protectedUntil = 0;

  constructor(account: PageAccount, arrival: number, order: number, device: DeviceSteps) {
    this.account = account;
    this.arrival = arrival;
    this.order = order;
    this.#device = device;
  }

  /** Number of held calls. A family that is away and has no held call needs no memory. */
  get heldCalls(): number {
    return this.#heldCalls;
  }

  set heldCalls(calls: number) {
    this.account.heldCalls += calls - this.#heldCalls;
    this.#heldCalls = calls;
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

  /** True when the family is not preempted and one of its members holds pages and is not idle. */
  get runs(): boolean {
    if (this.#isAway) return false;
    for (const space of this.spaces) if (space.heldPages > 0 && !space.idle) return true;
    return false;
  }

  /** True while a step or a transfer uses frames of the family's pages. */
  get isPinned(): boolean {
    for (const { pins } of this.spaces) if (pins > 0) return true;
    return false;
  }

  /** Begins the preemption. */
  leave(): void {
    this.#isAway = true;
    this.isForced = false;
  }

  /** Ends the preemption. @param overtook the newest of the older families that stay away: that one and older ones may preempt this family at once */
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
    this.account.idleSinceMs = undefined;
    if (this.#protectedSteps > 0) this.#protectedSteps--;
  }

  /** Frames that the family needs to go on: `wanted`, and one for each page off the device of members that are not idle. */
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

  /** Frames promised to a protected family, whose pages come back as its calls need them. Returns of other families do not count on these frames. */
  get promised(): number {
    return this.protectedSteps > 0 && !this.#isAway ? this.needed : 0;
  }
}

/** The families of one model. An inferlet without a family is a contender of its own. */
export class Contenders implements Iterable<Contender> {
  readonly #contenders = new Set<Contender>();
  readonly #families = new Map<string, Contender>();
  readonly #device = { count: 0 };

  [Symbol.iterator](): Iterator<Contender> {
    return this.#contenders.values();
  }

  /** The contender of a space that is being opened: that of its family, or a new one. */
  of(account: PageAccount, arrival: number, order: number, family: FamilyName | undefined): Contender {
    const existing = family && this.#families.get(keyOf(family));
    if (existing) return existing;
    const contender = new Contender(account, arrival, order, this.#device);
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
    contender.heldCalls = 0;
    this.#contenders.delete(contender);
    if (owner.family) this.#families.delete(keyOf(owner.family));
  }
}

const keyOf = ({ name, epoch }: FamilyName): string => `${epoch} ${name}`;
