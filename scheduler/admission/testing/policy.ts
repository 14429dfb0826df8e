import { MEMORY } from '../job.ts';

/** Weight of a tenant that sets none. */
const DEFAULT_WEIGHT = 100;

/** KV pages by model, and runtime memory (`MEMORY`). */
export type Pages = Readonly<Record<string, number>>;

/** An invocation in its tenant's queue, and what it needs to start. */
export interface Demand {
  readonly id: string;
  readonly tenant: string;
  /** Place in the order of all invocations. */
  readonly arrival: number;
  /** Pages and memory that it is expected to hold. */
  readonly pages: Pages;
  /** True for an invocation with granted latency targets: it is admitted as if its tenant held little. */
  readonly latency?: boolean;
  /** Pages that an earlier attempt held or asked for when a GPU host ended it for lack of memory, and the time of that end, ms. */
  readonly short?: { readonly pages: Pages; readonly since: number };
}

/** Limits from a tenant's record and quotas. `pages` bounds the sum over all models; it also caps a head's expected pages of each model. */
export interface Limits {
  readonly weight?: number;
  readonly suspended?: boolean;
  readonly concurrency?: number;
  readonly pages?: number;
}

/** State of one tenant in the admission policy. */
export interface Tenant {
  readonly name: string;
  readonly queue: Demand[];
  /** Expected pages and memory of its admitted invocations, by model. */
  readonly heldPages: Map<string, number>;
  /** Number of its admitted invocations. */
  running: number;
  limits: Limits;
  /** Virtual finish time: the virtual time up to which it has been charged. */
  finish: number;
  /** Virtual start time of its head; null while no head may start. */
  turn: number | null;
  /** The first invocation of its queue. */
  head: Demand | null;
  /** Times that other tenants' heads have overtaken its head; see `AdmissionPolicy`. */
  overtaken: number;
  /** The head that an invocation with latency targets displaced last, in its state then, in case it returns. Null again with an empty queue. */
  displaced: { readonly id: string; readonly overtaken: number; readonly isRoomKept: boolean } | null;
  /** True while the policy keeps room for its head. */
  isRoomKept: boolean;
}

/**
 * True when the tenant's limits let its head start. A head that needs more than the page limit over all models starts
 * when no other invocation of the tenant is admitted.
 */
export function mayStart(tenant: Tenant): boolean {
  const { limits, running, heldPages } = tenant;
  if (limits.suspended || running >= (limits.concurrency ?? Number.POSITIVE_INFINITY)) return false;
  if (limits.pages === undefined || running === 0) return true;
  const pageCounts = [...heldPages, ...pagesOf(tenant)].filter(([model]) => model !== MEMORY);
  const pages = pageCounts.reduce((sum, [, count]) => sum + count, 0);
  return pages <= limits.pages;
}

export function weightOf({ limits }: Tenant): number {
  return limits.weight ?? DEFAULT_WEIGHT;
}

/** The pages that a tenant's head needs: of each model at most the tenant's page limit. */
export function pagesOf({ head, limits: { pages: maxPages = Number.POSITIVE_INFINITY } }: Tenant): [string, number][] {
  return Object.entries(head?.pages ?? {})
    .map(([model, count]): [string, number] => [model, model === MEMORY ? count : Math.min(count, maxPages)])
    .filter(([, count]) => count > 0);
}

export function byTurn(a: Tenant, b: Tenant): number {
  return (a.turn ?? 0) - (b.turn ?? 0) || (a.name < b.name ? -1 : 1);
}

/** An invocation that is admitted and has not begun. */
export interface OnItsWay {
  readonly id: string;
  readonly tenant: string;
  /** Admission number of the invocation, minus the number of earlier ones that it may overtake. Runtimes fetch the smallest place first. */
  readonly place: number;
  /** True when the invocation has latency targets, or its tenant held few slots. */
  readonly mayUseReserve: boolean;
  /** True when the invocation has latency targets. */
  readonly hasLatencyTargets: boolean;
}

/** The invocations that are on their way to runtimes. */
export class OnTheWay {
  #list: OnItsWay[] = [];

  /** Ids in the order in which runtimes fetch them. */
  get ids(): string[] {
    return this.#list.map(({ id }) => id);
  }

  /** Counts the invocations that may use the reserve (`reserveUsers`), and the others. */
  counts(): { readonly reserveUsers: number; readonly others: number } {
    const reserveUsers = this.#list.filter((one) => one.mayUseReserve).length;
    return { reserveUsers, others: this.#list.length - reserveUsers };
  }

  /** Inserts an invocation by its place. An invocation without latency targets also goes behind all others of its tenant. */
  send(invocation: OnItsWay): void {
    const predecessorIndex = this.#list.findLastIndex(
      ({ tenant, place }) =>
        (tenant === invocation.tenant && !invocation.hasLatencyTargets) || place < invocation.place,
    );
    this.#list.splice(predecessorIndex + 1, 0, invocation);
  }

  remove(id: string): void {
    this.#list = this.#list.filter((one) => one.id !== id);
  }
}

/** After this many overtakings of the head (first invocation) of a tenant's queue, the policy keeps room for that head. */
export const MAX_OVERTAKEN = 8;
/** The policy looks for a head that fits among this many tenants, in order of their turns. */
const LOOK = 16;
/** Time charged at an invocation's start; the policy charges the rest when the invocation leaves. */
const LEAST_MS = 10;
/** Time after which an invocation that started on a report of free memory holds that memory, so that later reports no longer call it free. */
export const CLAIM_MS = 2000;

/** By model, the last report of each GPU host: the pages that it could give without ending an inferlet. A model without a report is missing. */
export type FreePages = Readonly<Record<string, readonly { readonly pages: number; readonly readAt: number }[]>>;

export interface Capacity {
  readonly slots: number;
  /** While this many invocations are admitted, tenants with more than a few slots start no others. Lower while runtimes lag; `slots` by default. */
  readonly pace?: number;
  /** Maximum invocations on their way (admitted and not begun), counted apart for tenants that hold few slots and for the others. */
  readonly starts: number;
  /** A model that is not listed is unlimited. A model on several GPU hosts has one entry for each: `model@host`. */
  readonly pages: Pages;
  /** Fraction of the slots, and of each model's pages, kept for tenants that hold little. */
  readonly reserve: number;
}

/** An admitted invocation. */
interface LedgerEntry {
  readonly demand: Demand;
  /** Pages that admission counts for the invocation. */
  readonly pages: Pages;
  readonly admittedAt: number;
  /** The largest fraction that the invocation takes of any resource. */
  readonly share: number;
}

/** Capacity that neither admitted invocations nor heads with kept room take. */
interface RemainingCapacity {
  slots: number;
  /** Slots left for tenants that hold more than a few. */
  ordinary: number;
  readonly pages: Map<string, number>;
}

/**
 * The admission rules in plain code: the oracle of the tests. No process decides by it; in production `rules.lua` decides.
 * `policy-script.test.ts` plays random histories to both. When they differ, README.md says which one to correct.
 *
 * Inside a tenant: first come, first served, as in Pie (SOSP '25, section 5.3). A requeued invocation keeps its place.
 *
 * Among tenants: start-time fair queueing (Goyal et al., SIGCOMM '96). A tenant's turn is the virtual start time of its
 * head: the later of the virtual time (turn of the last admitted head) and the tenant's own virtual finish time. The
 * earliest turn goes first. An idle tenant gathers no credit, since its next turn is not before the virtual time. An
 * invocation costs its largest share of any resource, times its duration, over the tenant's weight. The policy charges
 * the minimum at the start and the rest at the end, when the duration is known, as the virtual token counter does
 * (Sheng et al., OSDI '24). It never refunds a charge, so no turn lies before the virtual time. When no tenant waits,
 * all start equal again.
 *
 * Room: a head starts when a slot is free and its expected pages fit beside those of all admitted invocations. Otherwise the policy passes it
 * over, and each start of a head behind it is one overtaking. After `MAX_OVERTAKEN` overtakings, the policy keeps room for the head: its need counts
 * as taken until it starts. The policy keeps no room for a head whose tenant already holds an equal part of a pool (one entry of
 * `Capacity.pages`), since that head waits for its own tenant's invocations. So some invocation starts whenever one of the first `LOOK` heads by
 * turn fits into the room that is not kept. A head that needs more than a whole pool starts when no other invocation uses the pool; the GPU host
 * then refuses it with the reason. An admitted invocation counts at most for all pages outside the reserve, so that it alone keeps no newcomer
 * out. Runtime memory is one more pool (`MEMORY`), never overcommitted.
 *
 * Shares: the tenants that have admitted pages of a model, or whose head needs some, have equal shares of its pages outside the reserve, as on the GPU
 * host: of half of them at most while another tenant has an invocation, since that one may hold pages that nobody expected. A head that leaves its
 * tenant within this share fits whatever other tenants have admitted, since the GPU host takes pages from tenants that hold more than their share. A head with kept room that needs more fits as well if its tenant is within its share without it: it gets its pages on the GPU host when
 * others give theirs back. Runtime memory cannot be taken back, so it has no such share.
 *
 * On the way: an admitted invocation is on its way to a runtime until it begins. There are two kinds: invocations of tenants with few slots, and all
 * others. At most `starts` of each kind are on their way, so an admitted invocation begins soon; neither kind waits for the other. An invocation of
 * a tenant with few slots goes ahead of up to `starts` invocations of other tenants that were admitted before it. While runtimes lag (`pace`),
 * tenants with more than a few slots get fewer; the reserve stays.
 *
 * Expectations may be wrong; then a GPU host ends the youngest inferlets. An invocation that was ended in this way starts again only when it fits
 * and one of these holds: no other invocation is admitted, or no GPU host reports, or a GPU host's later report shows as many pages as the ended
 * attempt held or asked for. Claims reduce the report: the pages of invocations that started in this way after it or less than `CLAIM_MS` before
 * it. Until then, the invocation counts as a head that does not fit, with the same bound on overtaking. Without the bound, a flow of small invocations would
 * keep the memory taken for good. The bound costs other tenants only the head's expected pages; the head's own queue waits behind it as always.
 *
 * The reserve of slots, and of each model's pages, is for tenants that hold little (at most half of it, counting their head; at least one), for
 * heads with latency targets, and for heads with kept room among the first `LOOK` turns. On its way, an invocation with targets counts as one of a
 * tenant with few slots, and goes ahead of its own tenant's invocations, too. A quota bounds the number of such invocations. A start of a tenant
 * that holds few pages does not overtake a head that needs only few: that head may use the reserve itself, unless its own tenant holds too much.
 */
export class AdmissionPolicy {
  readonly #tenants = new Map<string, Tenant>();
  readonly #ledger = new Map<string, LedgerEntry>();
  readonly #usedPages = new Map<string, number>();
  readonly #onTheWay = new OnTheWay();
  /** Invocations admitted so far. */
  #admissionCount = 0;
  #capacity: Capacity;
  #freePages: FreePages = {};
  /** Claims by id: pages that an admitted invocation, whose earlier attempt ended for lack of memory, may not have taken yet. */
  readonly #claims = new Map<string, { readonly at: number; readonly pages: Pages }>();
  /** Virtual time: the virtual start of the last admitted head. */
  #virtualTime = 0;
  /** The largest virtual finish time of any tenant. */
  #latestFinish = 0;

  constructor(capacity: Capacity) {
    this.#capacity = capacity;
  }

  get admitted(): number {
    return this.#ledger.size;
  }

  /** Ids in a tenant's queue, in order. */
  queue(tenant: string): string[] {
    return this.#tenant(tenant).queue.map(({ id }) => id);
  }

  /** Times that the head of a tenant's queue was overtaken. */
  overtaken(tenant: string): number {
    return this.#tenant(tenant).overtaken;
  }

  /** The pages that admission counts for an admitted invocation. */
  countedPages(id: string): Pages {
    return this.#ledger.get(id)?.pages ?? {};
  }

  /** Ids of invocations admitted and not begun, in the order in which runtimes fetch them. */
  get onTheirWay(): string[] {
    return this.#onTheWay.ids;
  }

  /** True while the policy keeps room for any head. */
  get keepsRoom(): boolean {
    return [...this.#tenants.values()].some(({ isRoomKept }) => isRoomKept);
  }

  /** Puts an invocation into its tenant's queue by arrival, and takes it out of the ledger if it was admitted before. */
  enter(demand: Demand, now: number): void {
    this.#leaveLedger(demand.id, now);
    const { queue } = this.#tenant(demand.tenant);
    const index = queue.findIndex(({ arrival }) => arrival > demand.arrival);
    queue.splice(index < 0 ? queue.length : index, 0, demand);
    this.#settle(demand.tenant);
  }

  /** Records that an attempt of an admitted invocation has begun. */
  begin(id: string): void {
    this.#onTheWay.remove(id);
  }

  /** Removes an ended invocation from its queue or the ledger. */
  leave(id: string, now: number): void {
    const tenantName = this.#leaveLedger(id, now);
    if (tenantName !== null) this.#settle(tenantName);
    for (const { name, queue } of this.#tenants.values()) {
      const index = queue.findIndex((demand) => demand.id === id);
      if (index < 0) continue;
      queue.splice(index, 1);
      this.#settle(name);
    }
  }

  resize(capacity: Capacity): void {
    this.#capacity = capacity;
  }

  /** Sets the GPU hosts' reports of their free memory. */
  report(free: FreePages): void {
    this.#freePages = free;
  }

  limit(tenant: string, limits: Limits): void {
    this.#tenant(tenant).limits = limits;
    this.#settle(tenant);
  }

  /** Admits every head that may start, in order. */
  admit(now: number): Demand[] {
    const admitted: Demand[] = [];
    for (let next = this.#choose(); next !== null; next = this.#choose()) {
      const { tenant, passed } = next;
      const fewPages = this.#holdsFewPages(tenant);
      const waitingTenantCount = [...this.#tenants.values()].filter(({ turn }) => turn !== null).length;
      admitted.push(this.#start(tenant, now));
      for (const other of passed) {
        const isSmall = pagesOf(other).every(([model, count]) => count <= (this.#smallShare(model) ?? count));
        if (fewPages && isSmall) continue;
        other.overtaken += 1;
        if (other.overtaken >= MAX_OVERTAKEN && !this.#holdsItsPart(other, waitingTenantCount)) other.isRoomKept = true;
      }
    }
    return admitted;
  }

  /** Returns the tenant whose head starts next, and the tenants passed over because their heads do not fit; null when no head may start. */
  #choose(): { tenant: Tenant; passed: Tenant[] } | null {
    const { slots, pages, pace = slots } = this.#capacity;
    const remaining: RemainingCapacity = {
      slots: slots - this.#ledger.size,
      ordinary: Math.min(slots - this.#reserveSlots, pace) - this.#ledger.size,
      pages: new Map(Object.entries(pages).map(([model, total]) => [model, total - (this.#usedPages.get(model) ?? 0)])),
    };
    const { starts } = this.#capacity;
    const { reserveUsers, others } = this.#onTheWay.counts();
    if (remaining.slots < 1 || (reserveUsers >= starts && others >= starts)) return null;
    // A head whose kind already has `starts` invocations on their way is left out: no room is kept for it, and it is not overtaken.
    const mustWait = (tenant: Tenant): boolean => (this.#mayUseReserve(tenant) ? reserveUsers : others) >= starts;
    const tenantsByTurn = [...this.#tenants.values()].filter(({ turn }) => turn !== null).sort(byTurn);
    const passed: Tenant[] = [];
    const keptTenants = tenantsByTurn.filter((tenant) => tenant.isRoomKept).slice(0, LOOK);
    for (const tenant of keptTenants) {
      if (mustWait(tenant)) continue;
      if (this.#fits(tenant, remaining, true)) return { tenant, passed };
      remaining.slots -= 1;
      remaining.ordinary -= 1;
      for (const [model, count] of pagesOf(tenant)) {
        const room = remaining.pages.get(model);
        if (room !== undefined) remaining.pages.set(model, room - count);
      }
    }
    const candidateLists: Tenant[][] = [];
    if (remaining.ordinary >= 1) candidateLists.push(tenantsByTurn.slice(0, LOOK));
    if (remaining.slots >= 1 && this.#reserveSlots > 0) {
      candidateLists.push(tenantsByTurn.filter((tenant) => this.#mayUseReserve(tenant)).slice(0, LOOK));
    }
    for (const tenant of candidateLists.flat()) {
      if (keptTenants.includes(tenant) || passed.includes(tenant) || mustWait(tenant)) continue;
      if (this.#fits(tenant, remaining, false)) return { tenant, passed };
      passed.push(tenant);
    }
    return null;
  }

  #fits(tenant: Tenant, remaining: RemainingCapacity, isRoomKept: boolean): boolean {
    const slots = isRoomKept || this.#mayUseReserve(tenant) ? remaining.slots : remaining.ordinary;
    if (slots < 1 || !this.#findsMemory(tenant)) return false;
    return pagesOf(tenant).every(([model, count]) => {
      const room = remaining.pages.get(model);
      const total = this.#capacity.pages[model];
      // A head of any size fits into a pool that no admitted invocation and no kept head uses.
      if (room === undefined || total === undefined || room === total) return true;
      if (this.#isWithinShare(tenant, model, isRoomKept ? 0 : count)) return true;
      const holdsFew = (tenant.heldPages.get(model) ?? 0) + count <= (this.#smallShare(model) ?? 0);
      const mayUseReserve = isRoomKept || holdsFew || tenant.head?.latency;
      return count <= (mayUseReserve ? room : room - Math.floor(total * this.#capacity.reserve));
    });
  }

  /** False while a head whose earlier attempt ended for lack of memory must wait for a report of enough memory. */
  #findsMemory(tenant: Tenant): boolean {
    const { head } = tenant;
    if (!head?.short || this.#ledger.size === 0) return true;
    const { pages, since } = head.short;
    return Object.entries(pages).every(([model, needed]) => {
      if (this.#isWithinShare(tenant, model, needed)) return true;
      const claimedPages = (readAt: number): number =>
        [...this.#claims.values()]
          .filter(({ at }) => at + CLAIM_MS > readAt)
          .reduce((sum, claim) => sum + (claim.pages[model] ?? 0), 0);
      const reports = this.#freePages[model];
      // A head may need a model that the platform no longer has: the GPU host refuses it with its reason.
      if (reports === undefined || this.#capacity.pages[model] === undefined) return true;
      return reports.some((report) => report.readAt > since && report.pages - claimedPages(report.readAt) >= needed);
    });
  }

  #start(tenant: Tenant, now: number): Demand {
    const demand = tenant.queue.shift();
    if (demand === undefined || tenant.turn === null) throw new Error('A tenant without a head cannot start one.');
    const { slots, pages } = this.#capacity;
    const neededPages = pagesOf(tenant);
    const parts = neededPages.map(([model, count]) => {
      const total = pages[model];
      if (total === undefined) return 0;
      return total > 0 ? count / total : 1;
    });
    const share = Math.min(1, Math.max(1 / slots, ...parts));
    this.#virtualTime = Math.max(this.#virtualTime, tenant.turn);
    tenant.finish = tenant.turn + (share * LEAST_MS) / weightOf(tenant);
    this.#latestFinish = Math.max(this.#latestFinish, tenant.finish);
    tenant.turn = tenant.finish;
    const cappedPages = Object.fromEntries(
      neededPages.map(([model, count]) => [model, Math.min(count, this.#ordinaryPages(model))]),
    );
    this.#ledger.set(demand.id, { demand, pages: cappedPages, admittedAt: now, share });
    if (demand.short) this.#claims.set(demand.id, { at: now, pages: demand.short.pages });
    this.#admissionCount += 1;
    const mayUseReserve = this.#mayUseReserve(tenant);
    const place = mayUseReserve ? this.#admissionCount - this.#capacity.starts : this.#admissionCount;
    this.#onTheWay.send({
      id: demand.id,
      tenant: tenant.name,
      place,
      mayUseReserve,
      hasLatencyTargets: demand.latency === true,
    });
    this.#add(tenant, cappedPages, 1);
    this.#settle(tenant.name);
    return demand;
  }

  #leaveLedger(id: string, now: number): string | null {
    const entry = this.#ledger.get(id);
    if (entry === undefined) return null;
    this.#ledger.delete(id);
    this.#claims.delete(id);
    this.#onTheWay.remove(id);
    const tenant = this.#tenant(entry.demand.tenant);
    this.#add(tenant, entry.pages, -1);
    const charge = (entry.share * Math.max(0, now - entry.admittedAt - LEAST_MS)) / weightOf(tenant);
    tenant.finish += charge;
    if (tenant.turn !== null) tenant.turn += charge;
    this.#latestFinish = Math.max(this.#latestFinish, tenant.finish);
    return tenant.name;
  }

  #add(tenant: Tenant, pages: Pages, sign: number): void {
    tenant.running += sign;
    for (const [model, count] of Object.entries(pages)) {
      tenant.heldPages.set(model, (tenant.heldPages.get(model) ?? 0) + sign * count);
      this.#usedPages.set(model, (this.#usedPages.get(model) ?? 0) + sign * count);
    }
  }

  /** Updates a tenant's head and turn after a change of its queue, its limits or its holdings. */
  #settle(name: string): void {
    const tenant = this.#tenant(name);
    const head = tenant.queue[0] ?? null;
    if (head !== tenant.head) {
      const previousHead = tenant.head;
      const { displaced } = tenant;
      // The overtakings of a displaced head count again when it returns.
      if (head === null) tenant.displaced = null;
      else if (head.latency && previousHead && !previousHead.latency && tenant.queue.includes(previousHead))
        tenant.displaced = { id: previousHead.id, overtaken: tenant.overtaken, isRoomKept: tenant.isRoomKept };
      const isReturning = head !== null && head.id === displaced?.id;
      tenant.head = head;
      tenant.overtaken = isReturning ? displaced.overtaken : 0;
      tenant.isRoomKept = isReturning && displaced.isRoomKept;
    }
    if (head === null || !mayStart(tenant)) {
      tenant.turn = null;
      tenant.isRoomKept = false;
      return;
    }
    if (tenant.turn !== null) return;
    // No tenant waited, so all start equal from now on.
    if ([...this.#tenants.values()].every(({ turn }) => turn === null))
      this.#virtualTime = Math.max(this.#virtualTime, this.#latestFinish);
    tenant.turn = Math.max(this.#virtualTime, tenant.finish);
  }

  get #reserveSlots(): number {
    return Math.floor(this.#capacity.slots * this.#capacity.reserve);
  }

  /** Pages of a model outside the reserve. */
  #ordinaryPages(model: string): number {
    const total = this.#capacity.pages[model];
    return total === undefined ? Number.POSITIVE_INFINITY : total - Math.floor(total * this.#capacity.reserve);
  }

  /** Maximum pages of a model that a tenant may hold and still count as one that holds little. */
  #smallShare(model: string): number | undefined {
    const total = this.#capacity.pages[model];
    return total === undefined ? undefined : smallShareOf(Math.floor(total * this.#capacity.reserve));
  }

  /**
   * True when a tenant beside others that takes `count` more pages of a model still has at most an equal part of the pages outside the reserve, among
   * the tenants that share the model.
   */
  #isWithinShare(tenant: Tenant, model: string, count: number): boolean {
    const total = this.#capacity.pages[model];
    if (total === undefined || model === MEMORY) return false;
    const openTenants = [...this.#tenants.values()].filter(({ queue, running }) => queue.length > 0 || running > 0);
    if (openTenants.length < 2) return false;
    // Tenants of which admission expects no pages may hold some, so a part is a half at most.
    const sharers = Math.max(2, openTenants.filter((each) => shares(each, model)).length);
    return (tenant.heldPages.get(model) ?? 0) + count <= Math.floor(this.#ordinaryPages(model) / sharers);
  }

  #holdsFewSlots(tenant: Tenant): boolean {
    return tenant.running + 1 <= smallShareOf(this.#reserveSlots);
  }

  #mayUseReserve(tenant: Tenant): boolean {
    return tenant.head?.latency === true || this.#holdsFewSlots(tenant);
  }

  #holdsFewPages(tenant: Tenant): boolean {
    return pagesOf(tenant).every(([model, count]) => {
      const smallShare = this.#smallShare(model);
      return smallShare === undefined || (tenant.heldPages.get(model) ?? 0) + count <= smallShare;
    });
  }

  /** True when a tenant already holds an equal part, among `waitingTenantCount` tenants, of a pool that its head needs. */
  #holdsItsPart(tenant: Tenant, waitingTenantCount: number): boolean {
    return pagesOf(tenant).some(([model]) => {
      const heldPages = tenant.heldPages.get(model) ?? 0;
      return (
        heldPages > 0 && heldPages * waitingTenantCount >= (this.#capacity.pages[model] ?? Number.POSITIVE_INFINITY)
      );
    });
  }

  #tenant(name: string): Tenant {
    let tenant = this.#tenants.get(name);
    if (tenant === undefined) {
      const emptyState = { limits: {}, running: 0, finish: 0, turn: null, head: null, displaced: null };
      tenant = { name, queue: [], heldPages: new Map(), overtaken: 0, isRoomKept: false, ...emptyState };
      this.#tenants.set(name, tenant);
    }
    return tenant;
  }
}

/** Maximum of a resource that a tenant may hold and still count as one that holds little: half of the reserve of this resource, at least one. */
function smallShareOf(reserve: number): number {
  return reserve > 0 ? Math.max(1, Math.floor(reserve / 2)) : 0;
}

/** True when a tenant has admitted pages of a model, or its head needs some. */
function shares(tenant: Tenant, model: string): boolean {
  return (tenant.heldPages.get(model) ?? 0) > 0 || pagesOf(tenant).some(([needed]) => needed === model);
}
