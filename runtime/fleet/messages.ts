import type { SpecialTokens } from '#gpu-host/models/tokenizer.ts';
import type { Plan } from '../lowering/plan.ts';

export type { FromSandbox, InstanceUsed } from './from-sandbox.ts';

/** A program as a sandbox gets it: the links between its core modules, and the hashes of modules that were sent before. */
export interface SentProgram {
  readonly key: string;
  readonly plan: Plan;
  readonly modules: readonly { readonly file: string; readonly hash: string }[];
}

/** Token tables of a model. The body of the message holds the length of each token in two bytes, then the bytes of all tokens. */
export interface SentVocabulary {
  readonly model: string;
  readonly size: number;
  readonly special: SpecialTokens;
  readonly specialIds: readonly number[];
  readonly stripsLeadingSpace: boolean;
}

/** Messages from a runtime to a sandbox, besides invocations (`wit/channel/lifecycle.wit`). The runtime numbers instances. */
export type ToSandbox =
  /**
   * The body is the module, which was metered when its artifact was built. With `whole`, the sandbox compiles all functions of the module at once.
   * Without `whole`, it compiles each function when the function is first called.
   */
  | { readonly kind: 'module'; readonly hash: string; readonly whole: boolean }
  | ({ readonly kind: 'program' } & SentProgram)
  /** Lets the sandbox drop a program, and the modules that no other program uses. */
  | { readonly kind: 'forget'; readonly key: string; readonly modules: readonly string[] }
  /** Keeps at least `min` instances ready. */
  | { readonly kind: 'keep'; readonly key: string; readonly min: number }
  | { readonly kind: 'prepare'; readonly instance: number; readonly key: string }
  /** Lets the sandbox drop an instance that no invocation took. */
  | { readonly kind: 'release'; readonly instance: number }
  | ({ readonly kind: 'vocabulary' } & SentVocabulary)
  /**
   * `busy` is true while a device computes for the runtime. During this time, the sandbox gives guests that only compute a small share of their
   * thread. This leaves the cores to the device.
   */
  | { readonly kind: 'device'; readonly busy: boolean };
