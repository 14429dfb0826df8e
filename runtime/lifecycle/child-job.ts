import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import { FUNCTION_NAME, isReference } from '#scheduler/functions/aliases.ts';
import { resolveLimits } from '#scheduler/functions/manifest.ts';
import { type FunctionVersion, ownerOf } from '#scheduler/functions/types.ts';
import { newInvocationId } from '#scheduler/invocations/submission.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import { fromStore, type StoreQueues } from '../host/services/ask.ts';

import type { TextService } from '../texts/service.ts';

/** Maximum characters of a child's input. */
const MAX_INPUT = 256 << 10;
/** Maximum characters of a reference in an error. */
const MAX_QUOTED = 200;

/** The fields of the parent's job that select a child's function. */
export type ParentJob = Pick<InvocationJob, 'tenant' | 'function' | 'version'>;

/** The platform's services for making the jobs of children. */
export interface ChildJobs {
  /** Resolves a version or alias (`live` by default) of a function of the parent's tenant. */
  readonly functionOf: (parent: ParentJob, name: string, reference?: string) => Promise<FunctionVersion | null>;
  /** Checks the inputs of children. */
  readonly texts: Pick<TextService, 'check'>;
  /** Limits of a function whose manifest sets none. */
  readonly limits: InvocationLimits;
  /** The platform's clock, milliseconds since the Unix epoch; `Date.now` by default. */
  readonly clock?: () => number;
}

/** Splits `name` or `name@version`. */
export function referenceOf(text: string): { name: string; version: string | undefined } {
  const at = text.indexOf('@');
  return at < 0 ? { name: text, version: undefined } : { name: text.slice(0, at), version: text.slice(at + 1) };
}

/** Finds a child's function. The store call waits for room in the tenant's queue of such calls. Never rejects. */
export async function findFunction(
  jobs: ChildJobs,
  queues: StoreQueues,
  parent: ParentJob,
  reference: string,
): Promise<Outcome<FunctionVersion>> {
  const { name, version } = referenceOf(reference);
  const unknown = () =>
    err(handlerError('not-found', `there is no function ${quoted(reference)}; list what is deployed`));
  if (!FUNCTION_NAME.test(name) || !isReference(version ?? '')) return unknown();
  try {
    const found = await queues.during(parent.tenant, reference.length, () => jobs.functionOf(parent, name, version));
    return found ? ok(found) : unknown();
  } catch (error) {
    return err(fromStore(error));
  }
}

/** Quotes a reference for an error that the inferlet may keep. The text is a copy: a slice would keep the whole reference in memory. */
export function quoted(reference: string): string {
  return JSON.stringify(reference.slice(0, MAX_QUOTED));
}

/** Refuses an input that is too long for a child; null for an input within the limit. */
export function refuseInput({ length }: string): HandlerError | null {
  if (length <= MAX_INPUT) return null;
  const text = `the input has ${length} characters; ${MAX_INPUT} is the limit of a child's, send the rest as messages`;
  return handlerError('invalid-argument', text);
}

/**
 * Makes the job of a child. The child has the place in the queue and the latency targets of its root. It has the limits of its function, but at
 * most the root's pages and tokens, and at most the wall time that its parent has left. Its deadline is its root's, or the end of its wall time
 * if later. CPU time and memory are not capped: they are metered for each inferlet, and an artifact is built for its function's memory.
 */
export function childJob(
  { limits: defaults, clock = Date.now }: ChildJobs,
  parent: InvocationJob,
  root: InvocationJob,
  version: FunctionVersion,
  input: string,
  parentLeftMs: number,
): InvocationJob {
  const ownLimits = resolveLimits(version.manifest, defaults, input);
  const wallMs = Math.max(1, Math.min(ownLimits.wallMs, Math.floor(parentLeftMs)));
  const now = clock();
  return {
    id: newInvocationId(),
    tenant: parent.tenant,
    function: version.name,
    version: version.version,
    functionOwner: ownerOf(version),
    input,
    arrival: root.arrival,
    submittedAt: now,
    // Wall time stands still while the family is preempted, so it may end later than computed here; the root's deadline
    // does not move.
    deadlineMs: Math.max(wallMs, Math.floor(root.submittedAt + root.deadlineMs - now)),
    limits: {
      ...ownLimits,
      wallMs,
      pages: Math.min(ownLimits.pages, root.limits.pages),
      tokens: Math.min(ownLimits.tokens, root.limits.tokens),
    },
    parent: parent.id,
    ...(root.latency && { latency: root.latency }),
    ...(parent.traceparent !== undefined && { traceparent: parent.traceparent }),
  };
}
