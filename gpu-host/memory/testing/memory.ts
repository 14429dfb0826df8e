import { tmpdir } from 'node:os';
import type { TenantLimit } from '../../protocol/calls.ts';
import { DeviceMemory } from '../device-memory.ts';
import { CallFault, type FamilyName } from '../fault.ts';
import { fillSlot } from '../pool.ts';
import type { Contender, PageSpace } from '../space.ts';
import { type TokenCopy, TokenCopying } from '../space-snapshot.ts';
import { type SwapOptions, SwapStore } from '../swap/store.ts';
import { Tenants } from '../tenants.ts';
import { ArrayDevice } from './array-device.ts';

export interface TestMemoryOptions {
  readonly pages: number;
  readonly pageSize?: number;
  readonly prefixCache?: boolean;
  readonly rotates?: boolean;
  /** Maximum swapped-out pages in host memory; none by default. */
  readonly swapMemoryPages?: number;
  /** Maximum swapped-out pages on disk; none by default. */
  readonly swapDiskPages?: number;
  /** Replaces the swap file, and the report of its faults. */
  readonly swapFile?: Pick<SwapOptions, 'openFile' | 'report'>;
  /** Receives each ended space, after its pages were released. */
  readonly ended?: (space: PageSpace, cause: string) => void;
  readonly freed?: (space: PageSpace, frames: number) => void;
  /** Receives each preempted family; without it, a claim for pages ends inferlets. */
  readonly preempt?: (family: Contender) => void;
  /** Milliseconds of the clock of leases. */
  readonly now?: () => number;
}

export interface TestMemory {
  readonly memory: DeviceMemory;
  readonly device: ArrayDevice;
  readonly swap: SwapStore | undefined;
  readonly tenants: Tenants;
  /** Opens a space; `arrival` is by default the number of spaces opened before. */
  open(options?: {
    arrival?: number;
    maxPages?: number;
    tenant?: string;
    tenantPages?: TenantLimit;
    family?: FamilyName;
  }): PageSpace;
}

/** Memory over an array device. */
export function makeMemory(options: TestMemoryOptions): TestMemory {
  const { pages, pageSize = 8, swapMemoryPages = 0, swapDiskPages = 0 } = options;
  const device = new ArrayDevice(pageSize, pages);
  const swap =
    swapMemoryPages + swapDiskPages > 0
      ? new SwapStore({
          pageBytes: device.pageBytes,
          memoryBytes: swapMemoryPages * device.pageBytes,
          diskBytes: swapDiskPages * device.pageBytes,
          directory: tmpdir(),
          report: () => undefined,
          settle: () => device.settlePages(),
          ...options.swapFile,
        })
      : undefined;
  const tenants = new Tenants();
  const memory = new DeviceMemory({
    tenants,
    pageSize,
    pageCount: pages,
    device,
    swap,
    prefixCache: options.prefixCache ?? false,
    rotates: options.rotates ?? true,
    ...(options.freed && { freed: options.freed }),
    ...(options.now && { now: options.now }),
    preempt: options.preempt,
    terminate(space, cause) {
      space.releaseAll();
      options.ended?.(space, cause);
    },
  });
  let openedCount = 0;
  return {
    memory,
    device,
    swap,
    tenants,
    open({ arrival, maxPages = pages, tenant = 'tenant', tenantPages, family } = {}) {
      const number = openedCount++;
      const id = `inferlet-${number}`;
      return memory.openSpace({ id, tenant, arrival: arrival ?? number, maxPages, tenantPages, family });
    },
  };
}

/** The fault that `action` throws. @throws Error when it throws none; rethrows other errors */
export function faultOf(action: () => unknown): CallFault {
  try {
    action();
  } catch (error) {
    if (error instanceof CallFault) return error;
    throw error;
  }
  throw new Error('no fault');
}

/** Runs all parts of a token copy. */
export function copyTokens(space: PageSpace, request: TokenCopy): void {
  const copying = new TokenCopying(space, request);
  while (copying.next());
}

/** First address of a text that `cacheText` computes. */
const FIRST_TEXT = 100_000;

/** Computes a text of whole pages and frees them: the prefix tree then keeps them. @param variant texts of one tenant with equal variants are equal */
export function cacheText(space: PageSpace, pages: number, variant = 0): void {
  const addresses = Uint32Array.from({ length: pages }, (_, i) => FIRST_TEXT + i);
  space.allocate(FIRST_TEXT, pages);
  const tokens = Uint32Array.from({ length: pages * space.pool.pageSize }, (_, i) => (i === 0 ? variant : i));
  const positions = tokens.map((_, i) => i);
  const run = space.beginPrefix({
    inPages: addresses,
    outPages: addresses,
    positions,
    tokens,
    keep: 0,
    causal: true,
    adapter: undefined,
  });
  const taken = run?.cachedInputs ?? 0;
  for (const [i, { page, slot }] of space.emptySlots(addresses, tokens.length - taken).entries())
    fillSlot(page, slot, taken + i);
  run?.reserve(tokens.subarray(taken));
  run?.commit();
  space.free(addresses);
}
