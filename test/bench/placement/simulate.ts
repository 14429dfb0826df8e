import type { RuntimeGpuHost } from '#scheduler/runtimes/types.ts';
import { SimulatedHost } from './host.ts';
import type { HostChange, Trace, TracedInvocation } from './trace.ts';

/** State that a policy may read when it places the head of a tenant's queue. */
export interface View {
  readonly nowMs: number;
  readonly hosts: readonly SimulatedHost[];
  /** The hosts as runtimes describe them, in the same order. */
  readonly described: readonly RuntimeGpuHost[];
  /** Indices of the hosts that take invocations. Each change of a host makes a new list. */
  readonly open: readonly number[];
  /** Pages of the heads that wait for each host. */
  readonly waitingPages: readonly number[];
}

export interface Policy {
  readonly name: string;
  /**
   * Returns the index of the host on which the head waits for room. After null, the head waits for no particular host, and the simulation asks the
   * policy again whenever an invocation ends.
   */
  place(head: TracedInvocation, view: View): number | null;
}

/** The fate of one invocation. */
export interface Outcome {
  readonly invocation: TracedInvocation;
  /** Start of the last attempt. */
  startMs: number;
  /** Time at which the last attempt has computed its prompt. */
  prefilledMs: number;
  endMs: number;
  /** Index of the last attempt's host. */
  host: number;
  attempts: number;
}

export interface SimulationResult {
  readonly outcomes: readonly Outcome[];
  readonly hosts: readonly SimulatedHost[];
  /** Largest share of its pages that a host reserved while it ran more than one invocation. A single invocation may exceed its host's pages. */
  readonly mostReserved: number;
}

/**
 * Plays a trace in virtual time. Each tenant has a queue, first come, first served, as in admission. The policy places the head of each queue on a
 * host. A host starts its heads in the order in which they were placed on it, each as soon as it has room. When a host joins or leaves, the policy
 * places all waiting heads again. Invocations that a crash ended return to the front of their tenants' queues.
 */
export function simulate(trace: Trace, policy: Policy): SimulationResult {
  return new Simulation(trace, policy).run();
}

class Simulation {
  readonly #trace: Trace;
  readonly #policy: Policy;
  readonly #hosts: readonly SimulatedHost[];
  readonly #described: RuntimeGpuHost[];
  readonly #outcomes = new Map<TracedInvocation, Outcome>();
  /** Queues by tenant; the first of each is its head. */
  readonly #queues = new Map<string, TracedInvocation[]>();
  /** Heads that the policy has placed and that wait for room, by index of their host. */
  readonly #waiting: TracedInvocation[][];
  readonly #waitingPages: number[];
  /** Heads for which the policy has not chosen a host, oldest first. */
  #unplaced: TracedInvocation[] = [];
  #open: number[] = [];
  #nowMs = 0;
  #mostReserved = 0;

  constructor(trace: Trace, policy: Policy) {
    this.#trace = trace;
    this.#policy = policy;
    this.#hosts = trace.hosts.map((shape) => new SimulatedHost(shape));
    this.#described = trace.hosts.map(({ name }) => ({ name, connected: true, connectedAt: 0, models: [] }));
    this.#waiting = trace.hosts.map(() => []);
    this.#waitingPages = trace.hosts.map(() => 0);
    this.#updateOpen();
  }

  run(): SimulationResult {
    const { invocations, changes } = this.#trace;
    let [arrivalIndex, changeIndex] = [0, 0];
    for (;;) {
      const arrival = invocations[arrivalIndex];
      const change = changes[changeIndex];
      const host = this.#nextHost();
      const hostMs = this.#hosts[host]?.nextMs ?? Number.POSITIVE_INFINITY;
      const nextMs = Math.min(
        hostMs,
        arrival?.atMs ?? Number.POSITIVE_INFINITY,
        change?.atMs ?? Number.POSITIVE_INFINITY,
      );
      if (nextMs === Number.POSITIVE_INFINITY) break;
      this.#nowMs = nextMs;
      if (change?.atMs === nextMs) {
        changeIndex++;
        this.#change(change);
      } else if (arrival?.atMs === nextMs) {
        arrivalIndex++;
        this.#arrive(arrival);
      } else this.#passMilestone(host);
    }
    return { outcomes: [...this.#outcomes.values()], hosts: this.#hosts, mostReserved: this.#mostReserved };
  }

  #nextHost(): number {
    let [next, atMs] = [-1, Number.POSITIVE_INFINITY];
    for (let i = 0; i < this.#hosts.length; i++) {
      const ms = this.#hosts[i]?.nextMs ?? atMs;
      if (ms < atMs) [next, atMs] = [i, ms];
    }
    return next;
  }

  #arrive(invocation: TracedInvocation): void {
    const notStarted = { startMs: Number.NaN, prefilledMs: Number.NaN, endMs: Number.NaN, host: -1, attempts: 0 };
    this.#outcomes.set(invocation, { invocation, ...notStarted });
    const queue = this.#queues.get(invocation.tenant);
    if (queue) queue.push(invocation);
    else {
      this.#queues.set(invocation.tenant, [invocation]);
      this.#place(invocation);
    }
  }

  /** Places the head of a queue. */
  #place(head: TracedInvocation): void {
    const host = this.#unplaced.length > 0 ? null : this.#policy.place(head, this.#view());
    if (host === null) this.#unplaced.push(head);
    else {
      this.#waiting[host]?.push(head);
      this.#waitingPages[host] = (this.#waitingPages[host] ?? 0) + head.pages;
      this.#startWaiting(host);
    }
  }

  #startWaiting(index: number): void {
    const waiting = this.#waiting[index] as TracedInvocation[];
    const host = this.#hosts[index] as SimulatedHost;
    while (waiting[0] && host.hasRoom(waiting[0])) {
      const head = waiting.shift() as TracedInvocation;
      this.#waitingPages[index] = (this.#waitingPages[index] ?? 0) - head.pages;
      this.#start(head, index);
    }
  }

  #start(head: TracedInvocation, index: number): void {
    const host = this.#hosts[index] as SimulatedHost;
    const outcome = this.#outcomes.get(head) as Outcome;
    host.start(head, this.#nowMs);
    if (host.running.length > 1)
      this.#mostReserved = Math.max(this.#mostReserved, host.reservedPages / host.shape.pages);
    outcome.startMs = this.#nowMs;
    outcome.host = index;
    outcome.attempts++;
    const queue = this.#queues.get(head.tenant) as TracedInvocation[];
    queue.shift();
    if (queue[0]) this.#place(queue[0]);
    else this.#queues.delete(head.tenant);
  }

  /** Lets an invocation of a host reach its next milestone: the end of its prompt, or its end. */
  #passMilestone(index: number): void {
    const host = this.#hosts[index] as SimulatedHost;
    const passed = host.pass(this.#nowMs);
    const outcome = this.#outcomes.get(passed.invocation) as Outcome;
    const isStillRunning = host.running.includes(passed);
    if (isStillRunning) {
      outcome.prefilledMs = this.#nowMs;
      return;
    }
    outcome.endMs = this.#nowMs;
    this.#startWaiting(index);
    this.#placeUnplaced();
  }

  /** The oldest head goes first. While the policy finds no host for it, later heads wait, too. */
  #placeUnplaced(): void {
    for (let [head] = this.#unplaced; head !== undefined; [head] = this.#unplaced) {
      const host = this.#policy.place(head, this.#view());
      if (host === null) return;
      this.#unplaced.shift();
      this.#start(head, host);
    }
  }

  #change({ host: index, kind }: HostChange): void {
    const { name, connected: wasConnected, connectedAt } = this.#described[index] as RuntimeGpuHost;
    const host = this.#hosts[index] as SimulatedHost;
    const connected = kind !== 'crash';
    this.#described[index] = {
      name,
      connected,
      models: [],
      ...(connected && { connectedAt: wasConnected ? (connectedAt ?? 0) : this.#nowMs }),
      ...(kind === 'drain' && { drain: { since: this.#nowMs } }),
    };
    this.#updateOpen();
    const heads = [...this.#waiting.flatMap((waiting) => waiting.splice(0)), ...this.#unplaced.splice(0)];
    this.#waitingPages.fill(0);
    if (kind === 'crash')
      for (const invocation of host.crash(this.#nowMs).reverse()) {
        const queue = this.#queues.get(invocation.tenant);
        if (queue) queue.unshift(invocation);
        else this.#queues.set(invocation.tenant, [invocation]);
        // The crashed invocation takes the place of the tenant's previous head.
        const displaced = heads.findIndex((head) => head.tenant === invocation.tenant);
        if (displaced >= 0) heads.splice(displaced, 1);
        heads.push(invocation);
      }
    heads.sort((a, b) => a.atMs - b.atMs);
    for (const head of heads) this.#place(head);
  }

  #updateOpen(): void {
    this.#open = this.#described.flatMap(({ connected, drain }, i) => (connected && !drain ? [i] : []));
  }

  #view(): View {
    return {
      nowMs: this.#nowMs,
      hosts: this.#hosts,
      described: this.#described,
      open: this.#open,
      waitingPages: this.#waitingPages,
    };
  }
}
