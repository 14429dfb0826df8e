import { ConfigError } from '#infra/config-error.ts';
import { defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import type { Terminal } from '../terminal.ts';
import { version } from '../version.ts';

const CONTENTS =
  'functions with their components and aliases, tenants, API keys (as hashes), quotas, usage, secrets (sealed), schedules, webhook secrets, stored values, message queues, the audit log, and from this home the saved contexts and vector indexes';

/** Minimum time between two lines of progress. */
const PROGRESS_MS = 1000;

/** Runs long work and shows its progress. Throws {@link Failure} in place of a ConfigError or ChildStartError of the work. */
async function withProgress<T>(
  terminal: Terminal,
  firstText: string,
  work: (onProgress: (text: string) => void) => Promise<T>,
): Promise<T> {
  const progress = terminal.progress(firstText);
  let lastUpdateAt = Number.NEGATIVE_INFINITY;
  const onProgress = (text: string) => {
    const now = performance.now();
    if (now - lastUpdateAt < PROGRESS_MS) return;
    lastUpdateAt = now;
    progress.update(text);
  };
  try {
    return await work(onProgress);
  } catch (error) {
    const { ChildStartError } = await import('#infra/supervisor/child.ts');
    if (!(error instanceof ConfigError) && !(error instanceof ChildStartError)) throw error;
    throw new Failure(error.message, { exitCode: EXIT.refused, code: 'configuration', cause: error });
  } finally {
    progress.clear();
  }
}

export const backup = defineCommand({
  name: 'backup',
  summary: 'Write the platform of this home to a file',
  description:
    `The file has ${CONTENTS}. It has no invocations, no logs and no models, no pie.toml and no credentials.json. ` +
    'The platform may run meanwhile: the records of Redis are as of one moment, and each file of the home as of a later moment. ' +
    'The file is yours alone (mode 0600): it has the tenants’ data in the clear. It does not have master.key: keep that in another place. Without it, neither you nor a thief can open the secrets in the file. ' +
    'With several machines, run it on the first one; the backup does not contain contexts and indexes of other machines.',
  arguments: [{ name: 'file', help: 'a new file', required: true }],
  examples: [{ line: 'pie backup /backups/pie-2026-11-24', does: 'writes the file; the platform goes on' }],
  async run({ args: [file], terminal, signal }) {
    const { backUp } = await import('../backup/backup.ts');
    const summary = await withProgress(terminal, 'Reading the platform', (onProgress) =>
      backUp({ file, release: version(), onProgress, signal }),
    );
    terminal.value(summary);
    const size = `${(summary.bytes / 1e6).toFixed(1)} MB`;
    terminal.print(`Wrote ${summary.file}: ${summary.records} records and ${summary.files} files, ${size}.`);
    terminal.note('Keep master.key too, in another place: it opens the secrets in the file.');
    return 0;
  },
});

export const restore = defineCommand({
  name: 'restore',
  summary: 'Restore a backup into this home and its Redis',
  description:
    `Reads and checks the whole file, and then restores ${CONTENTS}. When it refuses a file or a home, it changes nothing. ` +
    'The platform must be stopped, on all machines. Put pie.toml and master.key into the home first: the file has neither. ' +
    'The functions are built again by their first invocations. Keys work as before. If the restored platform does not know the key in credentials.json, the next start writes a new key into it.',
  arguments: [{ name: 'file', help: 'a file of `pie backup`', required: true }],
  options: [{ flags: '--force', help: 'replace the existing platform; it cannot be recovered' }],
  examples: [
    { line: 'PIE_HOME=~/new-home pie restore /backups/pie-2026-11-24', does: 'restores into a new home' },
    { line: 'pie restore /backups/pie-2026-11-24 --force', does: 'replaces the existing platform' },
  ],
  async run({ args: [file], options, terminal, signal }) {
    const { restore: restoreBackup } = await import('../backup/restore.ts');
    const contents = await withProgress(terminal, `Checking ${file}`, (onProgress) =>
      restoreBackup({ file, force: options.force, onProgress, signal }),
    );
    const { records, files, createdAt, machine } = contents;
    terminal.value({ records, files, createdAt, machine });
    terminal.print(`Restored ${records} records and ${files} files of ${machine}, as of ${createdAt}.`);
    terminal.note('Start the platform with `pie up`.');
    return 0;
  },
});
