import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import { FUNCTION_NAME, resolveLimits } from '#scheduler/functions/manifest.ts';
import { type FunctionVersion, ownerOf } from '#scheduler/functions/types.ts';
import { newInvocationId } from '#scheduler/invocations/id.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import type { TextService, TextUser } from '../texts/service.ts';

/** Characters of a child's input. */
const MAX_INPUT = 256 << 10;

/** Whose child it is. */
export type ParentJob = Pick<InvocationJob, 'tenant' | 'function' | 'version'>;

/** What making a child's job needs of the platform. */
export interface ChildJobs {
  /** What a child by this version or alias of one of its parent's tenant's functions runs; `live` without one. */
  readonly functionOf: (parent: ParentJob, name: string, reference?: string) => Promise<FunctionVersion | null>;
  /** Checks their inputs. */
  readonly texts: Pick<TextService, 'check'>;
  /** Of a function whose manifest asks for nothing. */
  readonly limits: InvocationLimits;
}

/** Splits `name` or `name@version`. */
export function referenceOf(text: string): { name: string; version: string | undefined } {
  const at = text.indexOf('@');
  return at < 0 ? { name: text, version: undefined } : { name: text.slice(0, at), version: text.slice(at + 1) };
}

/** Finds a child's function and holds its input against that function's schema. Throws nothing. */
export async function findFunction(
  jobs: ChildJobs,
  parent: ParentJob,
  reference: string,
): Promise<Outcome<FunctionVersion>> {
  const { name, version } = referenceOf(reference);
  const unknown = () =>
    err(handlerError('not-found', `there is no function ${reference.slice(0, 200)}; list what is deployed`));
  if (!FUNCTION_NAME.test(name)) return unknown();
  try {
    const found = await jobs.functionOf(parent, name, version);
    return found ? ok(found) : unknown();
  } catch (error) {
    const { code, message } = StoreError.from(error);
    return err(handlerError(code === 'store-unavailable' ? 'unavailable' : 'internal', message));
  }
}

/** Holds an input against the schema of its function, at the parent's expense: the schema may be a slow one. */
export async function checkInput(
  { texts }: ChildJobs,
  parent: TextUser,
  version: FunctionVersion,
  input: string,
): Promise<Outcome<undefined>> {
  if (input.length <= MAX_INPUT) return texts.check(parent, input, version);
  const text = `the input has ${input.length} characters; ${MAX_INPUT} is the limit of a child's, send the rest as messages`;
  return err(handlerError('invalid-argument', text));
}

/**
 * The job of a child. It has its root's place in line, and its own function's limits, none of them beyond its family's: it may hold the
 * root's pages and use the root's tokens at most, and it runs no longer than its parent. CPU time and memory are its own: they are metered
 * where they are used, and an artifact is built for its function's memory.
 */
export function childJob(
  { limits: defaults }: ChildJobs,
  parent: InvocationJob,
  root: InvocationJob,
  version: FunctionVersion,
  input: string,
  leftMs: number,
): InvocationJob {
  const own = resolveLimits(version.manifest, defaults);
  const wallMs = Math.max(1, Math.min(own.wallMs, Math.floor(leftMs)));
  return {
    id: newInvocationId(),
    tenant: parent.tenant,
    function: version.name,
    version: version.version,
    functionOwner: ownerOf(version),
    input,
    arrival: root.arrival,
    submittedAt: Date.now(),
    deadlineMs: wallMs,
    limits: {
      ...own,
      wallMs,
      pages: Math.min(own.pages, root.limits.pages),
      tokens: Math.min(own.tokens, root.limits.tokens),
    },
    parent: parent.id,
    ...(parent.traceparent !== undefined && { traceparent: parent.traceparent }),
  };
}
