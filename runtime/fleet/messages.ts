import { z } from 'zod';
import type { SpecialTokens } from '#gpu-host/models/tokenizer.ts';
import { ChannelFault } from '../channel/limits.ts';
import type { MemoryLimits } from '../lowering/instance.ts';
import type { Plan } from '../lowering/plan.ts';

/**
 * A program as a sandbox gets it: the links between its core modules, and the hashes of modules that were sent before. The body of the message is
 * the heap of a script, and empty for a component.
 */
export interface SentProgram {
  readonly key: string;
  readonly plan: Plan;
  readonly modules: readonly { readonly file: string; readonly hash: string }[];
  readonly script?: SentScript;
}

/** What makes an instance of an engine an instance of a script. */
export interface SentScript {
  /** sha256 of the engine's component, which the heap must name. */
  readonly engine: string;
  /** Memory of an instance, in pages. */
  readonly memory: MemoryLimits;
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

const MAX_TEXT_CHARACTERS = 64 << 10;
const MAX_INSTANCES = 4096;

const number = z.int().nonnegative();
/** Bound on a reported time: 30 days. A compromised sandbox may report any number, and sums of unbounded numbers could become infinite. */
const MAX_MS = 30 * 86_400_000;
const milliseconds = z.number().nonnegative().max(MAX_MS);
const used = z.object({
  instance: number,
  cpuMs: milliseconds,
  memoryBytes: number,
  /** Number of platform calls. */
  calls: number,
});

const schema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('ready') }),
  /**
   * Shows that the sandbox's event loop turns. `used` has the instances with new usage. `ready` is the number of ready instances, which were made
   * in advance for later launches.
   */
  z.object({ kind: z.literal('beat'), used: z.array(used).max(MAX_INSTANCES), ready: number }),
  z.object({
    kind: z.literal('prepared'),
    instance: number,
    /** True when the sandbox took a ready instance instead of making one. */
    ready: z.boolean(),
    compileMs: milliseconds,
    instantiateMs: milliseconds,
  }),
  /** The sandbox has received the token tables of a model. */
  z.object({ kind: z.literal('vocabulary'), model: z.string().max(1024) }),
  /** The sandbox could not make an instance. */
  z.object({ kind: z.literal('unprepared'), instance: number, message: z.string().max(MAX_TEXT_CHARACTERS) }),
]);

/** Usage of an instance, without the CPU time that the runtime charged. */
export type InstanceUsed = Readonly<z.infer<typeof used>>;
/** Messages from a sandbox to its runtime, which treats them as untrusted data. */
export type FromSandbox = Readonly<z.infer<typeof schema>>;

/** Parses a sandbox's message. @throws ChannelFault when it is not a valid {@link FromSandbox} */
export function readFromSandbox(message: unknown): FromSandbox {
  const read = schema.safeParse(message);
  if (read.success) return read.data;
  throw new ChannelFault(
    'bad-value',
    `the sandbox sent an invalid message: ${z.prettifyError(read.error).slice(0, 200)}`,
  );
}
