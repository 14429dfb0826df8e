import type { InvocationJob } from '../admission/job.ts';
import type { Keys } from '../keys.ts';
import type { NewChild, NewInvocation } from './types.ts';

/** Memory that the first runs of a version are expected to take whose manifest says nothing: a TypeScript function takes 2 to 4 MiB. */
export const FIRST_MEMORY_MB = 8;

/** What an invocation needs beyond its record: what its runtime gets, and what admission heeds. */
export interface Submission extends NewInvocation, Pick<InvocationJob, 'input' | 'limits' | 'traceparent'> {
  /** KV pages that it is expected to hold, by model, or on its first model; learned from past runs of the version when absent. */
  readonly expectedPages?: number | Readonly<Record<string, number>>;
  /** Memory that it is expected to take until that is learned from past runs of the version, MiB; {@link FIRST_MEMORY_MB} when absent. */
  readonly expectedMemoryMb?: number;
  /** Models that its function names; the first is the one it is expected to use. */
  readonly models?: readonly string[];
}

/** The job as its runtime gets it, but for the arrival, which the script that stores it gives out. */
export function jobText(submission: Submission): string {
  const { id, tenant, function: name, version, input, limits, submittedAt, deadlineMs, restartable } = submission;
  const { traceparent } = submission;
  const job: Omit<InvocationJob, 'arrival'> = {
    ...{ id, tenant, function: name, version, input, limits, submittedAt, deadlineMs, restartable },
    ...(traceparent !== undefined && { traceparent }),
  };
  return JSON.stringify(job);
}

/** Fields of the record that admission reads: `admission/scripts/include/expected-pages.lua`. */
export function admissionFields(keys: Keys, submission: Submission): string[] {
  const { tenant, function: name, version, expectedPages, models } = submission;
  const fields = ['prefix', keys.prefix, 'learnedKey', keys.learnedPages(tenant, name, version)];
  const { expectedMemoryMb = FIRST_MEMORY_MB, limits } = submission;
  fields.push(
    'expectedMemory',
    String(Math.min(expectedMemoryMb, limits.memoryMb)),
    'memoryMb',
    String(limits.memoryMb),
  );
  const [first] = models ?? [];
  if (first !== undefined) fields.push('firstModel', first);
  if (expectedPages !== undefined) fields.push('declaredPages', JSON.stringify(whole(expectedPages)));
  return fields;
}

/** Where the unfinished invocations of its version and the version's conduct are, and the function that must have that version. */
export function versionFields(
  keys: Keys,
  { tenant, function: name, version, functionOwner }: Submission | NewChild,
): string[] {
  const owner = functionOwner ?? tenant;
  const deployed = functionOwner === undefined ? [] : ['functionKey', keys.function(owner, name)];
  const conduct = ['conductKey', keys.conduct(owner, name, version)];
  return [...deployed, 'unfinishedKey', keys.unfinished(owner, name, version), ...conduct];
}

/** Where the function's log is, and where the tenant's files and usage are counted; the scripts that write there read that from the record. */
export function placeFields(keys: Keys, tenant: string, name: string): string[] {
  return [
    ...['logs', keys.logs(tenant, name), 'logsChannel', keys.logsChannel(tenant, name)],
    ...['fileUsageKey', keys.fileUsage(tenant), 'fileExpiriesKey', keys.fileExpiries(tenant)],
    ...['account', keys.account(tenant), 'storedUsageKey', keys.storedUsage(tenant)],
  ];
}

/** Whole pages, whatever was declared. */
function whole(pages: number | Readonly<Record<string, number>>): number | Record<string, number> {
  if (typeof pages === 'number') return Math.ceil(pages);
  return Object.fromEntries(Object.entries(pages).map(([model, count]) => [model, Math.ceil(count)]));
}
