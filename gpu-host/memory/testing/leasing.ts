import assert from 'node:assert/strict';
import { CallFault } from '../fault.ts';
import type { Lease } from '../leases.ts';
import type { Page } from '../pool.ts';
import type { LeaseOperation } from './schedule.ts';
import type { Actor, World } from './world.ts';

/**
 * Gives a hint about an export, or moves the clock on (`pass`). No hint may take an inferlet's page from the device, or
 * change what a tenant holds.
 */
export function applyLease(world: World, actor: Actor, operation: LeaseOperation): void {
  if (operation.kind === 'pass') {
    world.nowMs += operation.ms;
    return;
  }
  const found = world.exports.get(operation.name);
  if (!found) return;
  const { memory } = world.kit;
  const { snapshot } = found;
  const residentBefore = residentOf(world);
  const tenantPagesBefore = tenantPages(world);
  const ownedBefore = memory.pool.counts().owned;
  switch (operation.kind) {
    case 'pin': {
      const lease = grantIfAllowed(() => memory.snapshots.leases.grant(snapshot, operation.ms));
      if (!lease) break;
      found.lease = lease;
      world.counts.pins++;
      bring(world, actor, snapshot.pages);
      break;
    }
    case 'unpin':
      memory.snapshots.leases.drop(snapshot);
      break;
    case 'expect':
      memory.snapshots.expect(snapshot, operation.ms);
      break;
    case 'prefetch':
      bring(world, actor, snapshot.pages);
      break;
    case 'demote':
      memory.snapshots.leases.drop(snapshot);
      for (const { page } of snapshot.pages) memory.moveOut(actor.space, page);
      assert.ok(memory.pool.counts().owned <= ownedBefore);
  }
  for (const page of residentBefore)
    assert.ok(page.frame >= 0, `${operation.kind} took an inferlet's page from the device`);
  assert.deepEqual(tenantPages(world), tenantPagesBefore);
}

/** Checks that no tenant pins more than its share, and that ended leases pin no page. */
export function checkLeases({ exports, setting, kit: { memory } }: World): void {
  const pinned = new Map<string, number>();
  for (const { snapshot, lease } of exports.values()) {
    if (!lease || lease.ended || !memory.snapshots.leases.isLeased(snapshot)) continue;
    pinned.set(snapshot.tenant, (pinned.get(snapshot.tenant) ?? 0) + snapshot.pages.length);
  }
  // All tenants together pin at most a quarter of the pool. A tenant alone pins at most half of that quarter, and at most half of its quota.
  const maxPinned = Math.floor(setting.pages / 4);
  let pinnedTotal = 0;
  for (const [tenant, pages] of pinned) {
    pinnedTotal += pages;
    assert.ok(
      pages <= Math.floor(Math.min(maxPinned, setting.tenantPages ?? maxPinned) / 2),
      `${tenant} pins ${pages} pages`,
    );
  }
  assert.ok(pinnedTotal <= maxPinned);
  assert.equal(memory.snapshots.leases.pages, pinnedTotal);
}

/** Brings pages back to the device, until no frame is left for the next one. */
function bring({ kit: { memory } }: World, { space }: Actor, pages: readonly { readonly page: Page }[]): void {
  const countsBefore = memory.pool.counts();
  for (const { page } of pages) if (!memory.bringBack(space, page)) break;
  const { free, cached } = memory.pool.counts();
  assert.ok(free + cached <= countsBefore.free + countsBefore.cached);
}

function grantIfAllowed(grant: () => Lease): Lease | undefined {
  try {
    return grant();
  } catch (error) {
    if (!(error instanceof CallFault)) throw error;
    assert.match(error.error.tag, /^(limit-exceeded|unavailable)$/);
    return undefined;
  }
}

/** Pages on the device that inferlets hold. */
function residentOf({ kit: { memory } }: World): Page[] {
  return [...memory.spaces].flatMap(({ held }) => [...held.keys()].filter(({ frame }) => frame >= 0));
}

function tenantPages({ kit: { tenants } }: World): unknown {
  return tenants.stats(Number.POSITIVE_INFINITY).map(({ tenant, pages }) => [tenant, pages]);
}
