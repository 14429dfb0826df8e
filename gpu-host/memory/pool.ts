import type { PageStats } from '../protocol/host.ts';
import { type PrefixNode, sameTokens } from './prefix/tree.ts';
import type { SwapTicket } from './swap/store.ts';

/** Maximum slots of a page: their flags fit the bits of one number. */
const MAX_PAGE_SIZE = 32;

/** One logical KV page. Filled bits belong to the page; masked bits belong to each mapping of it. */
export interface Page {
  /** Account of the tenant for which the page counts. */
  readonly account: PageAccount;
  /** Frame on the device; -1 while the page has none. Slot `s` is physical slot `frame × pageSize + s`. */
  frame: number;
  /** References from mappings, snapshots and the prefix tree; 0 once the page is gone. */
  references: number;
  /** True when the prefix tree holds one of the references. */
  inTree: boolean;
  /** Bit `s` is set when slot `s` holds a key and a value, or is reserved for a call that is being computed. */
  filled: number;
  /** Position of each filled slot. */
  readonly positions: Uint32Array;
  /** Upper bound on the positions of the filled slots. With it the common causal case need not look at every slot. */
  maxPosition: number;
  /** The tokens from which the keys and values were computed; undefined when these are not a plain text from position 0 on. */
  prefix: PagePrefix | undefined;
  /** Location of the keys and values of a filled page without a frame; undefined for every other page. */
  swapped: SwapTicket | undefined;
}

/** Frames: cached ones are of pages that only the prefix tree holds, owned ones of all other pages. */
export interface PoolCounts extends PageStats {
  /** Pages without a frame; not part of the total. */
  readonly swappedOut: number;
}

/** A fixed pool of frames, and the logical pages with their reference counts. */
export class PagePool {
  readonly pageSize: number;
  /** Number of frames. */
  readonly total: number;
  /** Flags with the bits of all slots of a page set. */
  readonly fullBits: number;
  /** Free frames, as a stack. */
  readonly #freeFrames: number[] = [];
  readonly #dropTicket: (ticket: SwapTicket) => void;
  #cached = 0;
  #owned = 0;
  #swappedOut = 0;

  /** @param dropTicket called when the last holder of a swapped-out page lets it go */
  constructor(pageSize: number, total: number, dropTicket: (ticket: SwapTicket) => void) {
    if (!(pageSize >= 1 && pageSize <= MAX_PAGE_SIZE))
      throw new RangeError(`page size ${pageSize}; 1 to ${MAX_PAGE_SIZE}`);
    this.pageSize = pageSize;
    this.total = total;
    this.fullBits = slotBits(pageSize);
    this.#dropTicket = dropTicket;
    for (let frame = total - 1; frame >= 0; frame--) this.#freeFrames.push(frame);
  }

  get free(): number {
    return this.#freeFrames.length;
  }

  /** Frames of pages that only the prefix tree holds. */
  get cached(): number {
    return this.#cached;
  }

  /** Takes a frame for an empty page with one reference; undefined when no frame is free. */
  take(account: PageAccount): Page | undefined {
    const frame = this.#freeFrames.pop();
    return frame === undefined ? undefined : this.#make(account, frame);
  }

  /** An empty page with one reference and no frame yet. */
  blank(account: PageAccount): Page {
    return this.#make(account, -1);
  }

  retain(page: Page): void {
    if (page.references === 0) throw new Error('a page that is gone cannot be shared');
    this.#uncount(page);
    page.references++;
    this.#count(page);
  }

  release(page: Page): void {
    if (page.references === 0) throw new Error('a page was released twice');
    if (page.references === 1 && page.inTree) throw new Error('another holder released the prefix tree’s reference');
    this.#uncount(page);
    page.references--;
    this.#count(page);
    if (page.references === 0) this.#end(page);
  }

  /** Adds the prefix tree's reference to a page; each page has at most one such reference. */
  adopt(page: Page): void {
    if (page.inTree) throw new Error('a page is in the prefix tree already');
    if (page.references === 0) throw new Error('a page that is gone cannot be cached');
    this.#uncount(page);
    page.references++;
    page.inTree = true;
    this.#count(page);
  }

  /** Undoes `adopt`. */
  abandon(page: Page): void {
    if (!page.inTree) throw new Error('a page is not in the prefix tree');
    this.#uncount(page);
    page.references--;
    page.inTree = false;
    this.#count(page);
    if (page.references === 0) this.#end(page);
  }

  /** Frees the page's frame. The caller has stored the keys and values, if there are any, in `ticket`. */
  swapOut(page: Page, ticket: SwapTicket | undefined): void {
    if (page.frame < 0 || page.references === 0) throw new Error('only a page with a frame can be swapped out');
    this.#uncount(page);
    this.#freeFrames.push(page.frame);
    page.frame = -1;
    page.swapped = ticket;
    this.#count(page);
  }

  /**
   * Gives a swapped-out page a free frame, or that of `donor`, a page that is about to be released. The caller writes the keys and values
   * and drops the former ticket.
   */
  swapIn(page: Page, donor?: Page): void {
    if (page.frame >= 0 || page.references === 0) throw new Error('only a page without a frame can be swapped in');
    const frame = donor ? this.#strip(donor) : this.#freeFrames.pop();
    if (frame === undefined || frame < 0) throw new Error('a page is swapped in without a free frame');
    this.#uncount(page);
    page.frame = frame;
    page.swapped = undefined;
    this.#count(page);
  }

  /** Frames that are free or belong to pages that only the prefix tree holds. */
  get available(): number {
    return this.#freeFrames.length + this.#cached;
  }

  counts(): PoolCounts {
    return {
      free: this.#freeFrames.length,
      cached: this.#cached,
      owned: this.#owned,
      total: this.total,
      swappedOut: this.#swappedOut,
    };
  }

  /** Throws when free + cached + owned is not the total. Cheap enough to check whenever the pool is idle. */
  check(): void {
    const { free, cached, owned, total } = this.counts();
    if (free + cached + owned !== total)
      throw new Error(`pages lost: free ${free} + cached ${cached} + owned ${owned} is not ${total}`);
  }

  #make(account: PageAccount, frame: number): Page {
    const page: Page = {
      account,
      frame,
      references: 1,
      inTree: false,
      filled: 0,
      positions: new Uint32Array(this.pageSize),
      maxPosition: 0,
      prefix: undefined,
      swapped: undefined,
    };
    this.#count(page);
    return page;
  }

  /** Takes the frame from a page that is about to be released. */
  #strip(page: Page): number {
    const { frame } = page;
    this.#uncount(page);
    page.frame = -1;
    this.#count(page);
    return frame;
  }

  #end(page: Page): void {
    if (page.frame >= 0) this.#freeFrames.push(page.frame);
    else if (page.swapped !== undefined) this.#dropTicket(page.swapped);
    page.frame = -1;
    page.swapped = undefined;
    page.filled = 0;
    page.prefix = undefined;
  }

  #count(page: Page): void {
    this.#tally(page, 1);
  }

  #uncount(page: Page): void {
    this.#tally(page, -1);
  }

  #tally(page: Page, change: number): void {
    if (page.references === 0) return;
    const { account } = page;
    if (page.frame < 0) {
      this.#swappedOut += change;
      account.swappedOut += change;
    } else if (isCached(page)) {
      this.#cached += change;
      account.cached += change;
    } else {
      this.#owned += change;
      account.owned += change;
    }
  }
}

/** References other than the prefix tree's. */
export function holders(page: Page): number {
  return page.inTree ? page.references - 1 : page.references;
}

/** True when only the prefix tree holds the page. */
export function isCached(page: Page): boolean {
  return page.inTree && page.references === 1;
}

/** Flags with bits 0 to `count - 1` set. */
export function slotBits(count: number): number {
  return count >= 32 ? 0xffff_ffff : (1 << count) - 1;
}

export function bitCount(bits: number): number {
  let count = 0;
  // Each round clears the lowest bit that is set.
  for (let rest = bits >>> 0; rest !== 0; rest &= rest - 1) count++;
  return count;
}

/** Marks a slot as holding (or reserved for) the key and value of `position`. */
export function fillSlot(page: Page, slot: number, position: number): void {
  page.filled = (page.filled | (1 << slot)) >>> 0;
  page.positions[slot] = position;
  if (position > page.maxPosition) page.maxPosition = position;
}

/** Undoes a reservation: the slot's key and value were not computed. */
export function unfillSlot(page: Page, slot: number): void {
  page.filled = (page.filled & ~(1 << slot)) >>> 0;
  page.maxPosition = Math.max(0, largestPosition(page));
  if (page.prefix && page.prefix.known > slot) page.prefix = page.prefix.first(slot);
}

/** The largest position of a filled slot; -1 when none is filled. */
export function largestPosition(page: Page): number {
  let largest = -1;
  for (let slot = 0; slot < page.positions.length; slot++) {
    if (page.filled & (1 << slot)) largest = Math.max(largest, page.positions[slot] as number);
  }
  return largest;
}

/**
 * The tokens that a page's keys and values were computed from: those of its parents, then its own, at positions 0, 1, 2, … with nothing
 * masked, by the model alone or with one of its adapters. Two pages with equal identities hold the same keys and values. An identity never
 * changes once its page is full, since identities of later pages name it as their parent.
 */
export class PagePrefix {
  /** Owner of the tokens: lookups never cross tenants. */
  readonly tenant: string;
  /** The low-rank adapter that computed the keys and values; undefined for the model alone. */
  readonly adapter: string | undefined;
  /** Identity of the previous page of the text; undefined for the first page. */
  readonly parent: PagePrefix | undefined;
  /** One token per slot. */
  readonly tokens: Uint32Array;
  /** Tokens known, from slot 0 on. */
  known: number;
  /** Known tokens whose keys and values have been computed; the others are reserved for a computation under way. */
  computed: number;
  /** The tree node that last held these tokens; it may have left the tree. */
  node: PrefixNode<Page> | undefined;
  /** Key of the text up to the end of the page (`textKeys`), once the page is full and the key was asked for. */
  key: number | undefined;

  constructor(tenant: string, adapter: string | undefined, parent: PagePrefix | undefined, pageSize: number) {
    this.tenant = tenant;
    this.adapter = adapter;
    this.parent = parent;
    this.tokens = new Uint32Array(pageSize);
    this.known = 0;
    this.computed = 0;
  }

  /** An identity for a copy of the page, with the first `known` tokens; undefined for 0 tokens. */
  first(known: number): PagePrefix | undefined {
    if (known === 0) return undefined;
    const copy = new PagePrefix(this.tenant, this.adapter, this.parent, this.tokens.length);
    copy.tokens.set(this.tokens.subarray(0, known));
    copy.known = known;
    copy.computed = Math.min(known, this.computed);
    return copy;
  }
}

/** Namespace of the prefix tree for the texts of a tenant that one adapter, or the model alone, computed. An adapter's name has no NUL. */
export function treeTenant(tenant: string, adapter: string | undefined): string {
  return `${adapter ?? ''}\0${tenant}`;
}

/** True when pages with these identities hold the same keys and values. In the worst case, walks to the start of the text. */
export function samePrefix(a: PagePrefix | undefined, b: PagePrefix | undefined): boolean {
  for (let [left, right] = [a, b]; left !== right; left = left.parent, right = right.parent) {
    if (!left || !right || left.known !== right.known) return false;
    if (left.tenant !== right.tenant || left.adapter !== right.adapter) return false;
    if (left.node && left.node === right.node) return true;
    if (!sameTokens(left.tokens, right.tokens)) return false;
  }
  return true;
}

/** Milliseconds for which a tenant keeps its share of a model's memory after its last inferlet has ended, or while all its inferlets wait on I/O. */
export const PRESENT_MS = 60_000;

/**
 * The pages of one model that count for a tenant: those that its inferlets made, and those that it restored. A page counts for one tenant, even when
 * others map it as well (exports of `system/`). `PagePool` keeps the counts.
 */
export class PageAccount {
  readonly tenant: string;
  /** Frames of pages that inferlets or snapshots hold. */
  owned = 0;
  /** Frames of pages that only the prefix tree holds. */
  cached = 0;
  /** Pages without a frame. */
  swappedOut = 0;
  /** Open spaces of the tenant. */
  spaces = 0;
  /** Calls of the tenant that wait for memory. */
  heldCalls = 0;
  /** Time at which the tenant's last space was closed, ms. */
  leftMs = Number.NEGATIVE_INFINITY;
  /** Time at which a decision first found all the tenant's inferlets waiting on I/O, ms; undefined once one of them goes on. */
  idleSinceMs: number | undefined;

  constructor(tenant: string) {
    this.tenant = tenant;
  }

  /** Frames that count for the tenant. */
  get frames(): number {
    return this.owned + this.cached;
  }

  /** True when the tenant has inferlets, or has had some a short while ago: of frames and swap together, it then has a share. */
  isPresent(nowMs: number): boolean {
    return this.spaces > 0 || nowMs - this.leftMs < PRESENT_MS;
  }

  /** True when the tenant has a share of the frames: it is present, and its inferlets have not slept for long. Their pages may then go to swap. */
  sharesFrames(nowMs: number): boolean {
    return this.isPresent(nowMs) && (this.idleSinceMs === undefined || nowMs - this.idleSinceMs < PRESENT_MS);
  }
}

/** The accounts of one model, by tenant. */
export class PageAccounts implements Iterable<PageAccount> {
  readonly #accounts = new Map<string, PageAccount>();

  [Symbol.iterator](): Iterator<PageAccount> {
    return this.#accounts.values();
  }

  all(): PageAccount[] {
    return [...this.#accounts.values()];
  }

  /** The account of a tenant that has pages or spaces, or has had them. */
  find(tenant: string): PageAccount | undefined {
    return this.#accounts.get(tenant);
  }

  of(tenant: string): PageAccount {
    let account = this.#accounts.get(tenant);
    if (!account) {
      account = new PageAccount(tenant);
      this.#accounts.set(tenant, account);
    }
    return account;
  }

  /** Counts an open space. */
  join(account: PageAccount): void {
    account.spaces++;
  }

  /** Counts a closed space, and forgets tenants that have neither pages nor spaces. */
  leave(account: PageAccount, nowMs: number): void {
    account.spaces--;
    account.leftMs = nowMs;
    for (const { tenant, frames, swappedOut, spaces } of this)
      if (frames === 0 && swappedOut === 0 && spaces === 0) this.#accounts.delete(tenant);
  }
}

/** Pages frozen at one moment. The holder of a snapshot retains the pages, so an inferlet that writes to one of them later writes to a copy. */
export interface PageSnapshot {
  /** Tenant that owns the pages. */
  readonly tenant: string;
  readonly pages: readonly FrozenPage[];
  /** Filled slots. */
  readonly tokens: number;
  /** One past the largest position; 0 when nothing is filled. */
  readonly nextPosition: number;
}

export interface FrozenPage {
  readonly page: Page;
  /** A set bit `s` hides slot `s`. */
  readonly masked: number;
}
