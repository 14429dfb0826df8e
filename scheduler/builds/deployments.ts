import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type AliasState, aliasNameFault, LIVE, messageFault } from '../functions/aliases.ts';
import { importedInterfaces } from '../functions/component-imports.ts';
import {
  type Blobs,
  type DeployedFunction,
  type FullReason,
  type Functions,
  MAX_COMPONENT_BYTES,
  MAX_FUNCTIONS,
  MAX_RECORD_BYTES,
  MAX_VERSIONS,
  type Placement,
  versionOf,
} from '../functions/functions.ts';
import { type Manifest, manifestModels, resolveLimits } from '../functions/manifest.ts';
import { recordText } from '../functions/records.ts';
import { isScript, readScriptFile, ScriptFileError, writeScriptFile } from '../functions/script-file.ts';
import type { FunctionVersion } from '../functions/types.ts';
import type { InvocationLimits } from '../invocations/types.ts';
import type { Quotas } from '../quotas/quotas.ts';
import type { Runtimes } from '../runtimes/runtimes.ts';
import type { RuntimeInfo, RuntimeModel } from '../runtimes/types.ts';
import type { Environments } from '../secrets/environments.ts';
import { withoutValues } from '../secrets/rules.ts';
import type { Revisions, Secrets } from '../secrets/secrets.ts';
import { StoreError } from '../store/errors.ts';
import type { Store } from '../store/store.ts';
import type { BuildRefusal, Builds } from './builds.ts';

/** Bounds the cleanup, which must not delay a failed call much. */
const CLEAN_UP_MS = 500;
/** Maximum attempts to register a version whose component is removed meanwhile. */
const TRIES = 3;

export interface Deployment {
  readonly tenant: string;
  /** Checked by `parseManifest`. */
  readonly manifest: Manifest;
  readonly component: Uint8Array;
  /** The platform's default limits. They apply where the manifest sets none. */
  readonly defaults?: InvocationLimits;
  /** `live` by default. */
  readonly placement?: Placement;
}

/** The reason why a deploy was refused, other than a failed build. */
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
      /** False when this version was already registered. */
      readonly created: boolean;
      /** Present state of the requested alias; null when the deploy names no alias. */
      readonly alias: AliasState | null;
      readonly warnings: readonly string[];
    }
  | BuildRefusal
  | DeployRefusal;

/** The result of a deploy that was planned, not run. */
export interface DeployPlan {
  readonly ok: true;
  /** The version as it would be stored. */
  readonly version: FunctionVersion;
  readonly exists: boolean;
  /** The function as deployed now; null for a new one. */
  readonly deployed: DeployedFunction | null;
  readonly warnings: readonly string[];
}

/** The parts of a version that decide how it runs, in stored form. */
interface Content {
  readonly version: string;
  readonly manifest: Manifest;
  readonly environment: Readonly<Record<string, string>> | undefined;
  readonly componentHash: string;
  readonly secrets: Revisions;
}

interface Parts {
  readonly store: Store;
  readonly functions: Functions;
  readonly blobs: Blobs;
  readonly builds: Builds;
  readonly runtimes: Runtimes;
  readonly secrets: Secrets;
  readonly environments: Environments;
  readonly quotas: Quotas;
}

/** Deploys functions: stores, checks and builds the component, and only then registers the version. A refused deploy stores nothing. */
export class Deployments {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Tells what {@link deploy} would do, as far as this is known without a build. Stores nothing. */
  async plan(deployment: Deployment): Promise<DeployPlan | BuildRefusal | DeployRefusal> {
    const onEngine = await this.#onEngine(deployment);
    if ('ok' in onEngine) return onEngine;
    const checkOutcome = await this.#check(onEngine);
    if (!checkOutcome.ok) return checkOutcome;
    return { ...checkOutcome, warnings: await this.#warnings(checkOutcome.version, onEngine.component) };
  }

  /**
   * Names the engine of a script that names none: the one of {@link chosenEngine}. Waits for it like a build waits for a runtime. Other deployments
   * are returned as they are.
   */
  async #onEngine(deployment: Deployment, signal?: AbortSignal): Promise<Deployment | BuildRefusal> {
    const { component } = deployment;
    if (!isScript(component)) return deployment;
    try {
      const { header, payload } = readScriptFile(component);
      if (header.engine !== null) {
        if (await this.#parts.blobs.hasEngine(header.engine)) return deployment;
        return {
          ok: false,
          code: 'build-failed',
          message: `The script names the engine ${header.engine.slice(0, 12)}, which this platform does not have.`,
          hint: 'Build the script again with `pie build`, or deploy its source: the platform then chooses the engine.',
        };
      }
      const engine = await this.#awaitEngine(signal);
      if (engine === null) return noEngine();
      return { ...deployment, component: writeScriptFile({ header: { ...header, engine }, payload }) };
    } catch (error) {
      if (!(error instanceof ScriptFileError)) throw error;
      const hint = 'Build it with `pie build`, or deploy its source with `pie deploy`.';
      return { ok: false, code: 'build-failed', message: error.message, hint };
    }
  }

  async #awaitEngine(signal: AbortSignal | undefined): Promise<string | null> {
    for (const deadline = performance.now() + ENGINE_GRACE_MS; ; await sleep(ENGINE_POLL_MS, undefined, { signal })) {
      const engine = chosenEngine(await this.#parts.runtimes.list());
      if (engine !== null || performance.now() > deadline) return engine;
    }
  }

  /** Checks everything that can refuse a deploy before the build. */
  async #check(deployment: Deployment): Promise<Omit<DeployPlan, 'warnings'> | BuildRefusal | DeployRefusal> {
    const { tenant, manifest, component, placement = { alias: LIVE } } = deployment;
    if (component.length > MAX_COMPONENT_BYTES) return tooLarge(component.length);
    const { functions, secrets, store } = this.#parts;
    const placementRefusal = placementFault(placement);
    if (placementRefusal !== null) return placementRefusal;
    const current = await secrets.current(tenant, manifest.secrets ?? []);
    if (!current.ok) return unknownSecrets(current.unknown);
    const componentHash = createHash('sha256').update(component).digest('hex');
    const content = await this.#content(deployment, componentHash, current.revisions);
    const { version } = content;
    const deployed = await functions.read(tenant, manifest.name);
    const taggedAlias = deployed?.aliases.find(({ alias }) => alias === placement.tag);
    const [share] = taggedAlias?.shares ?? [];
    if (share !== undefined && (share.version !== version || taggedAlias?.shares.length !== 1))
      return tagTaken(manifest.name, placement.tag ?? '', share.version);
    const knownVersion = deployed?.versions.find((candidate) => candidate.version === version);
    if (deployed === null) {
      if ((await functions.names(tenant)).length >= MAX_FUNCTIONS)
        return fullRefusal(manifest.name, 'too-many-functions');
    } else if (knownVersion === undefined && deployed.versions.length >= MAX_VERSIONS) {
      return fullRefusal(manifest.name, 'too-many-versions');
    }
    const storedVersion = knownVersion && (await functions.runnable(tenant, manifest.name, version));
    if (storedVersion) return { ok: true, version: storedVersion, exists: true, deployed };
    const record = recordOf(deployment, content, store.clock());
    const bytes = Buffer.byteLength(recordText(record));
    if ((await functions.recordBytes(tenant)) + bytes > MAX_RECORD_BYTES)
      return fullRefusal(manifest.name, 'records-too-large');
    return { ok: true, version: record, exists: false, deployed };
  }

  /** Deploys a function. Content that is already registered is not built again. */
  async deploy(
    deployment: Deployment,
    options: { deadlineMs?: number; signal?: AbortSignal } = {},
  ): Promise<DeployOutcome> {
    const { tenant, manifest } = deployment;
    const { secrets } = this.#parts;
    const onEngine = await this.#onEngine(deployment, options.signal);
    if ('ok' in onEngine) return onEngine;
    const checkOutcome = await this.#check(onEngine);
    if (!checkOutcome.ok) return checkOutcome;
    const pinOutcome = await secrets.pin(tenant, manifest.secrets ?? []);
    if (!pinOutcome.ok) return unknownSecrets(pinOutcome.unknown);
    // During the build, the last other version with this component may be deleted, and the component with it. Then `#register` starts again.
    for (let tries = 1; ; tries++) {
      const outcome = await this.#register(onEngine, pinOutcome.revisions, options);
      if (outcome !== 'component-gone') return outcome;
      if (tries >= TRIES)
        throw new StoreError(
          'store-unavailable',
          `The component was removed ${TRIES} times while the version was registered. Deploy again.`,
        );
    }
  }

  async #register(
    deployment: Deployment,
    secrets: Revisions,
    options: { deadlineMs?: number; signal?: AbortSignal },
  ): Promise<DeployOutcome | 'component-gone'> {
    const { tenant, manifest, component, placement = { alias: LIVE } } = deployment;
    const { functions, blobs, builds, store } = this.#parts;
    const componentHash = await blobs.put(tenant, component);
    let isRegistered = false;
    try {
      const content = await this.#content(deployment, componentHash, secrets);
      const knownVersion = await functions.runnable(tenant, manifest.name, content.version);
      // `runnable` also finds versions of the platform that the tenant may run. The tenant's own version must be registered nevertheless.
      let record = knownVersion?.platform === true ? null : knownVersion;
      if (record === null) {
        const { memoryMb } = resolveLimits(manifest, deployment.defaults);
        const reply = await builds.request({ tenant, name: manifest.name, componentHash, memoryMb }, options);
        if (!reply.ok) {
          const isGone = reply.code === 'build-failed' && !(await blobs.has(componentHash));
          return isGone ? 'component-gone' : reply;
        }
        record = { ...recordOf(deployment, content, store.clock()), build: reply.artifact };
      }
      const outcome = await functions.put(record, placement);
      if (!outcome.ok) {
        if (outcome.reason === 'component-missing') return 'component-gone';
        if (outcome.reason === 'tag-taken') return tagTaken(manifest.name, placement.tag ?? '', outcome.version);
        return outcome.reason === 'too-many-aliases'
          ? tooManyAliases(manifest.name)
          : fullRefusal(manifest.name, outcome.reason);
      }
      isRegistered = true;
      const { created, alias } = outcome;
      return { ok: true, version: record, created, alias, warnings: await this.#warnings(record, component) };
    } finally {
      // If the removal fails, the blob expires by itself.
      if (!isRegistered) await blobs.remove(tenant, componentHash, CLEAN_UP_MS).catch(() => undefined);
    }
  }

  /** The content to store. Its version id is that of an existing version with equal content, if there is one. */
  async #content(
    { tenant, manifest: rawManifest }: Deployment,
    componentHash: string,
    secrets: Revisions,
  ): Promise<Content> {
    const { functions, environments } = this.#parts;
    const { manifest, environment, mark } = await environments.seal(tenant, rawManifest);
    const version = versionOf(manifest, componentHash, secrets, mark);
    const content = { version, manifest, environment, componentHash, secrets };
    if (environment === undefined) return content;
    // The mark, a part of the version id, depends on the master key: a stored version with equal values may have
    // another mark, or none.
    const unmarkedVersion = versionOf(manifest, componentHash, secrets);
    const sameComponentVersions = (await functions.versions(tenant, rawManifest.name)).filter(
      (listed) => listed.componentHash === componentHash,
    );
    if (sameComponentVersions.some((listed) => listed.version === version)) return content;
    for (const listed of sameComponentVersions) {
      const storedVersion = await functions.runnable(tenant, rawManifest.name, listed.version);
      if (
        storedVersion === null ||
        versionOf(withoutValues(storedVersion.manifest), componentHash, storedVersion.secrets) !== unmarkedVersion
      )
        continue;
      if (await environments.holds(storedVersion, rawManifest.environment ?? {}))
        return { ...content, version: storedVersion.version };
    }
    return content;
  }

  async #warnings({ tenant, manifest, build }: FunctionVersion, component: Uint8Array): Promise<string[]> {
    const { launch = [] } = manifest.grants ?? {};
    const [runtimes, latencyInvocations, launchableFunctions] = await Promise.all([
      this.#parts.runtimes.list(),
      this.#parts.quotas.limit(tenant, 'latency-invocations'),
      Promise.all((launch === '*' ? [] : launch).map((name) => this.#parts.functions.find(tenant, name))),
    ]);
    const { instanceBytes, poolBytes } = build ?? {};
    return deployWarnings({
      manifest,
      imports: importedInterfaces(component),
      models: runtimes.filter(({ alive }) => alive).flatMap(({ models = [] }) => models),
      encoders: runtimes.filter(({ alive }) => alive).flatMap(({ encoders = [] }) => encoders.map(({ name }) => name)),
      functions: launchableFunctions.flatMap((found) => (found === null ? [] : [found.name])),
      latencyInvocations: latencyInvocations ?? 0,
      startsCold: build?.isReusable === false,
      pool:
        typeof instanceBytes === 'number' && typeof poolBytes === 'number'
          ? { instanceBytes, budgetBytes: poolBytes }
          : null,
    });
  }
}

function recordOf(
  { tenant, component, placement }: Deployment,
  { version, manifest, environment, componentHash, secrets }: Content,
  createdAt: number,
): FunctionVersion {
  const { by, message } = placement ?? {};
  return {
    name: manifest.name,
    version,
    tenant,
    manifest,
    componentHash,
    componentBytes: component.length,
    ...engineMember(component),
    createdAt,
    ...(by === undefined ? {} : { createdBy: by }),
    ...(message === undefined || message === '' ? {} : { message }),
    ...(Object.keys(secrets).length === 0 ? {} : { secrets }),
    ...(environment === undefined ? {} : { environment }),
  };
}

function engineMember(component: Uint8Array): Pick<FunctionVersion, 'engine'> {
  const engine = isScript(component) ? readScriptFile(component).header.engine : null;
  return engine === null ? {} : { engine };
}

/** Longest wait for a runtime that has an engine, as long as a build waits for a runtime. */
const ENGINE_GRACE_MS = 10_000;
const ENGINE_POLL_MS = 100;

/**
 * The engine on which new scripts are evaluated; null while no runtime has one. While runtimes of two contracts take work, it is an engine of the
 * runtimes that started first: runtimes of a later release run the engines of an earlier one, not the other way round. Among several engines, that
 * of the most runtimes is chosen, so that a platform has few. Pure.
 */
export function chosenEngine(
  runtimes: readonly Pick<RuntimeInfo, 'alive' | 'contract' | 'engine' | 'startedAt'>[],
): string | null {
  const alive = runtimes.filter((runtime) => runtime.alive).sort((a, b) => a.startedAt - b.startedAt);
  const counts = new Map<string, number>();
  for (const { contract, engine } of alive)
    if (engine !== undefined && contract === alive[0]?.contract) counts.set(engine, (counts.get(engine) ?? 0) + 1);
  const ranked = [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1));
  return ranked[0]?.[0] ?? null;
}

const noEngine = (): BuildRefusal => ({
  ok: false,
  code: 'runtime-unavailable',
  message: 'No runtime has an engine for scripts.',
  hint: 'Check with `pie status` that a runtime is there and that its log names no fault of the engine; then try again.',
});

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
    message: `The tag "${tag}" already names version ${version}.`,
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

function fullRefusal(name: string, reason: FullReason): DeployRefusal {
  if (reason === 'records-too-large') {
    const message = `The manifests and build reports of the tenant's versions would have more than ${MAX_RECORD_BYTES >> 20} MiB together.`;
    const hint =
      'Remove old versions: `pie versions NAME` lists them, `pie remove NAME@VERSION`. Large input schemas take most.';
    return { ok: false, code: 'conflict', message, hint };
  }
  if (reason === 'too-many-functions') {
    const message = `The tenant has as many functions as it may have: ${MAX_FUNCTIONS}.`;
    return { ok: false, code: 'conflict', message, hint: 'Remove some: `pie list` names them, `pie remove NAME`.' };
  }
  return {
    ok: false,
    code: 'conflict',
    message: `${name} has as many versions as a function may have: ${MAX_VERSIONS}, including those that were removed and still drain.`,
    hint: `Remove old ones: \`pie versions ${name}\` lists them, \`pie remove ${name}@VERSION\`.`,
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
    hint: 'Leave out what the inferlet does not need: large data belongs in its input or the store.',
  };
}

/** Facts that a deploy is checked against. */
export interface DeployFacts {
  readonly manifest: Manifest;
  /** Interfaces of the contract that the component imports, such as `forward`. */
  readonly imports: readonly string[];
  /** Models that the live runtimes offer. */
  readonly models: readonly RuntimeModel[];
  /** Names of the encoders that the live runtimes offer. */
  readonly encoders?: readonly string[];
  /** Deployed functions among those that `grants.launch` names. */
  readonly functions: readonly string[];
  /** The tenant's quota `latency-invocations`: how many open invocations may have latency targets. */
  readonly latencyInvocations: number;
  /** True for a script whose instances are too large to be reset after a run. */
  readonly startsCold?: boolean;
  /** Bytes of one ready instance, and of a runtime's pool for all of them; null before the build. */
  readonly pool: { readonly instanceBytes: number; readonly budgetBytes: number } | null;
}

/**
 * Interfaces that only some models offer. The runtime implements `tokenize` and `grammar` for every model with a tokenizer. `adapter` is
 * left out: the guest library's Context imports it, so the import does not show that a function uses adapters.
 */
const TRAITS: ReadonlySet<string> = new Set([
  'allocate',
  'forward',
  'input-text',
  'input-image',
  'output-text',
  'fused',
  'introspect',
  'kv-files',
]);
const MEBIBYTE = 2 ** 20;

/** Warnings for the author, in whole sentences; none of them refuses the deploy. Pure. */
export function deployWarnings({
  manifest,
  imports,
  models,
  encoders = [],
  functions,
  latencyInvocations,
  startsCold = false,
  pool,
}: DeployFacts): string[] {
  const offered = [...new Map(models.map((model) => [model.name, model])).values()];
  const manifestModelNames = manifestModels(manifest);
  const nonEncoderNames = manifestModelNames.filter((name) => !encoders.includes(name));
  // A function that uses encoders alone needs no GPU host that serves a model. `unknownModels` would warn that no host does.
  const usesEncodersAlone = manifestModelNames.length > 0 && nonEncoderNames.length === 0;
  const usable =
    manifestModelNames.length === 0 ? offered : offered.filter(({ name }) => manifestModelNames.includes(name));
  // A function with the grant `imageHosts` takes images where a model can, and refuses them by name where none can.
  return [
    ...(usesEncodersAlone ? [] : unknownModels(nonEncoderNames, offered)),
    ...missingTraits(
      imports.filter((name) => name !== 'input-image' || !manifest.grants?.imageHosts),
      usable,
    ),
    ...pagesAbove(manifest, usable),
    ...unknownFunctions(manifest, functions),
    ...poolAbove(manifest, pool),
    ...(startsCold
      ? [
          'After it has loaded, an instance has more than 32 MiB of memory: each run makes a new one. Keep large data out of the module level.',
        ]
      : []),
    ...ungrantedLatency(manifest, latencyInvocations),
  ];
}

function unknownModels(named: readonly string[], offered: readonly RuntimeModel[]): string[] {
  if (offered.length === 0) return ['No GPU host serves a model now: calls of models will fail until one does.'];
  const servedNames = offered.map(({ name }) => name);
  return named
    .filter((name) => !servedNames.includes(name))
    .map(
      (name) => `No GPU host serves the model "${name}" (served: ${servedNames.join(', ')}): calls of it will fail.`,
    );
}

function missingTraits(imports: readonly string[], usable: readonly RuntimeModel[]): string[] {
  if (usable.length === 0) return [];
  return imports
    .filter((name) => TRAITS.has(name) && !usable.some(({ traits }) => traits.includes(name)))
    .map(
      (name) =>
        `The component imports "${name}", which none of its models supports (${usable.map((model) => model.name).join(', ')}): such calls answer \`unsupported\`.`,
    );
}

function pagesAbove({ limits, expectedPages }: Manifest, usable: readonly RuntimeModel[]): string[] {
  const maxPageCount = Math.max(0, ...usable.map(({ pageCount }) => pageCount));
  if (maxPageCount === 0) return [];
  const warnings: string[] = [];
  const maxPages = limits?.pages === 'context' ? undefined : limits?.pages;
  if (maxPages !== undefined && maxPages > maxPageCount)
    warnings.push(
      `limits.pages is ${maxPages}, but no model that the function may use has more than ${maxPageCount} KV pages.`,
    );
  const expected =
    typeof expectedPages === 'number' ? [['', expectedPages] as const] : Object.entries(expectedPages ?? {});
  for (const [model, pages] of expected) {
    const pageCount = model === '' ? maxPageCount : usable.find(({ name }) => name === model)?.pageCount;
    const field = model === '' ? 'expectedPages' : `expectedPages.${model}`;
    // Admission expects at most `limits.pages`. An invocation that expects more pages than the model has starts only when no other
    // invocation holds pages of that model.
    const boundedPages = Math.min(pages, maxPages ?? pages);
    if (pageCount === undefined)
      warnings.push(`${field} names a model that the function may not use, or that no GPU host serves.`);
    else if (boundedPages > pageCount)
      warnings.push(
        `${field} is ${pages}, but the model has ${pageCount} KV pages: each invocation waits until no other one holds pages of it.`,
      );
  }
  return warnings;
}

function unknownFunctions({ name, grants }: Manifest, functions: readonly string[]): string[] {
  const { launch = [] } = grants ?? {};
  if (launch === '*') return [];
  return launch
    .filter((child) => child !== name && !functions.includes(child))
    .map((child) => `grants.launch names "${child}", which is not deployed: launching it will fail until it is.`);
}

function poolAbove({ pool: requestedPool }: Manifest, pool: DeployFacts['pool']): string[] {
  const min = requestedPool?.min ?? 0;
  if (pool === null || min * pool.instanceBytes <= pool.budgetBytes) return [];
  const each = (pool.instanceBytes / MEBIBYTE).toFixed(1);
  const fit = Math.floor(pool.budgetBytes / pool.instanceBytes);
  return [
    `pool.min asks for ${min} ready instances of ${each} MiB; a runtime has room for ${fit} in all (${Math.round(pool.budgetBytes / MEBIBYTE)} MiB).`,
  ];
}

function ungrantedLatency({ latency }: Manifest, granted: number): string[] {
  if (latency === undefined || granted > 0) return [];
  return [
    'The latency targets have no effect: the tenant has no quota latency-invocations. An operator grants one with `pie quota set`.',
  ];
}
