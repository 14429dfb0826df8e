import type { StoredModule, StoredProgram } from './sandbox.ts';

/** Bound on programs whose modules are remembered. */
const MAX_PROGRAMS = 256;

/**
 * Modules that several tenants use, the most common first: every JavaScript function has the same JavaScript engine. A sandbox can get them
 * before it has a tenant, and compile them in advance. Modules of only one tenant are never sent to another.
 */
export class SharedModules {
  readonly #maxBytes: number;
  /** Each module with its users, by hash; a member of `programs` is the tenant, a slash and the program's key. */
  readonly #users = new Map<string, { readonly module: StoredModule; readonly programs: Set<string> }>();
  /** Hashes of each remembered program's modules; the program that was learned first is first. */
  readonly #programs = new Map<string, readonly string[]>();

  /** @param maxBytes bound on the total size that `modules` returns */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Remembers that a tenant uses the modules of a program. */
  learn(tenant: string, { key: program, modules }: StoredProgram): void {
    const key = `${tenant}/${program}`;
    if (this.#programs.has(key)) return;
    this.#programs.set(
      key,
      modules.map(({ hash }) => hash),
    );
    for (const module of modules) {
      const usage = this.#users.get(module.hash) ?? { module, programs: new Set<string>() };
      usage.programs.add(key);
      this.#users.set(module.hash, usage);
    }
    const [oldest = ''] = this.#programs.keys();
    if (this.#programs.size > MAX_PROGRAMS) this.#forget(oldest);
  }

  /** Returns the shared modules that fit into the bound. */
  modules(): StoredModule[] {
    let remainingBytes = this.#maxBytes;
    return (
      [...this.#users.values()]
        .map(({ module, programs }) => ({ module, programs: programs.size, tenants: tenantsOf(programs).size }))
        .filter(({ tenants }) => tenants > 1)
        // By tenants first: two tenants with many programs must not displace modules that most tenants use.
        .sort((a, b) => b.tenants - a.tenants || b.programs - a.programs)
        .map(({ module }) => module)
        .filter(({ bytes }) => {
          if (bytes.length > remainingBytes) return false;
          remainingBytes -= bytes.length;
          return true;
        })
    );
  }

  #forget(key: string): void {
    for (const hash of this.#programs.get(key) ?? []) {
      const usage = this.#users.get(hash);
      usage?.programs.delete(key);
      if (usage?.programs.size === 0) this.#users.delete(hash);
    }
    this.#programs.delete(key);
  }
}

/** A tenant's name contains no slash. */
const tenantsOf = (programs: ReadonlySet<string>): ReadonlySet<string> =>
  new Set([...programs].map((key) => key.slice(0, key.indexOf('/'))));
