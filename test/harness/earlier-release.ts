import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { PROTOCOL_VERSIONS } from '#gpu-host/protocol/wire.ts';
import { commonVersion } from '#scheduler/links/versions.ts';
import { ROOT } from './platform.ts';

/** The variable that names the release to upgrade from: a commit, or the folder of a clone with installed packages. */
const VARIABLE = 'PIE_PREVIOUS';
/** The file that states which versions of the GPU protocol a release speaks. */
const PROTOCOL = 'gpu-host/protocol/wire.ts';

/** The code of an earlier release, unpacked from the history of this clone. */
export class EarlierRelease implements Disposable {
  /** Folder with the code of the release. */
  readonly root: string;
  /** Folder to remove in the end; undefined if the release was a folder already. */
  readonly #unpacked: string | undefined;

  private constructor(root: string, unpacked?: string) {
    this.root = root;
    this.#unpacked = unpacked;
  }

  /** Commits, or folders, of the releases from which machines are upgraded: only those that speak a version of the GPU protocol that this one speaks. */
  static candidates(): string[] {
    const configured = process.env[VARIABLE];
    if (configured) return [configured];
    const head = git('rev-parse', 'HEAD');
    // The last release, the last commit that this branch shares with main, and the last commit with other versions of the GPU protocol.
    const protocol = git('log', '-1', '--format=%h', '-G', 'newest: [0-9]', '--', PROTOCOL);
    const earlier = [
      git('describe', '--tags', '--abbrev=0'),
      git('merge-base', 'main', 'HEAD'),
      protocol && `${protocol}^`,
    ];
    const commits = earlier.filter(Boolean).map((name) => git('rev-parse', `${name}^{commit}`));
    return [...new Set(commits)].filter((commit) => commit !== '' && commit !== head && speaksAsWe(commit));
  }

  /** The reason why there is no release to upgrade from; false if there is one. */
  static missingReason(): string | false {
    return (
      EarlierRelease.candidates().length === 0 &&
      `no earlier commit here has a version of the GPU protocol in common with this one, and ${VARIABLE} names no earlier release`
    );
  }

  static open(commitOrFolder: string): EarlierRelease {
    const isFolder = statSync(commitOrFolder, { throwIfNoEntry: false })?.isDirectory();
    if (isFolder) return new EarlierRelease(path.resolve(commitOrFolder));
    const unpacked = mkdtempSync(path.join(os.tmpdir(), 'pie-earlier-'));
    const release = new EarlierRelease(path.join(unpacked, 'pie'), unpacked);
    try {
      release.#unpack(commitOrFolder, path.join(unpacked, 'archive.tar'));
      return release;
    } catch (error) {
      release[Symbol.dispose]();
      throw error;
    }
  }

  #unpack(commit: string, archive: string): void {
    const pieScope = path.join(this.root, 'node_modules/@pie');
    mkdirSync(pieScope, { recursive: true });
    execFileSync('git', ['archive', '--output', archive, commit], { cwd: ROOT });
    execFileSync('tar', ['-xf', archive, '-C', this.root]);
    // Node looks for a package first in the release's node_modules, which has only the release's library, and then in that of the folder above.
    symlinkSync(path.join(this.root, 'functions/sdk'), path.join(pieScope, 'inferlet'));
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(this.root, '../node_modules'));
  }

  [Symbol.dispose](): void {
    if (this.#unpacked !== undefined) rmSync(this.#unpacked, { recursive: true, force: true });
  }
}

/** True if a commit speaks a version of the GPU protocol that this clone speaks. */
function speaksAsWe(commit: string): boolean {
  const [, oldest, newest] = /oldest: (\d+), newest: (\d+)/.exec(git('show', `${commit}:${PROTOCOL}`)) ?? [];
  return commonVersion(PROTOCOL_VERSIONS, { oldest: Number(oldest), newest: Number(newest) }) !== null;
}

/** Output of a Git command; empty when the command fails, for example outside a clone. */
function git(...words: string[]): string {
  try {
    return execFileSync('git', words, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return '';
  }
}
