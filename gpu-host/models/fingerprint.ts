import { createHash, type Hash } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { basename } from 'node:path';
import { ModelError } from './errors.ts';
import { expectedTensors, type LoadedModel } from './load.ts';
import type { StoredRange } from './safetensors.ts';
import { partsOf } from './tensors.ts';

/** Identifies the model and the settings that computed keys and values. Keys and values are valid only for an equal fingerprint. */
export interface Fingerprint {
  /** Text for people: the model's directory and its run settings. */
  readonly name: string;
  /** SHA-256, hexadecimal; equal exactly when keys and values are interchangeable, as far as samples of the weights can tell. */
  readonly hash: string;
}

/** The run settings that decide a model's keys and values and their layout. */
export interface FingerprintOptions {
  readonly backend: string;
  /** Bits of the weights, except those of the output head. */
  readonly bits: number;
  /** Bits of the output head's weights. */
  readonly headBits: number;
  /** Number format, where the number of bits alone does not determine it. */
  readonly precision?: string;
  /** Format of stored keys and values, when it differs from the format of the computation. */
  readonly kv?: string;
  /** Number of slots in a page. */
  readonly pageSize: number;
}

/** Raise this version when backends change the contents of their pages. */
const LAYOUT_VERSION = 1;

/** Number of blocks sampled per tensor, spread evenly from its first to its last byte. A tensor that is not larger than all blocks is read whole. */
const SAMPLE_BLOCKS = 16;
const SAMPLE_BLOCK_BYTES = 4096;

/**
 * The fingerprint of a model: its config, the names, types and shapes of its tensors, samples of their values, and its run settings. Reads
 * at most 64 KiB per tensor, so 16 GB of weights take as long as 100 MB. The model's path does not affect the hash.
 *
 * @throws ModelError `malformed-weights` when a file ends before a tensor does
 */
export function fingerprint(model: LoadedModel, options: FingerprintOptions): Fingerprint {
  const { backend, bits, headBits, precision, kv, pageSize } = options;
  const hash = createHash('sha256');
  const runSettings = [backend, bits, headBits, pageSize, ...(precision ? [precision] : []), ...(kv ? [{ kv }] : [])];
  addText(hash, JSON.stringify([LAYOUT_VERSION, ...runSettings]));
  addText(hash, canonical(model.config));
  const descriptors = new Map<string, number>();
  try {
    for (const [name] of expectedTensors(model.config)) {
      const storedParts = partsOf(model.tensors.info(name));
      for (const { dtype, shape } of storedParts) addText(hash, JSON.stringify([name, dtype, shape]));
      for (const each of storedParts) {
        const fd = descriptors.get(each.file) ?? openSync(each.file, 'r');
        descriptors.set(each.file, fd);
        addSamples(hash, fd, each);
      }
    }
  } finally {
    for (const fd of descriptors.values()) closeSync(fd);
  }
  const format = precision ?? `${bits}/${headBits} bits`;
  const kvFormat = kv ? `, keys and values ${kv}` : '';
  return {
    name: `${basename(model.directory)} (${backend}, ${format}${kvFormat}, pages of ${pageSize})`,
    hash: hash.digest('hex'),
  };
}

function addSamples(hash: Hash, fd: number, info: StoredRange): void {
  const isReadWhole = info.bytes <= SAMPLE_BLOCKS * SAMPLE_BLOCK_BYTES;
  const length = isReadWhole ? info.bytes : SAMPLE_BLOCK_BYTES;
  const block = Buffer.alloc(length);
  for (let i = 0; i < (isReadWhole ? 1 : SAMPLE_BLOCKS); i++) {
    const start = isReadWhole ? 0 : Math.floor(((info.bytes - length) * i) / (SAMPLE_BLOCKS - 1));
    for (let filledBytes = 0; filledBytes < length; ) {
      const bytesRead = readSync(fd, block, filledBytes, length - filledBytes, info.offset + start + filledBytes);
      if (bytesRead === 0) throw new ModelError('malformed-weights', `${info.file}: it ends inside a tensor`);
      filledBytes += bytesRead;
    }
    hash.update(block);
  }
}

/** Hashes a text after its length, so that different sequences of texts never give the same bytes. */
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
