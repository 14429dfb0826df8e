import { execFile } from 'node:child_process';

/** A card in the output of `nvidia-smi`. */
export interface SmiCard {
  readonly index: number;
  readonly uuid: string;
  readonly name: string;
  readonly totalMb: number;
  readonly freeMb: number;
  /** Such as `9.0`. */
  readonly capability: string;
}

const FIELDS = 'index,uuid,name,memory.total,memory.free,compute_cap';

/**
 * The cards of this machine, in slot order; empty when `nvidia-smi` is missing or does not answer. The program comes with the driver. Unlike a
 * CUDA context, it takes no memory of the cards.
 */
export function askNvidiaSmi(timeoutMs: number): Promise<SmiCard[]> {
  return new Promise((resolve) => {
    const args = [`--query-gpu=${FIELDS}`, '--format=csv,noheader,nounits'];
    const child = execFile('nvidia-smi', args, (error, stdout) => done(error ? [] : parseSmi(stdout)));
    // The kill has no effect on a process that hangs in the driver: do not wait for it.
    const timer = setTimeout(() => {
      child.kill('SIGKILL');
      child.unref();
      child.stdout?.destroy();
      child.stderr?.destroy();
      done([]);
    }, timeoutMs);
    const done = (cards: SmiCard[]) => {
      clearTimeout(timer);
      resolve(cards);
    };
  });
}

const numberOf = (text = ''): number => (text === '' ? Number.NaN : Number(text));

/**
 * Parses the output of `nvidia-smi`. Drops a card that lacks one of its values, or has text (`[N/A]`) in place of a
 * number.
 */
export function parseSmi(text: string): SmiCard[] {
  return text.split('\n').flatMap((line) => {
    const [index, uuid, name, total, free, capability] = line.split(',').map((field) => field.trim());
    const card = { index: numberOf(index), totalMb: numberOf(total), freeMb: numberOf(free) };
    if (!uuid || !name || !capability || Object.values(card).some((value) => !Number.isFinite(value))) return [];
    return [{ ...card, uuid, name, capability }];
  });
}

/**
 * The cards that CUDA shows to a process, in the order of `CUDA_VISIBLE_DEVICES`; without that variable, all in the
 * order of `nvidia-smi`. CUDA may number cards of different kinds in another order. Like CUDA, the function ignores all entries (indices or id
 * prefixes) from the first invalid one on.
 */
export function visibleCards(cards: readonly SmiCard[], visible: string | undefined): readonly SmiCard[] {
  if (visible === undefined) return cards;
  const shown: SmiCard[] = [];
  for (const word of visible.split(',').map((each) => each.trim())) {
    const card = cards.find(({ index, uuid }) =>
      /^\d+$/.test(word) ? index === Number(word) : word !== '' && uuid.startsWith(word),
    );
    if (!card) break;
    shown.push(card);
  }
  return shown;
}
