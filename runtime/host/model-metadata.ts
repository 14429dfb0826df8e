import { join } from 'node:path';
import { z } from 'zod';
import { parseConfig } from '#gpu-host/models/config.ts';
import { expectedTensors, readJson } from '#gpu-host/models/load.ts';
import { readVision } from '#gpu-host/models/vision/read.ts';
import { expectedVisionTensors } from '#gpu-host/models/vision/tensors.ts';
import type { ModelSummary } from '#gpu-host/protocol/client.ts';
import type { ModelMetadata } from '#wit/generated/host.ts';

const namesSchema = z.looseObject({ architectures: z.array(z.string()).nullish() });

/** A model's metadata from its directory; the GPU host gives the weights' bits. @throws ModelError when the directory cannot be read */
export async function readMetadata({ directory, bits }: ModelSummary): Promise<ModelMetadata> {
  const file = await readJson(join(directory, 'config.json'));
  const config = parseConfig(file);
  const names = namesSchema.safeParse(file);
  const vision = await readVision(directory);
  const tensors = [...expectedTensors(config), ...(vision ? expectedVisionTensors(vision) : [])];
  const parameters = tensors.reduce(
    (sum, [, shape]) => sum + BigInt(shape.reduce((product, size) => product * size, 1)),
    0n,
  );
  return {
    architecture: (names.success && names.data.architectures?.[0]) || config.family,
    parameters,
    layers: config.layers,
    hiddenSize: config.hiddenSize,
    attentionHeads: config.heads,
    keyValueHeads: config.kvHeads,
    headSize: config.headDim,
    bits,
  };
}
