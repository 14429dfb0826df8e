import { createHash, type Hash } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { basename } from 'node:path';
import { ModelError } from './errors.ts';
import { expectedTensors, type LoadedModel } from './load.ts';
import type { TensorInfo } from './safetensors.ts';

/** What keys and values were made by: those of one fingerprint mean nothing to another. */
export interface Fingerprint {
  /** For people: the model's directory, and how it is run. */
  readonly name: string;
  /** SHA-256, hexadecimal; equal exactly when keys and values can be exchanged, as far as samples of the weights can tell. */
  readonly hash: string;
}

/** How a model is run, as far as it decides what its keys and values are and how they lie. */
export interface FingerprintOptions {
  readonly backend: string;
  /** Bits of the weights, and of the output head. */
  readonly bits: number;
  readonly headBits: number;
  /** Where as many bits may mean different numbers: which. */
  readonly precision?: string;
  /** How keys and values are kept, where not as they are computed. */
  readonly kv?: string;
  /** Slots of a page. */
  readonly pageSize: number;
}

/** Raised when backends change what their pages hold. */
const LAYOUT_VERSION = 1;

/** Of each tensor: blocks spread evenly from its first to its last byte. Tensors no larger than all of them are read whole. */
const SAMPLE_BLOCKS = 16;
const SAMPLE_BLOCK_BYTES = 4096;

/**
 * The fingerprint of a model: its config, the names, types and shapes of its tensors, samples of their values, and how it is run. Reads at most
 * 64 KiB a tensor, so that 16 GB of weights take as long as 100 MB. Where the model lies does not matter.
 *
 * @throws ModelError `malformed-weights` when a file ends before a tensor does
 */
export function fingerprint(model: LoadedModel, options: FingerprintOptions): Fingerprint {
  const { backend, bits, headBits, precision, kv, pageSize } = options;
  const hash = createHash('sha256');
  const run = [backend, bits, headBits, pageSize, ...(precision ? [precision] : []), ...(kv ? [{ kv }] : [])];
  addText(hash, JSON.stringify([LAYOUT_VERSION, ...run]));
  addText(hash, canonical(model.config));
  const descriptors = new Map<string, number>();
  try {
    for (const [name] of expectedTensors(model.config)) {
      const info = model.tensors.info(name);
      addText(hash, JSON.stringify([name, info.dtype, info.shape]));
      let fd = descriptors.get(info.file);
      if (fd === undefined) {
        fd = openSync(info.file, 'r');
        descriptors.set(info.file, fd);
      }
      addSamples(hash, fd, info);
    }
  } finally {
    for (const fd of descriptors.values()) closeSync(fd);
  }
  return {
    name: `${basename(model.directory)} (${backend}, ${precision ?? `${bits}/${headBits} bits`}${kv ? `, keys and values ${kv}` : ''}, pages of ${pageSize})`,
    hash: hash.digest('hex'),
  };
}

function addSamples(hash: Hash, fd: number, info: TensorInfo): void {
  const whole = info.bytes <= SAMPLE_BLOCKS * SAMPLE_BLOCK_BYTES;
  const length = whole ? info.bytes : SAMPLE_BLOCK_BYTES;
  const block = Buffer.alloc(length);
  for (let i = 0; i < (whole ? 1 : SAMPLE_BLOCKS); i++) {
    const start = whole ? 0 : Math.floor(((info.bytes - length) * i) / (SAMPLE_BLOCKS - 1));
    for (let done = 0; done < length; ) {
      const read = readSync(fd, block, done, length - done, info.offset + start + done);
      if (read === 0) throw new ModelError('malformed-weights', `${info.file}: it ends inside a tensor`);
      done += read;
    }
    hash.update(block);
  }
}

/** Preceded by its length, so that no two sequences of texts are the same bytes. */
function addText(hash: Hash, text: string): void {
  const bytes = Buffer.from(text);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(bytes.length);
  hash.update(length).update(bytes);
}

/** JSON with its keys in order. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === 'object' && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}
