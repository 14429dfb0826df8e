import type { Blobs } from '../functions/blobs.ts';
import { MAX_COMPONENT_BYTES } from '../functions/blobs.ts';
import { type Functions, versionOf } from '../functions/functions.ts';
import { type Manifest, resolveLimits } from '../functions/manifest.ts';
import type { FunctionVersion } from '../functions/types.ts';
import type { InvocationLimits } from '../invocations/types.ts';
import type { Store } from '../store/store.ts';
import type { Builds } from './builds.ts';
import type { BuildRefusal } from './types.ts';

/** Cleaning up may not make a failed call much longer. */
const CLEAN_UP_MS = 500;

export interface Deployment {
  readonly tenant: string;
  /** Checked by `parseManifest`. */
  readonly manifest: Manifest;
  readonly component: Uint8Array;
  /** The platform's defaults, for what the manifest leaves open. */
  readonly defaults?: InvocationLimits;
}

export type DeployOutcome =
  | {
      readonly ok: true;
      readonly version: FunctionVersion /** False when this version existed. */;
      readonly created: boolean;
    }
  | BuildRefusal;

/** Deploys: the component is stored for a while, checked and built, and only then registered. A refused one leaves nothing behind. */
export class Deployments {
  readonly #store: Store;
  readonly #functions: Functions;
  readonly #blobs: Blobs;
  readonly #builds: Builds;

  constructor(parts: { store: Store; functions: Functions; blobs: Blobs; builds: Builds }) {
    this.#store = parts.store;
    this.#functions = parts.functions;
    this.#blobs = parts.blobs;
    this.#builds = parts.builds;
  }

  /** Deploys a function. Content that is registered already is not built again, only served again. */
  async deploy(
    deployment: Deployment,
    options: { deadlineMs?: number; signal?: AbortSignal } = {},
  ): Promise<DeployOutcome> {
    const { tenant, manifest, component } = deployment;
    if (component.length > MAX_COMPONENT_BYTES) return tooLarge(component.length);
    const componentHash = await this.#blobs.put(component);
    let registered = false;
    try {
      const version = versionOf(manifest, componentHash);
      const known = await this.#functions.get(tenant, manifest.name, version);
      let build = known?.build;
      if (known === null) {
        const { memoryMb } = resolveLimits(manifest, deployment.defaults);
        const reply = await this.#builds.request({ tenant, name: manifest.name, componentHash, memoryMb }, options);
        if (!reply.ok) return reply;
        build = reply.artifact;
      }
      const record: FunctionVersion = known ?? {
        name: manifest.name,
        version,
        tenant,
        manifest,
        componentHash,
        componentBytes: component.length,
        createdAt: this.#store.clock(),
        ...(build && { build }),
      };
      const { created } = await this.#functions.put(record);
      registered = true;
      return { ok: true, version: record, created };
    } finally {
      // Should this fail, the blob is removed by its own clock.
      if (!registered) await this.#blobs.remove(componentHash, CLEAN_UP_MS).catch(() => undefined);
    }
  }
}

function tooLarge(bytes: number): BuildRefusal {
  return {
    ok: false,
    code: 'component-too-large',
    message: `The component has ${bytes} bytes; ${MAX_COMPONENT_BYTES} are allowed.`,
    hint: 'Leave out what the inferlet does not need: large data belongs into its input or the store.',
  };
}
