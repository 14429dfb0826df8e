import { existsSync, readdirSync, statSync } from 'node:fs';
import { readdir, rename } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { convertLlama2c, type FileSlice } from './convert/llama2c.ts';
import { convertOnnxQ8, copySideFiles } from './convert/onnx-q8.ts';
import { saysQuantized } from './convert/quantized/config.ts';
import { ModelError } from './errors.ts';
import { readJson } from './load.ts';

/** Format of a model to import; paths are relative to the model's directory. */
export type ImportLayout =
  | { readonly kind: 'huggingface' }
  | { readonly kind: 'onnx-q8'; readonly graph: string }
  | { readonly kind: 'gguf'; readonly file: string }
  | { readonly kind: 'llama2c'; readonly checkpoint: FileSlice; readonly tokenizer: FileSlice };

const ONNX_GRAPHS = [
  'onnx/model_quantized.onnx',
  'onnx/model_int8.onnx',
  'onnx/model_uint8.onnx',
  'model_quantized.onnx',
];

/**
 * Detects the format of a directory, of a GGUF file, or of a llama2.c checkpoint file with its tokenizer.bin beside it.
 *
 * @throws ModelError `invalid-source` when the format is unknown
 */
export function detectLayout(path: string): { root: string; layout: ImportLayout } {
  if (path.endsWith('.bin') && isFile(path)) {
    return {
      root: dirname(path),
      layout: { kind: 'llama2c', checkpoint: { file: basename(path) }, tokenizer: { file: 'tokenizer.bin' } },
    };
  }
  if (isGguf(path) && isFile(path)) return { root: dirname(path), layout: { kind: 'gguf', file: basename(path) } };
  if (existsSync(join(path, 'config.json'))) {
    if (['model.safetensors', 'model.safetensors.index.json'].some((name) => existsSync(join(path, name)))) {
      return { root: path, layout: { kind: 'huggingface' } };
    }
    const graph = ONNX_GRAPHS.find((name) => existsSync(join(path, name)));
    if (graph !== undefined) return { root: path, layout: { kind: 'onnx-q8', graph } };
  }
  const files = ggufFiles(path);
  const [file] = files;
  if (file !== undefined && files.length === 1) return { root: path, layout: { kind: 'gguf', file } };
  if (files.length > 1) {
    throw new ModelError('invalid-source', `${path} holds ${files.length} GGUF files`, {
      hint: `name one of them: ${files.slice(0, 8).join(', ')}`,
    });
  }
  throw new ModelError('invalid-source', `${path} holds no model that Pie can read`, {
    hint: 'Pie reads: Hugging Face layout (config.json, *.safetensors), a .gguf file, an ONNX export with 8-bit weights, a llama2.c .bin with tokenizer.bin',
  });
}

/** True when a directory in Hugging Face layout needs no conversion, so that Pie can use it in place. */
export async function isUsedInPlace(directory: string): Promise<boolean> {
  return !saysQuantized(await readJson(join(directory, 'config.json')));
}

/** True for the path or name of a GGUF file. */
export function isGguf(path: string): boolean {
  return path.toLowerCase().endsWith('.gguf');
}

/** True only for a regular file. It is false for a named pipe, on which a reader could wait forever. */
function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

function ggufFiles(directory: string): string[] {
  if (statSync(directory, { throwIfNoEntry: false })?.isDirectory() !== true) return [];
  return readdirSync(directory)
    .filter((name) => isGguf(name) && isFile(join(directory, name)))
    .sort();
}

/** Brings the model in `root` into Hugging Face layout in `directory`; moves weights that need no conversion. @throws ModelError */
export async function importModel(
  root: string,
  layout: ImportLayout,
  directory: string,
  onProgress: (done: number, total: number) => void = () => {},
): Promise<void> {
  switch (layout.kind) {
    case 'llama2c': {
      const inRoot = (slice: FileSlice): FileSlice => ({ ...slice, file: join(root, slice.file) });
      await convertLlama2c(
        { checkpoint: inRoot(layout.checkpoint), tokenizer: inRoot(layout.tokenizer) },
        directory,
        onProgress,
      );
      return;
    }
    case 'onnx-q8':
      await convertOnnxQ8(root, layout.graph, directory, onProgress);
      return;
    case 'gguf': {
      const { convertGguf } = await import('./convert/gguf/convert.ts');
      await convertGguf(join(root, layout.file), directory, onProgress);
      return;
    }
    case 'huggingface': {
      if (!(await isUsedInPlace(root))) {
        const { convertQuantized } = await import('./convert/quantized/convert.ts');
        await convertQuantized(root, directory, onProgress);
        return;
      }
      const weights = (await readdir(root)).filter((name) => /\.safetensors(\.index\.json)?$/.test(name));
      for (const [index, name] of weights.entries()) {
        // `root` lies inside `directory`, so this is one file system.
        await rename(join(root, name), join(directory, name));
        onProgress(index + 1, weights.length);
      }
      await copySideFiles(root, directory);
    }
  }
}
