import { OnTheWay } from './on-the-way.ts';

/** Part of slots and pages that is kept for tenants that hold little: a newcomer need not wait for somebody else's invocation to end. */
export const DEFAULT_RESERVE = 1 / 16;
/** A head is overtaken so often, then room is kept for it. */
export const MAX_OVERTAKEN = 8;
/** So many tenants are looked at for one whose head fits, in order of their turns. */
export const LOOK = 16;
/** What an invocation is charged for at its start; the rest of its time is charged when it leaves. */
export const LEAST_MS = 10;
/** Of a tenant for which nothing else is set. */
export const DEFAULT_WEIGHT = 100;
/** What started on a GPU host's word for its memory holds that memory after this. */
export const CLAIM_MS = 2000;

/** What memory of runtimes is counted by among the pages of models, in MiB: no model has such a name. */
export const MEMORY = '#memory';

/** KV pages by model, and memory of runtimes (`MEMORY`). */
export type Pages = Readonly<Record<string, number>>;

/** What each GPU host said last that it could give without ending anybody, by model. Models that are not listed are not known. */
export type FreePages = Readonly<Record<string, readonly { readonly pages: number; readonly readAt: number }[]>>;

export interface Capacity {
  readonly slots: number;
  /** Slots that runtimes would have filled now, by tenants that hold more than few; all by default. */
  readonly pace?: number;
  /** How many may be on their way: admitted and not begun; as many again of tenants that hold few slots. */
  readonly starts: number;
  /** Models that are not listed are not counted. One that several GPU hosts have is one for each: `model@host`. */
  readonly pages: Pages;
  /** Part of each that is kept for tenants that hold little. */
  readonly reserve: number;
}

/** One invocation in a line. */
export interface Demand {
  readonly id: string;
  readonly tenant: string;
  readonly arrival: number;
  readonly pages: Pages;
  /** What an earlier attempt held or asked for when it was ended for want of memory, and when that was. */
  readonly short?: { readonly pages: Pages; readonly since: number };
}

/** What a tenant's record and quotas say. Its pages are the sum over all models. */
export interface Limits {
  readonly weight?: number;
  readonly suspended?: boolean;
  readonly concurrency?: number;
  readonly pages?: number;
}

interface Tenant {
  readonly name: string;
  readonly line: Demand[];
  readonly held: Map<string, number>;
  running: number;
  limits: Limits;
  /** Virtual time that it has come to. */
  finish: number;
  /** Virtual start time of its head; null while it has none that may start. */
  turn: number | null;
  head: Demand | null;
  overtaken: number;
  /** Room is kept for its head. */
  kept: boolean;
}

interface Entry {
  readonly demand: Demand;
  readonly at: number;
  readonly share: number;
}

interface Left {
  slots: number;
  /** For tenants that hold more than few. */
  ordinary: number;
  readonly pages: Map<string, number>;
}

/**
 * Who is admitted: the rules, as plainly as they can be said. `scripts/include/admission.lua` follows them in Redis, with the same decisions
 * for the same history (a test holds one against the other).
 *
 * Inside a tenant: first come, first served, as in Pie (SOSP '25, section 5.3); what comes back stands where it stood.
 *
 * Among tenants: start-time fair queueing (Goyal et al., SIGCOMM '96). A tenant's turn is its head's virtual start time, the later of the
 * virtual time (start of the last admitted) and of what the tenant itself has come to; the earliest turn goes first, so who was idle has
 * gathered no credit. What an invocation costs is the largest part that it takes of any resource, times its time, over the tenant's weight.
 * The time is not known at its start: the least is charged there and the rest when it leaves, as the virtual token counter does (Sheng et al.,
 * OSDI '24). A charge is never given back, so that nobody's turn lies before the virtual time. When nobody waits, all begin alike again.
 *
 * Room: a head starts when a slot is free and its expected pages fit beside those of all that is admitted. One that does not fit is passed
 * over; after `MAX_OVERTAKEN` of those, what it needs counts as taken until it starts, unless its tenant would hold more than an equal part of a pool with it: that
 * one waits for its own to end, and nobody for it. So something starts as long as some head among the
 * first `LOOK` turns fits into what is not kept. A demand that is larger than a pool starts when nobody else has any of it, so that the GPU
 * host refuses it with its reason. Memory of runtimes is one more such pool (`MEMORY`), so that they never hold more than there is. Only a few are on their way to runtimes at a time (`starts`), so that who is admitted next begins soon; one
 * of a tenant that holds few slots goes ahead of as many that were admitted before it, though never of its own tenant's. These have as many places
 * on the way of their own, so that neither kind waits for the other's. While runtimes lag (`pace`) fewer slots are for the others, the reserve stays.
 *
 * Expectations may be wrong, and then a GPU host ends who came last. What comes back from there for another attempt starts only when besides
 * some GPU host that was asked since says that it has the pages which the attempt held and asked for, less what others claim who started in the
 * same way less than `CLAIM_MS` before that was read; or when nobody else is admitted; or when no GPU host says anything. Until then it is one
 * that does not fit, with the same bound: without it, a flow of small ones would keep its memory taken for good. That costs the others the
 * pages that are expected of it and no more, and its own line waits behind it as always.
 *
 * The reserve of slots, and of each model's pages, is for tenants that hold at most half of it (counting their head; one at least), and for heads
 * for which room is kept, of the first `LOOK` turns. A tenant that has its part of the reserve is not overtaken by those who start from it.
 */
export class AdmissionPolicy {
  readonly #tenants = new Map<string, Tenant>();
  readonly #ledger = new Map<string, Entry>();
  readonly #used = new Map<string, number>();
  readonly #onTheWay = new OnTheWay();
  /** How many were admitted so far. */
  #order = 0;
  #capacity: Capacity;
  #free: FreePages = {};
  /** Those admitted that came back for want of memory. */
  readonly #claims = new Map<string, { readonly at: number; readonly pages: Pages }>();
  /** Virtual time: the start of the last admitted. */
  #time = 0;
  /** The largest virtual time that any tenant has come to. */
  #latest = 0;

  constructor(capacity: Capacity) {
    this.#capacity = capacity;
  }

  get admitted(): number {
    return this.#ledger.size;
  }

  /** Ids in a tenant's line, first one first. */
  line(tenant: string): string[] {
    return this.#tenant(tenant).line.map(({ id }) => id);
  }

  /** How often the head of a tenant's line was overtaken. */
  overtaken(tenant: string): number {
    return this.#tenant(tenant).overtaken;
  }

  /** Ids of those admitted and not begun, in the order in which runtimes fetch them. */
  get onTheirWay(): string[] {
    return this.#onTheWay.ids;
  }

  /** Whether room is kept for somebody. */
  get keepsRoom(): boolean {
    return [...this.#tenants.values()].some(({ kept }) => kept);
  }

  /** Puts an invocation into its tenant's line by arrival; one that was admitted comes back. */
  enter(demand: Demand, now: number): void {
    this.#leaveLedger(demand.id, now);
    const { line } = this.#tenant(demand.tenant);
    const at = line.findIndex(({ arrival }) => arrival > demand.arrival);
    line.splice(at < 0 ? line.length : at, 0, demand);
    this.#settle(demand.tenant);
  }

  /** An attempt of an admitted invocation has begun. */
  begin(id: string): void {
    this.#onTheWay.remove(id);
  }

  /** An invocation has ended, in its line or admitted. */
  leave(id: string, now: number): void {
    const admitted = this.#leaveLedger(id, now);
    if (admitted !== null) this.#settle(admitted);
    for (const { name, line } of this.#tenants.values()) {
      const at = line.findIndex((demand) => demand.id === id);
      if (at < 0) continue;
      line.splice(at, 1);
      this.#settle(name);
    }
  }

  resize(capacity: Capacity): void {
    this.#capacity = capacity;
  }

  /** What GPU hosts say of their memory. */
  report(free: FreePages): void {
    this.#free = free;
  }

  limit(tenant: string, limits: Limits): void {
    this.#tenant(tenant).limits = limits;
    this.#settle(tenant);
  }

  /** Admits whoever may start, in order. */
  admit(now: number): Demand[] {
    const admitted: Demand[] = [];
    for (let next = this.#choose(); next !== null; next = this.#choose()) {
      const { tenant, passed } = next;
      const fewPages = this.#holdsFewPages(tenant);
      const waiting = [...this.#tenants.values()].filter(({ turn }) => turn !== null).length;
      admitted.push(this.#start(tenant, now));
      for (const other of passed) {
        const small = pagesOf(other).every(([model, count]) => count <= (this.#own(model) ?? count));
        if (fewPages && small) continue;
        other.overtaken += 1;
        if (other.overtaken >= MAX_OVERTAKEN && !this.#holdsItsPart(other, waiting)) other.kept = true;
      }
    }
    return admitted;
  }

  #choose(): { tenant: Tenant; passed: Tenant[] } | null {
    const { slots, pages, pace = slots } = this.#capacity;
    const left: Left = {
      slots: slots - this.#ledger.size,
      ordinary: Math.min(slots - this.#reserveSlots, pace) - this.#ledger.size,
      pages: new Map(Object.entries(pages).map(([model, total]) => [model, total - (this.#used.get(model) ?? 0)])),
    };
    const { starts } = this.#capacity;
    const { few, others } = this.#onTheWay.counts();
    if (left.slots < 1 || (few >= starts && others >= starts)) return null;
    const waits = (tenant: Tenant): boolean => (this.#holdsFewSlots(tenant) ? few : others) >= starts;
    const turns = [...this.#tenants.values()].filter(({ turn }) => turn !== null).sort(byTurn);
    const passed: Tenant[] = [];
    const kept = turns.filter((tenant) => tenant.kept).slice(0, LOOK);
    for (const tenant of kept) {
      if (waits(tenant)) continue;
      if (this.#fits(tenant, left, true)) return { tenant, passed };
      left.slots -= 1;
      left.ordinary -= 1;
      for (const [model, count] of pagesOf(tenant)) {
        const room = left.pages.get(model);
        if (room !== undefined) left.pages.set(model, room - count);
      }
    }
    const looks: Tenant[][] = [];
    if (left.ordinary >= 1) looks.push(turns.slice(0, LOOK));
    if (left.slots >= 1 && this.#reserveSlots > 0) {
      looks.push(turns.filter((tenant) => this.#holdsFewSlots(tenant)).slice(0, LOOK));
    }
    for (const tenant of looks.flat()) {
      if (kept.includes(tenant) || passed.includes(tenant) || waits(tenant)) continue;
      if (this.#fits(tenant, left, false)) return { tenant, passed };
      passed.push(tenant);
    }
    return null;
  }

  #fits(tenant: Tenant, left: Left, kept: boolean): boolean {
    const slots = kept || this.#holdsFewSlots(tenant) ? left.slots : left.ordinary;
    if (slots < 1 || !this.#findsMemory(tenant)) return false;
    return pagesOf(tenant).every(([model, count]) => {
      const room = left.pages.get(model);
      const total = this.#capacity.pages[model];
      if (room === undefined || total === undefined || room === total) return true;
      const own = (tenant.held.get(model) ?? 0) + count <= (this.#own(model) ?? 0);
      return count <= (kept || own ? room : room - Math.floor(total * this.#capacity.reserve));
    });
  }

  #findsMemory({ head }: Tenant): boolean {
    if (!head?.short || this.#ledger.size === 0) return true;
    const { pages, since } = head.short;
    return Object.entries(pages).every(([model, needed]) => {
      const claimed = (readAt: number): number =>
        [...this.#claims.values()].reduce(
          (sum, claim) => sum + (claim.at + CLAIM_MS > readAt ? (claim.pages[model] ?? 0) : 0),
          0,
        );
      const readings = this.#free[model];
      if (readings === undefined) return true;
      return readings.some(({ pages, readAt }) => readAt > since && pages - claimed(readAt) >= needed);
    });
  }

  #start(tenant: Tenant, now: number): Demand {
    const demand = tenant.line.shift();
    if (demand === undefined || tenant.turn === null) throw new Error('A tenant without a head cannot start one.');
    const { slots, pages } = this.#capacity;
    const parts = Object.entries(demand.pages).map(([model, count]) => {
      const total = pages[model];
      return total === undefined ? 0 : total > 0 ? count / total : 1;
    });
    const share = Math.min(1, Math.max(1 / slots, ...parts));
    this.#time = Math.max(this.#time, tenant.turn);
    tenant.finish = tenant.turn + (share * LEAST_MS) / weightOf(tenant);
    this.#latest = Math.max(this.#latest, tenant.finish);
    tenant.turn = tenant.finish;
    this.#ledger.set(demand.id, { demand, at: now, share });
    if (demand.short) this.#claims.set(demand.id, { at: now, pages: demand.short.pages });
    this.#order += 1;
    const few = this.#holdsFewSlots(tenant);
    const place = few ? this.#order - this.#capacity.starts : this.#order;
    this.#onTheWay.send({ id: demand.id, tenant: tenant.name, place, few });
    this.#add(tenant, demand.pages, 1);
    this.#settle(tenant.name);
    return demand;
  }

  #leaveLedger(id: string, now: number): string | null {
    const entry = this.#ledger.get(id);
    if (entry === undefined) return null;
    this.#ledger.delete(id);
    this.#claims.delete(id);
    this.begin(id);
    const tenant = this.#tenant(entry.demand.tenant);
    this.#add(tenant, entry.demand.pages, -1);
    const charge = (entry.share * Math.max(0, now - entry.at - LEAST_MS)) / weightOf(tenant);
    tenant.finish += charge;
    if (tenant.turn !== null) tenant.turn += charge;
    this.#latest = Math.max(this.#latest, tenant.finish);
    return tenant.name;
  }

  #add(tenant: Tenant, pages: Pages, sign: number): void {
    tenant.running += sign;
    for (const [model, count] of Object.entries(pages)) {
      tenant.held.set(model, (tenant.held.get(model) ?? 0) + sign * count);
      this.#used.set(model, (this.#used.get(model) ?? 0) + sign * count);
    }
  }

  /** Puts a tenant where it belongs after its line, its limits or what it holds have changed. */
  #settle(name: string): void {
    const tenant = this.#tenant(name);
    const head = tenant.line[0] ?? null;
    if (head !== tenant.head) {
      tenant.head = head;
      tenant.overtaken = 0;
      tenant.kept = false;
    }
    if (head === null || !mayStart(tenant)) {
      tenant.turn = null;
      tenant.kept = false;
      return;
    }
    if (tenant.turn !== null) return;
    if ([...this.#tenants.values()].every(({ turn }) => turn === null)) this.#time = Math.max(this.#time, this.#latest);
    tenant.turn = Math.max(this.#time, tenant.finish);
  }

  get #reserveSlots(): number {
    return Math.floor(this.#capacity.slots * this.#capacity.reserve);
  }

  /** What a tenant holds of a model at most while it counts as one that holds little. */
  #own(model: string): number | undefined {
    const total = this.#capacity.pages[model];
    return total === undefined ? undefined : ownOf(Math.floor(total * this.#capacity.reserve));
  }

  #holdsFewSlots(tenant: Tenant): boolean {
    return tenant.running + 1 <= ownOf(this.#reserveSlots);
  }

  #holdsFewPages(tenant: Tenant): boolean {
    return pagesOf(tenant).every(([model, count]) => {
      const own = this.#own(model);
      return own === undefined || (tenant.held.get(model) ?? 0) + count <= own;
    });
  }

  /** Whether a tenant that holds some of a pool would have more of it than an equal part with its head, among so many tenants. */
  #holdsItsPart(tenant: Tenant, tenants: number): boolean {
    return pagesOf(tenant).some(([model, count]) => {
      const held = tenant.held.get(model) ?? 0;
      return held > 0 && (held + count) * tenants > (this.#capacity.pages[model] ?? Number.POSITIVE_INFINITY);
    });
  }

  #tenant(name: string): Tenant {
    let tenant = this.#tenants.get(name);
    if (tenant === undefined) {
      const none = { limits: {}, running: 0, finish: 0, turn: null, head: null, overtaken: 0, kept: false };
      tenant = { name, line: [], held: new Map(), ...none };
      this.#tenants.set(name, tenant);
    }
    return tenant;
  }
}

/** How much of a resource a tenant holds at most while it counts as one that holds little. */
function ownOf(reserve: number): number {
  return reserve > 0 ? Math.max(1, Math.floor(reserve / 2)) : 0;
}

/** Whether the tenant's own limits let its head start. What it alone could never hold starts when it holds nothing: its end says why. */
function mayStart({ limits, running, held, head }: Tenant): boolean {
  if (limits.suspended || running >= (limits.concurrency ?? Number.POSITIVE_INFINITY)) return false;
  if (limits.pages === undefined || running === 0) return true;
  const counted = [...held, ...Object.entries(head?.pages ?? {})].filter(([model]) => model !== MEMORY);
  const pages = counted.reduce((sum, [, count]) => sum + count, 0);
  return pages <= limits.pages;
}

function weightOf({ limits }: Tenant): number {
  return limits.weight ?? DEFAULT_WEIGHT;
}

function pagesOf({ head }: Tenant): [string, number][] {
  return Object.entries(head?.pages ?? {});
}

function byTurn(a: Tenant, b: Tenant): number {
  return (a.turn ?? 0) - (b.turn ?? 0) || (a.name < b.name ? -1 : 1);
}
