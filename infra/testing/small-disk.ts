import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmdirSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

/** Returns why this machine can mount no small disk, or false when it can. Even root often lacks the right in a container. */
export function smallDiskMissing(): string | false {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-disk-'));
  try {
    mount(folder, '64k');
    execFileSync('umount', [folder]);
    return false;
  } catch (error) {
    return `no small disks here: ${error instanceof Error ? error.message.trim() : error}`;
  } finally {
    rmdirSync(folder);
  }
}

/** Makes a folder if necessary, and has an empty disk mounted there while `work` runs. @param size as tmpfs takes it: `64k`, `2m` */
export async function onSmallDisk(folder: string, size: string, work: () => Promise<void>): Promise<void> {
  mkdirSync(folder, { recursive: true });
  mount(folder, size);
  try {
    await work();
  } finally {
    execFileSync('umount', [folder]);
  }
}

function mount(folder: string, size: string): void {
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'none', folder], { stdio: 'pipe' });
}
