/**
 * A throw-away process that makes and runs mutants. The parent sends `{seed, index}`, one at a time. The process answers
 * `{index, seed, mutations, stage, code, message}`, or `{index, fault}` for an error without a code. The process ends after a fault: the parent
 * would take a late error of this mutant for the answer to the next mutant.
 */
import { Random } from '../random.ts';
import { mutant } from './mutate.ts';
import { runMutant } from './run-mutant.ts';
import { readSeeds } from './seeds.ts';

const seeds = await readSeeds();
let current = -1;

const reportFault = (error: unknown): void => {
  const fault = error instanceof Error ? (error.stack ?? error.message) : String(error);
  process.send?.({ index: current, fault }, () => process.exit(1));
};
process.on('uncaughtException', reportFault);
process.on('unhandledRejection', reportFault);
process.on('disconnect', () => process.exit(0));
process.on('message', async ({ seed, index }: { seed: number; index: number }) => {
  current = index;
  const made = mutant(seeds, Random.of(seed, index));
  const about = { index, seed: made.seed, mutations: made.mutations };
  try {
    process.send?.({ ...about, ...(await runMutant(made.bytes)) });
  } catch (error) {
    reportFault(error);
  }
});
process.send?.({ ready: true });
