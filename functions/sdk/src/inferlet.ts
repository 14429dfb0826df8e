import { describe, InferletError } from './errors.ts';
import { runtime, settle } from './raw.ts';
import { handedOver } from './session.ts';

/** What the calls of an inferlet answer that is being stopped. */
const ENDED_BY_PLATFORM: ReadonlySet<string> = new Set(['cancelled', 'deadline-exceeded', 'terminated']);

/** Who runs, for whom. */
export interface Invocation {
  /** Id of this invocation, the one that its client sees. */
  readonly id: string;
  readonly tenant: string;
  readonly functionName: string;
  readonly functionVersion: string;
}

/**
 * Makes an inferlet's `run` export of a function from input to result, both plain JSON values. What the handler returns is the
 * invocation's output; what it throws ends the invocation as failed, with the text as its cause.
 *
 * @example
 * export const run = defineInferlet(async ({ prompt }: { prompt: string }) => {
 *   using ctx = new Context();
 *   const { text } = await ctx.fill(prompt).generate({ maxTokens: 32 }).collect();
 *   return { text };
 * });
 */
export function defineInferlet<Input = unknown, Output = unknown>(
  handler: (input: Input, invocation: Invocation) => Output | Promise<Output>,
): (input: string) => Promise<string> {
  return async function run(text: string): Promise<string> {
    try {
      const output = await handler(parse(text) as Input, invocation());
      await handedOver();
      return JSON.stringify(output ?? null);
    } catch (thrown) {
      // Of what the platform has ended its own word says all.
      if (thrown instanceof Error && thrown.stack && !ENDED_BY_PLATFORM.has(InferletError.from(thrown).code))
        runtime.log('debug', `${describe(thrown)}\n${thrown.stack}`);
      throw new Error(describe(thrown));
    }
  };
}

/** Who runs, for whom. */
export function invocation(): Invocation {
  return {
    id: runtime.instanceId(),
    tenant: runtime.tenant(),
    functionName: runtime.functionName(),
    functionVersion: runtime.functionVersion(),
  };
}

/** Writes a line into the function's log and the invocation's event stream. */
export function log(message: string, level: 'debug' | 'info' | 'warn' | 'error' = 'info'): void {
  runtime.log(level, message);
}

/** Whether the client or the platform has asked this inferlet to stop. Waiting calls then fail with `cancelled` by themselves. */
export const isCancelled = (): boolean => runtime.isCancelled();

/** Milliseconds of wall time left before the deadline. */
export const timeLeftMs = (): number => runtime.timeLeft();

/** Longest time that a timer takes, as in browsers. */
const MAX_SLEEP_MS = 2 ** 31 - 1;

/** Waits, not at all when the time is below 0; throws `cancelled` or `deadline-exceeded` when that happens first. */
export async function sleep(milliseconds: number): Promise<void> {
  if (Number.isNaN(milliseconds)) throw new InferletError('invalid-argument', 'NaN is no time to wait for.');
  await settle(runtime.sleep(Math.min(Math.max(0, Math.ceil(milliseconds)), MAX_SLEEP_MS)));
}

function parse(text: string): unknown {
  if (text.trim() === '') return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new InferletError(
      'invalid-argument',
      `The input is not JSON: ${error instanceof Error ? error.message : error}`,
    );
  }
}
