import { z } from 'zod';
import { ChannelFault } from '../channel/limits.ts';

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
