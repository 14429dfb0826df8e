import type { ChannelCall } from '#wit/generate/channel-io.ts';
import { CHANNEL_CALLS, CHANNEL_RESOURCES } from '#wit/generated/channel.ts';
import type { HostTable } from '../lowering/compile.ts';
import { ChannelFault } from './limits.ts';

/** Numbers of the calls, by interface and core name. */
const numbers = new Map(CHANNEL_CALLS.map((call, number) => [`${call.interface}#${call.name}`, number] as const));

/** Number of a call; undefined for a function that does not use the channel. */
export const callNumber = (interfaceName: string, name: string): number | undefined =>
  numbers.get(`${interfaceName}#${name}`);

const FNV_OFFSET_BASIS = 0x811c_9dc5;
const FNV_PRIME = 0x0100_0193;

/** Continues an FNV-1a hash with the characters of a text. */
const hashText = (hash: number, text: string): number =>
  [...text].reduce((h, c) => Math.imul(h ^ (c.codePointAt(0) ?? 0), FNV_PRIME) >>> 0, hash);

/** Hash of the calls and resources, which both ends must number equally. The source text of a call's codec represents the call's types. */
export const FINGERPRINT: number = [
  ...CHANNEL_CALLS.map((call) => `${call.interface}#${call.name}${call.writeArguments}${call.writeResult}`),
  ...CHANNEL_RESOURCES,
].reduce(hashText, FNV_OFFSET_BASIS);

/** Flags of the runtime's answer to a call. */
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

/** Maximum bytes of a control message from a sandbox to its runtime. */
export const MAX_CONTROL_BYTES = 1 << 20;

/** Encodes a control message, which belongs to no invocation: a JSON description and a body of bytes. */
export function encodeControl(description: unknown, body: Uint8Array = new Uint8Array(0)): Buffer {
  const json = Buffer.from(JSON.stringify(description));
  const payload = Buffer.allocUnsafe(4 + json.length + body.length);
  payload.writeUInt32LE(json.length, 0);
  json.copy(payload, 4);
  payload.set(body, 4 + json.length);
  return payload;
}

/** @throws ChannelFault for bytes that {@link encodeControl} does not write */
export function decodeControl(
  payload: Buffer,
  maxBytes = Number.POSITIVE_INFINITY,
): { description: unknown; body: Buffer } {
  if (payload.length > maxBytes) throw new ChannelFault('too-large', `a control message has ${payload.length} bytes`);
  const length = payload.length >= 4 ? payload.readUInt32LE(0) : Number.NaN;
  if (!(length <= payload.length - 4)) throw new ChannelFault('bad-frame', 'a control message is cut');
  try {
    const description: unknown = JSON.parse(payload.toString('utf8', 4, 4 + length));
    return { description, body: payload.subarray(4 + length) };
  } catch (cause) {
    throw new ChannelFault('bad-value', 'a control message is not JSON', { cause });
  }
}
