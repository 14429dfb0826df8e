import type { Message } from '#wit/generated/host.ts';

/** Bytes of a message's content. */
export const messageBytes = ({ tag, val }: Message): number => (tag === 'text' ? Buffer.byteLength(val) : val.length);
