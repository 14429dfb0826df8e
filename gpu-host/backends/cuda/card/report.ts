/** Renders the results that `run.sh` left in a folder as Markdown. `--help` describes its use. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ProgramError, readArguments, refuseArguments, runMain } from '#infra/arguments.ts';
import { versionText } from '../addon.ts';

interface Times {
  readonly median: number;
  readonly p10: number;
  readonly p90: number;
}

interface Value {
  readonly median: number;
  readonly least: number;
  readonly most: number;
  readonly rounds: number;
}

interface Aim {
  readonly measure: string;
  readonly aim: string;
  readonly value: Value | null;
  readonly met: boolean | null;
  readonly note: string;
}

interface Answer {
  readonly who: 'harness' | 'peer';
  readonly round: number;
  readonly command: string;
  readonly why?: string;
  readonly error?: string;
  // biome-ignore lint/suspicious/noExplicitAny: each command answers in its own way
  readonly result?: any;
}

/** `results.json` of `bench.py`. */
export interface Results {
  readonly mode: string;
  readonly ceilings: { readonly bytesPerSecond: number | null; readonly flopsPerSecond: number | null };
  readonly aims: readonly Aim[];
  readonly records: readonly Answer[];
}

/** `tax.json` of `platform-tax.ts`. */
interface Tax {
  readonly shape: string;
  readonly clients: number;
  readonly bareMs: { readonly median: number };
  readonly rows: readonly {
    readonly way: string;
    readonly aim: number;
    readonly perTokenMs: { readonly median: number };
    readonly ratio: { readonly median: number; readonly min: number; readonly max: number };
  }[];
}

const USAGE = `Usage: node gpu-host/backends/cuda/card/report.ts FOLDER [options]

Prints what run.sh left in FOLDER as Markdown: the aims, the steps in milliseconds, where a step's time goes, which product is fastest where.

  --out FILE  write it there, such as docs/bench/cuda.md
  --help      print this
`;

if (import.meta.main) await runMain(main);

function main(): void {
  const { values, positionals } = readArguments(USAGE, {
    allowPositionals: true,
    options: { out: { type: 'string' } },
  });
  const [folder] = positionals;
  if (folder === undefined) refuseArguments(USAGE, 'the FOLDER that run.sh wrote is missing');
  if (positionals.length > 1) refuseArguments(USAGE, `expected one FOLDER, got ${positionals.join(' and ')}`);
  const resultsFile = join(folder, 'results.json');
  if (!existsSync(resultsFile))
    throw new ProgramError(
      `there is no ${resultsFile}. run.sh leaves it there where a card is: bash gpu-host/backends/cuda/card/run.sh ${folder}`,
    );
  const taxFile = join(folder, 'tax.json');
  const tax = existsSync(taxFile) ? (readJson(taxFile) as Tax) : undefined;
  const text = report(readJson(resultsFile) as Results, tax);
  if (values.out === undefined) process.stdout.write(text);
  else writeReport(values.out, text);
}

function readJson(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ProgramError(`${file} is not what run.sh writes (${why}): was it cut off? Run it again.`, { cause });
  }
}

function writeReport(file: string, text: string): void {
  try {
    writeFileSync(file, text);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ProgramError(`the report cannot be written: ${why}. Name a file in a folder that is there by --out.`, {
      cause,
    });
  }
}

/** The whole report, without sections that have no measurements. */
export function report(results: Results, tax?: Tax): string {
  return [
    heading(results),
    aims(results, tax),
    steps(results),
    kernels(results),
    products(results),
    variations(results),
    failures(results),
  ]
    .filter((section) => section !== '')
    .join('\n');
}

function heading({ records, ceilings, mode }: Results): string {
  const device = find(records, 'harness', 'device')[0]?.result;
  const peer = find(records, 'peer', 'device')[0]?.result;
  const { bytesPerSecond, flopsPerSecond } = ceilings;
  const lines = [
    '# The CUDA backend on a card',
    '',
    `Measured by \`gpu-host/backends/cuda/card/run.sh\` (${mode}) on ${device?.name ?? 'no device'}${device?.emulated ? ': the emulation, whose times mean nothing' : ''}, driver ${versionText(device?.driverVersion)}, CUDA ${versionText(device?.runtimeVersion)}.`,
    '**Random weights** at the true shapes: the duration of a step does not depend on their values. Medians (least–most) of the rounds of one run; both sides of a ratio in turn.',
    `Measured in the same run: copies move ${giga(bytesPerSecond)} GB/s, dense bf16 products run at ${tera(flopsPerSecond)} TFLOP/s.`,
  ];
  if (peer)
    lines.push(
      `The peer is PyTorch ${peer.torch}: scaled_dot_product_attention over a dense cache, one CUDA graph a step, the fastest of its ways.`,
    );
  return `${lines.join('\n')}\n`;
}

function aims({ aims: rows }: Results, tax: Tax | undefined): string {
  const cells = rows.map(({ measure, aim, value, met, note }) => [measure, aim, spread(value), verdict(met), note]);
  for (const { way, aim, perTokenMs, ratio } of tax?.rows ?? []) {
    if (tax === undefined) break;
    cells.push([
      `platform tax, ${tax.clients} inferlets, ${tax.shape}, ${way}`,
      `≤ ${aim}`,
      `${ratio.median.toFixed(3)} (${ratio.min.toFixed(3)}–${ratio.max.toFixed(3)})`,
      verdict(ratio.median <= aim),
      `${perTokenMs.median.toFixed(3)} ms a token, bare step ${tax.bareMs.median.toFixed(3)} ms`,
    ]);
  }
  return section('Aims', ['measure', 'aim', 'measured', '', ''], cells);
}

/** Whole steps: times by the host's clock, by the device's clock, and the host gap. */
function steps({ records }: Results): string {
  const rows = find(records, 'harness', 'decode').filter(({ why, round }) => why === undefined && round === 0);
  const cells = rows.map(({ result }) => {
    const ourTimes = result as Record<'wallMs' | 'deviceMs' | 'hostGapMs' | 'pipelinedMs', Times>;
    const peerTimes = find(records, 'peer', 'decode').find(
      (each) =>
        each.round === 0 && !each.why && each.result.shape === result.shape && each.result.batch === result.batch,
    )?.result;
    return [
      result.shape,
      String(result.batch),
      `${number(ourTimes.wallMs.median)} (${number(ourTimes.wallMs.p10)}–${number(ourTimes.wallMs.p90)})`,
      number(ourTimes.deviceMs.median),
      number(ourTimes.pipelinedMs.median),
      (1e3 * ourTimes.hostGapMs.median).toFixed(0),
      peerTimes ? number(peerTimes.deviceMs.median) : '',
      (result.batch / (1e-3 * ourTimes.wallMs.median)).toFixed(0),
    ];
  });
  const header = [
    'shape',
    'batch',
    'step, ms (p10–p90)',
    'device, ms',
    'two under way, ms',
    'host gap, µs',
    'PyTorch, ms',
    'tokens/s',
  ];
  return section('Decode steps at a context of 1,024, first round', header, cells);
}

/** Each kernel of a step alone. */
function kernels({ records, ceilings }: Results): string {
  return find(records, 'harness', 'kernels')
    .map(({ result }) => {
      const prefixText =
        result.prefix > 0 ? `, ${result.prefix} of it shared and read ${result.shared ? 'together' : 'alone'}` : '';
      const workload = result.rows
        ? `prefill of ${result.rows}`
        : `batch ${result.batch}, context ${result.context}${prefixText}`;
      const cells = result.kernels
        .filter(({ perStep }: { perStep: number }) => perStep > 0)
        .toSorted((a: { stepUs: number }, b: { stepUs: number }) => b.stepUs - a.stepUs)
        // biome-ignore lint/suspicious/noExplicitAny: a row of the harness
        .map((each: any) => [
          each.kernel,
          String(each.perStep),
          each.us.toFixed(1),
          `${((100 * each.stepUs) / result.stepUs).toFixed(1)} %`,
          giga(each.bytesPerSecond),
          ceilings.bytesPerSecond ? (each.bytesPerSecond / ceilings.bytesPerSecond).toFixed(2) : '',
          tera(each.flopsPerSecond),
          ceilings.flopsPerSecond ? (each.flopsPerSecond / ceilings.flopsPerSecond).toFixed(2) : '',
        ]);
      const header = ['kernel', 'a step', 'µs', 'of the step', 'GB/s', 'of copies', 'TFLOP/s', 'of the dense rate'];
      return section(
        `Kernels of ${result.shape}, ${workload}${result.kv === 'fp8' ? ', keys and values in 8 bits' : ''}: ${(result.stepUs / 1e3).toFixed(3)} ms in all, each timed alone`,
        header,
        cells,
      );
    })
    .filter((text) => text !== '')
    .join('\n');
}

/** For each matrix and number of rows: the chosen way to compute the product, and the fastest way. */
function products({ records }: Results): string {
  const cells: string[][] = [];
  for (const { result } of find(records, 'harness', 'linear')) {
    const ways = Map.groupBy(
      result.linears as {
        matrix: string;
        rows: number;
        way: string;
        us: number;
        bytesPerSecond: number;
        predictedUs: number | null;
      }[],
      ({ matrix, rows }) => `${matrix} ${rows}`,
    );
    for (const measurements of ways.values()) {
      const chosen = measurements.find(({ way }) => way === 'auto');
      const best = measurements.filter(({ way }) => way !== 'auto').toSorted((a, b) => a.us - b.us)[0];
      const library = measurements.find(({ way }) => way === 'cublas');
      if (chosen === undefined || best === undefined) continue;
      cells.push([
        result.shape,
        chosen.matrix,
        String(chosen.rows),
        chosen.us.toFixed(1),
        giga(chosen.bytesPerSecond),
        `${best.way}: ${best.us.toFixed(1)}${best.predictedUs === null ? '' : ` (predicted ${best.predictedUs.toFixed(1)})`}`,
        (chosen.us / best.us).toFixed(2),
        library ? (chosen.us / library.us).toFixed(2) : '',
      ]);
    }
  }
  const header = ['shape', 'matrix', 'rows', 'chosen, µs', 'GB/s', 'fastest, µs', 'chosen over it', 'over cuBLASLt'];
  return section('Products', header, cells);
}

function variations({ records }: Results): string {
  const cells = records
    .filter(
      ({ why, result, command }) => why !== undefined && result !== undefined && /^(decode|prefill)/.test(command),
    )
    .map(({ who, why, command, result }) => {
      const ms = (result.wallMs?.median ?? result.deviceMs?.median) as number;
      return [who === 'peer' ? 'PyTorch' : 'ours', why ?? '', command, number(ms)];
    });
  return section('Variations', ['', 'with', 'command', 'ms'], cells);
}

function failures({ records }: Results): string {
  const cells = records
    .filter(({ error }) => error !== undefined)
    .map(({ who, command, error }) => [who, command, error ?? '']);
  return section('What failed', ['', 'command', 'error'], cells);
}

function find(records: readonly Answer[], who: Answer['who'], name: string): Answer[] {
  return records.filter((each) => each.who === who && each.result !== undefined && each.command.split(' ')[0] === name);
}

function section(title: string, header: readonly string[], cells: readonly (readonly string[])[]): string {
  if (cells.length === 0) return '';
  const line = (row: readonly string[]) =>
    `| ${row.map((cell) => cell.replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |`;
  return `## ${title}\n\n${[line(header), line(header.map(() => '---')), ...cells.map(line)].join('\n')}\n`;
}

function spread(value: Value | null): string {
  if (value === null) return '';
  const { median, least, most, rounds } = value;
  return rounds === 1 ? number(median) : `${number(median)} (${number(least)}–${number(most)})`;
}

function verdict(isMet: boolean | null): string {
  return isMet === null ? '' : isMet ? 'met' : '**missed**';
}

function number(value: number): string {
  if (value !== 0 && Math.abs(value) < 1e-2) return value.toExponential(1);
  return value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 2 ? 2 : 3);
}

function giga(value: number | null): string {
  return value === null ? '?' : (value / 1e9).toFixed(0);
}

function tera(value: number | null): string {
  return value === null ? '?' : (value / 1e12).toFixed(value < 1e13 ? 1 : 0);
}
