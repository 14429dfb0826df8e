import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { machineKeys } from '../keys.ts';
import type { Logger } from '../policies/logger.ts';
import type { MachineLooks } from '../policies/silence.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { holderOf } from './restore-mark.ts';
import type { MachineDescription, MachineInfo, Role } from './types.ts';

/**
 * Time for which a machine's lease holds without renewal, by the clock of Redis. Another supervisor may then claim the name; without such a claim,
 * a supervisor that comes back goes on. Invocations depend on the leases of runtimes, which a living supervisor's looks excuse (`policies/silence.ts`).
 */
export const MACHINE_LEASE_MS = 5000;
const RENEWALS_PER_LEASE = 5;
/** Interval at which the lease asks for the supervisor's looks, ms. It writes them at once when they have changed, else with each renewal. */
const LOOKS_MS = 250;
/** Time for which Redis keeps the description of a machine that died: its GPU hosts may live on, and the machine may return. */
const KEPT_MS = 3_600_000;
/** Longest wait for Redis when a lease is released. If the release fails, the lease runs out. */
const RELEASE_DEADLINE_MS = 2000;
/** Pause between two attempts to claim a name whose lease has not run out. */
const CLAIM_AGAIN_MS = 100;

const CLAIM = loadScript(new URL('./machines.lua', import.meta.url), 'claim');
const RELEASE = loadScript(new URL('./machines.lua', import.meta.url), 'release');

/** Another running supervisor has the machine's name. */
export class MachineNameTaken extends Error {
  override readonly name = 'MachineNameTaken';
  readonly holder: Partial<MachineInfo>;

  constructor(machine: string, holder: Partial<MachineInfo>) {
    const { host, pid } = holder;
    const holderText = host === undefined ? 'another machine' : `${host} (process ${pid})`;
    super(`The machine name "${machine}" is taken by the supervisor of ${holderText}.`);
    this.holder = holder;
  }
}

/** An operator has removed the machine. */
export class MachineRemoved extends Error {
  override readonly name = 'MachineRemoved';

  constructor(machine: string) {
    super(`An operator has removed the machine "${machine}".`);
  }
}

/** Another machine has the certificate. */
export class CertificateTaken extends Error {
  override readonly name = 'CertificateTaken';

  constructor(machine: string, owner: string) {
    super(`The certificate of the machine "${machine}" is that of the machine "${owner}".`);
  }
}

/** A restore replaces the platform in this Redis, or broke off. */
export class PlatformRestoring extends Error {
  override readonly name = 'PlatformRestoring';

  constructor(holder: string) {
    super(
      `A restore into this Redis runs or broke off: that of ${holder}. Until a restore ends, a part of the platform is missing.`,
    );
  }
}

/** The token with which the machine joined does not allow its roles. */
export class RolesRefused extends Error {
  override readonly name = 'RolesRefused';

  constructor(machine: string, wantedRoles: readonly Role[], allowedRoles: string) {
    super(
      `The machine "${machine}" joined for the roles ${allowedRoles}, and is set up for ${wantedRoles.join(', ')}.`,
    );
  }
}

export type ClaimRefusal = MachineNameTaken | MachineRemoved | CertificateTaken | PlatformRestoring | RolesRefused;

/** True for an error that `MachineLease.claim` throws when the machine may not start, as opposed to a failure of Redis. */
export function isClaimRefusal(error: unknown): error is ClaimRefusal {
  return [MachineNameTaken, MachineRemoved, CertificateTaken, PlatformRestoring, RolesRefused].some(
    (refusal) => error instanceof refusal,
  );
}

export interface ClaimOptions {
  /** Takes the name even from a supervisor whose lease holds. Set it only when no other supervisor can reach this Redis. */
  readonly force?: boolean;
  /**
   * Called once when a renewal is refused, which means that this supervisor has lost the machine: an operator removed the machine, another supervisor
   * took its name or certificate, a restore changes the platform, or the machine's roles are not allowed any more.
   */
  readonly onTaken: (refusal: ClaimRefusal) => void;
  /**
   * Gets an error record when a renewal fails although Redis answers. The next failure is reported only when it has another reason or a renewal has
   * succeeded in between. Renewals go on: if none succeeds, the lease runs out.
   */
  readonly log: Logger;
  /** The supervisor's last looks at its processes, which the lease publishes; none by default. */
  readonly looks?: () => MachineLooks;
  /** Length of the lease; 5,000 ms by default. */
  readonly leaseMs?: number;
  readonly signal?: AbortSignal;
}

/** A supervisor's lease of its machine's name. */
export class MachineLease {
  readonly #store: Store;
  readonly #name: string;
  readonly #life: string;
  #description: string;
  readonly #leaseMs: number;
  readonly #certificate: string;
  readonly #roles: readonly Role[];
  readonly #onTaken: (refusal: ClaimRefusal) => void;
  readonly #log: Logger;
  /** Message of the failure that was reported last; empty after a renewal that succeeded. */
  #reportedMessage = '';
  #timer: NodeJS.Timeout | undefined;
  #isReleased = false;
  readonly #looks: () => MachineLooks | undefined;
  #looksTimer: NodeJS.Timeout | undefined;
  /** The looks that were written last, as JSON. */
  #writtenLooks = '';
  /** True while looks are on the way to Redis. */
  #isWritingLooks = false;

  private constructor(store: Store, machine: MachineDescription, options: ClaimOptions) {
    this.#store = store;
    this.#name = machine.name;
    this.#life = randomUUID();
    this.#description = JSON.stringify({ ...machine, life: this.#life, startedAt: store.clock() });
    this.#certificate = machine.certificate ?? '';
    this.#roles = machine.roles;
    this.#leaseMs = options.leaseMs ?? MACHINE_LEASE_MS;
    this.#onTaken = options.onTaken;
    this.#log = options.log;
    this.#looks = options.looks ?? (() => undefined);
  }

  /**
   * Claims the machine's name and begins to renew the lease. Waits until the lease of a supervisor that died without a release has run out.
   * @throws MachineNameTaken as soon as another supervisor renews its lease
   * @throws MachineRemoved when an operator has removed the machine
   * @throws CertificateTaken when another machine has the certificate
   * @throws PlatformRestoring while a restore replaces the platform
   * @throws RolesRefused when the machine joined with a token that allows fewer roles
   */
  static async claim(store: Store, machine: MachineDescription, options: ClaimOptions): Promise<MachineLease> {
    const lease = new MachineLease(store, machine, options);
    let leftMs = Number.POSITIVE_INFINITY;
    for (;;) {
      const rivalClaim = await lease.#claim(options.force === true);
      if (rivalClaim === null) break;
      // The lease has more time left than before, so its holder has renewed it.
      if (rivalClaim.leftMs > leftMs) throw new MachineNameTaken(machine.name, rivalClaim.holder);
      leftMs = rivalClaim.leftMs;
      await sleep(CLAIM_AGAIN_MS, undefined, options.signal && { signal: options.signal });
    }
    lease.#schedule();
    if (options.looks) lease.#looksTimer = setInterval(() => void lease.#publishLooks(), LOOKS_MS);
    return lease;
  }

  /** Replaces parts of the machine's description, and renews the lease to store them. If that fails, the next renewal stores them. */
  async describe(changes: Pick<MachineDescription, 'proofs'>): Promise<void> {
    this.#description = JSON.stringify({ ...JSON.parse(this.#description), ...changes });
    if (!this.#isReleased) await this.#renew();
  }

  /** Stops the renewals without releasing the lease, as the death of the process does. */
  abandon(): void {
    this.#isReleased = true;
    clearTimeout(this.#timer);
    clearInterval(this.#looksTimer);
  }

  /** Removes the machine from the registry. */
  async release(): Promise<void> {
    this.abandon();
    await this.#store.script(RELEASE, this.#keys(), [this.#name, this.#life], RELEASE_DEADLINE_MS);
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    if (this.#isReleased) return;
    this.#timer = setTimeout(() => void this.#renew(), this.#leaseMs / RENEWALS_PER_LEASE);
  }

  async #renew(): Promise<void> {
    try {
      const rivalClaim = await this.#claim(false);
      if (rivalClaim !== null) this.#loseLease(new MachineNameTaken(this.#name, rivalClaim.holder));
      this.#reportedMessage = '';
    } catch (error) {
      if (isClaimRefusal(error)) this.#loseLease(error);
      else this.#report(StoreError.from(error));
    }
    this.#schedule();
  }

  /**
   * Writes the looks when they have changed: a reaper must know of a process that falls silent before the lease of that process runs out. Without
   * a change, the renewals write them.
   */
  async #publishLooks(): Promise<void> {
    const text = this.#looksText();
    if (this.#isReleased || this.#isWritingLooks || text === this.#writtenLooks) return;
    this.#isWritingLooks = true;
    try {
      await this.#store.call((redis) =>
        redis.set(this.#store.keys.machineLooks(this.#name), text, 'PX', this.#leaseMs),
      );
      this.#writtenLooks = text;
    } catch {
      // The next interval tries again, and each renewal writes the looks, too: that call reports its errors.
    } finally {
      this.#isWritingLooks = false;
    }
  }

  #looksText(): string {
    const looks = this.#looks();
    return looks ? JSON.stringify(looks) : '';
  }

  #report(error: StoreError): void {
    // While Redis is away, no other supervisor can claim the name, and the next renewal tries again.
    if (this.#isReleased || error.code === 'store-unavailable' || error.message === this.#reportedMessage) return;
    this.#reportedMessage = error.message;
    this.#log.error({ error, machine: this.#name }, 'the lease of this machine could not be renewed');
  }

  #loseLease(refusal: ClaimRefusal): void {
    if (this.#isReleased) return;
    this.abandon();
    this.#onTaken(refusal);
  }

  /** Claims or renews the name. Returns null on success; when another supervisor has the name, its machine and the time left of its lease. */
  async #claim(force: boolean): Promise<{ readonly holder: Partial<MachineInfo>; readonly leftMs: number } | null> {
    const forceFlag = force ? '1' : '0';
    const args = [this.#name, this.#life, this.#leaseMs, KEPT_MS, this.#description, forceFlag, this.#certificate];
    const looks = this.#looksText();
    args.push(JSON.stringify(this.#roles), looks);
    const reply = await this.#store.script(CLAIM, this.#keys(), args);
    if (reply === null) {
      this.#writtenLooks = looks;
      return null;
    }
    if (reply === 'removed') throw new MachineRemoved(this.#name);
    if (typeof reply === 'string') throw this.#refusal(reply);
    const [text, leftMs] = Array.isArray(reply) ? reply : [];
    return { holder: readHolder(String(text)), leftMs: Number(leftMs) };
  }

  #refusal(reply: string): ClaimRefusal {
    const space = reply.indexOf(' ');
    const [kind, text] = [reply.slice(0, space), reply.slice(space + 1)];
    if (kind === 'restoring') return new PlatformRestoring(holderOf(text));
    return kind === 'roles' ? new RolesRefused(this.#name, this.#roles, text) : new CertificateTaken(this.#name, text);
  }

  #keys(): string[] {
    const { keys } = this.#store;
    return [...machineKeys(keys, this.#name, this.#certificate), keys.machineLooks(this.#name)];
  }
}

/** The description of the machine that has the name. Empty when the text cannot be read, because the name is taken even then. */
function readHolder(text: string): Partial<MachineInfo> {
  try {
    return JSON.parse(text) as Partial<MachineInfo>;
  } catch {
    return {};
  }
}
