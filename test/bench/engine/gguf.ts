import { writeFile } from 'node:fs/promises';
import { ggufFile, modelParts } from '#gpu-host/models/convert/gguf/testing/write.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';

export type GgufBits = 32 | 8 | 4;

const ENCODINGS = { 32: 'F32', 8: 'Q8_0', 4: 'Q4_0' } as const;

/** Writes a model as GGUF for llama.cpp, with generated names as the vocabulary: the benchmarks pass token ids. */
export async function writeGguf(model: LoadedModel, bits: GgufBits, file: string): Promise<void> {
  await writeFile(file, ggufFile(modelParts(model, ENCODINGS[bits])));
}
