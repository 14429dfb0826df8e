import { createHash } from 'node:crypto';
import { readdirSync, type Stats, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CATALOG, type CatalogModel, catalogModel } from './catalog.ts';
import { partNames } from './convert/gguf/split.ts';
import { ModelError } from './errors.ts';

/** Folders of a model's directory from which a conversion reads. */
const READ_FOLDERS = ['onnx', '1_Pooling'];

/** A parsed model source. */
export type ModelSource =
  | { readonly kind: 'catalog'; readonly model: CatalogModel }
  | { readonly kind: 'npm'; readonly package: string; readonly version: string }
  | { readonly kind: 'hub'; readonly id: string; readonly revision: string; readonly file?: string }
  | { readonly kind: 'file'; readonly path: string };

/**
 * Parses `stories15m`, `npm:NAME[@VERSION]`, `hf:OWNER/MODEL[/FILE.gguf][@REVISION]`, `file:PATH`, or a path that cannot be a name: it begins
 * with `/`, `./` or `../`, or ends with `.gguf`.
 *
 * @throws ModelError `unknown-model` or `invalid-source`
 */
export function parseSource(text: string): ModelSource {
  const catalogEntry = catalogModel(text);
  if (catalogEntry !== undefined) return { kind: 'catalog', model: catalogEntry };
  if (/^\.{0,2}\/|^[^:]+\.gguf$/i.test(text)) return { kind: 'file', path: resolve(text) };
  const [, scheme, location = ''] = /^(npm|hf|file):(.+)$/.exec(text) ?? [];
  switch (scheme) {
    case 'npm': {
      const [, name, version] = /^((?:@[\w.-]+\/)?[\w][\w.-]*)(?:@([\w.+-]+))?$/.exec(location) ?? [];
      if (name === undefined) throw invalid(text, 'npm:NAME or npm:NAME@VERSION');
      return { kind: 'npm', package: name, version: version ?? 'latest' };
    }
    case 'hf': {
      // An id has one part or two. The lookbehind allows a file only behind an id with two (OWNER/MODEL).
      const [, id, file, revision] =
        /^(\w[\w.-]*(?:\/\w[\w.-]*)?)(?:(?<=\/[^/]+)\/((?:\w[\w.+-]*\/)*\w[\w.+-]*\.gguf))?(?:@(\w[\w./-]*))?$/i.exec(
          location,
        ) ?? [];
      if (id === undefined || revision?.includes('..'))
        throw invalid(text, 'hf:OWNER/MODEL, hf:OWNER/MODEL/FILE.gguf, or one of them with @REVISION');
      return { kind: 'hub', id, revision: revision ?? 'main', ...(file !== undefined && { file }) };
    }
    case 'file':
      return { kind: 'file', path: location.startsWith('//') ? pathOfUrl(text) : resolve(location) };
    default:
      throw new ModelError('unknown-model', `there is no model "${text}"`, {
        hint: `known models: ${CATALOG.map(({ name }) => name).join(', ')}; or npm:NAME[@VERSION], hf:OWNER/MODEL[/FILE.gguf][@REVISION], file:PATH`,
      });
  }
}

/** The path that a `file://` URL names. */
function pathOfUrl(text: string): string {
  try {
    return fileURLToPath(text);
  } catch (cause) {
    throw new ModelError('invalid-source', `"${text}" names no file of this machine`, {
      hint: 'write file:PATH, or file:///PATH with three slashes and no host',
      cause,
    });
  }
}

/**
 * The name of the model's directory in the cache, readable by a person. For a path, it changes with the sizes and times of the files there. For a
 * package or a Hub model, it contains the version or the revision (none for `main`), and stays the same when new
 * content is published as `latest` or on a branch.
 */
export function cacheName(source: ModelSource): string {
  switch (source.kind) {
    case 'catalog':
      return source.model.name;
    case 'npm':
      return flatten('npm', source.package, source.version);
    case 'hub': {
      const { id, file, revision } = source;
      const revisionParts = revision === 'main' ? [] : [revision];
      if (file === undefined) return flatten('hf', id, ...revisionParts);
      // Without the digest, `x/y.gguf` and `x--y.gguf` would have one name.
      return flatten('hf', id, file, ...revisionParts, digest(JSON.stringify([id, file, revision])));
    }
    case 'file': {
      const stats = statOf(source.path);
      const identity = [source.path, describe(stats), ...othersOf(source.path, stats)];
      return flatten('file', basename(source.path), digest(identity.join('\n')));
    }
  }
}

/** The other files that a conversion may read, with sizes and times. */
function othersOf(path: string, stats: Stats | undefined): string[] {
  if (stats?.isDirectory()) return [...filesOf(path), ...READ_FOLDERS.flatMap((folder) => filesOf(join(path, folder)))];
  // A llama2.c checkpoint has its tokenizer beside it, the first part of a GGUF model the other parts.
  const beside = path.endsWith('.bin') ? ['tokenizer.bin'] : (partNames(basename(path)) ?? []).slice(1);
  return beside.map((name) => describe(statOf(join(dirname(path), name))));
}

/** Names, sizes and times of a directory's entries. */
const filesOf = (directory: string): string[] =>
  namesIn(directory).map((name) => `${name}\n${describe(statOf(join(directory, name)))}`);

/** Empty for a folder that cannot be read: a conversion cannot read it either. */
function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory).sort();
  } catch {
    return [];
  }
}

function statOf(path: string): Stats | undefined {
  return statSync(path, { throwIfNoEntry: false });
}

function describe(stats: Stats | undefined): string {
  return `${stats?.size}\n${stats?.mtimeMs}`;
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 12);
}

function flatten(...parts: string[]): string {
  return parts.join('--').replaceAll('/', '--');
}

function invalid(text: string, form: string): ModelError {
  return new ModelError('invalid-source', `"${text}" is not a model source`, { hint: `write ${form}` });
}
