import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { INSTALLED, packageFolder, pinnedNode, ROOT } from '#infra/install.ts';
import { Failure } from '../failure.ts';

const PACK_LIMIT_MS = 120_000;
/** Program of a clone that writes the tarballs. An installed Pie lacks it. */
const PACKAGE_PROGRAM = path.join(ROOT, 'infra', 'package', 'main.ts');

/** File names of the tarballs of this Pie and its library, by package name. */
export type Tarballs = Readonly<Record<'pie' | '@pie/inferlet', string>>;

/** Writes the two tarballs: a clone makes them, an installed Pie packs itself again. Throws {@link Failure}, or the signal's reason. */
export async function vendor(folder: string, signal: AbortSignal): Promise<Tarballs> {
  // `run` listens for the abort, and a listener that is added after the abort is never called.
  signal.throwIfAborted();
  mkdirSync(folder, { recursive: true });
  try {
    if (INSTALLED) {
      const library = packageFolder('@pie/inferlet') ?? path.join(ROOT, 'node_modules/@pie/inferlet');
      const args = ['pack', '--ignore-scripts', '--loglevel=error', '--pack-destination', folder, ROOT, library];
      await run('npm', args, folder, signal);
    } else {
      await run(pinnedNode(), [PACKAGE_PROGRAM, folder], ROOT, signal);
    }
  } catch (cause) {
    signal.throwIfAborted();
    throw new Failure('The packages for the project could not be made.', {
      code: 'pack-failed',
      why: cause instanceof Error ? cause.message : String(cause),
      advice: 'Check that npm can be run, then try again.',
      cause,
    });
  }
  const files = readdirSync(folder);
  return { pie: tarball(files, 'pie-'), '@pie/inferlet': tarball(files, 'pie-inferlet-') };
}

/**
 * Runs a program to its end, with a temporary folder that is removed afterwards. An abort kills the program and its
 * children.
 */
async function run(program: string, args: readonly string[], cwd: string, signal: AbortSignal): Promise<void> {
  const temporaryFolder = mkdtempSync(path.join(os.tmpdir(), 'pie-new-'));
  const stopSignal = AbortSignal.any([signal, AbortSignal.timeout(PACK_LIMIT_MS)]);
  // Detached: the program gets a process group, so that a kill reaches its children.
  const child = spawn(program, args, {
    cwd,
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, TMPDIR: temporaryFolder },
  });
  const kill = () => {
    if (child.pid === undefined) return;
    try {
      process.kill(-child.pid, 'SIGKILL');
    } catch {
      // The group has ended already.
    }
  };
  stopSignal.addEventListener('abort', kill, { once: true });
  let stderrTail = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderrTail = (stderrTail + text).slice(-2000);
  });
  try {
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject).once('close', resolve);
    });
    if (code === 0) return;
    if (stopSignal.aborted && !signal.aborted) throw new Error(`it was not done within ${PACK_LIMIT_MS / 1000} s`);
    throw new Error(stderrTail.trim() || `${path.basename(program)} ended with ${code}`);
  } finally {
    stopSignal.removeEventListener('abort', kill);
    rmSync(temporaryFolder, { recursive: true, force: true, maxRetries: 10 });
  }
}

/**
 * Finds a tarball by its prefix. npm joins scope, name and version with dashes, so a digit, the beginning of the version, must follow
 * the prefix: `pie-` also fits `pie-inferlet-1.0.0.tgz`.
 */
function tarball(files: readonly string[], prefix: string): string {
  const found = files.find(
    (file) => file.endsWith('.tgz') && file.startsWith(prefix) && /\d/.test(file[prefix.length] ?? ''),
  );
  if (found === undefined) throw new Error(`npm made no ${prefix}….tgz`);
  return found;
}
