import type { Call, FunctionManifest, FunctionVersion } from '../app/control.ts';
import type {
  Alias,
  DeployPlan,
  DeployTarget,
  Draining,
  Releases,
  Rollback,
  RollbackRequest,
  SetAlias,
} from '../app/resources/releases.ts';
import { type ClientOf, isFound, options, orNull, translating } from './origin.ts';

/** Aliases, rollbacks and removals by HTTP: the origin performs them. */
export class OriginReleases implements Releases {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  async aliases(call: Call, name: string): Promise<readonly Alias[]> {
    return (await orNull('unknown-function', () => this.#client(call).aliases(name, options(call)))) ?? [];
  }

  async history(call: Call, name: string, alias: string): Promise<readonly Alias[]> {
    return (await orNull('unknown-alias', () => this.#client(call).aliasHistory(name, alias, options(call)))) ?? [];
  }

  setAlias(call: Call, name: string, alias: string, change: SetAlias): Promise<Alias> {
    return translating(() => this.#client(call).setAlias(name, alias, change, options(call)));
  }

  removeAlias(call: Call, name: string, alias: string): Promise<boolean> {
    return isFound('unknown-alias', () => this.#client(call).removeAlias(name, alias, options(call)));
  }

  rollback(call: Call, name: string, request: RollbackRequest): Promise<Rollback> {
    return translating(() => this.#client(call).rollback(name, request, options(call)));
  }

  plan(call: Call, manifest: FunctionManifest, component: Uint8Array, target: DeployTarget): Promise<DeployPlan> {
    return translating(() =>
      this.#client(call).planDeploy(manifest, new Uint8Array(component), { ...options(call), ...target }),
    );
  }

  removeVersion(call: Call, name: string, version: string, now: boolean): Promise<readonly Draining[] | null> {
    return orNull('unknown-function', () => this.#client(call).removeVersion(name, version, { ...options(call), now }));
  }

  draining(call: Call, name: string): Promise<readonly Draining[]> {
    return translating(() => this.#client(call).draining(name, options(call)));
  }

  liftQuarantine(call: Call, name: string): Promise<readonly string[] | null> {
    return orNull('unknown-function', () => this.#client(call).liftQuarantine(name, options(call)));
  }

  resolve(call: Call, name: string, reference: string | undefined): Promise<FunctionVersion | null> {
    const full = reference === undefined ? name : `${name}@${reference}`;
    return orNull('unknown-function', () => this.#client(call).function(full, { ...options(call), draw: true }));
  }
}
