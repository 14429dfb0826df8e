import type { SpecialTokens } from '#gpu-host/models/tokenizer.ts';
import type { Plan } from '../lowering/plan.ts';

/** A program as a sandbox gets it: how its core modules are linked, and the hashes of modules that were sent before. */
export interface SentProgram {
  readonly key: string;
  readonly plan: Plan;
  readonly modules: readonly { readonly file: string; readonly hash: string }[];
}

/** Tables of a model's tokens. The body holds the length of each token in two bytes, then the bytes of all. */
export interface SentVocabulary {
  readonly model: string;
  readonly size: number;
  readonly special: SpecialTokens;
  readonly specialIds: readonly number[];
  readonly stripsLeadingSpace: boolean;
}

/** What a runtime tells a sandbox beside the invocations (`wit/channel/lifecycle.wit`). The runtime numbers instances. */
export type ToSandbox =
  /** The body is the module; it was metered when its artifact was built. */
  | { readonly kind: 'module'; readonly hash: string }
  | ({ readonly kind: 'program' } & SentProgram)
  /** Lets go of a program, and of modules that no other one uses. */
  | { readonly kind: 'forget'; readonly key: string; readonly modules: readonly string[] }
  /** Keeps at least so many instances ready. */
  | { readonly kind: 'keep'; readonly key: string; readonly min: number }
  | { readonly kind: 'prepare'; readonly instance: number; readonly key: string }
  /** Lets go of an instance that no invocation took. */
  | { readonly kind: 'release'; readonly instance: number }
  | ({ readonly kind: 'vocabulary' } & SentVocabulary)
  /** Whether a device computes for anybody: guests that only compute leave it the cores. */
  | { readonly kind: 'device'; readonly busy: boolean };

/** What an instance has used, without what the runtime charged for it. */
export interface InstanceUsed {
  readonly instance: number;
  readonly cpuMs: number;
  readonly memoryBytes: number;
  /** Calls of the platform. */
  readonly calls: number;
}

/** What a sandbox tells its runtime, which reads it as a stranger's data (`from-sandbox.ts`). */
export type FromSandbox =
  | { readonly kind: 'ready' }
  /** Its event loop turns. With it: instances that have used more, and the number of ready ones. */
  | { readonly kind: 'beat'; readonly used: readonly InstanceUsed[]; readonly ready: number }
  | {
      readonly kind: 'prepared';
      readonly instance: number;
      /** A ready one was taken. */
      readonly ready: boolean;
      readonly compileMs: number;
      readonly instantiateMs: number;
    }
  /** It has the tables of a model. */
  | { readonly kind: 'vocabulary'; readonly model: string }
  | { readonly kind: 'unprepared'; readonly instance: number; readonly message: string };
