/** Pages of one model from which `pinShare` computes a tenant's share. */
interface PinnedPages {
  /** Pages that all tenants may pin together. */
  readonly maxPages: number;
  /** Pages that the other tenants pin. */
  readonly others: number;
  /** Maximum pages that the tenant may hold; undefined without a limit. */
  readonly quota?: number | undefined;
}

/**
 * Pages that a tenant may pin: half of what the others leave, and half of its quota. The tenant's inferlets can therefore always use the
 * other half of its quota, and no tenant alone takes all that may be pinned (dynamic thresholds with a factor of one: Choudhury and Hahne,
 * 1998).
 */
export function pinShare({ maxPages, others, quota = Number.POSITIVE_INFINITY }: PinnedPages): number {
  return Math.max(0, Math.floor(Math.min(maxPages - others, quota) / 2));
}

/** A lease that pins pages, with the values that {@link leaseToEnd} compares. */
export interface Pinned {
  readonly tenant: string;
  readonly pages: number;
  /** Milliseconds that the lease still lasts. */
  readonly leftMs: number;
}

/**
 * The lease that ends early when the device runs out of memory. It is a lease of the tenant that pins most, namely the one with the least time left.
 * A tenant that pins little therefore loses nothing to tenants that pin much. Undefined without leases.
 */
export function leaseToEnd<L extends Pinned>(leases: Iterable<L>): L | undefined {
  const byTenant = new Map<string, { pages: number; firstToEnd: L }>();
  for (const lease of leases) {
    const tenantPins = byTenant.get(lease.tenant);
    if (!tenantPins) byTenant.set(lease.tenant, { pages: lease.pages, firstToEnd: lease });
    else {
      tenantPins.pages += lease.pages;
      if (lease.leftMs < tenantPins.firstToEnd.leftMs) tenantPins.firstToEnd = lease;
    }
  }
  let largest: { readonly pages: number; readonly firstToEnd: L } | undefined;
  for (const tenantPins of byTenant.values()) if (!largest || tenantPins.pages > largest.pages) largest = tenantPins;
  return largest?.firstToEnd;
}

/** A named export whose pages may leave the device. */
export interface Departing {
  readonly tenant: string;
  /** Pages on the device. */
  readonly pages: number;
  /** Milliseconds until the expected next use, 0 or less once it has passed; undefined without a hint. */
  readonly nextUseMs?: number | undefined;
}

/**
 * The order in which named exports leave the device. The next name to leave always belongs to the tenant with the most pages on the device, so the
 * hints of a tenant order only its own names. Within a tenant, names without a hint leave first, the least recently used before the others. Then
 * the names with a hint leave, the one whose next use is latest first (Belady, 1966). A hint whose time has passed does not count.
 *
 * @param names least recently used first
 */
export function* departures<D extends Departing>(names: Iterable<D>): Generator<D> {
  const queues = new Map<string, { pages: number; readonly names: D[] }>();
  for (const name of names) {
    const queue = queues.get(name.tenant);
    if (queue) {
      queue.pages += name.pages;
      queue.names.push(name);
    } else queues.set(name.tenant, { pages: name.pages, names: [name] });
  }
  // The sort is stable, so equal names keep their order of use. The last name of a queue leaves first.
  for (const queue of queues.values()) queue.names.sort((a, b) => rank(b) - rank(a)).reverse();
  while (queues.size > 0) {
    const [tenant, queue] = [...queues].reduce((largest, each) => (each[1].pages > largest[1].pages ? each : largest));
    const name = queue.names.pop() as D;
    queue.pages -= name.pages;
    if (queue.names.length === 0) queues.delete(tenant);
    yield name;
  }
}

/** A name with a larger rank leaves earlier. A name without a hint, or whose hint has passed, has the largest rank. */
function rank({ nextUseMs = 0 }: Departing): number {
  return nextUseMs > 0 ? nextUseMs : Number.MAX_VALUE;
}
