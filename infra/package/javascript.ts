import { stripTypeScriptTypes } from 'node:module';
import path from 'node:path';

/** Folders that hold the programs' sources. */
export const ROOMS: readonly string[] = ['gateway', 'runtime', 'scheduler', 'gpu-host', 'index-host', 'infra', 'wit'];

/** The guest library and the runtime share this module; the package holds it as JavaScript for the runtime. */
const SHARED_WITH_GUESTS = 'functions/sdk/src/stop.ts';

/** True for files that the package keeps as TypeScript, to bundle for guests or copy into projects. `file` is relative to the root. */
export function staysTypeScript(file: string): boolean {
  return file !== SHARED_WITH_GUESTS && /^(functions|gateway\/cli\/templates)\//.test(file);
}

/** `from '…'`, `import '…'`, `import('…')`. */
const IMPORT = /(\b(?:from|import)\s*\(?\s*)'([^'\n]+)'/g;
/**
 * A whole statement that imports an npm package. A shorter pattern, like `IMPORT`, also matches text in strings. For a file, staging then fails if
 * the file does not exist; for a package, it might add one that no module imports.
 */
const PACKAGE = /^(?:(?:import|export)\b[^;'"=]*?\bfrom|import)\s*'((?:@[\w.-]+\/)?[\w.-]+)[^'\n]*'/gm;
/** `new URL('…', import.meta.url)`: a file beside the module. */
const BESIDE = /(\bnew URL\(\s*)'([^'\n]+)'(?=,\s*import\.meta\.url)/g;
/** `'runtime/main.ts'`: a program, by its path below the root. */
const PROGRAM = new RegExp(`'((?:${ROOMS.join('|')})/[^'\\n]+\\.[jt]s)'`, 'g');

/** A module as JavaScript. */
interface JavaScript {
  readonly text: string;
  /** Modules of this repository that the module refers to, by their paths in the clone, relative to the root. */
  readonly files: readonly string[];
  /** npm packages that the module imports. */
  readonly packages: readonly string[];
}

/**
 * Turns a module into JavaScript. Spaces replace the types, so stack traces keep the source's lines and columns. References to modules that
 * also become JavaScript get their new names.
 * @param file path relative to the root
 */
export function toJavaScript(file: string, source: string): JavaScript {
  const files = new Set<string>();
  /** Notes the module `target`, a path relative to the root. Returns the specifier under which the JavaScript finds it. */
  const refer = (target: string, specifier: string): string => {
    if (!/\.[jt]s$/.test(target)) return specifier;
    files.add(target);
    return staysTypeScript(target) ? specifier : specifier.replace(/\.ts$/, '.js');
  };
  const siblingPath = (specifier: string) => path.posix.join(path.posix.dirname(file), specifier);
  const stripped = file.endsWith('.ts') ? stripTypeScriptTypes(source) : source;
  const text = stripped
    .replace(IMPORT, (statement, prefix: string, specifier: string) => {
      if (specifier.startsWith('.')) return `${prefix}'${refer(siblingPath(specifier), specifier)}'`;
      return specifier.startsWith('#') ? `${prefix}'${refer(specifier.slice(1), specifier)}'` : statement;
    })
    .replace(BESIDE, (_, prefix: string, specifier: string) => `${prefix}'${refer(siblingPath(specifier), specifier)}'`)
    .replace(PROGRAM, (_, program: string) => `'${refer(program, program)}'`);
  return { text, files: [...files], packages: packagesOf(stripped) };
}

/** npm packages that a module imports. */
export function packagesOf(source: string): string[] {
  // The pattern reads `.` from `./a.ts`, `node` from `node:fs`, and `pie` from `pie:inferlet/types@0.1.0`, a module of the contract.
  return [...source.matchAll(PACKAGE)].map(([, name = '']) => name).filter((name) => !/^[.]|^(node|pie)$/.test(name));
}
