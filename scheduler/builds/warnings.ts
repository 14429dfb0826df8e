import { type Manifest, manifestModels } from '../functions/manifest.ts';
import type { RuntimeModel } from '../runtimes/types.ts';

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
