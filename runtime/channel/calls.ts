import type { ChannelCall } from '#wit/generate/channel-io.ts';
import { CHANNEL_CALLS, CHANNEL_RESOURCES } from '#wit/generated/channel.ts';
import type { HostTable } from '../lowering/compile.ts';

/** Numbers of the calls, by interface and core name. */
const numbers = new Map(CHANNEL_CALLS.map((call, number) => [`${call.interface}#${call.name}`, number] as const));

/** Number of a call; undefined for a function that does not use the channel. */
export const callNumber = (interfaceName: string, name: string): number | undefined =>
  numbers.get(`${interfaceName}#${name}`);

/** Hash (FNV-1a) of the calls, which both ends must number equally. The text of a codec stands for its types. */
export const FINGERPRINT: number = [
  ...CHANNEL_CALLS.map((call) => `${call.interface}#${call.name}${call.writeArguments}${call.writeResult}`),
  ...CHANNEL_RESOURCES,
].reduce(
  (hash, text) => [...text].reduce((h, c) => Math.imul(h ^ (c.codePointAt(0) ?? 0), 0x0100_0193) >>> 0, hash),
  0x811c_9dc5,
);

/** Flags of an answer. */
export const ANSWER = {
  /** A value follows. */
  value: 0,
  /** A value follows. The sandbox must tell the runtime when the guest has read or dropped the future. */
  kept: 1,
  /** The guest has already dropped the future. */
  gone: 2,
} as const;

type HostCall = (context: unknown, ...args: unknown[]) => unknown;

/** The host's functions, indexed by call number. @throws TypeError when the host lacks one */
export function hostCalls(host: HostTable): readonly HostCall[] {
  return CHANNEL_CALLS.map((call: ChannelCall) => {
    const fn = host[call.interface]?.[call.name];
    if (!fn) throw new TypeError(`the host does not implement ${call.interface} ${call.name}`);
    return fn as unknown as HostCall;
  });
}
