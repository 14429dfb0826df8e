import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { INSTALLED, packageFolder, pinnedNode, ROOT } from '#infra/install.ts';
import { Failure } from '../failure.ts';

const run = promisify(execFile);
const PACK_LIMIT_MS = 120_000;
/** Writes the tarballs of a clone; a package does not have it. */
const PACKAGE_PROGRAM = path.join(ROOT, 'infra', 'package', 'main.ts');

/** Tarballs of this Pie and its library, by package name, as names of files. */
export type Tarballs = Readonly<Record<'pie' | '@pie/inferlet', string>>;

/** Writes both packages into a folder: a clone makes them, an installed Pie packs itself again. Throws {@link Failure}. */
export async function vendor(folder: string, signal: AbortSignal): Promise<Tarballs> {
  mkdirSync(folder, { recursive: true });
  const options = { timeout: PACK_LIMIT_MS, killSignal: 'SIGKILL', signal } as const;
  try {
    if (INSTALLED) {
      const library = packageFolder('@pie/inferlet') ?? path.join(ROOT, 'node_modules/@pie/inferlet');
      const args = ['pack', '--ignore-scripts', '--loglevel=error', '--pack-destination', folder, ROOT, library];
      await run('npm', args, { ...options, cwd: folder });
    } else {
      await run(pinnedNode(), [PACKAGE_PROGRAM, folder], { ...options, cwd: ROOT });
    }
  } catch (cause) {
    signal.throwIfAborted();
    throw new Failure('The packages for the project could not be made.', {
      code: 'pack-failed',
      why: (cause as { stderr?: string }).stderr?.trim() || (cause instanceof Error ? cause.message : String(cause)),
      advice: 'Check that npm can be run, then try again.',
      cause,
    });
  }
  const files = readdirSync(folder);
  return { pie: tarball(files, 'pie-'), '@pie/inferlet': tarball(files, 'pie-inferlet-') };
}

/** The names are npm's: scope, name and version with dashes. */
function tarball(files: readonly string[], prefix: string): string {
  const found = files.find(
    (file) => file.endsWith('.tgz') && file.startsWith(prefix) && /\d/.test(file[prefix.length] ?? ''),
  );
  if (found === undefined) throw new Error(`npm made no ${prefix}….tgz`);
  return found;
}
