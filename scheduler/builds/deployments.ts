import { createHash } from 'node:crypto';
import { type AliasState, aliasNameFault, LIVE, messageFault } from '../functions/aliases.ts';
import type { Blobs } from '../functions/blobs.ts';
import { MAX_COMPONENT_BYTES } from '../functions/blobs.ts';
import { importedInterfaces } from '../functions/component-imports.ts';
import { type DeployedFunction, type Functions, type Placement, versionOf } from '../functions/functions.ts';
import { type Manifest, resolveLimits } from '../functions/manifest.ts';
import type { FunctionVersion } from '../functions/types.ts';
import type { InvocationLimits } from '../invocations/types.ts';
import type { Runtimes } from '../runtimes/runtimes.ts';
import type { Revisions, Secrets } from '../secrets/secrets.ts';
import { StoreError } from '../store/errors.ts';
import type { Store } from '../store/store.ts';
import type { Builds } from './builds.ts';
import type { BuildRefusal } from './types.ts';
import { deployWarnings } from './warnings.ts';

/** Cleaning up may not make a failed call much longer. */
const CLEAN_UP_MS = 500;
const TRIES = 3;

export interface Deployment {
  readonly tenant: string;
  /** Checked by `parseManifest`. */
  readonly manifest: Manifest;
  readonly component: Uint8Array;
  /** The platform's defaults, for what the manifest leaves open. */
  readonly defaults?: InvocationLimits;
  /** `live` by default. */
  readonly placement?: Placement;
}

/** Why nothing was deployed, besides what a build says. */
export interface DeployRefusal {
  readonly ok: false;
  readonly code: 'unknown-secret' | 'invalid-alias' | 'conflict';
  readonly message: string;
  readonly hint?: string;
  /** JSON pointer, or the name of a parameter. */
  readonly field?: string;
}

export type DeployOutcome =
  | {
      readonly ok: true;
      readonly version: FunctionVersion;
      /** False when this version existed. */
      readonly created: boolean;
      /** The alias that was asked for, as it is now; null without one. */
      readonly alias: AliasState | null;
      readonly warnings: readonly string[];
    }
  | BuildRefusal
  | DeployRefusal;

/** What a deploy would come to. */
export interface DeployPlan {
  readonly ok: true;
  /** As it would be stored. */
  readonly version: FunctionVersion;
  readonly exists: boolean;
  /** What is deployed of the function; null for a new one. */
  readonly deployed: DeployedFunction | null;
  readonly warnings: readonly string[];
}

interface Parts {
  readonly store: Store;
  readonly functions: Functions;
  readonly blobs: Blobs;
  readonly builds: Builds;
  readonly runtimes: Runtimes;
  readonly secrets: Secrets;
}

/** Deploys: the component is stored for a while, checked and built, and only then registered. A refused one leaves nothing behind. */
export class Deployments {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** What {@link deploy} would do, as far as can be told without a build. Stores nothing. */
  async plan(deployment: Deployment): Promise<DeployPlan | BuildRefusal | DeployRefusal> {
    const checked = await this.#check(deployment);
    if (!checked.ok) return checked;
    return { ...checked, warnings: await this.#warnings(checked.version, deployment.component) };
  }

  /** Everything that keeps a function from being deployed before it is built. */
  async #check(deployment: Deployment): Promise<Omit<DeployPlan, 'warnings'> | BuildRefusal | DeployRefusal> {
    const { tenant, manifest, component, placement = { alias: LIVE } } = deployment;
    if (component.length > MAX_COMPONENT_BYTES) return tooLarge(component.length);
    const { functions, secrets, store } = this.#parts;
    const refused = placementFault(placement);
    if (refused !== null) return refused;
    const current = await secrets.current(tenant, manifest.secrets ?? []);
    if (!current.ok) return unknownSecrets(current.unknown);
    const componentHash = createHash('sha256').update(component).digest('hex');
    const version = versionOf(manifest, componentHash, current.revisions);
    const deployed = await functions.read(tenant, manifest.name);
    const taken = deployed?.aliases.find(({ alias }) => alias === placement.tag);
    const [share] = taken?.shares ?? [];
    if (share !== undefined && (share.version !== version || taken?.shares.length !== 1))
      return tagTaken(manifest.name, placement.tag ?? '', share.version);
    const known = deployed?.versions.find((candidate) => candidate.version === version);
    const record = known ?? recordOf(deployment, componentHash, current.revisions, store.clock());
    return { ok: true, version: record, exists: known !== undefined, deployed };
  }

  /** Deploys a function. Content that is registered already is not built again, only served again. */
  async deploy(
    deployment: Deployment,
    options: { deadlineMs?: number; signal?: AbortSignal } = {},
  ): Promise<DeployOutcome> {
    const { tenant, manifest } = deployment;
    const { secrets } = this.#parts;
    const checked = await this.#check(deployment);
    if (!checked.ok) return checked;
    const pinned = await secrets.pin(tenant, manifest.secrets ?? []);
    if (!pinned.ok) return unknownSecrets(pinned.unknown);
    // While this is built, the last other version with the same component may go, and the component with it.
    for (let tries = 1; ; tries++) {
      const outcome = await this.#register(deployment, pinned.revisions, options);
      if (outcome !== 'component-gone') return outcome;
      if (tries >= TRIES) throw new StoreError('store-unavailable', 'The component is removed again and again.');
    }
  }

  async #register(
    deployment: Deployment,
    secrets: Revisions,
    options: { deadlineMs?: number; signal?: AbortSignal },
  ): Promise<DeployOutcome | 'component-gone'> {
    const { tenant, manifest, component, placement = { alias: LIVE } } = deployment;
    const { functions, blobs, builds, store } = this.#parts;
    const componentHash = await blobs.put(component);
    let registered = false;
    try {
      const known = await functions.runnable(tenant, manifest.name, versionOf(manifest, componentHash, secrets));
      let record = known?.platform === true ? null : known;
      if (record === null) {
        const { memoryMb } = resolveLimits(manifest, deployment.defaults);
        const reply = await builds.request({ tenant, name: manifest.name, componentHash, memoryMb }, options);
        if (!reply.ok)
          return reply.code === 'build-failed' && !(await blobs.has(componentHash)) ? 'component-gone' : reply;
        record = { ...recordOf(deployment, componentHash, secrets, store.clock()), build: reply.artifact };
      }
      const outcome = await functions.put(record, placement);
      if (!outcome.ok) {
        if (outcome.reason === 'component-missing') return 'component-gone';
        return outcome.reason === 'tag-taken'
          ? tagTaken(manifest.name, placement.tag ?? '', outcome.version)
          : tooManyAliases(manifest.name);
      }
      registered = true;
      const { created, alias } = outcome;
      return { ok: true, version: record, created, alias, warnings: await this.#warnings(record, component) };
    } finally {
      // Should this fail, the blob is removed by its own clock.
      if (!registered) await blobs.remove(componentHash, CLEAN_UP_MS).catch(() => undefined);
    }
  }

  async #warnings({ tenant, manifest, build }: FunctionVersion, component: Uint8Array): Promise<string[]> {
    const { launch = [] } = manifest.grants ?? {};
    const [runtimes, launched] = await Promise.all([
      this.#parts.runtimes.list(),
      Promise.all((launch === '*' ? [] : launch).map((name) => this.#parts.functions.find(tenant, name))),
    ]);
    const { instanceBytes, poolBytes } = build ?? {};
    return deployWarnings({
      manifest,
      imports: importedInterfaces(component),
      models: runtimes.filter(({ alive }) => alive).flatMap(({ models = [] }) => models),
      functions: launched.flatMap((found) => (found === null ? [] : [found.name])),
      pool:
        typeof instanceBytes === 'number' && typeof poolBytes === 'number'
          ? { instanceBytes, budgetBytes: poolBytes }
          : null,
    });
  }
}

function recordOf(
  { tenant, manifest, component, placement }: Deployment,
  componentHash: string,
  secrets: Revisions,
  createdAt: number,
): FunctionVersion {
  const { by, message } = placement ?? {};
  return {
    name: manifest.name,
    version: versionOf(manifest, componentHash, secrets),
    tenant,
    manifest,
    componentHash,
    componentBytes: component.length,
    createdAt,
    ...(by === undefined ? {} : { createdBy: by }),
    ...(message === undefined || message === '' ? {} : { message }),
    ...(Object.keys(secrets).length === 0 ? {} : { secrets }),
  };
}

function placementFault({ alias, tag, message }: Placement): DeployRefusal | null {
  const fault =
    (alias === null ? null : aliasNameFault(alias, 'alias')) ??
    (tag === undefined ? null : aliasNameFault(tag, 'tag')) ??
    (tag !== undefined && (tag === alias || tag === LIVE)
      ? { field: 'tag', message: 'must be another name than the alias: a tag stays with its version' }
      : null) ??
    messageFault(message, 'message');
  if (fault === null) return null;
  return { ok: false, code: 'invalid-alias', message: `The ${fault.field} ${fault.message}.`, field: fault.field };
}

function tagTaken(name: string, tag: string, version: string): DeployRefusal {
  return {
    ok: false,
    code: 'conflict',
    message: `The tag "${tag}" is of version ${version} already.`,
    hint: `Choose another tag, or move it afterwards: \`pie alias set ${name} ${tag} VERSION\`.`,
    field: 'tag',
  };
}

function tooManyAliases(name: string): DeployRefusal {
  return {
    ok: false,
    code: 'invalid-alias',
    message: `${name} has as many aliases and tags as a function may have.`,
    hint: `Remove some: \`pie alias remove ${name} ALIAS\`.`,
    field: 'tag',
  };
}

function unknownSecrets(names: readonly string[]): DeployRefusal {
  return {
    ok: false,
    code: 'unknown-secret',
    message: `The manifest names secrets that the tenant does not have: ${names.join(', ')}.`,
    hint: `Store them first: \`pie secrets set ${names[0] ?? 'NAME'}\`.`,
    field: '/secrets',
  };
}

function tooLarge(bytes: number): BuildRefusal {
  return {
    ok: false,
    code: 'component-too-large',
    message: `The component has ${bytes} bytes; ${MAX_COMPONENT_BYTES} are allowed.`,
    hint: 'Leave out what the inferlet does not need: large data belongs into its input or the store.',
  };
}
