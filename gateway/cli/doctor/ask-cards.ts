import { spawn } from 'node:child_process';
import path from 'node:path';
import { z } from 'zod';
import { pinnedNode, ROOT } from '../paths.ts';

const PROGRAM = 'gpu-host/backends/cuda/cards.ts';
/** Without the persistence daemon a driver takes a second or two per card to start. */
const CARDS_DEADLINE_MS = 30_000;

// The members of the program's answer (its type `CardsAnswer`) that the doctor needs. `gateway` may not import types of `gpu-host`.
const cardSchema = z.object({
  name: z.string(),
  memoryBytes: z.number(),
  capability: z.string(),
  usable: z.boolean(),
  driverVersion: z.number(),
  runtimeVersion: z.number(),
});
const answerSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('no-addon'), file: z.string(), named: z.boolean(), why: z.string().optional() }),
  z.object({ kind: z.literal('cards'), emulated: z.boolean(), cards: z.array(cardSchema) }),
]);

/** The answer of the CUDA addon about the cards; `broken` when no answer came, with the reason. */
export type CardsAnswer = z.output<typeof answerSchema> | { readonly kind: 'broken'; readonly why: string };
export type Card = z.output<typeof cardSchema>;

/** Asks the addon in a separate process, because the driver may crash it or hang. */
export async function askCards(timeoutMs = CARDS_DEADLINE_MS, program = PROGRAM): Promise<CardsAnswer> {
  const child = spawn(pinnedNode(), [path.resolve(ROOT, program)], { stdio: ['ignore', 'pipe', 'pipe'] });
  const texts = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    child[name].setEncoding('utf8').on('data', (text: string) => {
      texts[name] += text;
    });
  let timer: NodeJS.Timeout | undefined;
  try {
    const why = await Promise.race([
      new Promise<string | null>((resolve, reject) => {
        child.once('error', reject);
        child.once('close', (code, signal) =>
          resolve(code === 0 ? null : `it ended with ${signal ?? `code ${code}`}${lastLine(texts.stderr)}`),
        );
      }),
      new Promise<string>((resolve) => {
        timer = setTimeout(resolve, timeoutMs, `it did not answer within ${timeoutMs / 1000} s`);
      }),
    ]);
    return why === null ? answerSchema.parse(JSON.parse(texts.stdout)) : { kind: 'broken', why };
  } finally {
    clearTimeout(timer);
    // The kill has no effect on a process that hangs in the driver: do not wait for it.
    child.kill('SIGKILL');
    child.unref();
    child.stdout.destroy();
    child.stderr.destroy();
  }
}

/** The last line of output, or the line with the error. */
function lastLine(text: string): string {
  const lines = text.trim().split('\n');
  const line = lines.find((each) => /^\w*Error: /.test(each)) ?? lines.at(-1);
  return line ? `: ${line}` : '';
}
