/** Fills `mb` MiB of memory and keeps them until its client sends a message, for tests of admission by memory. */
import { defineInferlet, receive, send } from '@pie/inferlet';

const MIB = 1024 * 1024;

export const run = defineInferlet(async ({ mb }: { mb: number }) => {
  const block = new Uint8Array(mb * MIB).fill(1);
  await send('holding');
  await receive();
  return block[block.length - 1];
});
