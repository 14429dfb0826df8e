import type { InvocationJob } from '../admission/job.ts';
import type { ServingBasis } from '../functions/serving.ts';
import type { Keys } from '../keys.ts';
import { affinityKey } from '../policies/placement.ts';
import type { LatencyTargets, NewChild, NewInvocation } from './types.ts';

/** Expected memory of a version's first runs when its manifest gives none; a TypeScript function takes at most half of it. */
const FIRST_MEMORY_MB = 8;

/** A new invocation with the data that its runtime gets and the expectations that admission uses. */
export interface Submission
  extends NewInvocation,
    Pick<InvocationJob, 'input' | 'limits' | 'traceparent' | 'submitter'> {
  /**
   * Expected KV pages, at most `limits.pages` unless these are "context": by model, or a number for the first model. When absent, admission
   * learns them from past runs of the version.
   */
  readonly expectedPages?: number | Readonly<Record<string, number>>;
  /** Expected memory, MiB, until it is learned from past runs of the version; {@link FIRST_MEMORY_MB} when absent. */
  readonly expectedMemoryMb?: number;
  /**
   * Targets that the function states; those of the tenant when absent, none when false. The invocation gets them while the tenant's quota
   * `latency-invocations` has room.
   */
  readonly latency?: LatencyTargets | false;
  /** Models that the function names; admission expects it to use the first. */
  readonly models?: readonly string[];
  /** The invocation is stored only if this basis still leads to its version; without a basis, only if the version is deployed. */
  readonly basis?: ServingBasis;
}

/** The job as its runtime gets it, without the arrival and granted latency targets: the script that stores the job adds them. */
export function jobText(submission: Submission): string {
  const { id, tenant, function: name, version, input, limits, submittedAt, deadlineMs, restartable } = submission;
  const { traceparent, submitter } = submission;
  const job: Omit<InvocationJob, 'arrival' | 'latency'> = {
    id,
    tenant,
    function: name,
    version,
    input,
    limits,
    submittedAt,
    deadlineMs,
    restartable,
    ...(traceparent !== undefined && { traceparent }),
    ...(submitter !== undefined && { submitter }),
  };
  return JSON.stringify(job);
}

/** Fields of the record of a new invocation, each followed by its value, except those that `create` of `submission.lua` and the attempts set. */
export function recordFields(keys: Keys, submission: Submission): string[] {
  const { tenant, function: name, version, restartable, affinity, concurrency, schedule, submitter } = submission;
  const { debounce } = submission;
  return [
    ...['tenant', tenant, 'function', name, 'version', version],
    ...versionFields(keys, submission),
    ...['restartable', restartable ? '1' : '0'],
    ...webhookFields(keys, submission.webhookUrl),
    ...logAndAccountFields(keys, tenant, name),
    ...(affinity === undefined ? [] : ['affinity', affinityKey(tenant, affinity)]),
    ...(concurrency === undefined
      ? []
      : ['concurrencyKey', keys.concurrency(tenant, concurrency.key), 'concurrencyLimit', String(concurrency.limit)]),
    ...(debounce === undefined ? [] : debounceFields(keys, submission, debounce)),
    ...(schedule === undefined ? [] : ['schedule', schedule]),
    ...(submitter === undefined ? [] : ['submitter', submitter]),
    ...admissionFields(keys, submission),
  ];
}

function debounceFields(
  keys: Keys,
  { tenant, function: name }: Submission,
  { key, delayMs, maxMs }: NonNullable<Submission['debounce']>,
): string[] {
  const keyFields = ['debounceKey', keys.debounces(tenant), 'debounceField', `${name} ${key}`];
  return [...keyFields, 'debounceDelayMs', String(delayMs), 'debounceMaxMs', String(maxMs)];
}

function webhookFields(keys: Keys, url: string | undefined): string[] {
  if (url === undefined) return [];
  return ['webhookUrl', url, 'webhooksKey', keys.webhooks, 'webhooksChannel', keys.webhooksChannel];
}

/** Fields that admission reads (`admission/needs.lua`), and `latency`, for `create` of `submission.lua`. */
function admissionFields(keys: Keys, submission: Submission): string[] {
  const { tenant, function: name, version, expectedPages, models, latency } = submission;
  const fields = ['prefix', keys.prefix, 'learnedKey', keys.learnedPages(tenant, name, version)];
  const { expectedMemoryMb = FIRST_MEMORY_MB, limits } = submission;
  fields.push(
    'expectedMemory',
    String(Math.min(expectedMemoryMb, limits.memoryMb)),
    'memoryMb',
    String(limits.memoryMb),
  );
  if (latency !== undefined) fields.push('latency', JSON.stringify(latency));
  const [firstModel] = models ?? [];
  if (firstModel !== undefined) fields.push('firstModel', firstModel);
  const maxPages = limits.contexts === undefined ? limits.pages : Number.POSITIVE_INFINITY;
  if (expectedPages !== undefined) fields.push('declaredPages', JSON.stringify(atMost(maxPages, expectedPages)));
  return fields;
}

/**
 * Record fields with the keys of the version's unfinished invocations, of its conduct (the losses of sandboxes that quarantine judges), and of the
 * function that must have the version.
 */
export function versionFields(
  keys: Keys,
  { tenant, function: name, version, functionOwner }: Submission | NewChild,
): string[] {
  const owner = functionOwner ?? tenant;
  const functionFields = functionOwner === undefined ? [] : ['functionKey', keys.function(owner, name)];
  const conduct = ['conductKey', keys.conduct(owner, name, version)];
  return [...functionFields, 'unfinishedKey', keys.unfinished(owner, name, version), ...conduct];
}

/** Record fields with the keys of the function's log and of the tenant's file and usage counts; scripts read these keys from the record. */
export function logAndAccountFields(keys: Keys, tenant: string, name: string): string[] {
  return [
    ...['logs', keys.logs(tenant, name), 'logsChannel', keys.logsChannel(tenant, name)],
    ...['fileUsageKey', keys.fileUsage(tenant), 'fileExpiriesKey', keys.fileExpiries(tenant)],
    ...['account', keys.account(tenant), 'storedUsageKey', keys.storedUsage(tenant)],
  ];
}

/** Rounds declared pages up to whole pages, and bounds them by the most that the invocation may hold of a model. */
function atMost(maxPages: number, pages: NonNullable<Submission['expectedPages']>): number | Record<string, number> {
  const boundedCount = (count: number) => Math.min(Math.ceil(count), maxPages);
  if (typeof pages === 'number') return boundedCount(pages);
  return Object.fromEntries(Object.entries(pages).map(([model, count]) => [model, boundedCount(count)]));
}
