import { z } from 'zod';
import { ChannelFault } from '../channel/fault.ts';
import type { FromSandbox } from './messages.ts';

const MAX_TEXT_CHARACTERS = 64 << 10;
const MAX_INSTANCES = 4096;

const number = z.int().nonnegative();
/** A compromised sandbox may report any number; sums of larger numbers could become infinite. */
const MAX_MS = 30 * 86_400_000;
const milliseconds = z.number().nonnegative().max(MAX_MS);
const used = { instance: number, cpuMs: milliseconds, memoryBytes: number, calls: number };

const schema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('ready') }),
  z.object({ kind: z.literal('beat'), used: z.array(z.object(used)).max(MAX_INSTANCES), ready: number }),
  z.object({
    kind: z.literal('prepared'),
    instance: number,
    ready: z.boolean(),
    compileMs: milliseconds,
    instantiateMs: milliseconds,
  }),
  z.object({ kind: z.literal('vocabulary'), model: z.string().max(1024) }),
  z.object({ kind: z.literal('unprepared'), instance: number, message: z.string().max(MAX_TEXT_CHARACTERS) }),
]);

/** Parses a sandbox's message. @throws ChannelFault when it is not a valid {@link FromSandbox} */
export function readFromSandbox(message: unknown): FromSandbox {
  const read = schema.safeParse(message);
  if (read.success) return read.data;
  throw new ChannelFault(
    'bad-value',
    `the sandbox sent an invalid message: ${z.prettifyError(read.error).slice(0, 200)}`,
  );
}
