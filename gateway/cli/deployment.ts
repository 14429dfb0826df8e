import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { CODES } from '../app/errors/codes.ts';
import type { DeployPlan, DeployTarget } from '../app/resources/releases.ts';
import type { Deployed, PieClient } from '../client/client.ts';
import { PieError } from '../client/errors.ts';
import { pause } from '../client/http.ts';
import { type Built, buildComponent } from './builder.ts';
import { EXIT, Failure } from './failure.ts';
import type { FunctionSource } from './function-source.ts';

/**
 * Longest wait while the tenant is at its limit of concurrent requests or builds. The builds of a gateway that died count toward the limit until
 * the longest build would have ended.
 */
const MAX_BUSY_MS = 200_000;
const RETRY_MS = 1000;

/** Outcome of a build and deploy. */
export interface Deployment {
  readonly deployed: Deployed;
  /** Null for a component, which needs no build. */
  readonly built: Built | null;
  readonly bytes: number;
  readonly deployMs: number;
}

export interface DeployOptions extends DeployTarget {
  readonly signal?: AbortSignal;
  /** Called between building and deploying, with the size of the component. */
  readonly onBuilt?: (bytes: number) => void;
}

/** Builds a function and deploys it. Throws {@link Failure} when the build fails, and the client's errors. */
export async function deployFunction(
  client: PieClient,
  source: FunctionSource,
  { signal, onBuilt, ...target }: DeployOptions = {},
): Promise<Deployment> {
  await assertManifest(source);
  const { component, built } = await componentOf(source);
  signal?.throwIfAborted();
  onBuilt?.(component.byteLength);
  const startedAt = performance.now();
  const deployed = await retryWhileBusy(() => client.deploy(source.manifest, component, { ...target, signal }), signal);
  return { deployed, built, bytes: component.byteLength, deployMs: performance.now() - startedAt };
}

/** Builds a function and plans its deploy. Throws as {@link deployFunction}. */
export async function planFunction(
  client: PieClient,
  source: FunctionSource,
  { signal, onBuilt, ...target }: DeployOptions = {},
): Promise<DeployPlan> {
  await assertManifest(source);
  const { component } = await componentOf(source);
  signal?.throwIfAborted();
  onBuilt?.(component.byteLength);
  return retryWhileBusy(() => client.planDeploy(source.manifest, component, { ...target, signal }), signal);
}

/** Repeats a call while the tenant is at its limit of concurrent requests or builds. */
async function retryWhileBusy<T>(call: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  for (const deadline = performance.now() + MAX_BUSY_MS; ; await pause(RETRY_MS, signal)) {
    try {
      return await call();
    } catch (error) {
      const isBusy = error instanceof PieError && error.code === 'too-many-requests';
      if (!isBusy || performance.now() > deadline) throw error;
    }
  }
}

/** Checks the manifest before the build, so that an invalid one does not cost a build. */
async function assertManifest({ manifest }: FunctionSource): Promise<void> {
  // Import it here: zod and the schemas take longer to load than all other modules of the command together.
  const { parseManifest } = await import('#scheduler/functions/manifest.ts');
  const parsed = parseManifest(manifest);
  if (parsed.ok) return;
  const [first] = parsed.errors;
  const faults = parsed.errors.map(({ field, message }) => `${field || 'the whole'} ${message}`);
  throw new Failure(`The manifest of ${manifest.name} is not valid: ${faults.join('; ')}.`, {
    exitCode: EXIT.refused,
    code: 'invalid-manifest',
    field: first === undefined || first.field === '' ? undefined : `/${first.field.replaceAll('.', '/')}`,
    advice: CODES['invalid-manifest'].hint,
  });
}

async function componentOf(
  source: FunctionSource,
): Promise<{ component: Uint8Array<ArrayBuffer>; built: Built | null }> {
  if (source.kind === 'component') return { component: new Uint8Array(readFileSync(source.entry)), built: null };
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-build-'));
  try {
    const out = path.join(folder, 'component.wasm');
    const built = await buildComponent(source.entry, out);
    return { component: new Uint8Array(readFileSync(out)), built };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
