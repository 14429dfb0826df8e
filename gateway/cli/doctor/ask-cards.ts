import { spawn } from 'node:child_process';
import path from 'node:path';
import { z } from 'zod';
import { pinnedNode, ROOT } from '../paths.ts';

const PROGRAM = 'gpu-host/backends/cuda/cards.ts';
/** A driver that nobody keeps awake takes a second or two a card to start. */
export const CARDS_DEADLINE_MS = 30_000;

const cardSchema = z.object({
  name: z.string(),
  memoryBytes: z.number(),
  capability: z.string(),
  driverVersion: z.number(),
  runtimeVersion: z.number(),
});
const answerSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('no-addon'), file: z.string(), named: z.boolean(), why: z.string().optional() }),
  z.object({ kind: z.literal('cards'), emulated: z.boolean(), cards: z.array(cardSchema) }),
]);

/** What the addon says of its cards; `broken`: it said nothing, and why. */
export type CardsAnswer = z.output<typeof answerSchema> | { readonly kind: 'broken'; readonly why: string };
export type Card = z.output<typeof cardSchema>;

/** Asks the addon in a process of its own, which a driver may crash or hang. */
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
        timer = setTimeout(resolve, timeoutMs, `it said nothing within ${timeoutMs / 1000} s`);
      }),
    ]);
    return why === null ? answerSchema.parse(JSON.parse(texts.stdout)) : { kind: 'broken', why };
  } finally {
    clearTimeout(timer);
    // A process that hangs in the driver cannot be killed: nobody waits for it.
    child.kill('SIGKILL');
    child.unref();
    child.stdout.destroy();
    child.stderr.destroy();
  }
}

/** The last thing that was said, or where an error says what it is. */
function lastLine(text: string): string {
  const lines = text.trim().split('\n');
  const line = lines.find((each) => /^\w*Error: /.test(each)) ?? lines.at(-1);
  return line ? `: ${line}` : '';
}
