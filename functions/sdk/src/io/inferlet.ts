import type { LogLevel } from 'pie:inferlet/runtime@0.1.0';
import { toJson } from '../bytes.ts';
import { describe, InferletError } from '../errors.ts';
import { runtime, settle, environment as wire } from '../raw.ts';
import { handedOver } from './session.ts';

/** Error codes of calls in an inferlet that the platform is stopping. */
const ENDED_BY_PLATFORM: ReadonlySet<string> = new Set(['cancelled', 'deadline-exceeded', 'terminated']);

/** Identifies an invocation, its tenant and its function. */
export interface Invocation {
  /** Id of this invocation, as the client sees it. */
  readonly id: string;
  readonly tenant: string;
  readonly functionName: string;
  readonly functionVersion: string;
}

/**
 * Makes an inferlet's `run` export from a function from input to result, both plain JSON values. The handler's return value is the
 * invocation's output. An exception fails the invocation, with the exception's text as the cause.
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
      return toJson(output ?? null);
    } catch (thrown) {
      // Messages that wait for buffer space precede the failure, too. If they cannot be sent, the exception is still the cause.
      await handedOver().catch(() => undefined);
      const failure = new Error(describe(thrown));
      // A stack explains nothing about an invocation that the platform has ended.
      failure.stack =
        thrown instanceof Error && !ENDED_BY_PLATFORM.has(InferletError.from(thrown).code) ? (thrown.stack ?? '') : '';
      throw failure;
    }
  };
}

/** The present invocation. */
export function invocation(): Invocation {
  return {
    id: runtime.instanceId(),
    tenant: runtime.tenant(),
    functionName: runtime.functionName(),
    functionVersion: runtime.functionVersion(),
  };
}

/** Writes a line into the function's log and the invocation's event stream. */
export function log(message: string, level: LogLevel = 'info'): void {
  runtime.log(level, message);
}

/** Options of {@link recordSpan}. */
export interface SpanOptions {
  /** Start of the work, as a time of `Date.now()`: milliseconds since 1970. */
  readonly began: number;
  /** End of the work, likewise; now by default. */
  readonly ended?: number | undefined;
  /** The kind of work, such as `search`: one word or two. */
  readonly kind?: string | undefined;
  readonly failed?: boolean | undefined;
}

/**
 * Records a part of this invocation's work: a bar on the invocation's page of the dashboard and an entry of the event `metric` for the client.
 * Workflows and programs record their nodes themselves. The platform keeps 64 spans, those that failed and the longest ones, and counts the
 * others. Costs no round trip.
 *
 * @example
 * const began = Date.now();
 * const passages = await search(question);
 * recordSpan('passages', { began, kind: 'search' });
 */
export function recordSpan(name: string, { began, ended = Date.now(), kind = '', failed = false }: SpanOptions): void {
  runtime.recordSpan(name, kind, carriedTime(began), carriedTime(ended), failed);
}

/** A time as a whole number in the range of the WIT contract; 0 for NaN. */
const carriedTime = (time: number): number => Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, Math.round(time) || 0));

/** True when the client, the parent or the platform has asked this inferlet to stop. Waiting calls then fail with `cancelled`. */
export const isCancelled = (): boolean => runtime.isCancelled();

/** Milliseconds of wall time left before the deadline. */
export const timeLeftMs = (): number => runtime.timeLeft();

/** Longest time of a timer, about 25 days, as in browsers. A longer wait is shortened to it. */
export const MAX_SLEEP_MS = 2 ** 31 - 1;

/** Waits; returns at once for a time below 0. Throws `cancelled` or `deadline-exceeded` if the invocation is stopped first. */
export async function sleep(milliseconds: number): Promise<void> {
  if (Number.isNaN(milliseconds))
    throw new InferletError('invalid-argument', 'The time to wait must be a number of milliseconds, not NaN.');
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

/**
 * The function's secrets and plain variables: `"secrets": ["OPENAI_KEY"]` in `pie.json` names secrets of the tenant (`pie secrets set
 * OPENAI_KEY`), `"environment": {"MODE": "fast"}` holds variables. A deploy captures the present values of the secrets; the next deploy
 * updates them, and a rollback restores them. In log lines and error messages, the platform replaces each value of four or more characters
 * by its name. It leaves messages to the client unchanged.
 *
 * @example
 * using response = await fetch(url, { headers: { authorization: `Bearer ${environment.require('OPENAI_KEY')}` } });
 */
export const environment = {
  /** The value of a name; undefined when the manifest does not list the name. */
  get(name: string): string | undefined {
    return wire.getVariable(name) ?? undefined;
  },

  /** The value of a name. Throws `not-found` when the manifest does not list the name. */
  require(name: string): string {
    const value = environment.get(name);
    if (value !== undefined) return value;
    throw new InferletError(
      'not-found',
      `The function has no "${name}": name it in pie.json, in "secrets" or "environment".`,
    );
  },

  /** All names, in order. */
  names(): string[] {
    return wire.listVariables();
  },
} as const;
