import fc from 'fast-check';
import { MEMORY } from '../job.ts';
import { AdmissionPolicy, type Capacity, type Demand, type FreePages, type Limits } from './policy.ts';

/** After a step with `together`, the next step is part of the same change: admission runs after the last of them. */
type StepInput = { readonly now: number; readonly together?: boolean } & (
  | ({ readonly kind: 'enter' } & Demand)
  | { readonly kind: 'leave' | 'begin'; readonly id: string; readonly tenant: string }
  | ({ readonly kind: 'limit'; readonly tenant: string } & Limits)
  | ({ readonly kind: 'resize' } & Capacity)
  | { readonly kind: 'admit' }
  | { readonly kind: 'report'; readonly free: FreePages }
);

/** A step of `steps.lua`, with the ids that the policy admits in it and the ids that are on their way after it. */
export type Step = StepInput & {
  readonly admitted: readonly string[];
  readonly onTheirWay: readonly string[];
};

/** An order to the `Player`; numbers pick among the existing tenants and invocations. */
export interface Order {
  /**
   * `return`: an admitted invocation goes back into its queue. `short`: the same, after its end for lack of memory.
   * `withdraw`: a waiting invocation ends.
   */
  readonly kind: 'enter' | 'begin' | 'leave' | 'return' | 'short' | 'withdraw' | 'limit' | 'resize' | 'report';
  readonly tenant: number;
  readonly which: number;
  /** Expected pages of each of the two models. */
  readonly m: number;
  readonly n: number;
  readonly memoryMb: number;
  readonly afterMs: number;
  /** True when an entering invocation has latency targets. */
  readonly latency: boolean;
  /** True when the next order's change is made in the same script as this one's, if scripts gather such changes. */
  readonly together: boolean;
  readonly limits: Limits;
  readonly capacity: Capacity;
  /** Free pages of two GPU hosts for the first model; the second number also holds for the second model. */
  readonly free: readonly [number, number];
  /** Age of the readings, except the second host's reading for the first model, which is new. */
  readonly agoMs: number;
}

export const MODELS = ['m', 'n'] as const;

/** A limit that no history reaches. */
export const MANY = 1_000_000;

/** An order that ends an admitted invocation. Tests replace its kind or some of its values. */
export const LEAVE: Order = {
  kind: 'leave',
  tenant: 0,
  which: 0,
  m: 0,
  n: 0,
  memoryMb: 0,
  afterMs: 5,
  latency: false,
  together: false,
  limits: {},
  capacity: { slots: 1, pages: {}, reserve: 0, starts: MANY },
  free: [0, 0],
  agoMs: 0,
};

/** Capacities with and without an effective reserve. */
export const anyCapacity: fc.Arbitrary<Capacity> = fc.record(
  {
    slots: fc.oneof(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 16, max: 64 })),
    starts: fc.oneof(fc.integer({ min: 1, max: 8 }), fc.constant(1000)),
    reserve: fc.constantFrom(0, 1 / 16, 1 / 4),
    pages: fc.record(
      {
        m: fc.integer({ min: 0, max: 80 }),
        n: fc.integer({ min: 1, max: 20 }),
        [MEMORY]: fc.integer({ min: 1, max: 300 }),
      },
      { requiredKeys: ['m'] },
    ) as fc.Arbitrary<Record<string, number>>,
    pace: fc.nat(64),
  },
  { requiredKeys: ['slots', 'starts', 'reserve', 'pages'] },
);

const anyLimits: fc.Arbitrary<Limits> = fc.record(
  {
    weight: fc.integer({ min: 1, max: 1000 }),
    suspended: fc.boolean(),
    concurrency: fc.nat(8),
    pages: fc.nat(40),
  },
  { requiredKeys: [] },
);

export function anyOrder(tenants: number): fc.Arbitrary<Order> {
  const rest = {
    tenant: fc.nat(tenants - 1),
    which: fc.nat(1000),
    m: fc.oneof(fc.nat(4), fc.nat(30)),
    n: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat(10) }),
    memoryMb: fc.oneof(fc.nat(8), fc.nat(100)),
    latency: fc.oneof({ weight: 4, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
    together: fc.oneof({ weight: 2, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
    afterMs: fc.oneof(fc.constant(0), fc.nat(100), fc.nat(2500), fc.nat(10_000)),
    limits: anyLimits,
    capacity: anyCapacity,
    free: fc.tuple(fc.nat(40), fc.nat(40)),
    agoMs: fc.oneof(fc.constant(0), fc.nat(3000)),
  };
  return fc.oneof(
    { weight: 12, arbitrary: fc.record({ kind: fc.constant('enter' as const), ...rest }) },
    { weight: 5, arbitrary: fc.record({ kind: fc.constant('begin' as const), ...rest }) },
    { weight: 9, arbitrary: fc.record({ kind: fc.constantFrom('leave' as const, 'leave', 'return'), ...rest }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom('withdraw' as const, 'limit', 'resize'), ...rest }) },
    { weight: 6, arbitrary: fc.record({ kind: fc.constantFrom('short' as const, 'report'), ...rest }) },
  );
}

/** Plays orders to a policy, and records the steps with what the policy admitted in each. */
export class Player {
  readonly policy: AdmissionPolicy;
  readonly steps: Step[] = [];
  readonly waiting = new Map<string, Demand>();
  readonly admitted = new Map<string, Demand>();
  /** Admitted invocations that have not begun. */
  readonly starting = new Map<string, Demand>();
  now = 1_800_000_000_000;
  #arrivals = 0;
  /** True while the change of the last step has further steps. */
  #isChangeOpen = false;
  #joinsNextStep = false;

  constructor(capacity: Capacity) {
    this.policy = new AdmissionPolicy(capacity);
    this.steps.push({ kind: 'resize', now: this.now, admitted: [], onTheirWay: [], ...capacity });
  }

  /** Plays a history. Changes that scripts can make together (`SCRIPT_SHARING_KINDS`) share a script when their orders say so. */
  playAll(orders: readonly Order[]): void {
    for (const order of orders) {
      if (!SCRIPT_SHARING_KINDS.has(order.kind)) this.#endChange();
      this.#joinsNextStep = order.together && SCRIPT_SHARING_KINDS.has(order.kind);
      this.play(order);
    }
    this.#endChange();
  }

  #endChange(): void {
    this.#joinsNextStep = false;
    if (this.#isChangeOpen) this.#admit({ kind: 'admit', now: this.now });
  }

  play(order: Order): Step | null {
    if (!this.#isChangeOpen) this.now += order.afterMs;
    const { now, policy } = this;
    const tenant = `t${order.tenant}`;
    switch (order.kind) {
      case 'enter': {
        this.#arrivals += 1;
        const { m, n, memoryMb } = order;
        const pages = { ...(m > 0 && { m }), ...(n > 0 && { n }), ...(memoryMb > 0 && { [MEMORY]: memoryMb }) };
        // Ahead of earlier arrivals, but equal to none of them: scripts and policy need not agree on the order of equal arrivals.
        const arrival = order.latency ? this.#arrivals - 20.5 : this.#arrivals;
        const demand: Demand = { id: `i${this.#arrivals}`, tenant, arrival, pages, latency: order.latency };
        this.waiting.set(demand.id, demand);
        policy.enter(demand, now);
        return this.#admit({ kind: 'enter', now, ...demand });
      }
      case 'begin': {
        const demand = pick(this.starting, order.which);
        if (!demand) return null;
        this.starting.delete(demand.id);
        policy.begin(demand.id);
        return this.#admit({ kind: 'begin', now, id: demand.id, tenant: demand.tenant });
      }
      case 'leave':
      case 'withdraw': {
        const from = order.kind === 'leave' ? this.admitted : this.waiting;
        const demand = pick(from, order.which);
        if (!demand) return null;
        from.delete(demand.id);
        this.starting.delete(demand.id);
        policy.leave(demand.id, now);
        return this.#admit({ kind: 'leave', now, id: demand.id, tenant: demand.tenant });
      }
      case 'return': {
        const demand = pick(this.admitted, order.which);
        if (!demand) return null;
        this.admitted.delete(demand.id);
        this.starting.delete(demand.id);
        this.waiting.set(demand.id, { ...demand });
        policy.enter({ ...demand }, now);
        return this.#admit({ kind: 'enter', now, ...demand });
      }
      case 'short': {
        const admittedDemand = pick(this.admitted, order.which);
        if (!admittedDemand) return null;
        this.admitted.delete(admittedDemand.id);
        this.starting.delete(admittedDemand.id);
        const pages = { ...admittedDemand.pages, m: Math.max(admittedDemand.pages.m ?? 0, order.m + 1) };
        const { [MEMORY]: _, ...short } = pages as Record<string, number>;
        const demand: Demand = { ...admittedDemand, pages, short: { pages: short, since: now } };
        this.waiting.set(demand.id, demand);
        policy.enter(demand, now);
        return this.#admit({ kind: 'enter', now, ...demand });
      }
      case 'report': {
        const [first, second] = order.free;
        const readAt = now - order.agoMs;
        const free: FreePages = {
          m: [
            { pages: first, readAt },
            { pages: second, readAt: now },
          ],
          n: [{ pages: second, readAt }],
        };
        policy.report(free);
        return this.#admit({ kind: 'report', now, free });
      }
      case 'limit':
        policy.limit(tenant, order.limits);
        return this.#admit({ kind: 'limit', now, tenant, ...order.limits });
      case 'resize':
        policy.resize(order.capacity);
        return this.#admit({ kind: 'resize', now, ...order.capacity });
    }
  }

  #admit(step: StepInput): Step {
    this.#isChangeOpen = this.#joinsNextStep;
    if (this.#joinsNextStep) {
      const change: Step = { ...step, together: true, admitted: [], onTheirWay: [] };
      this.steps.push(change);
      return change;
    }
    const admitted = this.policy.admit(this.now);
    for (const demand of admitted) {
      this.waiting.delete(demand.id);
      this.admitted.set(demand.id, demand);
      this.starting.set(demand.id, demand);
    }
    const { onTheirWay } = this.policy;
    const done: Step = { ...step, admitted: admitted.map(({ id }) => id), onTheirWay };
    this.steps.push(done);
    return done;
  }
}

/** Kinds of orders whose changes one script can make for several invocations at once. */
const SCRIPT_SHARING_KINDS: ReadonlySet<Order['kind']> = new Set(['enter', 'leave', 'return', 'withdraw', 'short']);

function pick(from: ReadonlyMap<string, Demand>, which: number): Demand | undefined {
  return [...from.values()][which % Math.max(1, from.size)];
}
