import { existsSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { ModelError } from '../../errors.ts';
import { type GgufHeader, type GgufTensor, type HeaderOptions, readGgufHeader } from './header.ts';

/** Maximum parts of a model. Real ones have at most some dozens. */
const MAX_PARTS = 1000;

/** Header of a model of one file or of several parts: the metadata of the first part, and the tensors of all parts. */
export interface GgufModel extends GgufHeader {
  /** The first part comes first. */
  readonly files: readonly string[];
}

/** Name of a part as llama.cpp writes it: `NAME-00002-of-00003.gguf`. */
const PART = /^(.+)-(\d{5})-of-(\d{5})(\.gguf)$/i;

/**
 * The names of all parts of the model to which a part of this name belongs; null if the name is not that of a part.
 * @throws ModelError `invalid-source` when the name is not that of the first part
 */
export function partNames(name: string): string[] | null {
  const [, prefix = '', part, count, suffix = ''] = PART.exec(name) ?? [];
  const parts = Number(count);
  if (part === undefined || parts < 1 || parts > MAX_PARTS) return null;
  if (Number(part) !== 1)
    throw new ModelError('invalid-source', `${name} is part ${Number(part)} of ${parts} of a model`, {
      hint: `name the first part: ${partName(prefix, 1, parts, suffix)}`,
    });
  return Array.from({ length: parts }, (_, i) => partName(prefix, i + 1, parts, suffix));
}

export function partName(prefix: string, part: number, parts: number, suffix = '.gguf'): string {
  const digits = (number: number) => String(number).padStart(5, '0');
  return `${prefix}-${digits(part)}-of-${digits(parts)}${suffix}`;
}

/**
 * Reads the header of a GGUF file, and of the other parts of its model if it is the first of several parts, which lie beside it. The parts must
 * agree on their number, and together have each tensor once, and as many tensors as the first part says.
 *
 * @throws ModelError as {@link readGgufHeader}; `missing-file` when a part is missing, `invalid-source` for a part that is not the first
 */
export function readGguf(file: string, options: HeaderOptions = {}): GgufModel {
  const first = readGgufHeader(file, options);
  const parts = first.metadata.get('split.count') ?? 1;
  if (parts === 1) return { ...first, files: [file] };
  const names = partNames(basename(file));
  if (names === null || names.length !== parts)
    throw new ModelError(
      'malformed-weights',
      `${file} is one of ${String(parts)} parts, and its name does not say so`,
      {
        hint: `the parts need the names that llama.cpp gives them: ${partName('NAME', 1, typeof parts === 'number' ? parts : 2)}`,
      },
    );
  const files = names.map((name) => join(dirname(file), name));
  const tensors = new Map<string, GgufTensor>();
  for (const [index, each] of files.entries()) {
    if (!existsSync(each))
      throw new ModelError('missing-file', `${each} is missing: the model has ${parts} parts`, {
        hint: 'fetch all parts into one folder',
      });
    const header = index === 0 ? first : readGgufHeader(each, options);
    const [number, count] = [header.metadata.get('split.no'), header.metadata.get('split.count')];
    if (number !== index || count !== parts)
      throw new ModelError(
        'malformed-weights',
        `${each} says that it is part ${Number(number) + 1} of ${String(count)}`,
        {
          hint: 'the parts belong to different models: fetch all of them again',
        },
      );
    for (const [name, tensor] of header.tensors) {
      if (tensors.has(name))
        throw new ModelError('malformed-weights', `${each}: an earlier part has the tensor "${name}", too`);
      tensors.set(name, tensor);
    }
  }
  const total = first.metadata.get('split.tensors.count');
  if (total !== tensors.size)
    throw new ModelError(
      'malformed-weights',
      `${file}: its parts have ${tensors.size} tensors, and should have ${String(total)}`,
      {
        hint: 'the parts belong to different models: fetch all of them again',
      },
    );
  return { metadata: first.metadata, tensors, files };
}
