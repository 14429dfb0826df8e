import { totalmem } from 'node:os';
import { defaultPages, kvSize, type ModelConfig } from './config.ts';
import { expectedTensors, type LoadedModel } from './load.ts';
import { formatBytes } from './progress.ts';
import { isBlocked, isPacked, partsOf } from './tensors.ts';

/** Bits of a weight that a configuration can ask for. */
export type PlannedBits = 32 | 8 | 4;

/** Bytes of a value in blocks, scales included. */
const BLOCK_BYTES = { 8: 1.125, 4: 0.625 } as const;
/** Part of the machine's memory that weights may take where the configuration names no bits. */
const WEIGHTS_PART = 0.5;
/** Slots of a page by default. */
const PAGE_SIZE = 16;

/** What a model takes of a machine's memory, on the CPU; bytes. */
export interface MemoryPlan {
  readonly bits: PlannedBits;
  readonly weights: number;
  /** Keys and values of one token. */
  readonly token: number;
  /** Tokens that the default pool holds. */
  readonly tokens: number;
  readonly contextLength: number;
  readonly machine: number;
}

/** Memory that this process may use: the machine's, or that of its container. */
export function machineMemory(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
}

/** Upper bound of the bytes that a model's weights take on the CPU. Matrices in blocks keep those of their file, where they have no more bits. */
export function weightBytes({ config, tensors }: Pick<LoadedModel, 'config' | 'tensors'>, bits: PlannedBits): number {
  return expectedTensors(config).reduce((sum, [name, shape]) => {
    const info = tensors.info(name);
    const values = shape.reduce((product, size) => product * size, 1);
    const isInBlocks = isBlocked(info) || (isPacked(info) && info.type.plain === undefined);
    const stored = isInBlocks ? partsOf(info).reduce((total, { bytes }) => total + bytes, 0) : 4 * values;
    return sum + (bits === 32 || shape.length === 1 ? stored : Math.min(stored, values * BLOCK_BYTES[bits]));
  }, 0);
}

/** The most bits with which a model's weights take at most half of the machine's memory; 4 where even these do not. */
export function bitsFor(model: Pick<LoadedModel, 'config' | 'tensors'>, machine: number): PlannedBits {
  const widths = [32, 8, 4] as const;
  return widths.find((bits) => weightBytes(model, bits) <= machine * WEIGHTS_PART) ?? 4;
}

/** @param machine bytes of the machine's memory */
export function memoryPlan(model: Pick<LoadedModel, 'config' | 'tensors'>, machine: number): MemoryPlan {
  const { config } = model;
  const bits = bitsFor(model, machine);
  return {
    bits,
    weights: weightBytes(model, bits),
    token: tokenBytes(config),
    tokens: PAGE_SIZE * defaultPages(config, PAGE_SIZE, machine),
    contextLength: config.contextLength,
    machine,
  };
}

/** Bytes of a token's keys and values in float32. */
function tokenBytes(config: ModelConfig): number {
  return 2 * config.layers * kvSize(config) * Float32Array.BYTES_PER_ELEMENT;
}

/** `weights 803 MB + keys and values 2.4 GB (36,864 tokens of 66 kB; a context has 32,768) of 25 GB`; says when the weights get fewer bits. */
export function planText({ bits, weights, token, tokens, contextLength, machine }: MemoryPlan): string {
  const number = (value: number) => value.toLocaleString('en');
  const fewer = bits === 32 ? '' : ` in ${bits} bits, because more would take over half of the memory`;
  const pool = `${number(tokens)} tokens of ${formatBytes(token)}; a context has ${number(contextLength)}`;
  return `weights ${formatBytes(weights)}${fewer} + keys and values ${formatBytes(token * tokens)} (${pool}) of ${formatBytes(machine)}`;
}
