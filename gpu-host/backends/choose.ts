import { existsSync } from 'node:fs';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { ModelError } from '#gpu-host/models/errors.ts';
import { expectedTensors, type LoadedModel } from '#gpu-host/models/load.ts';
import { isPacked, type TensorInfo } from '#gpu-host/models/tensors.ts';
import { CUDA_TRAITS, lackingTraits, ONNX_TRAITS } from './traits.ts';

/** A backend and the reason why `backend = "auto"` took it. */
export interface Choice {
  readonly backend: 'cuda' | 'ggml' | 'onnx';
  readonly reason: string;
}

/** The part of a machine that decides a choice. A text is a reason against a backend; undefined when there is none. */
export interface Machine {
  readonly withoutCuda: string | undefined;
  /** Name of the GPU that ggml found, or why it found none. */
  readonly ggmlGpu: { readonly name: string } | { readonly without: string };
  /** Why ggml cannot be used at all. */
  readonly withoutGgml: string | undefined;
}

/** The form of a model's weights that decides how fast ONNX Runtime is: its own blocks and floats, or blocks of ggml that it would widen to floats. */
export type WeightForm = 'own' | 'packed';

/** The form of a model's matrices. */
export function weightForm({ config, tensors }: LoadedModel): WeightForm {
  const isPacked = expectedTensors(config).some(([name]) => needsWidening(tensors.info(name)));
  return isPacked ? 'packed' : 'own';
}

/**
 * The backend for a model on a machine: `cuda` where it is built; else a GPU through `ggml`; else, on the CPU, `onnx` for weights that it multiplies as
 * they are, and `ggml` for the others. A backend that lacks a trait of the model is passed over.
 *
 * @throws ModelError `unsupported-model` when no backend computes the model, with each backend's reason
 */
export function chooseBackend(config: ModelConfig, form: WeightForm, machine: Machine): Choice {
  const { withoutCuda, withoutGgml, ggmlGpu } = machine;
  const lacks = (traits: ReturnType<typeof lackingTraits>) =>
    traits.length > 0 ? `it lacks ${traits.join(', ')}` : undefined;
  const againstCuda = withoutCuda ?? lacks(lackingTraits(config, CUDA_TRAITS));
  if (againstCuda === undefined) return { backend: 'cuda', reason: 'its kernels are built, and there is a card' };
  if (withoutGgml === undefined && 'name' in ggmlGpu) return { backend: 'ggml', reason: `it found ${ggmlGpu.name}` };
  const againstOnnx = lacks(lackingTraits(config, ONNX_TRAITS));
  if (againstOnnx === undefined && (form === 'own' || withoutGgml !== undefined)) {
    const reason =
      form === 'own'
        ? 'no GPU was found, and it is the fastest on the CPU'
        : `no GPU was found, and ggml is missing: ${withoutGgml}`;
    return { backend: 'onnx', reason };
  }
  if (withoutGgml === undefined) {
    const reason =
      againstOnnx === undefined
        ? 'it multiplies the blocks of the file as they are'
        : `onnx does not compute the model: ${againstOnnx}`;
    return { backend: 'ggml', reason: `no GPU was found; ${reason}` };
  }
  throw new ModelError(
    'unsupported-model',
    `no backend computes this model: cuda (${againstCuda}), ggml (${withoutGgml}), onnx (${againstOnnx})`,
  );
}

/** Looks for cards, GPUs and libraries on this machine. Opens ggml's libraries only when `needsGgml`, or when there may be a GPU. */
export async function lookAtMachine(needsGgml: boolean): Promise<Machine> {
  const withoutCuda = await reasonAgainstCuda();
  const mayHaveGpu = GPU_DEVICES.some((path) => existsSync(path)) || process.env.GGML_VK_VISIBLE_DEVICES !== undefined;
  if (!needsGgml && (!mayHaveGpu || withoutCuda === undefined))
    return { withoutCuda, withoutGgml: undefined, ggmlGpu: { without: 'there is no GPU' } };
  try {
    const { Ggml } = await import('./ggml/library.ts');
    const gpu = (await Ggml.open()).devices.find(({ isGpu }) => isGpu);
    const ggmlGpu = gpu ? { name: gpu.description } : { without: 'its libraries found no GPU' };
    return { withoutCuda, withoutGgml: undefined, ggmlGpu };
  } catch (error) {
    if (!(error instanceof ModelError)) throw error;
    return { withoutCuda, withoutGgml: error.message, ggmlGpu: { without: error.message } };
  }
}

/** Device files of GPUs: of the kernel's graphics drivers, of NVIDIA's, and of Windows' in WSL. */
const GPU_DEVICES = ['/dev/dri/renderD128', '/dev/nvidia0', '/dev/dxg'];
const CARD_DEVICES = ['/dev/nvidia0', '/dev/dxg'];

async function reasonAgainstCuda(): Promise<string | undefined> {
  if (!CARD_DEVICES.some((path) => existsSync(path))) return 'there is no NVIDIA card';
  const { ADDON_FILE } = await import('./cuda/addon.ts');
  return existsSync(ADDON_FILE) ? undefined : 'its kernels are not built (`npm run build:cuda`)';
}

/** True for weights that ONNX Runtime multiplies only once they are widened to floats. */
function needsWidening(info: TensorInfo): boolean {
  return isPacked(info) && info.shape.length > 1 && info.type.exact === undefined && info.type.plain === undefined;
}
