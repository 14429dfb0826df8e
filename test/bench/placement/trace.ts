/**
 * The beginning of a prompt: a prefix that several prompts share, or the earlier turns of a session. A GPU host may still have its keys and values.
 */
export interface Context {
  readonly name: string;
  /** Tokens of the prompt that belong to the context. */
  readonly tokens: number;
  /** Tokens that the host has under the context's name after the invocation. */
  readonly keeps: number;
  /** True when the inferlet saves the context as a persistent export, which the host never evicts. */
  readonly exported: boolean;
}

/** One invocation of a trace. */
export interface TracedInvocation {
  readonly id: string;
  readonly tenant: string;
  readonly atMs: number;
  /** Tokens of the prompt, those of its context included. */
  readonly prompt: number;
  readonly output: number;
  /** Pages that admission reserves for the invocation until its end. */
  readonly pages: number;
  readonly context?: Context;
  /** The client's `X-Session-Affinity`. */
  readonly affinity?: string;
}

export interface HostShape {
  readonly name: string;
  /** Steps that the host makes in the time in which a host of speed 1 makes one. */
  readonly speed: number;
  readonly pages: number;
}

/** `drain`: the host takes no new invocation. `crash`: it also loses its memory and its running invocations. `join`: it serves again. */
export interface HostChange {
  readonly atMs: number;
  readonly host: number;
  readonly kind: 'drain' | 'crash' | 'join';
}

/** Arrivals in order of time, and the hosts that serve them. */
export interface Trace {
  readonly name: string;
  readonly hosts: readonly HostShape[];
  readonly invocations: readonly TracedInvocation[];
  readonly changes: readonly HostChange[];
}

/** Tokens of a page. */
export const PAGE_TOKENS = 16;
/** Time of a step without inputs at speed 1, calculated for an 8B model on one card. */
export const STEP_MS = 20;
/** Time that each input adds to a step: a token of a prompt, or a sequence that decodes. */
export const INPUT_MS = 0.2;
/** Tokens that each prompt adds to a step. */
export const CHUNK_TOKENS = 128;

/**
 * Tokens of a prompt that a host computes when it has `known` tokens of the prompt's context. The last token is always computed, because its step
 * gives the first token of output.
 */
export const tokensToCompute = ({ prompt, context }: TracedInvocation, known: number): number =>
  Math.max(1, prompt - Math.min(known, context?.tokens ?? 0));
