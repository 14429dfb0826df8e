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
